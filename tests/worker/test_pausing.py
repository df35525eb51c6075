"""Queues that hand out nothing, for anybody, and workers that take nothing for a while."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bullite import Job, Queue, Worker
from tests.support.helpers import python, state_of, until

ELSEWHERE = """
import asyncio, sys
from bullite import Queue, Worker

async def main():
    queue = Queue("emails", sys.argv[1])

    async def work(job):
        return job.data

    async with Worker(queue, work, concurrency=4):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    await queue.close()

asyncio.run(main())
"""


@asynccontextmanager
async def worker_elsewhere(location: str) -> AsyncIterator[None]:
    """A worker in a process of its own, which ends well."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ELSEWHERE, location, stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.stdin.close()
        assert await process.wait() == 0


async def echo(job: Job) -> Any:
    return job.data


async def is_completed(queue: Queue, job: Job) -> bool:
    return await state_of(queue, job) == "completed"


async def test_a_new_queue_is_not_paused(queue: Queue) -> None:
    assert await queue.is_paused() is False


async def test_a_paused_queue_accepts_jobs_and_starts_none(queue: Queue) -> None:
    await queue.pause()
    async with Worker(queue, echo, poll_interval=20):
        job = await queue.add("a")
        await asyncio.sleep(0.2)
        assert await state_of(queue, job) == "waiting"
    assert await queue.is_paused() is True


async def test_a_resumed_queue_starts_the_waiting_jobs(queue: Queue) -> None:
    await queue.pause()
    async with Worker(queue, echo):
        jobs = await queue.add_bulk([{"name": "a", "data": n} for n in range(5)])
        await queue.resume()
        assert [await job.result(timeout="10s") for job in jobs] == [0, 1, 2, 3, 4]
    assert await queue.is_paused() is False


async def test_pausing_lets_running_jobs_run_on(queue: Queue) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    async with Worker(queue, work):
        job = await queue.add("a")
        await begun.wait()
        await queue.pause()
        go_on.set()
        assert await job.result(timeout="10s") == "done"


async def test_pausing_twice_is_pausing_once(queue: Queue) -> None:
    told: list[str] = []
    queue.on("paused", lambda: told.append("paused"))
    queue.on("resumed", lambda: told.append("resumed"))
    await queue.pause()
    await queue.pause()
    await queue.resume()
    await queue.resume()
    assert told == ["paused", "resumed"]


async def test_nothing_begins_once_pause_has_returned(queue: Queue) -> None:
    begun: list[float] = []

    async def work(job: Job) -> None:
        begun.append(time.monotonic())

    await queue.add_bulk([{"name": "a"}] * 3_000)
    async with Worker(queue, work, concurrency=4), Worker(queue, work):
        await until(lambda: len(begun) > 100)
        await queue.pause()
        paused_at = time.monotonic()
        await asyncio.sleep(0.2)
        assert max(begun) <= paused_at
        counts = await queue.get_job_counts("waiting", "active")
        assert counts == {"waiting": 3_000 - len(begun), "active": 0}


async def test_no_thread_begins_a_job_once_pause_has_returned(queue: Queue) -> None:
    begun: list[float] = []

    def work(job: Job) -> None:
        begun.append(time.monotonic())

    await queue.add_bulk([{"name": "a"}] * 3_000)
    async with Worker(queue, work, concurrency=2):
        await until(lambda: len(begun) > 100)
        await queue.pause()
        paused_at = time.monotonic()
        await asyncio.sleep(0.2)
        assert max(begun) <= paused_at
        assert await queue.get_waiting_count() > 0


async def test_a_pause_holds_in_other_processes(queue: Queue, location: str) -> None:
    await queue.wait_until_ready()
    async with worker_elsewhere(location):
        await (await queue.add("a")).result(timeout="10s")
        await queue.pause()
        job = await queue.add("b")
        await asyncio.sleep(0.4)
        assert await state_of(queue, job) == "waiting"
        await queue.resume()
        await job.result(timeout="10s")


async def test_a_pause_stops_prefetched_jobs_of_another_process(
    queue: Queue, location: str
) -> None:
    await queue.add_bulk([{"name": "a"}] * 20_000)
    async with worker_elsewhere(location):
        await until(queue.get_completed_count)
        await queue.pause()
        settled = await queue.get_job_count_by_types("completed", "active")
        await asyncio.sleep(0.3)
        assert await queue.get_completed_count() <= settled
        assert await queue.get_waiting_count() > 0


