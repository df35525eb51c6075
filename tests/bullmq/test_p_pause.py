"""Area P of the catalogue: pausing a whole queue, and pausing one worker."""

from __future__ import annotations

import asyncio
from typing import Any

from bullite import Job, Queue, QueueEvents, Worker
from tests.support.helpers import again, until


class Gate:
    """A processor whose runs end when they are let go; counts them."""

    def __init__(self, *, shut: bool = False) -> None:
        self.ran: list[str] = []
        self.open = asyncio.Event()
        if not shut:
            self.open.set()

    async def __call__(self, job: Job) -> None:
        self.ran.append(job.id)
        await self.open.wait()


async def let_pass(seconds: float = 0.1) -> None:
    """Time in which something could happen that must not."""
    await asyncio.sleep(seconds)


async def test_P_001_a_paused_queue_still_lets_delayed_jobs_come_to_wait(queue: Queue) -> None:
    await queue.pause()
    work = Gate()
    async with Worker(queue, work, maintenance_interval=50):
        job = await queue.add("a", delay=300)
        assert await queue.get_job_counts("waiting", "delayed") == {"waiting": 0, "delayed": 1}
        await until(job.is_waiting)
        assert await queue.get_job_counts("waiting", "delayed") == {"waiting": 1, "delayed": 0}
        await let_pass()
    assert work.ran == []


async def test_P_002_the_jobs_of_a_paused_queue_run_when_it_is_resumed(queue: Queue) -> None:
    work = Gate()
    await queue.pause()
    async with Worker(queue, work):
        jobs = await queue.add_bulk([{"name": "a"}] * 2)
        await let_pass()
        assert work.ran == []
        await queue.resume()
        for job in jobs:
            await job.result()
    assert work.ran == [job.id for job in jobs]


async def test_P_004_a_paused_worker_leaves_jobs_waiting_until_it_is_resumed(
    queue: Queue,
) -> None:
    work = Gate()
    async with Worker(queue, work) as worker:
        await worker.pause()
        assert worker.is_paused
        jobs = await queue.add_bulk([{"name": "a"}] * 2)
        await let_pass()
        assert (work.ran, await queue.get_waiting_count()) == ([], 2)
        await worker.resume()
        assert not worker.is_paused
        for job in jobs:
            await job.result()


async def test_P_005_pausing_a_worker_waits_for_its_job_and_takes_no_other(queue: Queue) -> None:
    work = Gate(shut=True)
    await queue.add_bulk([{"name": "a"}] * 10)
    async with Worker(queue, work) as worker:
        await until(lambda: work.ran)
        pausing = asyncio.create_task(worker.pause())
        _, pending = await asyncio.wait({pausing}, timeout=0.1)
        assert pending
        work.open.set()
        await pausing
        assert await queue.get_active_count() == 0
        assert await queue.get_job_count_by_types("waiting", "delayed") == 9
        await queue.add("b")
        await let_pass()
        assert await queue.get_job_count_by_types("waiting", "delayed") == 10
    assert len(work.ran) == 1


async def test_P_006_two_paused_workers_finish_one_job_each_and_take_no_other(
    queue: Queue,
) -> None:
    work = Gate(shut=True)
    async with Worker(queue, work) as first, Worker(queue, work) as second:
        await queue.add_bulk([{"name": "a"}] * 4)
        await until(lambda: len(work.ran) == 2)
        asyncio.get_running_loop().call_later(0.05, work.open.set)
        await asyncio.gather(first.pause(), second.pause())
        counts = await queue.get_job_counts("active", "waiting", "completed")
        assert counts == {"active": 0, "waiting": 2, "completed": 2}


async def test_P_007_a_job_added_while_a_worker_pauses_waits(queue: Queue) -> None:
    work = Gate(shut=True)
    async with Worker(queue, work) as worker:
        await queue.add("a")
        await until(lambda: work.ran)
        pausing = asyncio.create_task(worker.pause())
        await queue.add("b")
        work.open.set()
        await pausing
        await let_pass()
        counts = await queue.get_job_counts("active", "waiting", "completed")
        assert counts == {"active": 0, "waiting": 1, "completed": 1}


async def test_P_009_a_queue_tells_whether_it_is_paused(queue: Queue) -> None:
    await queue.pause()
    assert await queue.is_paused()
    await queue.resume()
    assert not await queue.is_paused()


async def test_P_010_an_idle_worker_paused_and_resumed_in_quick_turn_can_be_closed(
    queue: Queue,
) -> None:
    errors: list[Any] = []
    worker = Worker(queue, Gate())
    worker.on("error", errors.append)
    await worker.wait_until_ready()
    for change in (worker.pause, worker.resume, worker.pause):
        await change()
        await asyncio.sleep(0.01)
    await asyncio.wait_for(worker.close(), 10)
    assert errors == []


async def test_P_011_a_retry_waits_while_its_queue_is_paused(queue: Queue) -> None:
    async def work(job: Job) -> str:
        if job.attempts_made == 0:
            await queue.pause()
            raise ValueError("not yet")
        return "second try"

    waited: list[dict[str, Any]] = []
    async with QueueEvents(queue.name, queue.store) as events, Worker(queue, work):
        events.on("waiting", lambda payload, id: waited.append(payload))
        job = await queue.add("a", attempts=2, backoff=0)
        await until(lambda: {"job_id": job.id, "prev": "active"} in waited)
        await let_pass()
        assert await queue.get_job_counts("wait") == {"waiting": 1}
        assert (await again(queue, job)).attempts_made == 1
        await queue.resume()
        assert await job.result() == "second try"
