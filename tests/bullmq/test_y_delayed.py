"""Area Y of the catalogue: jobs that wait for their time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bullite import Job, Queue, QueueEvents, Worker
from tests.support.helpers import again, until

YEAR = 365 * 86_400_000


class Clock:
    """A processor that notes which jobs ran, and how long after they were made."""

    def __init__(self) -> None:
        self.ran: list[Job] = []
        self.waited: list[int] = []

    async def __call__(self, job: Job) -> None:
        assert job.processed_on is not None
        self.ran.append(job)
        self.waited.append(job.processed_on - job.timestamp)


async def test_Y_001_a_delayed_job_runs_when_its_time_has_come_and_not_before(
    queue: Queue,
) -> None:
    work, delayed = Clock(), list[Any]()
    async with QueueEvents(queue.name, queue.store) as events, Worker(queue, work):
        events.on("delayed", lambda payload, id: delayed.append(payload["job_id"]))
        job = await queue.add("a", delay=200)
        assert (job.delay, job.opts["delay"]) == (200, 200)
        await job.result()
        await until(lambda: delayed == [job.id])
    assert work.waited[0] >= 200
    assert await queue.get_job_counts("waiting", "delayed") == {"waiting": 0, "delayed": 0}


async def test_Y_002_a_job_without_a_delay_waits(queue: Queue) -> None:
    assert await (await queue.add("a", delay=0)).get_state() == "waiting"


async def test_Y_002_a_job_with_a_priority_and_no_delay_is_prioritized(queue: Queue) -> None:
    assert await (await queue.add("a", delay=0, priority=1)).get_state() == "prioritized"


async def test_Y_004_a_job_due_soon_does_not_wait_for_one_due_in_a_year(queue: Queue) -> None:
    work = Clock()
    async with Worker(queue, work, poll_interval=60_000, maintenance_interval=60_000):
        await queue.add("late", delay=YEAR)
        await asyncio.sleep(0.2)
        soon = await queue.add("soon", delay=200)
        await soon.result(timeout="10s")
    assert [job.name for job in work.ran] == ["soon"]
    assert work.waited[0] >= 200
    assert await queue.get_delayed_count() == 1


async def test_Y_005_delayed_jobs_run_in_the_order_of_their_time(queue: Queue) -> None:
    work = Clock()
    delays = [100 + 30 * n for n in range(12)]
    async with Worker(queue, work):
        jobs = [
            await queue.add("a", delay, delay=delay, timestamp=round(time.time() * 1000))
            for delay in reversed(delays)
        ]
        for job in jobs:
            await job.result()
    assert sorted(work.ran, key=lambda job: job.timestamp + job.data) == work.ran
    assert all(waited >= job.data for waited, job in zip(work.waited, work.ran, strict=True))


async def test_Y_006_two_busy_workers_start_no_delayed_job_early(queue: Queue) -> None:
    work = Clock()
    async with Worker(queue, work, concurrency=25), Worker(queue, work, concurrency=25):
        jobs = [await queue.add("a", delay, delay=delay) for delay in range(101, 151)]
        for job in jobs:
            await job.result(timeout="10s")
    assert len(work.ran) == 50
    assert all(waited >= job.data for waited, job in zip(work.waited, work.ran, strict=True))


async def test_Y_007_delayed_jobs_added_one_after_the_other_run_each_in_its_time(
    queue: Queue,
) -> None:
    work = Clock()
    async with Worker(queue, work, concurrency=100):
        jobs = []
        for _ in range(10):
            jobs.append(await queue.add("a", delay=100))
            await asyncio.sleep(0.02)
        for job in jobs:
            await job.result(timeout="10s")
    assert len(work.waited) == 10
    assert min(work.waited) >= 100


async def test_Y_009_jobs_due_in_the_same_moment_run_in_the_order_they_were_added(
    queue: Queue,
) -> None:
    work, now = Clock(), round(time.time() * 1000)
    jobs = [await queue.add("a", n, delay=300, timestamp=now) for n in range(43)]
    async with Worker(queue, work):
        for job in jobs:
            await job.result()
    assert [job.data for job in work.ran] == list(range(43))
    dues = {(await again(queue, job)).timestamp + 300 for job in jobs}
    assert dues == {now + 300}
