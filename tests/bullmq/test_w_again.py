"""Workers: jobs that run again because somebody, or the job itself, wants it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from bullite import DelayedError, IllegalMove, Job, JobFailed, JobNotFound, Queue, WaitingError
from bullite import Worker as _Worker
from tests.support.helpers import again, state_of, until

STARTED_TOO_OFTEN = "job started more than allowable limit"


class Worker(_Worker):
    """Remembers what its listeners hear."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.completed: list[tuple[int, int]] = []
        """The attempts made and started of each job when it was completed."""
        self.errors: list[Exception] = []
        self.on("completed", lambda job, *_: self.completed.append(counts(job)))
        self.on("error", self.errors.append)


def counts(job: Job) -> tuple[int, int]:
    return job.attempts_made, job.attempts_started


class Counting:
    """Returns how often it was called; raises the first so many times."""

    def __init__(self, failures: int = 0) -> None:
        self.calls = 0
        self._failures = failures

    async def __call__(self, job: Job) -> int:
        self.calls += 1
        if self.calls <= self._failures:
            raise ValueError(f"failure {self.calls}")
        return self.calls


async def has_failed(queue: Queue, job: Job) -> None:
    with pytest.raises(JobFailed):
        await job.result()
    assert await state_of(queue, job) == "failed"


# --- somebody wants it ---------------------------------------------------------------------------


async def test_W_014_a_failed_job_retried_with_fresh_counts_ends_with_one_try(
    queue: Queue,
) -> None:
    async with Worker(queue, Counting(failures=1)) as worker:
        job = await queue.add("a")
        await has_failed(queue, job)
        await job.retry("failed", reset_attempts=True)
        assert await job.result() == 2
        await until(lambda: worker.completed)
    assert worker.completed == [(1, 1)]
    assert counts(await again(queue, job)) == (1, 1)


async def test_W_015_a_completed_job_can_be_run_again_for_another_result(queue: Queue) -> None:
    async with Worker(queue, Counting()) as worker:
        job = await queue.add("a", attempts=1)
        assert await job.result() == 1
        await job.retry("completed")
        assert await job.result() == 2
        await until(lambda: len(worker.completed) == 2)
    assert worker.completed == [(1, 1), (2, 2)]
    done = await again(queue, job)
    assert (counts(done), done.return_value) == ((2, 2), 2)


async def test_W_016_a_completed_job_run_again_with_fresh_counts_ends_with_one_try(
    queue: Queue,
) -> None:
    async with Worker(queue, Counting()) as worker:
        job = await queue.add("a")
        assert await job.result() == 1
        await job.retry("completed", reset_attempts=True)
        assert await job.result() == 2
        await until(lambda: len(worker.completed) == 2)
    assert worker.completed == [(1, 1), (1, 1)]


async def test_W_044_a_completed_job_retried_in_a_paused_queue_waits(queue: Queue) -> None:
    counting = Counting()
    async with Worker(queue, counting, poll_interval=10):
        job = await queue.add("a")
        assert await job.result() == 1
        await queue.pause()
        await job.retry("completed")
        assert await queue.get_waiting_count() == 1
        assert await state_of(queue, job) == "waiting"
        await queue.add("b")  # another reason for the worker to look
        await asyncio.sleep(0.05)
        assert counting.calls == 1
        await queue.resume()
        assert await job.result() == 2


async def test_W_045_a_job_that_is_retried_forgets_how_it_ended(queue: Queue) -> None:
    async with Worker(queue, Counting(failures=1)):
        job = await queue.add("a")
        await has_failed(queue, job)
    failed = await again(queue, job)
    assert failed.failed_reason == "failure 1"
    await failed.retry()
    for seen in (failed, await again(queue, job)):
        assert seen.state == "waiting"
        assert (seen.failed_reason, seen.return_value) == (None, None)
        assert (seen.processed_on, seen.finished_on) == (None, None)


async def test_W_089_a_job_that_was_cleaned_away_cannot_be_retried(queue: Queue) -> None:
    async with Worker(queue, Counting(failures=1)):
        job = await queue.add("a")
        await has_failed(queue, job)
        await job.retry()
        assert await job.result() == 2
        assert await queue.clean(0) == [job.id]
        with pytest.raises(JobNotFound, match=job.id):
            await job.retry()
    counts = await queue.get_job_counts("completed", "failed")
    assert counts == {"completed": 0, "failed": 0}


