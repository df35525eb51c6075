"""Area R of the catalogue: rate limits. Times are a tenth of the catalogue's."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from bullite import (
    Job,
    JobFailed,
    Queue,
    QueueEvents,
    RateLimitError,
    UnrecoverableError,
    Worker,
)
from tests.support.helpers import again, until


class Runs:
    """A processor that notes when jobs began, in what order, and how many ran at a time."""

    def __init__(self, seconds: float = 0) -> None:
        self.seconds = seconds
        self.jobs: list[Job] = []
        self.running = self.most = 0

    async def __call__(self, job: Job) -> None:
        self.jobs.append(job)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.seconds)
        self.running -= 1


async def some(queue: Queue, number: int, **options: Any) -> list[Job]:
    return await queue.add_bulk([{"name": "a", "data": n, "opts": options} for n in range(number)])  # type: ignore[typeddict-item]


async def all_done(jobs: list[Job]) -> None:
    await asyncio.gather(*(job.result(timeout="20s") for job in jobs))


async def took(jobs: list[Job]) -> float:
    """Ms until all are done."""
    began = time.monotonic()
    await all_done(jobs)
    return (time.monotonic() - began) * 1000


async def test_R_001_limited_jobs_stay_waiting_and_are_not_delayed(queue: Queue) -> None:
    await some(queue, 5)
    runs = Runs()
    async with Worker(queue, runs, concurrency=5, limiter={"max": 1, "duration": 10_000}):
        await until(lambda: len(runs.jobs) == 1)
        await asyncio.sleep(0.1)
        assert await queue.get_delayed_count() == 0
        assert await queue.get_waiting_count() == 4


async def test_R_002_a_limit_of_the_queue_holds_for_workers_without_one(queue: Queue) -> None:
    await queue.set_global_rate_limit(1, 50)
    assert await queue.get_global_rate_limit() == {"max": 1, "duration": 50}
    ttls: list[int] = []

    async def work(job: Job) -> None:
        ttls.append(await queue.get_rate_limit_ttl())

    jobs = await some(queue, 10)
    async with Worker(queue, work, concurrency=3):
        assert await took(jobs) >= 440
    assert all(0 <= ttl <= 50 for ttl in ttls)
    assert max(ttls) > 20


@pytest.mark.parametrize(("most", "least"), [(1, 890), (2, 390)])
async def test_R_004_jobs_take_as_long_as_the_limit_makes_them(
    queue: Queue, most: int, least: int
) -> None:
    jobs = await some(queue, 10)
    async with Worker(queue, Runs(), concurrency=5, limiter={"max": most, "duration": 100}):
        assert await took(jobs) >= least


async def test_R_005_a_job_is_not_active_while_it_waits_for_the_limit(queue: Queue) -> None:
    jobs = await some(queue, 20)
    async with Worker(queue, Runs(0.01), concurrency=5, limiter={"max": 4, "duration": 200}):
        await all_done(jobs)
    for job in jobs:
        done = await again(queue, job)
        assert done.finished_on is not None
        assert done.processed_on is not None
        assert done.finished_on - done.processed_on <= 190


async def test_R_006_a_worker_that_is_limited_closes_at_once(queue: Queue) -> None:
    await some(queue, 2)
    runs = Runs()
    worker = Worker(queue, runs, limiter={"max": 1, "duration": 60_000})
    await until(lambda: len(runs.jobs) == 1)
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await worker.close()
    assert time.monotonic() - began < 5


async def test_R_007_a_job_that_never_ends_does_not_use_up_the_limit(queue: Queue) -> None:
    async def work(job: Job) -> None:
        if job.data == 0:
            await asyncio.Event().wait()

    first, *others = await some(queue, 6)
    worker = Worker(queue, work, concurrency=2, limiter={"max": 5, "duration": 100})
    await all_done(others)
    assert await first.is_active()
    await worker.close(force=True)


async def test_R_010_a_job_that_limits_the_rate_goes_back_and_does_not_fail(queue: Queue) -> None:
    ttls: list[int] = []
    failed: list[str] = []
    limited: list[Worker] = []

    async def work(job: Job) -> None:
        if job.attempts_started == 1:
            await limited[0].rate_limit(400)
            ttls.append(await queue.get_rate_limit_ttl())
            raise RateLimitError
        assert job.attempts_started == 2

    jobs = await some(queue, 6)
    async with QueueEvents(queue.name, queue.store) as events:
        events.on("failed", lambda payload, id: failed.append(id))
        limited.append(Worker(queue, work, limiter={"max": 1, "duration": 40}, autorun=False))
        async with limited[0]:
            assert await took(jobs) >= 0.95 * (6 * 400 + 5 * 40)
    assert all(0 < ttl <= 400 for ttl in ttls)
    assert max(ttls) > 40
    assert failed == []
    assert [(await again(queue, job)).attempts_made for job in jobs] == [1] * 6


async def test_R_011_when_a_limited_job_is_gone_the_worker_says_so_and_goes_on(
    queue: Queue,
) -> None:
    errors: list[Exception] = []

    async def work(job: Job) -> None:
        if job.name == "gone":
            await queue.rate_limit(50)
            await queue.obliterate(force=True)
            raise RateLimitError

    async with Worker(queue, work) as worker:
        worker.on("error", errors.append)
        gone = await queue.add("gone")
        await until(lambda: errors)
        assert gone.id in str(errors[0])
        await (await queue.add("next")).result(timeout="10s")


async def test_R_012_a_limit_that_is_over_when_the_error_is_raised_lets_all_complete(
    queue: Queue,
) -> None:
    async def work(job: Job) -> None:
        if job.attempts_started == 1:
            await queue.rate_limit(1)
            await asyncio.sleep(0.005)
            raise RateLimitError

    jobs = await some(queue, 10)
    async with Worker(queue, work, max_stalled_count=0, limiter={"max": 1, "duration": 1}):
        await all_done(jobs)
    assert await queue.get_failed_count() == 0


async def test_R_014_a_limit_takes_no_attempt_and_what_comes_after_it_fails_the_job(
    queue: Queue,
) -> None:
    async def work(job: Job) -> None:
        if job.attempts_started < job.attempts:
            await queue.rate_limit(200)
            raise RateLimitError
        raise UnrecoverableError("no more")

    async with Worker(queue, work, limiter={"max": 1, "duration": 10}):
        began = time.monotonic()
        job = await queue.add("a", attempts=2)
        with pytest.raises(JobFailed, match="no more"):
            await job.result(timeout="10s")
        assert time.monotonic() - began >= 0.19


async def test_R_015_a_limited_job_keeps_the_place_of_its_priority(queue: Queue) -> None:
    done: list[str] = []

    async def work(job: Job) -> None:
        if job.attempts_started == 1:
            if job.name == "first":
                for priority in (9, 8, 7):
                    await queue.add("more", priority=priority)
            await queue.rate_limit(20)
            raise RateLimitError
        done.append(job.name)

    async with Worker(queue, work, limiter={"max": 1, "duration": 10}):
        await queue.add("first", priority=10)
        await until(lambda: len(done) == 4)
    assert done[-1] == "first"


@pytest.mark.parametrize(
    ("priorities", "order"), [((10, 10, 10, 10), (1, 2, 3, 4)), ((1, 2, 1, 2), (1, 3, 2, 4))]
)
async def test_R_016_limited_jobs_keep_their_order(
    queue: Queue, priorities: tuple[int, ...], order: tuple[int, ...]
) -> None:
    runs: list[str] = []

    async def work(job: Job) -> None:
        runs.append(job.id)
        await queue.rate_limit(10)
        raise RateLimitError

    jobs = [await queue.add("a", priority=priority) for priority in priorities]
    async with Worker(queue, work, limiter={"max": 1, "duration": 10}):
        await until(lambda: len(runs) >= 3)
        await queue.pause()
        await until(queue_is_still(queue))
    waiting = await queue.get_jobs("prioritized", asc=True)
    assert [job.id for job in waiting] == [jobs[place - 1].id for place in order]


def queue_is_still(queue: Queue) -> Any:
    async def nothing_runs() -> bool:
        return await queue.get_active_count() == 0

    return nothing_runs


async def test_R_017_a_job_limited_in_a_paused_queue_waits_and_is_told_again(queue: Queue) -> None:
    waiting: list[str] = []

    async def work(job: Job) -> None:
        await queue.pause()
        await queue.rate_limit(10)
        raise RateLimitError

    async with QueueEvents(queue.name, queue.store) as events, Worker(queue, work):
        events.on("waiting", lambda payload, id: waiting.append(payload["job_id"]))
        job = await queue.add("a")
        await until(lambda: waiting == [job.id, job.id])
        assert await queue.get_waiting_count() == 1


async def test_R_019_workers_notice_that_a_limit_was_removed(queue: Queue) -> None:
    await queue.set_global_rate_limit(1, 60_000)
    jobs = await some(queue, 4)
    runs = Runs()
    async with Worker(queue, runs, maximum_rate_limit_delay=3_000):
        await until(lambda: len(runs.jobs) == 1)
        await asyncio.sleep(0.1)
        assert len(runs.jobs) == 1
        assert await queue.remove_global_rate_limit()
        await all_done(jobs)


async def test_R_020_delayed_jobs_are_promoted_though_the_queue_is_limited(queue: Queue) -> None:
    await some(queue, 2)
    await some(queue, 2, delay=150)
    async with Worker(
        queue, Runs(), limiter={"max": 1, "duration": 60_000}, maximum_rate_limit_delay=300
    ):
        await until(lambda: is_at(queue, waiting=3, delayed=0))


async def is_at(queue: Queue, **counts: int) -> bool:
    return await queue.get_job_counts(*counts) == counts


@pytest.mark.parametrize(("jobs", "most", "concurrency"), [(60, 20, 90), (3, 1, 100)])
async def test_R_021_no_more_run_at_a_time_than_begin_in_one(
    queue: Queue, jobs: int, most: int, concurrency: int
) -> None:
    runs = Runs(0.02)
    added = await some(queue, jobs)
    async with Worker(queue, runs, concurrency=concurrency, limiter={"max": most, "duration": 600}):
        await all_done(added)
    assert runs.most <= most


async def test_R_022_priorities_hold_under_a_limit(queue: Queue) -> None:
    runs = Runs()
    jobs = [await queue.add("a", priority=1 + n % 4) for n in range(10)]
    async with Worker(queue, runs, limiter={"max": 1, "duration": 10}):
        await all_done(jobs)
    priorities = [job.priority for job in runs.jobs]
    assert priorities == sorted(priorities)
