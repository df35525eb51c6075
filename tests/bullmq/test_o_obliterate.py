"""Area O of the catalogue: deleting a queue with all it holds."""

from __future__ import annotations

import asyncio

import pytest

from bullite import Job, Queue, Worker
from bullite.errors import QueueHasActiveJobs


async def test_O_001_a_queue_whose_jobs_run_is_not_obliterated(queue: Queue) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> str:
        begun.set()
        await go_on.wait()
        return "fine"

    async with Worker(queue, work):
        job = await queue.add("a")
        await begun.wait()
        with pytest.raises(QueueHasActiveJobs, match="active jobs"):
            await queue.obliterate()
        go_on.set()
        assert await job.result() == "fine"


async def test_O_002_obliterating_takes_the_logs_of_jobs_too(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.log("a line")

    async with Worker(queue, work):
        job = await queue.add("a", job_id="mine")
        await job.result()
    assert (await queue.get_job_logs("mine"))["count"] == 1
    await queue.obliterate(force=True)
    assert await queue.get_job_logs("mine") == {"logs": [], "count": 0}
    await queue.add("a", job_id="mine")
    assert (await queue.get_job_logs("mine"))["count"] == 0
