"""Many processes at one store: everybody gets a turn, and nobody hears that it is busy."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bullite import Queue
from tests.crash.handlers import work
from tests.support.processes import problems, rows, say, states, wait_until

PROCESSES, JOBS = 8, 60


async def add_one_by_one(location: str, barrier: str, name: str, jobs: int = JOBS) -> None:
    async with Queue("work", location) as queue:
        say("ready")
        await asyncio.to_thread(wait_until, Path(barrier).exists)
        for number in range(jobs):
            await queue.add(name, number)


def test_eight_processes_add_at_once_and_none_is_told_that_the_store_is_busy(
    location, start, tmp_path
):
    barrier = tmp_path / "barrier"
    adders = [start(add_one_by_one, location, barrier, f"from {n}") for n in range(PROCESSES)]
    for adder in adders:
        adder.said("ready")

    barrier.touch()

    assert [adder.ended() for adder in adders] == [0] * PROCESSES
    by_name = rows(location, "select name, count(*) from bullite_jobs group by name order by name")
    assert by_name == [(f"from {n}", JOBS) for n in range(PROCESSES)]
    assert problems(location) == ()


def test_workers_and_producers_of_six_processes_share_the_store(location, start, tmp_path):
    barrier = tmp_path / "barrier"
    adders = [start(add_one_by_one, location, barrier, f"from {n}") for n in range(3)]
    workers = [start(work, location, concurrency=10) for _ in range(3)]
    for adder in adders:
        adder.said("ready")

    barrier.touch()

    assert [adder.ended() for adder in adders] == [0] * 3
    wait_until(lambda: list(states(location).values()) == ["completed"] * 3 * JOBS)
    assert not any(worker.has_ended() for worker in workers)
    assert problems(location) == ()
