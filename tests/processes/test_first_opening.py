"""Many processes may open a store that nobody has made yet, at the same instant."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bullite import Queue
from tests.support.processes import problems, rows, say, wait_until

PROCESSES, JOBS = 16, 5


def open_and_add(location: str, barrier: str) -> None:
    say("ready")
    wait_until(Path(barrier).exists)
    asyncio.run(add_jobs(location))


async def add_jobs(location: str) -> None:
    async with Queue("work", location) as queue:
        for number in range(JOBS):
            await queue.add("job", number)


def test_sixteen_processes_open_a_new_store_at_once_and_every_job_is_there(
    location, start, tmp_path
):
    barrier = tmp_path / "barrier"
    children = [start(open_and_add, location, barrier) for _ in range(PROCESSES)]
    for child in children:
        child.said("ready")

    barrier.touch()

    assert [child.ended() for child in children] == [0] * PROCESSES
    assert rows(location, "select count(*), count(distinct id) from bullite_jobs") == [
        (PROCESSES * JOBS, PROCESSES * JOBS)
    ]
    assert rows(location, "select name from bullite_queues") == [("work",)]
    assert problems(location) == ()
