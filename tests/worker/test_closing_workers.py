"""Closing workers: nothing is lost, nothing is left active, nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from bullite import Job, Queue, Store, Worker
from bullite.client.runtime import bridge
from bullite.errors import InvalidOption
from tests.support.helpers import again, until


class Gate:
    """A processor that runs until it is let go."""

    def __init__(self) -> None:
        self.begun, self.open = asyncio.Event(), asyncio.Event()
        self.ran = 0
        self.cancelled = False

    async def __call__(self, job: Job) -> str:
        self.ran += 1
        self.begun.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "done"


class ThreadGate:
    """The same in a thread."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self, job: Job) -> str:
        self.begun.set()
        assert self.open.wait(20)
        return "first"


async def echo(job: Job) -> object:
    return job.data


# --- gracefully ----------------------------------------------------------------------------------


async def test_closing_waits_for_what_runs_and_takes_no_more(queue: Queue) -> None:
    gate = Gate()
    worker = Worker(queue, gate)
    jobs = await queue.add_bulk([{"name": "a"}] * 3)
    await gate.begun.wait()
    closing = asyncio.create_task(worker.close())
    _, pending = await asyncio.wait({closing}, timeout=0.05)
    assert pending
    gate.open.set()
    await closing
    assert gate.ran == 1
    assert await jobs[0].result() == "done"
    assert await queue.get_job_counts("active", "waiting") == {"active": 0, "waiting": 2}


async def test_closing_waits_for_threads(queue: Queue) -> None:
    gate = ThreadGate()
    worker = Worker(queue, gate)
    job = await queue.add("a")
    await asyncio.to_thread(gate.begun.wait, 10)
    closing = asyncio.create_task(worker.close())
    _, pending = await asyncio.wait({closing}, timeout=0.05)
    assert pending
    gate.open.set()
    await closing
    assert (await again(queue, job)).state == "completed"


@pytest.mark.parametrize("threads", [False, True])
async def test_closing_amid_many_jobs_leaves_none_active(queue: Queue, threads: bool) -> None:
    async def in_loop(job: Job) -> None:
        await asyncio.sleep(0)

    def in_thread(job: Job) -> None: ...

    processor: Any = in_thread if threads else in_loop
    await queue.add_bulk([{"name": "a"}] * 3000)
    worker = Worker(queue, processor, concurrency=50)
    await until(lambda: has_completed(queue, 100))
    await worker.close()
    counts = await queue.get_job_counts("active", "waiting", "completed", "failed")
    assert counts["active"] == counts["failed"] == 0
    assert counts["waiting"] + counts["completed"] == 3000


async def has_completed(queue: Queue, number: int) -> bool:
    return (await queue.get_job_counts("completed"))["completed"] >= number


async def test_unstarted_jobs_return_to_their_old_place(queue: Queue) -> None:
    ran: list[int] = []

    async def note(job: Job) -> None:
        ran.append(job.data)
        await asyncio.sleep(0)

    jobs = await queue.add_bulk({"name": "a", "data": n} for n in range(100))
    worker = Worker(queue, note)
    await until(lambda: len(ran) > 20)
    await worker.close()
    async with Worker(queue, note):
        for job in jobs:
            await job.result()
    assert ran == list(range(100))


async def test_leaving_async_with_closes(queue: Queue) -> None:
    gate = Gate()
    async with Worker(queue, gate) as worker:
        job = await queue.add("a")
        await gate.begun.wait()
        asyncio.get_running_loop().call_later(0.02, gate.open.set)
    assert not worker.is_running
    assert (await again(queue, job)).state == "completed"


async def test_an_error_inside_async_with_is_not_hidden(queue: Queue) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with Worker(queue, echo):
            raise KeyError("mine")


# --- with a time limit, and by force -------------------------------------------------------------


async def check_given_back(queue: Queue, *jobs: Job) -> None:
    """It costs a job nothing to be interrupted."""
    for job in jobs:
        given_back = await again(queue, job)
        assert given_back.state == "waiting"
        assert (given_back.attempts_made, given_back.attempts_started) == (0, 1)
        assert (given_back.stalled_count, given_back.failed_reason) == (0, None)
    async with Worker(queue, echo):
        for job in jobs:
            assert await job.result(timeout="5s") == "data"


