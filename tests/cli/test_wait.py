"""`queuectl wait`: wait until jobs have ended."""

from __future__ import annotations

import json
import threading
import time

from bullite import Queue
from bullite.client.runtime.blocking import run_blocking
from tests.cli.program import Said, run, run_well
from tests.cli.running_worker import working


def enqueue(location: str, *arguments: object) -> str:
    return run_well("enqueue", *arguments, db=location).out.strip()


def test_several_jobs_are_waited_for(location: str) -> None:
    ids = [enqueue(location, "sleep 0.2"), enqueue(location, "true")]
    with working(location, concurrency=2):
        said = run_well("wait", *ids, db=location)
    assert said.lines == [f"{ids[0]} completed", f"{ids[1]} completed"]


def test_a_failure_ends_it_with_3_when_all_have_ended(location: str) -> None:
    ids = [enqueue(location, "exit 7", "--max-retries", 0), enqueue(location, "true")]
    with working(location):
        said = run("wait", *ids, db=location)
    assert said.code == 3
    assert said.lines == [f"{ids[0]} dead: Command exited with code 7", f"{ids[1]} completed"]


def test_a_cancelled_job_counts_as_failed(location: str) -> None:
    job_id = enqueue(location, "true")
    run_well("cancel", job_id, "--reason", "no more", db=location)
    said = run("wait", job_id, db=location)
    assert (said.code, said.out) == (3, f"{job_id} cancelled: no more\n")


def test_after_its_timeout_it_ends_with_124(location: str) -> None:
    began = time.monotonic()
    ids = [enqueue(location, "true"), enqueue(location, "true")]
    said = run("wait", *ids, "--timeout", "0.3", db=location)
    assert (said.code, said.out) == (124, "")
    assert said.err == f"job {ids[0]} has not ended yet\n"
    assert time.monotonic() - began < 10


def test_jobs_that_have_ended_are_told_at_once(location: str) -> None:
    job_id = enqueue(location, "true")
    with working(location):
        run_well("wait", job_id, db=location)
    assert run_well("wait", job_id, "--timeout", "0", db=location).out == f"{job_id} completed\n"


def test_a_job_that_is_removed_meanwhile_is_gone(location: str) -> None:
    job_id = enqueue(location, "true")
    answers: list[Said] = []
    waiting = threading.Thread(target=lambda: answers.append(run("wait", job_id, db=location)))
    waiting.start()
    time.sleep(0.3)
    queue = Queue("default", location)
    run_blocking(queue.remove(job_id))
    queue.store.close()
    waiting.join(20)
    assert answers[0].code == 1
    assert answers[0].err == f"queuectl: job {job_id} is gone: what came of it is not known\n"


def test_an_unknown_job_is_refused_before_any_waiting(location: str) -> None:
    job_id = enqueue(location, "true")
    said = run("wait", job_id, "nope", db=location)
    assert (said.code, said.out) == (1, "")
    assert "there is no job nope" in said.err


def test_in_json_every_job_is_a_document(location: str) -> None:
    ids = [enqueue(location, "true"), enqueue(location, "false", "--max-retries", 0)]
    with working(location):
        said = run("wait", *ids, "--json", db=location)
    assert said.code == 3
    assert [json.loads(line)["status"] for line in said.lines] == ["completed", "dead"]
    assert said.err == ""


def test_a_bad_timeout_is_refused(location: str) -> None:
    said = run("wait", enqueue(location, "true"), "--timeout", "soon", db=location)
    assert said.code == 2
    assert "--timeout must be a time" in said.err
