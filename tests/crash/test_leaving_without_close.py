"""Programs that end in the middle of work and close nothing."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from tests.support.databases import Database
from tests.support.processes import Child, events, problems, rows, say, states, wait_until

JOBS, LINES = 200, 3


async def in_loop(job: Job) -> str:
    for line in range(LINES):
        job.log(f"line {line}")
        job.update_progress(line)
    await asyncio.sleep(0.002)
    return "done"


def in_thread(job: Job) -> str:
    for line in range(LINES):
        job.log(f"line {line}")
        job.update_progress(line)
    time.sleep(0.002)
    return "done"


PROCESSORS = {"coroutine": in_loop, "thread": in_thread}


async def leaves(location: str, kind: str, how: str, **settings: Any) -> None:
    """Asks for a pause while its worker works, and ends before that is answered."""
    queue = Queue("work", location)
    await queue.add_bulk([{"name": "job"}] * JOBS)
    ran, enough = 0, asyncio.Event()
    loop, lock = asyncio.get_running_loop(), threading.Lock()

    def counted() -> None:
        nonlocal ran
        with lock:
            ran += 1
        if ran == 50:
            loop.call_soon_threadsafe(enough.set)

    async def coroutine(job: Job) -> str:
        counted()
        return await in_loop(job)

    def function(job: Job) -> str:
        counted()
        return in_thread(job)

    Worker(queue, coroutine if kind == "coroutine" else function, concurrency=5, **settings)
    await enough.wait()
    pausing = asyncio.ensure_future(queue.pause())
    logging = asyncio.ensure_future(queue.add_job_log("1", "at the end"))
    await asyncio.sleep(0)
    say("leaves", pausing.done() or logging.done())
    match how:
        case "sys.exit":
            sys.exit(3)
        case "an exception":
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # nobody wants to read its traceback
            raise RuntimeError("not caught")
        case "os._exit":
            os._exit(4)


async def goes_on(location: str, kind: str, **settings: Any) -> None:
    queue = Queue("work", location)
    await queue.resume()
    await Worker(queue, PROCESSORS[kind], concurrency=5, **settings).run()


CODES = {"its end": 0, "sys.exit": 3, "an exception": 1, "os._exit": 4}


@pytest.mark.parametrize("kind", PROCESSORS)
@pytest.mark.parametrize("how", CODES)
def test_what_a_program_leaves_behind_is_whole_and_the_next_one_finishes_it(
    database: Database, location: str, start: Callable[..., Child], kind: str, how: str
) -> None:
    leaver = start(leaves, location, kind, how, **database.short_lease)
    leaver.said("leaves False")
    assert leaver.ended() == CODES[how]
    assert problems(location) == ()
    done = [job for job, state in states(location).items() if state == "completed"]
    assert len(states(location)) == JOBS
    assert len(done) < JOBS
    assert_whole_logs(location, done)

    start(goes_on, location, kind, **database.short_lease)

    wait_until(lambda: set(states(location).values()) == {"completed"})
    assert sorted(job for job, _ in events(location, "complete")) == sorted(states(location))
    assert_whole_logs(location, list(states(location)))
    assert problems(location) == ()


def assert_whole_logs(location: str, jobs: list[int]) -> None:
    """Whatever a run said before it ended is there, in order, and nothing is missing between."""
    lines: dict[int, list[str]] = {job: [] for job in jobs}
    for job, number, message in rows(
        location, "select job, number, message from bullite_logs order by job, number"
    ):
        if job in lines and message != "at the end":
            lines[job].append(message)
            assert number in (len(lines[job]), len(lines[job]) + 1)
    wanted = [f"line {line}" for line in range(LINES)]
    assert [job for job, said in lines.items() if said[-LINES:] != wanted] == []