async def test_W_090_a_completed_job_is_not_retried_as_a_failed_one(queue: Queue) -> None:
    async with Worker(queue, Counting(failures=1)):
        job = await queue.add("a")
        await has_failed(queue, job)
        await job.retry()
        assert await job.result() == 2
        with pytest.raises(IllegalMove, match=f"job {job.id} is not in the failed state"):
            await job.retry()
    assert await queue.get_completed_count() == 1


async def test_W_091_a_job_without_tries_left_gets_exactly_one_more_by_a_retry(
    queue: Queue,
) -> None:
    counting = Counting(failures=3)
    async with Worker(queue, counting):
        job = await queue.add("a", attempts=2)
        await has_failed(queue, job)
        assert counting.calls == 2
        await job.retry()
        await has_failed(queue, job)
        assert counting.calls == 3
        with pytest.raises(IllegalMove, match=f"job {job.id} is not in the completed state"):
            await job.retry("completed")
    failed = await again(queue, job)
    assert (failed.attempts_made, failed.failed_reason) == (3, "failure 3")


async def test_W_092_a_job_that_runs_cannot_be_retried(queue: Queue) -> None:
    refused: list[str] = []

    async def work(job: Job) -> None:
        with pytest.raises(IllegalMove, match=f"job {job.id} is not in the failed state"):
            await job.retry()
        refused.append(job.id)

    async with Worker(queue, work):
        job = await queue.add("a")
        await job.result()
    assert refused == [job.id]


# --- the job itself wants it ---------------------------------------------------------------------


async def test_W_079_a_job_that_delays_itself_spends_no_try(queue: Queue) -> None:
    async def work(job: Job, token: str) -> str:
        if job.attempts_started == 1:
            await job.move_to_delayed(time.time_ns() // 1_000_000 + 200, token)
            raise DelayedError
        return "worked"

    async with Worker(queue, work) as worker:
        job = await queue.add("a")
        assert await job.result() == "worked"
        await until(lambda: worker.completed)
    assert worker.completed == [(1, 2)]
    assert worker.errors == []
    done = await again(queue, job)
    assert counts(done) == (1, 2)
    assert done.finished_on is not None
    assert done.finished_on - job.timestamp >= 200


async def test_W_080_a_limit_of_starts_ends_a_job_that_delays_itself_for_ever(
    queue: Queue,
) -> None:
    calls: list[str] = []

    async def work(job: Job, token: str) -> None:
        calls.append(job.id)
        await job.move_to_delayed(time.time_ns() // 1_000_000 + 200, token)
        raise DelayedError

    async with Worker(queue, work, max_started_attempts=1):
        job = await queue.add("a")
        with pytest.raises(JobFailed, match=STARTED_TOO_OFTEN):
            await job.result()
    failed = await again(queue, job)
    assert (failed.state, failed.failed_reason) == ("failed", STARTED_TOO_OFTEN)
    assert (counts(failed), calls) == ((1, 2), [job.id])
    assert failed.finished_on is not None
    assert failed.finished_on - job.timestamp >= 200


async def test_W_081_a_limit_of_starts_beats_the_tries_that_are_left_and_holds_after_a_retry(
    queue: Queue,
) -> None:
    counting = Counting(failures=99)
    async with Worker(queue, counting, max_started_attempts=1):
        job = await queue.add("a", attempts=2)
        for tries in (2, 3):
            with pytest.raises(JobFailed, match=STARTED_TOO_OFTEN):
                await job.result()
            failed = await again(queue, job)
            assert (counts(failed), counting.calls) == ((tries, tries), 1)
            if tries == 2:
                await job.retry()
    assert await queue.get_job_counts("failed", "completed") == {"failed": 1, "completed": 0}


async def test_W_082_a_job_that_puts_itself_back_in_line_spends_no_try(queue: Queue) -> None:
    async def work(job: Job, token: str) -> str:
        if job.attempts_started == 1:
            await job.move_to_waiting(token)
            raise WaitingError
        return "worked"

    async with Worker(queue, work) as worker:
        job = await queue.add("a")
        assert await job.result() == "worked"
        await until(lambda: worker.completed)
    assert worker.completed == [(1, 2)]
    assert worker.errors == []
    assert counts(await again(queue, job)) == (1, 2)
