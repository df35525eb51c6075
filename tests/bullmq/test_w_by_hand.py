"""Workers: jobs fetched and ended by hand."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any

import pytest

from bullite import Job, Queue, QueueEvents, Worker
from tests.support.helpers import again, until


async def test_W_021_get_next_job_returns_none_after_the_drain_delay(
    queue: Queue,
) -> None:
    parameters = inspect.signature(Worker).parameters
    assert parameters["drain_delay"].default == 5_000
    async with Worker(queue, drain_delay=150) as worker:
        began = time.monotonic()
        assert await worker.get_next_job() is None
        assert time.monotonic() - began >= 0.15


async def test_W_021_a_delayed_job_shortens_the_wait_to_its_time(queue: Queue) -> None:
    async with Worker(queue, drain_delay="1h") as worker:
        added = await queue.add("a", delay=150)
        job = await worker.get_next_job()
        assert job is not None
        assert job.id == added.id
        assert job.processed_on is not None
        assert job.processed_on >= added.timestamp + 150
        await job.move_to_completed()


async def test_W_021_a_delayed_job_whose_time_has_passed_is_not_waited_for(queue: Queue) -> None:
    async with Worker(queue) as worker:
        await worker.wait_until_ready()
        added = await queue.add("a", delay=1)
        await asyncio.sleep(0.02)
        job = await worker.get_next_job(block=False)
        assert job is not None
        assert job.id == added.id
        await job.move_to_completed()


async def test_W_021_the_shortest_drain_delay_is_a_millisecond(queue: Queue) -> None:
    async with Worker(queue, drain_delay=1) as worker:
        assert await worker.get_next_job() is None


async def test_W_094_a_job_that_was_fetched_can_be_failed_by_hand(queue: Queue) -> None:
    added = await queue.add("a")
    async with Worker(queue) as worker:
        job = await worker.get_next_job("my token")
        assert job is not None
        await job.move_to_failed(ValueError("no such customer"), "my token")
    assert await added.is_failed()
    assert not await added.is_completed()
    failed = await again(queue, added)
    assert (failed.attempts_made, failed.failed_reason) == (1, "no such customer")
    assert isinstance(failed.finished_on, int)


async def test_W_095_listeners_of_active_hear_of_a_job_that_is_fetched(queue: Queue) -> None:
    heard: list[Job] = []
    await queue.add("a")
    async with Worker(queue) as worker:
        worker.on("active", lambda job, prev: heard.append(job))
        job = await worker.get_next_job()
        assert job is not None
        await until(lambda: heard)
        assert heard[0].id == job.id
        assert len(heard) == 1
        await job.move_to_completed()


def careless(queue: Queue) -> Worker:
    """A worker that never renews what it holds, on a queue where that is not forgiven."""
    return Worker(
        queue,
        lock_duration=100,
        skip_lock_renewal=True,
        max_stalled_count=0,
        stalled_interval=50,
        maintenance_interval=50,
    )


async def test_W_097_a_fetched_job_that_stalls_too_often_is_fetched_once_more_to_be_failed(
    queue: Queue,
) -> None:
    stalled: list[str] = []
    added = await queue.add("a")
    async with QueueEvents("emails", queue.store) as events, careless(queue) as worker:
        events.on("stalled", lambda payload, _: stalled.append(payload["job_id"]))
        first = await worker.get_next_job(block=False)
        assert first is not None
        await until(lambda: stalled)
        assert stalled == [added.id]
        assert await added.is_waiting()

        # With a longer lease: the failure must arrive before that ends.
        async with Worker(queue) as other:
            second = await other.get_next_job(block=False)
            assert second is not None
            assert second.deferred_failure == "job stalled more than allowable limit"
            await second.move_to_failed(RuntimeError(second.deferred_failure))

        assert await worker.get_next_job(block=False) is None
    counts = await queue.get_job_counts("failed", "waiting", "active")
    assert counts == {"failed": 1, "waiting": 0, "active": 0}
    assert (await again(queue, added)).failed_reason == "job stalled more than allowable limit"


async def test_W_097_the_listeners_of_a_worker_by_hand_hear_that_its_job_stalled(
    queue: Queue,
) -> None:
    stalled: list[Any] = []
    added = await queue.add("a")
    async with careless(queue) as worker:
        worker.on("stalled", lambda job_id, prev: stalled.append(job_id))
        assert await worker.get_next_job(block=False) is not None
        await until(lambda: added.is_waiting())
        await until(lambda: stalled, limit=5)
    assert stalled == [added.id]


async def test_W_099_get_next_job_blocks_until_a_job_is_added(queue: Queue) -> None:
    async with Worker(queue) as worker:
        asking = asyncio.create_task(worker.get_next_job("my token"))
        await asyncio.sleep(0.1)
        assert not asking.done()
        added = await queue.add("a")
        job = await asking
        assert job is not None
        assert (job.id, job.token) == (added.id, "my token")
        assert await added.is_active()
        await job.move_to_completed(None, "my token")


async def test_W_100_get_next_job_without_blocking_returns_none_if_the_queue_is_empty(
    queue: Queue,
) -> None:
    async with Worker(queue) as worker:
        assert await worker.get_next_job(block=False) is None
        added = await queue.add("a")
        await asyncio.sleep(0.05)
        assert await added.is_waiting()
        job = await worker.get_next_job(block=False)
        assert job is not None
        assert job.id == added.id
        await job.move_to_completed()


@pytest.mark.parametrize("block", [False, True])
async def test_W_101_a_paused_worker_fetches_nothing_until_it_is_resumed(
    queue: Queue, block: bool
) -> None:
    async with Worker(queue, drain_delay=50) as worker:
        await worker.pause()
        added = await queue.add("a")
        assert await worker.get_next_job(block=block) is None
        assert await added.is_waiting()
        await worker.resume()
        job = await worker.get_next_job(block=block)
        assert job is not None
        assert job.id == added.id
        await job.move_to_completed()
