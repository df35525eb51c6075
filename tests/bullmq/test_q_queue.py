"""Area Q of the catalogue: a queue as a whole, its names and ids, draining, retrying, promoting."""

from __future__ import annotations

import asyncio

import pytest

import bullite
from bullite import Job, JobFailed, Queue, Worker
from bullite.errors import InvalidOption
from tests.support.helpers import again, until


class Recorder:
    """A processor that fails or succeeds as told, and may be held up; notes what it ran."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.ran: list[int] = []
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, job: Job) -> None:
        await self.open.wait()
        self.ran.append(job.data)
        if self.fails:
            raise ValueError("broken")


async def add(queue: Queue, number: int) -> list[Job]:
    return await queue.add_bulk({"name": "a", "data": n} for n in range(number))


async def fail_all(queue: Queue, number: int) -> list[Job]:
    """Jobs that failed for good, in order."""
    jobs = await add(queue, number)
    async with Worker(queue, Recorder(fails=True)):
        for job in jobs:
            with pytest.raises(JobFailed):
                await job.result()
    return jobs


async def test_Q_001_removing_a_job_is_told_on_the_queue_object(queue: Queue) -> None:
    told: list[str] = []
    queue.on("removed", told.append)
    job = await queue.add("a")
    await queue.remove(job.id)
    assert told == [job.id]


async def test_Q_002_the_version_names_the_library(queue: Queue) -> None:
    assert await queue.get_version() == f"bullite:{bullite.__version__}"


async def test_Q_004_an_id_of_digits_only_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match="digits"):
        await queue.add("a", job_id="2")
    assert await queue.count() == 0


async def test_Q_007_draining_removes_prioritized_jobs(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a", "opts": {"priority": n}} for n in range(1, 101)])
    assert await queue.count() == 100
    await queue.drain()
    assert await queue.count() == 0


async def test_Q_011_draining_spares_delayed_jobs_unless_asked(queue: Queue) -> None:
    await add(queue, 50)
    await queue.add_bulk([{"name": "a", "opts": {"delay": 60_000}}] * 50)
    await queue.drain()
    assert await queue.count() == await queue.get_delayed_count() == 50


async def test_Q_011_draining_takes_delayed_jobs_when_asked(queue: Queue) -> None:
    await add(queue, 50)
    await queue.add_bulk([{"name": "a", "opts": {"delay": 60_000}}] * 50)
    await queue.drain(True)
    assert await queue.count() == 0


async def test_Q_012_the_jobs_of_a_paused_queue_wait_and_can_be_drained(queue: Queue) -> None:
    await queue.pause()
    await add(queue, 50)
    assert await queue.count() == 50
    assert await queue.get_job_counts("wait") == {"waiting": 50}
    await queue.drain()
    assert await queue.count() == 0


async def test_Q_014_all_completed_jobs_can_run_again_whatever_the_size_of_the_pieces(
    queue: Queue,
) -> None:
    jobs = await add(queue, 8)
    work = Recorder()
    async with Worker(queue, work):
        for job in jobs:
            await job.result()
        work.open.clear()
        await queue.retry_jobs(count=2, state="completed")
        assert await queue.get_completed_count() == 0
        work.open.set()
        await until(lambda: len(work.ran) == 16)
    assert await queue.get_completed_count() == 8


async def test_Q_015_only_jobs_that_ended_by_the_time_given_are_retried_in_order(
    queue: Queue,
) -> None:
    first = await fail_all(queue, 4)
    ended = (await again(queue, first[-1])).finished_on
    assert ended is not None
    await asyncio.sleep(0.01)
    later = await fail_all(queue, 4)
    assert await queue.retry_jobs(count=2, timestamp=ended) == [job.id for job in first]
    work = Recorder()
    async with Worker(queue, work):
        for job in first:
            await job.result()
    assert work.ran == [0, 1, 2, 3]
    assert await queue.get_job_counts("completed", "failed") == {"completed": 4, "failed": 4}
    assert {job.id for job in await queue.get_failed()} == {job.id for job in later}


async def test_Q_016_retried_jobs_of_a_paused_queue_wait(queue: Queue) -> None:
    await fail_all(queue, 8)
    await queue.pause()
    await queue.retry_jobs()
    assert await queue.get_job_counts("wait") == {"waiting": 8}
    assert await queue.get_failed_count() == 0


async def test_Q_017_all_delayed_jobs_can_be_promoted_at_once(queue: Queue) -> None:
    jobs = await queue.add_bulk([{"name": "a", "opts": {"delay": 60_000}}] * 8)
    await queue.promote_jobs()
    assert await queue.get_job_counts("waiting", "delayed") == {"waiting": 8, "delayed": 0}
    async with Worker(queue, Recorder()):
        for job in jobs:
            await job.result()
    assert await queue.get_job_counts("completed", "delayed") == {"completed": 8, "delayed": 0}
