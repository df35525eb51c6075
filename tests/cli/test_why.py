"""`queuectl why`: the reason that a job is where it is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from bullite import Queue
from tests.support.databases import SQLiteDatabase
from tests.support.processes import wait_until

from .concurrent_runs import have_run
from .program import run, run_well
from .worker_groups import crews, enqueue, is_gone, until_state


async def test_the_reason_is_one_line(queue: Queue, location: str) -> None:
    job = await queue.add("a")
    said = run_well("why", job.id, db=location)
    assert said.out == (
        f"job {job.id} waits: no worker serves the queue; it is the next in its line\n"
    )


async def test_the_reason_in_json(queue: Queue, location: str) -> None:
    await queue.pause()
    job = await queue.add("a", job_id="mine")
    said = run_well("why", "mine", "--json", db=location).json
    assert said == {"id": "mine", "queue": "emails", "why": await queue.why(job.id)}
    assert "the queue is paused" in said["why"]


async def test_a_job_that_is_not_there_has_no_reason(queue: Queue, location: str) -> None:
    await queue.add("a")
    said = run("why", "nope", db=location)
    assert (said.code, said.out) == (1, "")
    assert "there is no job nope" in said.err


async def test_jobs_that_failed_for_good_are_dead_or_cancelled(queue: Queue, location: str) -> None:
    [dead] = await have_run(queue, "dead")
    cancelled = await queue.add("a")
    await queue.cancel(cancelled.id, "enough")
    said = run_well("why", dead.id, db=location)
    assert said.out == f"job {dead.id} is dead: it is broken\n"
    told = run_well("why", cancelled.id, "--json", db=location).json
    assert told["why"] == f"job {cancelled.id} is cancelled: enough"


def test_that_workers_were_killed_is_known_at_once(tmp_path: Path) -> None:
    database = SQLiteDatabase.make(tmp_path)  # where the kernel tells of deaths at once
    location = database.location
    active = enqueue(location, "sleep 600")
    with crews(location, tmp_path) as start:
        crew = start()
        [pid] = crew.pids()
        until_state(database, active, "active")
        waiting = enqueue(location, "true")
        crew.signal(signal.SIGSTOP)  # it starts no other
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_gone(pid))
        crew.kill()
        nobody = "no worker serves the queue, the last was heard of at 20"
        said = run_well("why", str(active), db=location).out
        assert f", which is lost: {nobody}" in said
        assert f"waits: {nobody}" in run_well("why", str(waiting), db=location).out
        found = run("doctor", "--json", db=location).json["findings"]
        assert [one["kind"] for one in found] == [
            "no-worker",
            "lost-worker",
            "lost-worker",
            "lost-group",
        ]
    database.close()
