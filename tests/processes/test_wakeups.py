"""A job is started at once by a worker in another process."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from bullite import Job, Queue, Worker
from tests.support.processes import Child, add, registered, rows, say, states, wait_until

POLL = 250
"""Ms after which a worker looks for itself."""
SLACK = 250
"""Ms for a loaded machine to get round to it."""


async def work(location: str) -> None:
    """Say when each job starts."""
    await Worker(Queue("work", location), tell_time).run()


async def tell_time(job: Job) -> None:
    say(time.time() * 1000)


def delays(
    location: str | Path,
    worker: Child,
    jobs: int,
    is_idle: Callable[[str | Path, Child], bool] | None = None,
) -> list[float]:
    """Ms from the end of each add to the start of its job, the worker being idle before."""
    idle = is_idle or has_nothing_to_do

    async def measure() -> list[float]:
        found = []
        async with Queue("work", location) as queue:
            for _ in range(jobs):
                await asyncio.to_thread(wait_until, lambda: idle(location, worker))
                await queue.add("job")
                added_at = time.time() * 1000
                found.append(float(await asyncio.to_thread(worker.line)) - added_at)
        return found

    return asyncio.run(measure())


def has_nothing_to_do(location: str | Path, worker: Child) -> bool:
    return registered(location, worker) and set(states(location).values()) <= {"completed"}


def test_an_idle_worker_of_another_process_is_woken_at_once(location, start):
    add(location)
    worker = start(work, location)

    assert statistics.median(delays(location, worker, jobs=9)) < POLL / 5


def test_a_delayed_job_is_started_on_time_by_a_worker_of_another_process(location, start):
    add(location)
    worker = start(work, location)
    wait_until(lambda: has_nothing_to_do(location, worker))
    add(location, "job", delay=300)
    [(due_at,)] = rows(location, "select due_at from bullite_jobs")

    started_at = float(worker.line())

    assert 0 <= started_at - due_at < SLACK
