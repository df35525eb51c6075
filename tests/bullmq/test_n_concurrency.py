"""Area N of the catalogue: global concurrency."""

from __future__ import annotations

import asyncio
import time

import pytest

from bullite import Job, Queue, RateLimitError, Worker
from tests.support.helpers import again, take_away, until

from .test_r_rate_limits import Runs, all_done, some, took


async def test_N_001_one_job_runs_at_a_time_in_order(queue: Queue) -> None:
    assert await queue.get_global_concurrency() is None
    await queue.set_global_concurrency(1)
    assert await queue.get_global_concurrency() == 1
    jobs, runs = await some(queue, 15), Runs(0.002)
    async with Worker(queue, runs, concurrency=10):
        await all_done(jobs)
    assert [job.id for job in runs.jobs] == [job.id for job in jobs]
    assert runs.most == 1


async def test_N_002_without_it_a_worker_runs_as_many_as_it_wants(queue: Queue) -> None:
    await queue.set_global_concurrency(1)
    assert await queue.remove_global_concurrency()
    assert await queue.get_global_concurrency() is None
    jobs, runs = await some(queue, 4), Runs(0.05)
    async with Worker(queue, runs, concurrency=2):
        await all_done(jobs)
    assert runs.most == 2


@pytest.mark.parametrize(("jobs", "most"), [(5, 1), (10, 2)])
async def test_N_004_it_holds_together_with_a_rate_limit(
    queue: Queue, jobs: int, most: int
) -> None:
    await queue.set_global_concurrency(1)

    async def work(job: Job) -> None:
        if job.attempts_started == 1:
            await queue.rate_limit(50)
            raise RateLimitError

    added = await some(queue, jobs)
    async with Worker(queue, work, concurrency=5, limiter={"max": most, "duration": 20}):
        least = jobs * 50
        assert await took(added) >= 0.95 * least


async def test_N_006_a_job_that_stalls_frees_its_slot(queue: Queue) -> None:
    await queue.set_global_concurrency(2)
    hangs = asyncio.Event()
    done: list[int] = []

    async def hang(job: Job) -> None:
        await hangs.wait()

    async def work(job: Job) -> None:
        done.append(job.data)

    jobs = [await queue.add("a", n % 2) for n in range(4)]
    lost = Worker(queue, hang, concurrency=4)
    await until(lambda: is_active(queue, 2))
    await asyncio.sleep(0.05)
    assert await queue.get_active_count() == 2
    await lost.pause(do_not_wait_active=True)
    await take_away(queue)
    async with Worker(queue, work):
        await all_done(jobs)
        stalled = [(await again(queue, job)).stalled_count for job in jobs]
        hangs.set()
        await lost.close()
    assert sum(stalled) == 2
    assert [sorted(done[:2]), sorted(done[2:])] == [[0, 1], [0, 1]]


async def is_active(queue: Queue, number: int) -> bool:
    return await queue.get_active_count() == number


@pytest.mark.parametrize(("jobs", "backoff"), [(2, 100), (7, 0)])
async def test_N_007_a_job_that_will_be_retried_frees_its_slot(
    queue: Queue, jobs: int, backoff: int
) -> None:
    await queue.set_global_concurrency(1)

    async def work(job: Job) -> None:
        if job.attempts_made == 0:
            raise RuntimeError("once")

    added = await some(queue, jobs, attempts=2, backoff=backoff)
    async with Worker(queue, work, concurrency=3, poll_interval=60_000):
        began = time.monotonic()
        await all_done(added)
        assert time.monotonic() - began < 10
