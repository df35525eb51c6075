"""Jobs that fail without having run: they have no start, and it costs them no attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import Job, JobFailed, Queue, Worker
from bullite.errors import WaitingChildrenError
from tests.support.flows import FAIL, jobs_of, producer, tree, work, working
from tests.support.helpers import again, until


def starts_and_attempts(job: Job) -> tuple[int, int, bool]:
    return job.attempts_started, job.attempts_made, job.processed_at is not None


async def parent_of_a_failure(queue: Queue) -> Job:
    child = tree("child", data=FAIL, fail_parent_on_failure=True)
    return jobs_of(await producer(queue).add(tree("parent", child, attempts=3)))[0]


async def dependent_on_a_failure(queue: Queue) -> Job:
    failing = await queue.add("failing", FAIL)
    return await queue.add(
        "dependent", depends_on=[failing], on_dependency_failure="fail", attempts=3
    )


@pytest.mark.parametrize("add", [parent_of_a_failure, dependent_on_a_failure])
async def test_a_job_whose_relative_failed_has_no_start_and_no_attempt(
    queue: Queue, add: Any
) -> None:
    job = await add(queue)
    async with working(queue):
        with pytest.raises(JobFailed, match="failed"):
            await job.result(timeout="10s")
    failed = await again(queue, job)
    assert failed.state == "failed"
    assert starts_and_attempts(failed) == (0, 0, False)
    assert failed.finished_at is not None
    assert await failed.get_attempts() == []


@pytest.mark.parametrize("add", [parent_of_a_failure, dependent_on_a_failure])
async def test_failed_is_emitted_with_a_job_without_attempts(queue: Queue, add: Any) -> None:
    told: list[Job] = []
    async with Worker(queue, work, autorun=False) as worker:
        worker.on("failed", lambda job, error, prev: told.append(job))
        job = await add(queue)
        await until(lambda: [one for one in told if one.id == job.id])
    [failed] = [one for one in told if one.id == job.id]
    assert starts_and_attempts(failed) == (0, 0, False)


@pytest.mark.parametrize("threads", [False, True])
async def test_a_job_that_failed_unrun_and_is_retried_has_all_its_attempts(
    queue: Queue, threads: bool
) -> None:
    def in_thread(job: Job) -> None:
        if job.name == "failing" or job.attempts_made < 2:
            raise ValueError("it broke")

    async def in_loop(job: Job) -> None:
        in_thread(job)

    job = await dependent_on_a_failure(queue)
    async with Worker(queue, in_thread if threads else in_loop):
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
        await (await again(queue, job)).retry()
        await until(lambda: is_completed(queue, job))
    assert starts_and_attempts(await again(queue, job)) == (3, 3, True)


async def is_completed(queue: Queue, job: Job) -> bool:
    return (await again(queue, job)).state == "completed"


async def test_a_parent_that_ran_before_its_child_failed_keeps_that_start(queue: Queue) -> None:
    other = Queue("children", queue.store)
    waits = asyncio.Event()

    async def ask_for_a_child(job: Job) -> None:
        await other.add("child", FAIL, parent=job, fail_parent_on_failure=True)
        assert await job.move_to_waiting_children()
        waits.set()
        raise WaitingChildrenError

    parent = await queue.add("parent", attempts=3)
    async with Worker(queue, ask_for_a_child):
        await waits.wait()
        async with working(other):
            with pytest.raises(JobFailed):
                await parent.result(timeout="10s")
    assert starts_and_attempts(await again(queue, parent)) == (1, 0, True)
