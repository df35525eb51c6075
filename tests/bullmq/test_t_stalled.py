"""Area T of the catalogue: jobs whose worker is gone."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from bullite import Job, JobFailed, Queue, QueueEvents, Worker
from bullite.client.runtime import bridge
from bullite.database.driver import WorkerRow as Registered
from bullite.operations.workers import RecoverStalled
from tests.support.helpers import again, until

TOO_OFTEN = "stalled more than allowable limit"


async def nothing(job: Job) -> None: ...


class Stuck:
    """A processor that runs in threads, so that closing by force cannot end it."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.open = threading.Event()

    def __call__(self, job: Job) -> None:
        self.ran.append(job.id)
        assert self.open.wait(20)


class Stalls:
    """What a worker tells of stalled jobs."""

    def __init__(self, worker: Worker) -> None:
        self.told: list[tuple[str, str]] = []
        worker.on("stalled", lambda job_id, prev: self.told.append((job_id, prev)))


async def lose(queue: Queue, number: int, max_stalled_count: int) -> None:
    """Take so many jobs, and never be heard of again."""
    worker = Worker(
        queue,
        None,
        lock_duration=500,  # longer than it takes to take them all
        skip_lock_renewal=True,
        stalled_interval=50,
        max_stalled_count=max_stalled_count,
    )
    for _ in range(number):
        assert await worker.get_next_job() is not None
    await worker.close(force=True)


async def recover_jobs_of_first_worker(queue: Queue) -> None:
    """What others do once it is known to be gone."""
    registered = sorted(await bridge.query(queue.store, "workers", {}))
    await bridge.submit(queue.store, RecoverStalled(Registered(*registered[0]), dead=True))


def successor(queue: Queue, processor: Any = nothing, **options: Any) -> Worker:
    """A worker that finds the jobs of those that are gone."""
    return Worker(queue, processor, stalled_interval=50, concurrency=4, **options)


async def test_T_001_jobs_of_a_lost_worker_are_told_as_stalled_and_run_by_another(
    queue: Queue,
) -> None:
    everywhere = list[Any]()
    jobs = await queue.add_bulk([{"name": "a"}] * 4)
    ids = {job.id for job in jobs}
    await lose(queue, 4, max_stalled_count=1)
    async with QueueEvents(queue.name, queue.store) as events, successor(queue) as worker:
        events.on("stalled", lambda payload, id: everywhere.append(payload["job_id"]))
        stalls = Stalls(worker)
        for job in jobs:
            await job.result()
        await until(lambda: len(everywhere) == 4)
    assert len(stalls.told) == 4
    assert set(stalls.told) == {(id, "active") for id in ids}
    assert set(everywhere) == ids
    for job in jobs:
        done = await again(queue, job)
        assert (done.state, done.stalled_counter) == ("completed", 1)


async def test_T_002_jobs_complete_normally_where_nobody_looks_for_stalled_ones(
    queue: Queue,
) -> None:
    async def work(job: Job) -> None:
        await asyncio.sleep(0.3)

    async with Worker(
        queue, work, concurrency=4, skip_stalled_check=True, stalled_interval=50, lock_duration=100
    ) as worker:
        stalls = Stalls(worker)
        jobs = await queue.add_bulk([{"name": "a"}] * 4)
        for job in jobs:
            await job.result()
    assert stalls.told == []
    assert await queue.get_completed_count() == 4


async def test_T_004_jobs_that_failed_by_stalling_can_be_retried_and_keep_their_count(
    queue: Queue,
) -> None:
    jobs = await queue.add_bulk([{"name": "a"}] * 4)
    await lose(queue, 4, max_stalled_count=0)
    ran: list[str] = []

    async def work(job: Job) -> None:
        ran.append(job.id)

    async with successor(queue, work, max_stalled_count=0):
        for job in jobs:
            with pytest.raises(JobFailed, match=TOO_OFTEN):
                await job.result()
            failed = await again(queue, job)
            assert (failed.attempts_started, failed.attempts_made) == (2, 1)
            assert failed.stalled_counter == 1
        assert ran == []
        for job in jobs:
            await (await again(queue, job)).retry()
            await job.result()
            done = await again(queue, job)
            assert (done.attempts_started, done.attempts_made) == (3, 2)
            assert done.stalled_counter == 1


async def test_T_005_jobs_that_stall_once_too_often_fail_and_are_removed_if_so_wished(
    queue: Queue,
) -> None:
    jobs = await queue.add_bulk([{"name": "a", "opts": {"remove_on_fail": True}}] * 2)
    for _ in range(3):
        await lose(queue, 2, max_stalled_count=2)
    failed: list[Job] = []
    async with successor(queue, max_stalled_count=2) as worker:
        worker.on("failed", lambda job, error, prev: failed.append(job))
        await until(lambda: len(failed) == 2)
    assert {job.id for job in failed} == {job.id for job in jobs}
    for job in failed:
        assert job.failed_reason is not None
        assert TOO_OFTEN in job.failed_reason
        assert (job.attempts_started, job.attempts_made, job.stalled_counter) == (4, 1, 3)
        assert await queue.get_job(job.id) is None
    assert await queue.get_job_count_by_types() == 0


async def test_T_009_jobs_that_fail_by_stalling_drive_out_failed_ones_that_are_too_old(
    queue: Queue,
) -> None:
    async def fail(job: Job) -> None:
        raise ValueError("broken")

    keep: Any = {"remove_on_fail": {"count": 4, "age": 0.5}}
    async with Worker(queue, fail):
        for job in await queue.add_bulk([{"name": "a", "opts": keep}] * 2):
            with pytest.raises(JobFailed, match="broken"):
                await job.result()
    late = await queue.add_bulk([{"name": "a", "opts": keep}] * 2)
    await lose(queue, 2, max_stalled_count=0)
    await asyncio.sleep(0.5)
    async with successor(queue, max_stalled_count=0):
        await until(lambda: all_failed(queue, late))
    assert {job.id for job in await queue.get_failed()} == {job.id for job in late}
    assert await queue.get_failed_count() == 2


async def all_failed(queue: Queue, jobs: list[Job]) -> bool:
    return all([await job.is_failed() for job in jobs])


async def test_T_010_running_jobs_never_stall_but_do_when_their_worker_is_gone(
    queue: Queue,
) -> None:
    stuck = Stuck()
    jobs = await queue.add_bulk([{"name": "a"}] * 4)
    first = Worker(queue, stuck, concurrency=4, lock_duration=100, stalled_interval=50)
    other = successor(queue, lambda job: None)
    stalls = Stalls(other)
    await until(lambda: len(stuck.ran) == 4)
    await asyncio.sleep(0.4)
    assert stalls.told == []
    assert await queue.get_active_count() == 4
    await recover_jobs_of_first_worker(queue)
    await until(lambda: len(stalls.told) == 4)
    for job in jobs:
        await job.result()
    stuck.open.set()
    await first.close()
    await other.close()
    assert {id for id, _ in stalls.told} == {job.id for job in jobs}
