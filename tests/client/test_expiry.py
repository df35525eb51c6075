"""Jobs that are worth nothing if they are not begun in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import Job, JobFailed, Queue, Scheduler, Worker
from tests.support.helpers import again, state_of, until


async def echo(job: Job) -> Any:
    return job.data


async def has_failed(queue: Queue, job: Job) -> bool:
    return await state_of(queue, job) == "failed"


async def expired(queue: Queue, **options: Any) -> Job:
    """A job whose time is over before anybody came."""
    job = await queue.add("a", expires=20, **options)
    await asyncio.sleep(0.05)
    async with Worker(queue, echo):
        await until(lambda: has_failed(queue, job))
    return await again(queue, job)


async def test_a_job_that_is_begun_in_time_runs(queue: Queue) -> None:
    async with Worker(queue, echo):
        assert await (await queue.add("a", 1, expires="1m")).result(timeout="10s") == 1


async def test_a_job_that_is_taken_too_late_does_not_run(queue: Queue) -> None:
    ran: list[str] = []

    async def work(job: Job) -> None:
        ran.append(job.name)

    late = await queue.add("late", expires=20)
    await asyncio.sleep(0.05)
    good = await queue.add("good")
    async with Worker(queue, work):
        await good.result(timeout="10s")
        with pytest.raises(JobFailed, match="expired"):
            await late.result(timeout="10s")
    assert ran == ["good"]


async def test_an_expired_job_is_failed_with_an_outcome_of_its_own(queue: Queue) -> None:
    job = await expired(queue)
    assert (job.state, job.outcome) == ("failed", "expired")
    assert job.failed_reason is not None
    assert "expired" in job.failed_reason
    assert job.finished_at is not None
    assert (job.attempts_made, job.attempts_started) == (0, 0)
    assert await job.get_attempts() == []


async def test_an_expired_job_is_not_tried_again(queue: Queue) -> None:
    job = await expired(queue, attempts=5, backoff=1)
    await asyncio.sleep(0.05)
    assert await state_of(queue, job) == "failed"


async def test_an_expired_job_is_no_dead_letter(queue: Queue) -> None:
    await queue.configure(dead_letter="dead")
    job = await expired(queue)
    assert job.original_queue is None
    async with Queue("dead", queue.store) as dead:
        assert await dead.get_job_count_by_types() == 0


async def test_a_delayed_job_may_expire_before_it_is_due(queue: Queue) -> None:
    assert (await expired(queue, delay="1h")).outcome == "expired"


async def test_a_job_with_a_priority_may_expire(queue: Queue) -> None:
    assert (await expired(queue, priority=7)).outcome == "expired"


async def test_the_retention_of_failures_holds_for_expired_jobs(queue: Queue) -> None:
    job = await queue.add("a", expires=20, remove_on_fail=True)
    await asyncio.sleep(0.05)
    async with Worker(queue, echo):
        await until(lambda: is_gone(queue, job))


async def is_gone(queue: Queue, job: Job) -> bool:
    return await queue.get_job(job.id) is None


async def test_without_a_worker_the_scheduler_fails_what_expired(queue: Queue) -> None:
    job = await queue.add("a", expires=20)
    async with Scheduler(queue.store):
        await until(lambda: has_failed(queue, job))
    assert (await again(queue, job)).outcome == "expired"


async def test_a_paused_queue_does_not_stop_the_clock(queue: Queue) -> None:
    job = await queue.add("a", expires=20)
    await queue.pause()
    async with Worker(queue, echo, maintenance_interval=50):
        await until(lambda: has_failed(queue, job))


async def test_many_jobs_expire_together(queue: Queue) -> None:
    options: Any = {"expires": 20}
    await queue.add_bulk([{"name": "a", "opts": options}] * 2_500)
    await asyncio.sleep(0.05)
    async with Worker(queue, echo, maintenance_interval=50):
        await until(lambda: all_failed(queue, 2_500))
    assert await queue.get_job_counts("waiting", "active") == {"waiting": 0, "active": 0}


async def all_failed(queue: Queue, number: int) -> bool:
    return await queue.get_failed_count() == number


async def test_a_running_job_does_not_expire(queue: Queue) -> None:
    async def work(job: Job) -> str:
        await asyncio.sleep(0.3)
        return "done"

    async with Worker(queue, work, maintenance_interval=20):
        assert await (await queue.add("a", expires=150)).result(timeout="10s") == "done"


async def test_a_job_that_was_begun_in_time_may_be_tried_again_later(queue: Queue) -> None:
    """The time is for beginning: after that its own attempts decide."""

    async def work(job: Job) -> str:
        if job.attempts_made == 0:
            raise ValueError("not yet")
        return "done"

    async with Worker(queue, work, maintenance_interval=20):
        job = await queue.add("a", expires=150, attempts=2, backoff=300)
        assert await job.result(timeout="10s") == "done"


async def test_an_expired_job_runs_when_somebody_wants_it_all_the_same(queue: Queue) -> None:
    job = await expired(queue)
    async with Worker(queue, echo):
        await queue.retry_job(job.id)
        await job.result(timeout="10s")
    assert await state_of(queue, job) == "completed"


async def test_the_time_begins_with_the_add(queue: Queue, location: str) -> None:
    job = await queue.add("a", expires="1h")
    stored = await again(queue, job)
    assert stored.opts["expires"] == 3_600_000


async def test_defaults_may_let_jobs_expire(queue: Queue) -> None:
    await queue.configure(default_job_options={"expires": "30s"})
    assert (await queue.add("a")).opts["expires"] == 30_000


async def test_nothing_expired_is_handed_out_by_hand(queue: Queue) -> None:
    job = await queue.add("a", expires=20)
    await asyncio.sleep(0.05)
    async with Worker(queue) as worker:
        assert await worker.get_next_job(block=False) is None
    assert await has_failed(queue, job)
