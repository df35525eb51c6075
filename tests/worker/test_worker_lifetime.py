"""Starting workers, being fed, and what happens when nobody closes them."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
import weakref

import pytest

from bullite import Job, Queue, Worker
from bullite.engine import polling
from bullite.errors import StoreError
from tests.support.databases import Database
from tests.support.helpers import again, python, until


async def echo(job: Job) -> object:
    return job.data


# --- starting ------------------------------------------------------------------------------------


async def test_a_worker_made_inside_a_loop_starts_at_once(queue: Queue) -> None:
    worker = Worker(queue, echo)
    assert worker.is_running
    assert await (await queue.add("a", 1)).result() == 1
    await worker.close()
    assert not worker.is_running


async def test_without_autorun_it_waits_to_be_run(queue: Queue) -> None:
    worker = Worker(queue, echo, autorun=False)
    assert not worker.is_running
    job = await queue.add("a", 1)
    running = asyncio.create_task(worker.run())
    assert await job.result() == 1
    await worker.close()
    await running


def test_a_worker_made_without_a_loop_starts_with_run(queue: Queue) -> None:
    worker = Worker(queue, echo)
    assert not worker.is_running

    async def main() -> object:
        running = asyncio.create_task(worker.run())
        result = await (await queue.add("a", 1)).result()
        await worker.close()
        await running
        return result

    assert asyncio.run(main()) == 1


def test_a_worker_made_without_a_loop_starts_with_async_with(queue: Queue) -> None:
    worker = Worker(queue, echo)

    async def main() -> object:
        async with worker:
            return await (await queue.add("a", 1)).result()

    assert asyncio.run(main()) == 1


async def test_run_on_a_running_worker_waits_until_it_ends(queue: Queue) -> None:
    worker = Worker(queue, echo)
    waiting = asyncio.create_task(worker.run())
    assert await (await queue.add("a", 1)).result() == 1
    assert not waiting.done()
    await worker.close()
    await asyncio.wait_for(waiting, 5)


async def test_giving_up_waiting_for_a_worker_does_not_end_it(queue: Queue) -> None:
    async with Worker(queue, echo) as worker:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(worker.run(), 0.01)
        assert await (await queue.add("a", 1)).result() == 1


async def test_a_worker_opens_its_queue_itself(database: Database, location: str) -> None:
    queue = Queue("emails", location)
    async with Worker(queue, echo):
        await until(database.exists)
        assert await (await queue.add("a", 1)).result() == 1
    await queue.close()


async def test_a_worker_that_cannot_start_says_why_when_it_is_run(database: Database) -> None:
    queue = Queue("emails", database.missing())
    worker = Worker(queue, echo, autorun=False)
    with pytest.raises(StoreError, match="missing"):
        await worker.run()
    await queue.close()


async def test_a_worker_that_cannot_start_says_why_when_it_is_closed(database: Database) -> None:
    queue = Queue("emails", database.missing())
    worker = Worker(queue, echo)
    with pytest.raises(StoreError, match="missing"):
        await worker.close()
    await queue.close()


# --- being fed -----------------------------------------------------------------------------------


async def test_an_idle_worker_is_woken_by_an_add(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "CHECK_EVERY", 600_000)  # it would not look by itself
    monkeypatch.setattr(polling, "CHECK_SOON", 600_000)
    async with Worker(queue, echo):
        for _ in range(5):
            assert await (await queue.add("a", 1)).result(timeout="5s") == 1


async def test_jobs_that_wait_are_taken_when_a_worker_comes(queue: Queue) -> None:
    jobs = await queue.add_bulk({"name": "a", "data": n} for n in range(300))
    async with Worker(queue, echo, concurrency=7):
        assert [await job.result() for job in jobs] == list(range(300))


async def test_delayed_jobs_start_on_time(queue: Queue) -> None:
    async def when(job: Job) -> int:
        return time.time_ns() // 1_000_000

    late = []
    async with Worker(queue, when, concurrency=10):
        jobs = [await queue.add("a", delay=delay) for delay in range(200, 900, 100)]
        for job in jobs:
            assert job.process_at is not None
            late.append(await job.result() - round(job.process_at.timestamp() * 1000))
    assert min(late) >= 0
    assert statistics.median(late) < 100


async def test_a_delayed_job_that_becomes_due_before_a_worker_comes_is_taken(queue: Queue) -> None:
    job = await queue.add("a", 1, delay=20)
    await asyncio.sleep(0.05)
    async with Worker(queue, echo):
        assert await job.result(timeout="5s") == 1


async def test_a_sooner_job_is_not_kept_waiting_by_a_later_one(queue: Queue) -> None:
    async with Worker(queue, echo):
        await queue.add("a", delay="1h")
        assert await (await queue.add("a", 1, delay=50)).result(timeout="5s") == 1


async def test_a_job_can_add_jobs(queue: Queue) -> None:
    async def work(job: Job) -> list[str]:
        if job.name == "child":
            return []
        children = await queue.add_bulk([{"name": "child"}] * 3)
        return [child.id for child in children]

    async with Worker(queue, work):
        for child in await (await queue.add("parent")).result():
            found = await queue.get_job(child)
            assert found is not None
            await found.result()


# --- when nobody closes it -----------------------------------------------------------------------

FORGETFUL = """
import asyncio, sys
from bullite import Queue, Worker

async def main():
    started = asyncio.Event()

    async def work(job):
        started.set()
        await asyncio.Event().wait()

    queue = Queue("emails", sys.argv[1])
    await queue.add("a", job_id="x", attempts=3)
    worker = Worker(queue, work, **eval(sys.argv[2]))
    await started.wait()

asyncio.run(main())
"""


async def test_a_program_that_forgets_to_close_a_busy_worker_ends_all_the_same(
    queue: Queue, database: Database
) -> None:
    lease = dict(database.short_lease)
    await asyncio.to_thread(python, FORGETFUL, database.location, lease, timeout=10)
    async with Worker(queue, echo):
        job = await queue.get_job("x")
        assert job is not None
        await job.result(timeout="10s")
        assert (await again(queue, job)).attempts_made == 1  # being cut off cost no attempt


@pytest.mark.parametrize("concurrency", [1, 2])
def test_the_jobs_of_a_worker_whose_loop_is_gone_are_recovered(
    queue: Queue, concurrency: int
) -> None:
    async def start() -> weakref.ref[Worker]:
        started = asyncio.Event()

        async def hang(job: Job) -> None:
            started.set()
            await asyncio.Event().wait()

        await queue.add("a", "data", job_id="x")
        worker = Worker(queue, hang, concurrency=concurrency, lock_duration=200)
        await started.wait()
        return weakref.ref(worker)

    loop = asyncio.new_event_loop()
    abandoned = loop.run_until_complete(start())
    loop.close()

    async def finish() -> object:
        async with Worker(queue, echo):
            job = await queue.get_job("x")
            assert job is not None
            return await job.result(timeout="5s")

    assert asyncio.run(finish()) == "data"
    gc.collect()  # what is left of the loop goes without a word
    assert abandoned() is None