async def test_after_the_time_limit_coroutines_are_interrupted(queue: Queue) -> None:
    gate = Gate()
    worker = Worker(queue, gate)
    job = await queue.add("a", "data")
    await gate.begun.wait()
    began = time.monotonic()
    await worker.close(timeout="100ms")
    assert 0.1 <= time.monotonic() - began < 2
    assert gate.cancelled
    await check_given_back(queue, job)


async def test_what_ends_within_the_time_limit_is_not_interrupted(queue: Queue) -> None:
    gate = Gate()
    worker = Worker(queue, gate)
    job = await queue.add("a")
    await gate.begun.wait()
    asyncio.get_running_loop().call_later(0.02, gate.open.set)
    await worker.close(timeout="10s")
    assert await job.result() == "done"


async def test_by_force_coroutines_are_interrupted_at_once(queue: Queue) -> None:
    gate = Gate()
    worker = Worker(queue, gate, concurrency=3)
    jobs = await queue.add_bulk([{"name": "a", "data": "data"}] * 3)
    await until(lambda: gate.ran == 3)
    began = time.monotonic()
    await worker.close(force=True)
    assert time.monotonic() - began < 0.9
    await check_given_back(queue, *jobs)


async def test_a_coroutine_that_ends_well_when_interrupted_is_completed(queue: Queue) -> None:
    begun = asyncio.Event()

    async def tidy(job: Job) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "tidied up"
        return "never"

    worker = Worker(queue, tidy)
    job = await queue.add("a")
    await begun.wait()
    await worker.close(force=True)
    assert await job.result() == "tidied up"


async def test_force_works_on_a_worker_that_is_closing_already(queue: Queue) -> None:
    gate = Gate()
    worker = Worker(queue, gate)
    job = await queue.add("a", "data")
    await gate.begun.wait()
    closing = asyncio.create_task(worker.close())
    await asyncio.wait({closing}, timeout=0.05)
    try:
        await asyncio.wait_for(asyncio.shield(worker.close(force=True)), 3)
    finally:
        gate.open.set()
        await closing
    assert gate.cancelled
    await check_given_back(queue, job)


async def test_the_job_of_a_thread_stays_with_it_although_its_worker_is_closed(
    queue: Queue,
) -> None:
    gate = ThreadGate()
    worker = Worker(queue, gate, lock_duration=100, name="first")
    job = await queue.add("a", "second")
    await asyncio.to_thread(gate.begun.wait, 10)
    await worker.close(force=True)
    taken = (await again(queue, job)).lock_expires_at
    assert taken is not None
    async with Worker(queue, echo, stalled_interval=10):
        await until(lambda: is_renewed_beyond(queue, job, taken + timedelta(milliseconds=300)))
        gate.open.set()
        assert await job.result(timeout="10s") == "first"
    assert (await again(queue, job)).stalled_count == 0


async def is_renewed_beyond(queue: Queue, job: Job, moment: datetime) -> bool:
    expires = (await again(queue, job)).lock_expires_at
    return expires is not None and expires > moment


async def test_a_closed_worker_is_off_the_register_once_its_last_thread_has_ended(
    queue: Queue,
) -> None:
    gate = ThreadGate()
    worker = Worker(queue, gate)
    job = await queue.add("a")
    await asyncio.to_thread(gate.begun.wait, 10)
    await worker.close(force=True)
    assert len(await bridge.query(queue.store, "workers", {})) == 1
    gate.open.set()
    await job.result(timeout="5s")
    await until(lambda: has_no_workers(queue))


async def has_no_workers(queue: Queue) -> bool:
    return not await bridge.query(queue.store, "workers", {})


async def test_a_store_that_is_closed_under_a_thread_records_what_it_returns(
    location: str,
) -> None:
    queue, gate = Queue("emails", location), ThreadGate()
    worker = Worker(queue, gate)
    job = await queue.add("a")
    await asyncio.to_thread(gate.begun.wait, 10)
    await worker.close(force=True)
    engine = queue.store.open()
    await queue.close()
    gate.open.set()
    await until(lambda: engine.is_stopping)
    async with Queue("emails", location) as reopened:
        assert (await again(reopened, job)).return_value == "first"


