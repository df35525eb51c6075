"""A schedule survives the death of those who keep it: no tick is lost, none is made twice."""

from __future__ import annotations

import asyncio
import os
import random

from bullite import Job, Queue, Worker
from tests.support.processes import problems, rows, say, wait_until

EVERY = 20
KILLS = 8


async def run_ticks(location: str, ledger: str, **settings: object) -> None:
    """Work until killed; a line for each job that was completed, when that is known."""
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def run(job: Job) -> None:
        os.write(file, f"{job.id}\n".encode())

    worker = Worker(Queue("work", location), run, concurrency=3, **settings)  # type: ignore[arg-type]
    await worker.wait_until_ready()
    say("ready")
    await worker.run()


async def begin(location: str) -> None:
    async with Queue("work", location) as queue:
        await queue.upsert_job_scheduler("s", every=EVERY, missed="all", most_missed=1_000)


async def stop(location: str) -> None:
    async with Queue("work", location) as queue:
        await queue.pause_job_scheduler("s")


def test_a_schedule_survives_kill_9_at_any_moment(database, location, start, tmp_path):
    ledger = tmp_path / "ledger"
    dice = random.Random(1)
    asyncio.run(begin(location))
    workers = [start(run_ticks, location, ledger, **database.short_lease) for _ in range(2)]
    for worker in workers:
        worker.said("ready")

    for number in range(KILLS):
        seen = finished(location)
        wait_until(lambda seen=seen: finished(location) > seen + dice.randrange(4))
        workers[number % 2].kill()
        workers[number % 2] = start(run_ticks, location, ledger, **database.short_lease)
        workers[number % 2].said("ready")
    seen = finished(location)
    wait_until(lambda: finished(location) > seen + 20)
    asyncio.run(stop(location))
    wait_until(lambda: not unfinished(location))

    ticks = sorted(
        int(id.rpartition(":")[2]) for (id,) in rows(location, "select custom_id from bullite_jobs")
    )
    assert ticks == list(range(ticks[0], ticks[0] + len(ticks) * EVERY, EVERY))
    assert set(rows(location, "select state from bullite_jobs")) == {("completed",)}
    assert problems(location) == ()


def finished(location: str) -> int:
    [(number,)] = rows(location, "select count(*) from bullite_jobs where state = 'completed'")
    return int(number)


def unfinished(location: str) -> int:
    [(number,)] = rows(location, "select count(*) from bullite_jobs where state <> 'completed'")
    return int(number)
