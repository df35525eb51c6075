"""Quick jobs are fetched ahead and finished together; nobody notices but the clock."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from bullite.worker.prefetch import PREFETCH_MAX_JOB_SECONDS
from tests.support.helpers import again, until


def held(worker: Worker) -> int:
    return sum(pool.subscription.held for pool in worker._pools)


async def nothing(job: Job) -> None:
    pass


def nothing_in_a_thread(job: Job) -> None:
    pass


@pytest.mark.parametrize("processor", [nothing, nothing_in_a_thread])
async def test_every_job_is_run_and_recorded_once(queue: Queue, processor: Any) -> None:
    jobs = await queue.add_bulk([{"name": "a"}] * 2_000)
    async with Worker(queue, processor):
        await jobs[-1].result()
        await until(lambda: is_done(queue, 2_000))
    stored = [await again(queue, job) for job in jobs[:: len(jobs) // 20]]
    assert {(job.attempts_started, job.attempts_made, job.stalled_count) for job in stored} == {
        (1, 1, 0)
    }


async def is_done(queue: Queue, number: int) -> bool:
    return (await queue.get_job_counts("completed"))["completed"] == number


async def test_quick_jobs_share_transactions(queue: Queue) -> None:
    """One commit a job is what a disk can do; many jobs a commit is what makes one slot fast."""
    jobs = await queue.add_bulk([{"name": "a"}] * 2_000)
    most = 0

    async def look(job: Job) -> None:
        nonlocal most
        most = max(most, held(worker))

    async with Worker(queue, look) as worker:
        await jobs[-1].result()
    assert most > 50


async def test_slow_jobs_are_not_prefetched(queue: Queue) -> None:
    jobs = await queue.add_bulk([{"name": "a"}] * 20)
    most = 0

    async def dawdle(job: Job) -> None:
        nonlocal most
        await asyncio.sleep(PREFETCH_MAX_JOB_SECONDS)
        most = max(most, held(worker))

    async with Worker(queue, dawdle) as worker:
        await jobs[-1].result()
    assert most == 1


@pytest.mark.parametrize("kind", ["coroutine", "blocked loop", "thread"])
async def test_jobs_fetched_behind_one_that_takes_long_are_run_by_others(
    location: str, kind: str
) -> None:
    """Even when the long one blocks the event loop of its worker."""
    end = threading.Event()
    begun = threading.Event()

    async def wait(job: Job) -> None:
        if job.name == "long":
            begun.set()
            if kind == "coroutine":
                await asyncio.to_thread(end.wait, 20)
            else:
                end.wait(20)

    def wait_in_thread(job: Job) -> None:
        if job.name == "long":
            begun.set()
            end.wait(20)

    async def first() -> None:
        async with Queue("emails", location) as queue:
            processor = wait_in_thread if kind == "thread" else wait
            async with Worker(queue, processor, name="first"):
                await asyncio.to_thread(end.wait, 20)

    async with Queue("emails", location) as queue:
        await queue.add_bulk([{"name": "quick"}] * 1_000)
        await queue.add("long")
        late = await queue.add_bulk([{"name": "quick"}] * 20)
        elsewhere = threading.Thread(target=asyncio.run, args=(first(),))
        elsewhere.start()
        try:
            await asyncio.to_thread(begun.wait, 20)
            async with Worker(queue, nothing, name="second"):
                for job in late:
                    await job.result(timeout="10s")
        finally:
            end.set()
            await asyncio.to_thread(elsewhere.join)
        assert {(await again(queue, job)).attempts_started for job in late} == {1}


async def test_closing_returns_prefetched_jobs(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a"}] * 5_000)
    some = asyncio.Event()
    ran = 0

    async def count(job: Job) -> None:
        nonlocal ran
        ran += 1
        if ran == 500:
            some.set()

    async with Worker(queue, count):
        await some.wait()
    counts = await queue.get_job_counts()
    assert counts["active"] == 0
    assert (counts["completed"], counts["waiting"]) == (ran, 5_000 - ran)


async def test_an_urgent_job_starts_before_prefetched_jobs(queue: Queue) -> None:
    order: list[str] = []
    await queue.add_bulk([{"name": "dull", "opts": {"priority": 5}}] * 3_000)
    urgent: asyncio.Task[Job] | None = None

    async def note(job: Job) -> None:
        nonlocal urgent
        order.append(job.name)
        if len(order) == 1_000:
            urgent = asyncio.create_task(queue.add("urgent", priority=1))
        if urgent is not None and not urgent.done():
            await asyncio.sleep(0)

    async with Worker(queue, note):
        await until(lambda: len(order) == 3_001)
    assert order.index("urgent") < 2_000


async def test_a_job_claimed_for_a_free_slot_is_not_returned_behind_a_slow_job(
    queue: Queue,
) -> None:
    async def work(job: Job) -> None:
        if job.data == "slow":
            time.sleep(0.05)  # noqa: ASYNC251

    async with Worker(queue, work, concurrency=20):
        for job in await queue.add_bulk([{"name": "a"}] * 500):
            await job.result()
        jobs = await queue.add_bulk(
            [{"name": "a", "data": "slow"}, *({"name": "a"} for _ in range(100))]
        )
        for job in jobs:
            await job.result()
    assert {(await again(queue, job)).attempts_started for job in jobs} == {1}


@pytest.mark.parametrize("stop", ["rate_limit", "pause"])
async def test_prefetched_jobs_that_arrive_late_do_not_start_after_a_limit_or_a_pause(
    queue: Queue, stop: str
) -> None:
    """A claim is on its way to the event loop when a limit or a pause is set behind it."""
    begun: list[str] = []
    go_on = asyncio.Event()

    async def work(job: Job) -> None:
        begun.append(job.name)
        await go_on.wait()

    late: list[Any] = []
    async with Worker(queue, work) as worker:
        await queue.add("a")
        await until(lambda: begun == ["a"])
        [pool] = worker._pools
        pool.subscription.reply = late.append

        def has_all() -> bool:
            # Again and again: the engine sets both, too, whenever it has looked or waited.
            pool.subscription.prefetched, pool.subscription.fair_share = 10, 10
            return sum(len(claimed.rows) for claimed in late) == 5

        await queue.add_bulk([{"name": "b"}] * 5)
        await until(has_all)
        await (queue.rate_limit(60_000) if stop == "rate_limit" else queue.pause())
        pool.subscription.reply = pool._on_claimed
        for claimed in late:
            pool._on_claimed(claimed)
        go_on.set()
        await until(lambda: is_active(queue, 0))
        assert begun == ["a"]


async def is_active(queue: Queue, number: int) -> bool:
    return await queue.get_active_count() == number