async def test_a_pause_by_another_process_is_seen_at_once(queue: Queue, location: str) -> None:
    await queue.wait_until_ready()
    program = """
import asyncio, sys
from bullite import Queue

async def main():
    async with Queue("emails", sys.argv[1]) as queue:
        await queue.pause()

asyncio.run(main())
"""
    await asyncio.to_thread(python, program, location)
    assert await queue.is_paused() is True


async def test_a_pause_outlives_the_process(location: str) -> None:
    async with Queue("emails", location) as queue:
        await queue.pause()
    async with Queue("emails", location) as queue, Worker(queue, echo):
        job = await queue.add("a")
        await asyncio.sleep(0.1)
        assert await state_of(queue, job) == "waiting"


async def test_other_queues_are_not_paused(queue: Queue) -> None:
    await queue.pause()
    async with Queue("other", queue.store) as other, Worker(other, echo):
        assert await (await other.add("a", 1)).result(timeout="10s") == 1


async def test_delayed_jobs_come_due_in_a_paused_queue_and_wait(queue: Queue) -> None:
    await queue.pause()
    async with Worker(queue, echo, maintenance_interval=50):
        job = await queue.add("a", delay=50)
        await until(lambda: queue.get_waiting_count())
        await asyncio.sleep(0.1)
        assert await state_of(queue, job) == "waiting"


async def test_get_job_counts_counts_the_jobs_of_a_paused_queue(queue: Queue) -> None:
    await queue.add("a")
    await queue.add("a", priority=3)
    await queue.add("a", delay="1h")
    assert await queue.get_job_counts("paused") == {"paused": 0}
    await queue.pause()
    assert await queue.get_job_counts("paused", "waiting") == {"paused": 2, "waiting": 1}
    assert "paused" not in await queue.get_job_counts()


async def test_get_jobs_lists_the_jobs_of_a_paused_queue(queue: Queue) -> None:
    jobs = [await queue.add("a"), await queue.add("a", priority=3)]
    assert await queue.get_jobs("paused") == []
    await queue.pause()
    assert {job.id for job in await queue.get_jobs("paused")} == {job.id for job in jobs}


async def test_get_next_job_returns_none_for_a_paused_queue(queue: Queue) -> None:
    await queue.add("a")
    await queue.pause()
    async with Worker(queue) as worker:
        assert await worker.get_next_job(block=False) is None
        await queue.resume()
        assert await worker.get_next_job(block=False) is not None


async def test_get_next_job_blocks_until_the_queue_is_resumed(queue: Queue) -> None:
    job = await queue.add("a")
    await queue.pause()
    async with Worker(queue) as worker:
        taking = asyncio.create_task(worker.get_next_job())
        await asyncio.sleep(0.1)
        assert not taking.done()
        await queue.resume()
        taken = await taking
        assert taken is not None
        assert taken.id == job.id


# --- workers -------------------------------------------------------------------------------------


async def test_a_paused_worker_leaves_jobs_to_others(queue: Queue) -> None:
    async def mine(job: Job) -> str:
        return "mine"

    async def other(job: Job) -> str:
        return "other's"

    async with Worker(queue, mine) as paused, Worker(queue, other):
        await paused.pause()
        assert paused.is_paused
        for _ in range(5):
            assert await (await queue.add("a")).result(timeout="10s") == "other's"


async def test_a_worker_that_is_resumed_takes_jobs_again(queue: Queue) -> None:
    async with Worker(queue, echo) as worker:
        await worker.pause()
        job = await queue.add("a", 1)
        await worker.resume()
        assert await job.result(timeout="10s") == 1
        assert not worker.is_paused


async def test_pausing_a_worker_waits_for_its_running_jobs(queue: Queue) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> None:
        begun.set()
        await go_on.wait()

    async with Worker(queue, work) as worker:
        job = await queue.add("a")
        await begun.wait()
        pausing = asyncio.create_task(worker.pause())
        _, pending = await asyncio.wait({pausing}, timeout=0.1)
        assert pending
        go_on.set()
        await pausing
        assert await state_of(queue, job) == "completed"


async def test_pausing_a_worker_need_not_wait(queue: Queue) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> None:
        begun.set()
        await go_on.wait()

    async with Worker(queue, work) as worker:
        job = await queue.add("a")
        await begun.wait()
        await worker.pause(do_not_wait_active=True)
        assert await state_of(queue, job) == "active"
        go_on.set()
        await job.result(timeout="10s")


async def test_get_next_job_returns_none_when_its_worker_is_paused(queue: Queue) -> None:
    async with Worker(queue) as worker:
        await worker.wait_until_ready()
        taking = asyncio.create_task(worker.get_next_job())
        await asyncio.sleep(0.05)
        await worker.pause()
        assert await taking is None
        await queue.add("a")
        assert await worker.get_next_job(block=False) is None
