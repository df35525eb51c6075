"""Four processes do everything there is to do with a queue's jobs, all at once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from bullite import Job, Queue, Worker
from bullite.errors import IllegalMove, JobIdTaken, JobNotFound, LostLock
from tests.support.processes import Child, say

MOVES = 400
LIMIT = 60.0
"""Seconds in which a process comes to its end."""

IDS = 25
"""Few ids, so that all meet at the same jobs."""

EXPECTED = (IllegalMove, JobIdTaken, JobNotFound, LostLock)
"""What may be told to somebody who was too late."""


async def meddle(location: str, seed: int) -> None:
    """Do this and that, and say what came of it: a line for each kind of answer."""
    dice = random.Random(seed)
    came: Counter[str] = Counter()
    queue = Queue("work", location)

    async def work(job: Job) -> None:
        await job.update_progress(dice.randint(0, 100))
        await asyncio.sleep(dice.uniform(0, 0.01))
        if dice.random() < 0.3:
            raise RuntimeError("it broke")

    def some_id() -> str:
        return f"job-{dice.randrange(IDS)}"

    async def add() -> None:
        delay = dice.choice([0, 0, 50, 60_000])
        await queue.add("a", job_id=some_id(), delay=delay, attempts=dice.randint(1, 3))

    async def add_many() -> None:
        await queue.add_bulk(
            {"name": "a", "opts": {"job_id": some_id(), "priority": dice.randrange(3)}}
            for _ in range(dice.randint(1, 20))
        )

    async def with_job(do: Callable[[Job], Awaitable[Any]]) -> None:
        job = await queue.get_job(some_id())
        if job is not None:
            await do(job)

    moves: list[Callable[[], Awaitable[Any]]] = [
        *([add] * 4),
        add_many,
        lambda: queue.remove(some_id()),
        lambda: with_job(lambda job: job.remove()),
        lambda: with_job(lambda job: job.retry()),
        lambda: with_job(lambda job: job.promote()),
        lambda: with_job(lambda job: job.change_priority(dice.randrange(4))),
        lambda: with_job(lambda job: job.change_delay(dice.randrange(100))),
        lambda: with_job(lambda job: job.log("hello")),
        lambda: with_job(lambda job: job.update_data({"n": dice.randrange(9)})),
        lambda: queue.retry_jobs(),
        lambda: queue.promote_jobs(),
        lambda: queue.clean(0, 5, dice.choice(["completed", "failed"])),
        lambda: queue.restore(some_id()),
    ]

    async def go_on() -> None:
        while came.total() < MOVES:
            try:
                await dice.choice(moves)()
                came["done"] += 1
            except EXPECTED as error:
                came[type(error).__name__] += 1
            except Exception as error:
                came["unexpected"] += 1
                say("unexpected:", type(error).__name__, str(error).replace("\n", " "))

    def trouble(error: Exception) -> None:
        if not isinstance(error, EXPECTED):
            came["unexpected"] += 1
            say("unexpected: the worker", type(error).__name__, error)

    async with asyncio.timeout(LIMIT), queue, Worker(queue, work, concurrency=5) as worker:
        worker.on("error", trouble)
        await asyncio.gather(*(go_on() for _ in range(3)))
    say("came", *(f"{name}={number}" for name, number in came.items()))


def test_four_processes_that_do_everything_at_once_meet_only_expected_errors(
    location: str, start: Callable[..., Child]
) -> None:
    children = [start(meddle, location, seed) for seed in range(4)]
    lines = [line for child in children for line in child.rest()]
    unexpected = Counter(line for line in lines if line.startswith("unexpected"))
    assert unexpected == {}
    done = [word for line in lines for word in line.split() if word.startswith("done=")]
    assert len(done) == 4
    assert all(int(word.removeprefix("done=")) > 50 for word in done), lines
