"""Jobs that have come to an end, for the tests of what is done with such."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bullite import Job, JobFailed, Queue, Worker
from tests.support.helpers import again


async def _end(job: Job) -> Any:
    if job.data["command"] == "false":
        raise ValueError("exit code 1")
    return None


async def completed(queue: Queue, **options: Any) -> Job:
    """A job that is completed."""
    async with Worker(queue, _end):
        job = await queue.add("shell", {"command": "true"}, **options)
        await job.result(timeout="10s")
    return await again(queue, job)


async def dead(queue: Queue, **options: Any) -> Job:
    """A job that failed for good."""
    async with Worker(queue, _end):
        job = await queue.add("shell", {"command": "false"}, **options)
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
    return await queue.get_job(job.id) or job


async def cancelled(queue: Queue, **options: Any) -> Job:
    """A job that was cancelled before it ran."""
    job = await queue.add("shell", {"command": "true"}, **options)
    assert await queue.cancel(job.id)
    return await again(queue, job)


@asynccontextmanager
async def running(queue: Queue, **options: Any) -> AsyncIterator[Job]:
    """A job that runs, until it is told to end or let go."""
    began, may_end = asyncio.Event(), asyncio.Event()

    async def run(job: Job) -> None:
        began.set()
        await may_end.wait()

    async with Worker(queue, run):
        job = await queue.add("shell", {"command": "sleep 60"}, **options)
        await asyncio.wait_for(began.wait(), 20)
        yield job
        may_end.set()


async def states(queue: Queue, *jobs: Job) -> list[str]:
    return [await queue.get_job_state(job.id) for job in jobs]
