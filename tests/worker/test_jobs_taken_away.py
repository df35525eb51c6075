"""Jobs that their workers still run, or are about to, although they are not theirs any more."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from bullite.engine import subscription as subscriptions
from bullite.errors import LostLock
from tests.support.helpers import take_away, until

OFTEN = 20
"""Ms between two renewals."""


class Holding:
    """A processor whose runs go on until they are let go or cancelled."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.cancelled = False

    async def __call__(self, job: Job) -> None:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


def hear(worker: Worker, event: str) -> list[Any]:
    heard: list[Any] = []
    worker.on(event, heard.append)
    return heard


async def test_a_running_job_that_is_obliterated_is_reported(queue: Queue) -> None:
    holding = Holding()
    async with Worker(queue, holding, lock_renew_time=OFTEN) as worker:
        lost = hear(worker, "lock_renewal_failed")
        job = await queue.add("a")
        await holding.begun.wait()
        await queue.obliterate(force=True)
        await until(lambda: lost)
        holding.go.set()
    assert lost == [[job.id]]


async def test_a_running_function_whose_job_is_obliterated_is_reported_and_aborted(
    queue: Queue,
) -> None:
    reasons: list[Any] = []
    begun = threading.Event()

    def wait_for_signal(job: Job, token: str, signal: Any) -> None:
        begun.set()
        assert signal.wait_in_thread(20)
        reasons.append(signal.reason)

    async with Worker(queue, wait_for_signal, lock_renew_time=OFTEN) as worker:
        lost = hear(worker, "lock_renewal_failed")
        job = await queue.add("a")
        await asyncio.to_thread(begun.wait, 10)
        await queue.obliterate(force=True)
        await until(lambda: lost)
    assert lost == [[job.id]]
    assert isinstance(reasons[0], LostLock)


async def test_a_listener_can_cancel_a_lost_job(queue: Queue) -> None:
    holding = Holding()
    async with Worker(queue, holding, lock_renew_time=OFTEN) as worker:
        worker.on("lock_renewal_failed", lambda ids: [worker.cancel_job(id) for id in ids])
        await queue.add("a")
        await holding.begun.wait()
        await queue.obliterate(force=True)
        await until(lambda: holding.cancelled)


async def test_a_lost_job_is_reported_once(queue: Queue) -> None:
    holding = Holding()
    async with Worker(queue, holding, lock_renew_time=OFTEN, concurrency=2) as worker:
        lost = hear(worker, "lock_renewal_failed")
        await queue.add("a")
        await holding.begun.wait()
        await queue.obliterate(force=True)
        await until(lambda: lost)
        renewed = hear(worker, "locks_renewed")
        await until(lambda: len(renewed) >= 5)
        holding.go.set()
    assert len(lost) == 1


async def test_jobs_that_are_held_are_not_reported(queue: Queue) -> None:
    holding = Holding()
    async with Worker(queue, holding, lock_renew_time=OFTEN, concurrency=3) as worker:
        lost, renewed = hear(worker, "lock_renewal_failed"), hear(worker, "locks_renewed")
        await queue.add_bulk([{"name": "a"}] * 3)
        await until(lambda: sum(told["count"] == 3 for told in renewed) >= 5)
        holding.go.set()
    assert lost == []


async def test_a_job_that_its_own_run_has_moved_is_not_reported(queue: Queue) -> None:
    moved, go = asyncio.Event(), asyncio.Event()

    async def put_off(job: Job) -> None:
        await job.move_to_completed("early", remove_on_complete=True)
        moved.set()
        await go.wait()

    async with Worker(queue, put_off, lock_renew_time=OFTEN) as worker:
        lost, renewed = hear(worker, "lock_renewal_failed"), hear(worker, "locks_renewed")
        await queue.add("a")
        await moved.wait()
        await until(lambda: len(renewed) >= 5)
        go.set()
    assert lost == []


async def test_a_prefetched_job_that_is_lost_does_not_start(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "PREFETCH_RETURN_AFTER", 10**9)
    begun: list[str] = []
    stops, go = asyncio.Event(), asyncio.Event()

    async def quick(job: Job) -> None:
        begun.append(job.id)
        if len(begun) > 50 and ahead(worker) > 1 and not stops.is_set():
            stops.set()
            await go.wait()

    jobs = await queue.add_bulk([{"name": "a"}] * 1_000)
    async with Worker(queue, quick, lock_renew_time=OFTEN) as worker:
        lost = hear(worker, "lock_renewal_failed")
        await stops.wait()
        await take_away(queue)
        await until(lambda: lost)
        go.set()
        await until(lambda: is_completed(queue, len(jobs)))
    [[running]] = lost
    assert sorted(begun) == sorted([*(job.id for job in jobs), running]), "a job started twice"


async def is_completed(queue: Queue, number: int) -> bool:
    return await queue.get_completed_count() == number


def ahead(worker: Worker) -> int:
    return sum(len(pool.unstarted()) for pool in worker._pools)
