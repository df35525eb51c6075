"""Trees of jobs, and processors for them, as several tests need them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from bullite import FlowJob, FlowNode, FlowProducer, Job, Queue, Worker

FAIL = "fail"
"""The data of jobs that fail."""


def tree(
    name: str, *children: FlowNode, queue: str = "emails", data: Any = None, **opts: Any
) -> FlowNode:
    """A node and those below it."""
    node: FlowNode = {"name": name, "queue_name": queue, "data": data, "opts": opts}  # type: ignore[typeddict-item]
    if children:
        node["children"] = children
    return node


def producer(queue: Queue) -> FlowProducer:
    return FlowProducer(queue.store)


async def work(job: Job) -> Any:
    """Return the job's data, or fail if it asks for that."""
    if job.data == FAIL:
        raise ValueError("it broke")
    return job.data


@asynccontextmanager
async def working(*queues: Queue, processor: Any = work, **options: Any) -> AsyncIterator[None]:
    """A worker for each queue."""
    async with AsyncExitStack() as stack:
        for queue in queues:
            await stack.enter_async_context(Worker(queue, processor, **options))
        yield


def jobs_of(flow: FlowJob) -> list[Job]:
    """All jobs of a flow, parents before children."""
    jobs, todo = [], [flow]
    while todo:
        node = todo.pop(0)
        jobs.append(node["job"])
        todo += node.get("children", [])
    return jobs


def key(job: Job) -> str:
    """What its parent knows a job by."""
    return f"{job.queue_name}:{job.id}"


async def lose(queue: Queue) -> None:
    """Take a job, and never be heard of again; that is once more often than it may be."""
    worker = Worker(
        queue,
        None,
        lock_duration=100,
        skip_lock_renewal=True,
        stalled_interval=50,
        max_stalled_count=0,
    )
    assert await worker.get_next_job() is not None
    await worker.close(force=True)
