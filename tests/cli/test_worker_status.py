"""`queuectl worker status` and `scheduler`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import command, environment, run_well
from tests.cli.worker_groups import Start, crews, enqueue, forget, show, until_state
from tests.support.databases import Database
from tests.support.processes import wait_until

HOLD = "touch begun; until test -e go; do sleep 0.02; done"


@pytest.fixture
def start(database: Database, location: str, tmp_path: Path) -> Iterator[Start]:
    with crews(location, tmp_path) as start:
        yield start
    forget(database)


def workers(location: str, queue: str = "default") -> list[dict[str, Any]]:
    found = run_well("worker", "status", "--json", db=location).json["workers"]
    return [one for one in found if one["queue"] == queue]


def test_each_worker_is_shown_with_what_it_does_and_did(
    database: Database, location: str, start: Start, tmp_path: Path
) -> None:
    for line in ("true", "true", "exit 1"):
        enqueue(location, line, "--max-retries", 0)
    [pid] = start("--concurrency", 1).pids()
    current = enqueue(location, HOLD)
    wait_until((tmp_path / "begun").exists)
    wait_until(lambda: workers(location)[0]["done"] == 3)  # they tell of themselves now and then

    [one] = workers(location)
    assert (one["pid"], one["host"], one["concurrency"]) == (pid, socket.gethostname(), 1)
    assert one["jobs"] == [str(current)]
    assert (one["done"], one["failed"]) == (3, 1)
    assert 0 <= one["heartbeat_ms"] < 20_000
    assert 0 < one["uptime_ms"] < 60_000
    assert 10 * 2**20 < one["memory_bytes"] < 500 * 2**20
    assert 0 <= one["busy_share"] <= 1

    said = run_well("worker", "status", db=location)
    assert said.err == ""
    group, line = said.lines
    assert group.startswith("Group default: running, 1 of 1 processes running (pid ")
    number, host, queues, heartbeat, uptime, jobs, done, failed, busy, memory = line.split("\t")
    assert (number, host) == (str(pid), socket.gethostname())
    assert queues == "default, notifications"
    assert heartbeat.endswith(" ago")
    assert uptime.endswith("s")
    assert (jobs, done, failed) == (str(current), "3", "1")
    assert busy.endswith("%")
    assert memory.endswith("M")
    (tmp_path / "go").touch()
    until_state(database, current, "completed")


def test_on_a_terminal_columns_have_names(location: str, start: Start) -> None:
    start().pids()
    said = run_well("worker", "status", db=location, terminal=True)
    for name in ("PID", "QUEUES", "HEARTBEAT", "UPTIME", "JOBS", "DONE", "FAILED", "RSS"):
        assert name in said.lines[1]


def test_groups_are_shown_with_their_processes(location: str, start: Start) -> None:
    day, night = start("--group", "day", "--count", 2), start("--group", "night")
    pids = {"day": set(day.pids(2)), "night": set(night.pids())}
    expected = {"day": day.pid, "night": night.pid}

    def groups() -> dict[str, Any]:
        found = run_well("worker", "status", "--json", db=location).json["groups"]
        return {one["name"]: one for one in found}

    wait_until(lambda: all(one["state"] == "running" for one in groups().values()))
    found = groups()
    assert {name: one["pid"] for name, one in found.items()} == expected
    assert {name: one["count"] for name, one in found.items()} == {"day": 2, "night": 1}
    assert {n: {child["pid"] for child in g["children"]} for n, g in found.items()} == pids


def test_without_workers_it_is_said_how_to_start_one(location: str) -> None:
    run_well("enqueue", "true", db=location)
    said = run_well("worker", "status", db=location)
    assert said.out == ""
    assert said.err == "no workers are running; `queuectl worker start` starts one\n"
    assert run_well("worker", "status", "--json", db=location).json == {"groups": [], "workers": []}


def test_a_group_whose_supervisor_was_killed_is_shown_as_lost(location: str, start: Start) -> None:
    crew = start()
    crew.pids()
    crew.kill()
    said = run_well("worker", "status", db=location)
    assert said.lines[0].startswith("Group default: lost (pid ")


def test_a_group_that_is_lost_is_forgotten_when_it_is_stopped(location: str, start: Start) -> None:
    crew = start("--group", "day")
    crew.pids()
    crew.kill()
    said = run_well("worker", "stop", "--group", "day", db=location)
    assert said.out == "the group 'day' was lost and is forgotten\n"
    assert run_well("worker", "status", "--json", db=location).json["groups"] == []


def test_a_group_that_was_stopped_is_shown_no_more(location: str, start: Start) -> None:
    crew = start()
    crew.pids()
    crew.signal(signal.SIGTERM)
    assert crew.code() == 0
    assert run_well("worker", "status", "--json", db=location).json == {"groups": [], "workers": []}


# --- the scheduler -------------------------------------------------------------------------------


@pytest.fixture
def scheduler(database: Database, location: str) -> Iterator[subprocess.Popen[bytes]]:
    """One that has begun."""
    with subprocess.Popen(
        command("scheduler"), env=environment(location), stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == b"housekeeping; Ctrl-C ends it\n"
            yield process
        finally:
            process.kill()
    forget(database)


def test_the_scheduler_lets_delayed_jobs_run_when_their_time_has_come(
    database: Database, location: str, scheduler: subprocess.Popen[bytes]
) -> None:
    due = enqueue(location, "true", "--delay", "300ms")
    later = enqueue(location, "true", "--delay", "1h")
    assert show(database, due)[0] == "delayed"
    until_state(database, due, "waiting")
    assert show(database, later)[0] == "delayed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_scheduler_ends_when_it_is_told_to(
    location: str, scheduler: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    scheduler.send_signal(number)
    assert scheduler.wait(20) == 0


def test_a_signal_that_comes_before_the_scheduler_has_begun_ends_it(location: str) -> None:
    run_well("enqueue", "true", db=location)
    for delay in (0.15, 0.3, 0.45):
        with subprocess.Popen(
            command("scheduler"), env=environment(location), stderr=subprocess.PIPE
        ) as process:
            try:
                process.wait(delay)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGTERM)
            assert process.wait(20) in (0, -signal.SIGTERM)
