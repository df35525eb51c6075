"""J: runs that are ended by hand, and what failed ones leave behind."""

from __future__ import annotations

from typing import Any

import pytest

from bullite import Job, Queue, QueueEvents, Worker
from bullite.errors import IllegalMove
from tests.support.helpers import again, state_of, until


async def taken(worker: Worker) -> Job:
    """Claim the next job with `get_next_job`."""
    job = await worker.get_next_job(block=False)
    assert job is not None
    return job


async def test_J_034_a_failed_run_with_tries_left_and_no_backoff_waits_again(
    queue: Queue,
) -> None:
    heard: list[dict[str, Any]] = []
    made = await queue.add("a", attempts=3)
    async with Worker(queue) as worker, QueueEvents(queue.name, queue.store) as events:
        events.on("waiting", lambda payload, event_id: heard.append(payload))
        held = await taken(worker)
        await held.move_to_failed(ValueError("test error"))
        await until(lambda: heard)
    for job in (held, await again(queue, made)):
        assert (job.state, await job.is_failed(), len(job.stacktrace)) == ("waiting", False, 1)
    assert heard == [{"job_id": made.id, "prev": "active"}]


async def test_J_035_a_job_that_never_ran_cannot_be_moved_to_failed(queue: Queue) -> None:
    job = await queue.add("a", attempts=3)
    with pytest.raises(IllegalMove, match=f"{job.id} is not in the active state"):
        await job.move_to_failed(ValueError("test error"))
    unchanged = await again(queue, job)
    assert (unchanged.state, unchanged.attempts_made) == ("waiting", 0)


async def test_J_036_the_only_try_failed_means_the_job_failed(queue: Queue) -> None:
    made = await queue.add("a", attempts=1)
    async with Worker(queue) as worker:
        held = await taken(worker)
        await held.move_to_failed(ValueError("test error"))
    for job in (held, await again(queue, made)):
        assert (job.state, await job.is_failed(), len(job.stacktrace)) == ("failed", True, 1)


async def test_J_037_a_failed_run_with_a_backoff_makes_the_job_delayed(queue: Queue) -> None:
    made = await queue.add("a", attempts=3, backoff=300_000)
    async with Worker(queue) as worker:
        held = await taken(worker)
        await held.move_to_failed(ValueError("test error"))
    for job in (held, await again(queue, made)):
        assert (job.state, await job.is_failed(), len(job.stacktrace)) == ("delayed", False, 1)
    assert job.delay == 300_000


async def test_J_039_only_as_many_stacks_are_kept_as_allowed_and_the_newest(
    queue: Queue,
) -> None:
    made = await queue.add("a", stack_trace_limit=1, attempts=2)
    kept: list[str] = []
    async with Worker(queue) as worker:
        for reason in ("test error", "other error"):
            held = await taken(worker)
            await held.move_to_failed(ValueError(reason))
            [stack] = (await again(queue, made)).stacktrace
            assert held.stacktrace == [stack]
            kept.append(stack)
    assert [stack.rstrip().rsplit(" ", 2)[-2] for stack in kept] == ["test", "other"]


async def test_J_040_a_job_that_allows_no_stacks_has_none(queue: Queue) -> None:
    made = await queue.add("a", stack_trace_limit=0, attempts=2)
    async with Worker(queue) as worker:
        for attempts_made in (1, 2):
            held = await taken(worker)
            await held.move_to_failed(ValueError("test error"))
            for job in (held, await again(queue, made)):
                assert (job.attempts_made, job.stacktrace) == (attempts_made, [])
    assert job.failed_reason == "test error"


async def test_J_041_the_stack_of_a_failure_is_stored(queue: Queue) -> None:
    def explode() -> None:
        raise ValueError("test error")

    async def work(job: Job) -> None:
        explode()

    made = await queue.add("a")
    async with Worker(queue, work):
        await until(lambda: failed(queue, made))
    [stack] = (await again(queue, made)).stacktrace
    assert "in explode" in stack


async def failed(queue: Queue, job: Job) -> bool:
    return await state_of(queue, job) == "failed"


async def test_J_042_a_running_job_can_be_moved_back_to_wait(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue) as worker:
        job = await worker.get_next_job(token="mine")
        assert job is not None
        assert not await job.is_waiting()
        await job.move_to_wait("mine")
        assert await job.is_waiting()
    assert await queue.get_active_count() == 0
