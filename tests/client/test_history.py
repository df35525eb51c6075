"""What a job's runs leave behind."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from bullite import DelayedError, Job, JobFailed, Queue, Worker
from tests.support.helpers import again, take_away, until


async def echo(job: Job) -> str:
    return "done"


async def test_a_job_that_never_ran_has_no_history(queue: Queue) -> None:
    assert await (await queue.add("a")).get_attempts() == []


async def test_a_run_that_succeeds_is_told(queue: Queue) -> None:
    before = datetime.now(UTC)
    async with Worker(queue, echo, name="w1"):
        job = await queue.add("a")
        await job.result(timeout="10s")
    [attempt] = await job.get_attempts()
    assert (attempt.number, attempt.outcome, attempt.worker) == (1, "completed", "w1")
    assert (attempt.error, attempt.stack) == (None, None)
    assert attempt.started_at is not None
    assert attempt.ended_at is not None
    assert before - timedelta(seconds=1) <= attempt.started_at <= attempt.ended_at


async def test_a_run_under_way_is_told(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None, name="w1") as worker:
        job = await worker.get_next_job()
        assert job is not None
        [attempt] = await job.get_attempts()
        assert (attempt.outcome, attempt.ended_at, attempt.worker) == (None, None, "w1")
        assert attempt.started_at is not None
        await job.move_to_completed()


async def test_every_failed_run_keeps_its_error_and_stack(queue: Queue) -> None:
    async def work(job: Job) -> str:
        if job.attempts_made < 2:
            raise ValueError(f"try {job.attempts_made + 1}")
        return "done"

    async with Worker(queue, work):
        job = await queue.add("a", attempts=3)
        await job.result(timeout="10s")
    attempts = await job.get_attempts()
    assert [attempt.number for attempt in attempts] == [1, 2, 3]
    assert [attempt.outcome for attempt in attempts] == ["error", "error", "completed"]
    assert [attempt.error for attempt in attempts] == ["try 1", "try 2", None]
    assert "ValueError: try 1" in (attempts[0].stack or "")
    assert "ValueError: try 2" in (attempts[1].stack or "")


async def test_runs_follow_each_other_in_time(queue: Queue) -> None:
    async def work(job: Job) -> None:
        raise ValueError("broken")

    async with Worker(queue, work):
        job = await queue.add("a", attempts=3, backoff=20)
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
    times: list[datetime] = []
    for attempt in await job.get_attempts():
        assert attempt.started_at is not None
        assert attempt.ended_at is not None
        times += [attempt.started_at, attempt.ended_at]
    assert times == sorted(times)
    assert len(times) == 6


async def test_a_stall_is_told(queue: Queue) -> None:
    async def work(job: Job) -> str:
        if job.stalled_count == 0:
            await take_away(queue)
            await asyncio.sleep(0.05)
        return "done"

    async with Worker(queue, work, name="w1", concurrency=2):
        job = await queue.add("a")
        await job.result(timeout="10s")
    stalled, completed = await job.get_attempts()
    assert (stalled.outcome, stalled.worker, stalled.error) == ("stalled", "w1", None)
    assert completed.outcome == "completed"
    done = await again(queue, job)
    assert (done.stalled_count, done.attempts_made) == (1, 1)


async def test_a_job_that_stalled_too_often_tells_all_of_it(queue: Queue) -> None:
    job = await queue.add("a")
    for _ in range(2):
        async with Worker(queue, None, max_stalled_count=1) as worker:
            assert await worker.get_next_job() is not None
            await take_away(queue)
    async with Worker(queue, echo):
        with pytest.raises(JobFailed, match="stalled"):
            await job.result(timeout="10s")
    outcomes = [attempt.outcome for attempt in await job.get_attempts()]
    assert outcomes[:2] == ["stalled", "stalled"]
    assert (await again(queue, job)).outcome == "stalled"


async def test_a_completed_job_that_ran_again_tells_both_runs(queue: Queue) -> None:
    async with Worker(queue, echo):
        job = await queue.add("a")
        await job.result(timeout="10s")
        await job.retry("completed")
        await job.result(timeout="10s")
        await until(lambda: ran_twice(queue, job))
    assert [attempt.outcome for attempt in await job.get_attempts()] == ["completed"] * 2
    assert [attempt.number for attempt in await job.get_attempts()] == [1, 2]


async def ran_twice(queue: Queue, job: Job) -> bool:
    return (await again(queue, job)).attempts_made == 2


async def test_a_failed_job_that_ran_again_tells_both_runs(queue: Queue) -> None:
    async def work(job: Job) -> str:
        if job.attempts_made == 0:
            raise ValueError("first")
        return "second"

    async with Worker(queue, work):
        job = await queue.add("a")
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
        await job.retry()
        assert await job.result(timeout="10s") == "second"
    assert [attempt.outcome for attempt in await job.get_attempts()] == ["error", "completed"]


async def test_a_reset_does_not_rewrite_history(queue: Queue) -> None:
    async def work(job: Job) -> None:
        raise ValueError("broken")

    async with Worker(queue, work):
        job = await queue.add("a", attempts=2)
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
        await queue.retry_job(job.id, reset_attempts=True)
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
        await until(lambda: ran_twice(queue, job))
    assert [attempt.number for attempt in await job.get_attempts()] == [1, 2, 3, 4]


async def test_a_run_that_put_its_job_off_is_no_attempt(queue: Queue) -> None:
    runs: list[int] = []

    async def work(job: Job) -> None:
        runs.append(1)
        if len(runs) == 1:
            await job.move_to_delayed(datetime.now(UTC) + timedelta(milliseconds=20))
            raise DelayedError

    async with Worker(queue, work):
        job = await queue.add("a")
        await job.result(timeout="10s")
    assert [attempt.outcome for attempt in await job.get_attempts()] == ["completed"]


async def test_quick_jobs_fetched_ahead_tell_their_runs_too(queue: Queue) -> None:
    async with Worker(queue, echo):
        jobs = await queue.add_bulk([{"name": "a"}] * 300)
        await asyncio.gather(*(job.result(timeout="15s") for job in jobs))
    for job in (jobs[0], jobs[150], jobs[-1]):
        [attempt] = await job.get_attempts()
        assert attempt.outcome == "completed"
        assert (await again(queue, job)).attempts_started == 1


# --- stacks --------------------------------------------------------------------------------------


async def fail(job: Job) -> None:
    raise ValueError(f"try {job.attempts_made + 1}")


async def failed(queue: Queue, limit: int) -> Job:
    async with Worker(queue, fail):
        job = await queue.add("a", attempts=4, stack_trace_limit=limit)
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
    return await again(queue, job)


async def test_only_so_many_stacks_are_kept(queue: Queue) -> None:
    job = await failed(queue, 2)
    assert len(job.stacktrace) == 2
    assert "try 3" in job.stacktrace[0]
    assert "try 4" in job.stacktrace[1]
    assert job.stack == job.stacktrace[1]
    assert [attempt.error for attempt in await job.get_attempts()] == [
        "try 1",
        "try 2",
        "try 3",
        "try 4",
    ]


async def test_no_stacks_may_be_kept(queue: Queue) -> None:
    job = await failed(queue, 0)
    assert (job.stacktrace, job.stack, job.failed_reason) == ([], None, "try 4")
