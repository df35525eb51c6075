"""`queuectl events`: what happens in queues."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import Any

from tests.cli.program import command, environment, run, run_well
from tests.cli.running_worker import working
from tests.support.databases import PATIENCE


def events(location: str, *arguments: object) -> list[dict[str, Any]]:
    said = run_well("events", "--json", *arguments, db=location)
    return [json.loads(line) for line in said.lines]


def test_what_became_of_a_job_is_told_in_its_order(location: str) -> None:
    job_id = run_well("enqueue", "true", db=location).out.strip()
    with working(location):
        run_well("wait", job_id, db=location)
    told = [event["event"] for event in events(location) if event.get("job_id") == job_id]
    assert told == ["added", "waiting", "active", "completed"]


def test_a_line_has_the_time_the_queue_the_event_and_the_job(location: str) -> None:
    job_id = run_well("enqueue", "true", "--queue", "mails", db=location).out.strip()
    line = run_well("events", db=location).lines[0].split()
    assert line[0].endswith("Z")
    assert line[1:4] == ["mails", "added", job_id]


def test_a_queue_may_be_chosen(location: str) -> None:
    for queue in ("one", "two"):
        run_well("enqueue", "true", "--queue", queue, db=location)
    assert {event["queue"] for event in events(location)} == {"one", "two"}
    assert {event["queue"] for event in events(location, "--queue", "two")} == {"two"}
    said = run("events", "--queue", "three", db=location)
    assert (said.code, said.out) == (1, "")


def test_only_the_newest_are_told(location: str) -> None:
    ids = [run_well("enqueue", "true", db=location).out.strip() for _ in range(5)]
    for limit in (0, 1, 3):
        told = [event["job_id"] for event in events(location, "--limit", limit)]
        everything = [id for id in ids for _ in range(2)]
        assert told == everything[len(everything) - limit :]


def test_more_events_than_are_read_at_a_time_are_all_told(location: str) -> None:
    run_well("enqueue-batch", "-", "--chunk", 1, db=location, stdin="true\n" * 250)
    added = [one for one in events(location, "-n", 10_000) if one["event"] == "added"]
    assert [one["job_id"] for one in added] == sorted({one["job_id"] for one in added}, key=int)
    assert len(added) == 250


def test_following_tells_what_happens_until_it_is_interrupted(location: str) -> None:
    before = run_well("enqueue", "true", db=location).out.strip()
    process = subprocess.Popen(
        command("events", "-f", "--json"),
        env=environment(location),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["event"], first["job_id"]) == ("added", before)
    process.stdout.readline()
    later = run_well("enqueue", "true", "--queue", "new", db=location).out.strip()
    told = json.loads(process.stdout.readline())
    assert (told["queue"], told["event"], told["job_id"]) == ("new", "added", later)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert err == "queuectl: interrupted\n"
