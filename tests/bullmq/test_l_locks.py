"""Area L of the catalogue: leases, and how workers renew them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from bullite.errors import StoreBusy
from tests.support.helpers import until


class Gate:
    """A processor whose runs end when they are let go."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.open = asyncio.Event()

    async def __call__(self, job: Job) -> None:
        self.ran.append(job.id)
        await self.open.wait()
        if job.name == "bad":
            raise ValueError("broken")


class Renewals:
    """What a worker tells about its leases: the ids of each renewal, stalls, errors."""

    def __init__(self, worker: Worker) -> None:
        self.ids: list[list[str]] = []
        self.stalled: list[str] = []
        self.errors: list[Exception] = []
        worker.on("locks_renewed", lambda told: self.ids.append(told["job_ids"]))
        worker.on("stalled", lambda job_id, prev: self.stalled.append(job_id))
        worker.on("error", self.errors.append)


@contextmanager
def failing(queue: Queue, statement: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The database refuses one statement."""
    driver = queue.store.open().driver
    execute = driver.execute

    def fail(name: str, params: Any) -> Any:
        if name == statement:
            raise StoreBusy("no lock to be had")
        return execute(name, params)

    with monkeypatch.context() as patched:
        patched.setattr(driver, "execute", fail)
        yield


async def test_L_001_a_job_that_outlives_its_lease_is_renewed_and_completes(queue: Queue) -> None:
    async def work(job: Job) -> str:
        await asyncio.sleep(0.8)
        return "done"

    async with Worker(
        queue, work, lock_duration=400, lock_renew_time=100, stalled_interval=50
    ) as worker:
        renewals = Renewals(worker)
        job = await queue.add("a")
        assert await job.result() == "done"
    assert len(renewals.ids) >= 2
    assert renewals.stalled == []
    assert renewals.errors == []


async def test_L_002_one_renewal_covers_all_jobs_of_a_worker(queue: Queue) -> None:
    work = Gate()
    async with Worker(queue, work, concurrency=3, lock_renew_time=50) as worker:
        jobs = await queue.add_bulk([{"name": "a"}] * 3)
        await until(lambda: len(work.ran) == 3)
        renewals = Renewals(worker)
        await until(lambda: renewals.ids)
        work.open.set()
    assert sorted(renewals.ids[0], key=int) == [job.id for job in jobs]


async def test_L_002_a_renewal_gives_the_full_duration_of_the_lock_again(queue: Queue) -> None:
    work = Gate()
    async with Worker(queue, work, lock_duration=60_000, lock_renew_time=50) as worker:
        job = await queue.add("a")
        await until(lambda: work.ran)
        await asyncio.sleep(0.3)
        renewals, renewed_after = Renewals(worker), time.time()
        await until(lambda: renewals.ids)
        [held] = await queue.get_active()
        work.open.set()
        await job.result()
    assert held.lock_expires_at is not None
    # A little less: the clocks of leases and of days need not tick together.
    assert held.lock_expires_at.timestamp() > renewed_after + 60 - 0.1


async def test_L_004_a_renewal_that_fails_is_told_as_an_error_and_does_not_end_the_worker(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Gate()
    async with Worker(queue, work, lock_renew_time=50) as worker:
        job = await queue.add("a")
        await until(lambda: work.ran)
        renewals = Renewals(worker)
        with failing(queue, "renew_workers", monkeypatch):
            await until(lambda: renewals.errors, limit=5)
        assert isinstance(renewals.errors[0], StoreBusy)
        assert worker.is_running
        work.open.set()
        await job.result()
        await (await queue.add("b")).result()


async def test_L_005_jobs_are_renewed_while_they_run_and_not_after_they_ended(
    queue: Queue,
) -> None:
    work = Gate()
    async with Worker(queue, work, concurrency=3, lock_renew_time=50) as worker:
        renewals = Renewals(worker)
        await queue.add_bulk([{"name": "a"}, {"name": "bad"}, {"name": "a"}])
        await until(lambda: renewals.ids)
        assert all(1 <= len(ids) <= 3 for ids in renewals.ids)
        work.open.set()
        await until(lambda: ended(queue, 3))
        renewals.ids.clear()
        await asyncio.sleep(0.2)
    assert renewals.ids == []


async def ended(queue: Queue, number: int) -> bool:
    return await queue.get_job_count_by_types("completed", "failed") == number


async def test_L_006_a_closed_worker_renews_nothing_more(queue: Queue) -> None:
    work = Gate()
    other = Worker(queue, Gate(), lock_renew_time=50)  # its process goes on renewing
    worker = Worker(queue, work, lock_renew_time=50)
    renewals = Renewals(worker)
    await queue.add_bulk([{"name": "a"}] * 2)
    await until(lambda: renewals.ids)
    await worker.close(force=True)
    renewals.ids.clear()
    await asyncio.sleep(0.2)
    assert renewals.ids == []
    assert await queue.get_workers_count() == 1
    await other.close(force=True)


async def test_L_006_closing_a_worker_twice_is_harmless(queue: Queue) -> None:
    worker = Worker(queue, Gate(), lock_renew_time=50)
    await worker.wait_until_ready()
    await asyncio.gather(worker.close(), worker.close())
    await worker.close()
    assert await queue.get_workers() == []


async def test_L_007_with_a_renew_time_of_zero_nothing_is_renewed(queue: Queue) -> None:
    work = Gate()
    async with Worker(
        queue, work, lock_duration=200, lock_renew_time=0, stalled_interval=50
    ) as worker:
        renewals = Renewals(worker)
        job = await queue.add("a")
        await until(lambda: renewals.stalled)
        work.open.set()
        await job.result()
    assert renewals.stalled == [job.id]
    assert renewals.ids == []
