"""J: waiting for what becomes of a job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import Job, JobFailed, Queue, Worker
from tests.support.helpers import again, state_of, until


async def reached(queue: Queue, job: Job, state: str) -> bool:
    return await state_of(queue, job) == state


@pytest.mark.parametrize("value", ["qux", {"resultFoo": "bar"}, 37])
async def test_J_056_wait_until_finished_returns_the_result_of_the_job(
    queue: Queue, value: Any
) -> None:
    async def work(job: Job) -> Any:
        return value

    job = await queue.add("a")
    waiting = asyncio.create_task(job.wait_until_finished(timeout="10s"))
    await asyncio.sleep(0)  # waits before anybody works
    async with Worker(queue, work):
        result = await waiting
    assert (result, type(result)) == (value, type(value))


async def test_J_057_a_job_that_completed_before_gives_its_result_at_once(queue: Queue) -> None:
    async def work(job: Job) -> dict[str, str]:
        return {"resultFoo": "bar"}

    job = await queue.add("a")
    async with Worker(queue, work):
        await until(lambda: reached(queue, job, "completed"))
    # No worker is left that could bring it about.
    assert await job.wait_until_finished(timeout="10s") == {"resultFoo": "bar"}
    assert await (await again(queue, job)).wait_until_finished(timeout="10s") == job.return_value


@pytest.mark.parametrize("before", [False, True])
async def test_J_059_waiting_for_a_job_that_fails_raises_its_reason(
    queue: Queue, before: bool
) -> None:
    async def work(job: Job) -> None:
        raise ValueError("test error")

    job = await queue.add("a")
    if not before:
        waiting = asyncio.create_task(job.wait_until_finished(timeout="10s"))
        await asyncio.sleep(0)
    async with Worker(queue, work):
        await until(lambda: reached(queue, job, "failed"))
    if before:
        waiting = asyncio.create_task(job.wait_until_finished(timeout="10s"))
    with pytest.raises(JobFailed, match=r"^test error$"):
        await waiting