async def test_a_store_that_was_closed_under_a_thread_is_used_again_when_it_is_opened(
    location: str,
) -> None:
    queue, gate = Queue("emails", location), ThreadGate()
    worker = Worker(queue, gate)
    job = await queue.add("a")
    await asyncio.to_thread(gate.begun.wait, 10)
    await worker.close(force=True)
    engine = queue.store.open()
    await queue.close()
    async with Queue("emails", location) as reopened:
        gate.open.set()
        assert await (await again(reopened, job)).result(timeout="5s") == "first"
        assert reopened.store.open() is engine
        assert not engine.is_stopping


async def test_the_result_of_a_thread_that_outlives_its_worker_counts(
    queue: Queue,
) -> None:
    gate = ThreadGate()
    worker = Worker(queue, gate)
    job = await queue.add("a")
    await asyncio.to_thread(gate.begun.wait, 10)
    await worker.close(timeout=1)
    gate.open.set()
    assert await job.result(timeout="5s") == "first"


def test_a_thread_that_outlives_its_loop_raises_nothing(location: str) -> None:
    store, gate = Store(location), ThreadGate()

    async def leave_a_thread_behind() -> None:
        queue = Queue("emails", store)
        worker = Worker(queue, gate)
        await queue.add("a", job_id="x")
        await asyncio.to_thread(gate.begun.wait, 10)
        await worker.close(timeout=1)

    async def go_on() -> dict[str, int]:
        queue = Queue("emails", store)
        job = await queue.get_job("x")
        assert job is not None
        gate.open.set()
        assert await job.result(timeout="5s") == "first"
        await asyncio.gather(*(queue.add("b") for _ in range(20)))
        return await queue.get_job_counts("completed", "waiting")

    asyncio.run(leave_a_thread_behind())
    assert asyncio.run(asyncio.wait_for(go_on(), 10)) == {"completed": 1, "waiting": 20}
    store.close()


async def test_the_time_limit_is_a_duration(queue: Queue) -> None:
    async with Worker(queue, echo) as worker:
        with pytest.raises(InvalidOption, match="timeout must look like"):
            await worker.close(timeout="soon")


# --- at odd moments ------------------------------------------------------------------------------


async def test_closing_twice_is_closing_once(queue: Queue) -> None:
    worker = Worker(queue, echo)
    await worker.close()
    await worker.close()
    await worker.close(force=True)


async def test_closing_from_two_sides_ends_for_both(queue: Queue) -> None:
    gate = Gate()
    worker = Worker(queue, gate)
    await queue.add("a")
    await gate.begun.wait()
    closing = [asyncio.create_task(worker.close()) for _ in range(2)]
    await asyncio.sleep(0)
    gate.open.set()
    await asyncio.gather(*closing)
    assert not worker.is_running


async def test_a_worker_can_be_closed_while_it_starts(queue: Queue) -> None:
    await queue.add("a")
    for _ in range(5):
        worker = Worker(queue, echo)
        await worker.close()
        assert not worker.is_running
    assert (await queue.get_job_counts("active"))["active"] == 0


async def test_a_worker_that_never_ran_can_be_closed(queue: Queue) -> None:
    worker = Worker(queue, echo, autorun=False)
    await worker.close()
    assert not worker.is_running


async def test_a_closed_worker_does_not_run_again(queue: Queue) -> None:
    worker = Worker(queue, echo, autorun=False)
    await worker.close()
    job = await queue.add("a")
    await asyncio.wait_for(worker.run(), 5)
    stored = await again(queue, job)
    assert (stored.state, stored.attempts_started) == ("waiting", 0)


async def test_closing_the_queue_before_its_worker_is_forgiven(location: str) -> None:
    queue = Queue("emails", location)
    worker = Worker(queue, echo)
    await (await queue.add("a")).result()
    await queue.close()
    await asyncio.wait_for(worker.close(), 5)
    assert not worker.is_running


async def test_a_closed_worker_is_not_on_the_register(queue: Queue) -> None:
    worker = Worker(queue, echo)
    await (await queue.add("a")).result()
    assert len(await bridge.query(queue.store, "workers", {})) == 1
    await worker.close()
    assert len(await bridge.query(queue.store, "workers", {})) == 0
