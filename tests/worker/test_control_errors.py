"""What a processor raises, or asks for, to say what is to become of its job."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bullite import (
    DelayedError,
    Job,
    JobFailed,
    LostLock,
    Queue,
    RateLimitError,
    UnrecoverableError,
    WaitingError,
    Worker,
)
from tests.support.helpers import again, state_of, take_away, until


def soon(milliseconds: int = 50) -> datetime:
    return datetime.now(UTC) + timedelta(milliseconds=milliseconds)


async def test_a_job_may_put_itself_off(queue: Queue) -> None:
    began: list[float] = []

    async def work(job: Job, token: str) -> str:
        began.append(time.time())
        if len(began) == 1:
            await job.move_to_delayed(soon(100), token)
            raise DelayedError
        return "later"

    async with Worker(queue, work):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "later"
    assert began[1] - began[0] > 0.09
    done = await again(queue, job)
    assert (done.attempts_made, done.attempts_started) == (1, 2)


async def test_a_thread_may_put_its_job_off(queue: Queue) -> None:
    runs: list[int] = []

    def work(job: Job, token: str) -> str:
        runs.append(job.attempts_started)
        if len(runs) == 1:
            job.move_to_delayed(soon(), token).result()
            raise DelayedError
        return "later"

    async with Worker(queue, work):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "later"
    assert runs == [1, 2]
    assert (await again(queue, job)).attempts_made == 1


async def test_a_thread_need_not_wait_until_its_job_is_put_off(queue: Queue) -> None:
    runs: list[int] = []

    def work(job: Job) -> str:
        runs.append(job.attempts_started)
        if len(runs) == 1:
            job.move_to_delayed(soon())
            raise DelayedError
        return "later"

    async with Worker(queue, work):
        assert await (await queue.add("a")).result(timeout="10s") == "later"


async def test_putting_itself_off_is_no_failure(queue: Queue) -> None:
    heard: list[Any] = []
    runs: list[int] = []

    async def work(job: Job) -> None:
        runs.append(1)
        if len(runs) < 4:
            await job.move_to_delayed(soon(10))
            raise DelayedError("not now")

    async with Worker(queue, work) as worker:
        worker.on("failed", lambda *arguments: heard.append(arguments))
        worker.on("error", heard.append)
        job = await queue.add("a", attempts=1)
        await job.result(timeout="10s")
    assert heard == []
    done = await again(queue, job)
    assert (done.failed_reason, done.attempts_made, done.attempts_started) == (None, 1, 4)


async def test_a_job_that_forgot_to_be_put_off_fails_with_the_fix(queue: Queue) -> None:
    async def work(job: Job) -> None:
        raise DelayedError

    async with Worker(queue, work):
        with pytest.raises(JobFailed, match="move_to_delayed"):
            await (await queue.add("a")).result(timeout="10s")


async def test_a_job_may_go_back_to_the_front(queue: Queue) -> None:
    order: list[str] = []

    async def work(job: Job) -> None:
        order.append(job.name)
        if order == ["a"]:
            raise WaitingError

    first = await queue.add("a")
    second = await queue.add("b")
    async with Worker(queue, work):
        await second.result(timeout="10s")
    assert order == ["a", "a", "b"]
    done = await again(queue, first)
    assert (done.attempts_made, done.attempts_started) == (1, 2)


async def test_a_job_may_be_moved_to_the_front_and_say_so(queue: Queue) -> None:
    runs: list[int] = []

    async def work(job: Job, token: str) -> str:
        runs.append(1)
        if len(runs) == 1:
            await job.move_to_waiting(token)
            raise WaitingError
        return "second"

    async with Worker(queue, work):
        assert await (await queue.add("a")).result(timeout="10s") == "second"
    assert len(runs) == 2


async def test_a_rate_limit_costs_no_attempt(queue: Queue) -> None:
    runs: list[int] = []

    def work(job: Job) -> str:
        runs.append(job.attempts_made)
        if len(runs) < 3:
            raise RateLimitError
        return "allowed"

    async with Worker(queue, work):
        job = await queue.add("a", attempts=1)
        assert await job.result(timeout="10s") == "allowed"
    assert runs == [0, 0, 0]
    assert (await again(queue, job)).attempts_made == 1


async def test_an_unrecoverable_error_may_be_a_subclass(queue: Queue) -> None:
    class Stolen(UnrecoverableError):
        pass

    def work(job: Job) -> None:
        raise Stolen("card stolen")

    async with Worker(queue, work):
        job = await queue.add("a", attempts=5, backoff=10)
        with pytest.raises(JobFailed, match="card stolen"):
            await job.result(timeout="10s")
    assert (await again(queue, job)).attempts_made == 1


# --- runs that end their own job -----------------------------------------------------------------


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_run_may_complete_its_own_job(queue: Queue, in_thread: bool) -> None:
    async def in_loop(job: Job) -> str:
        await job.move_to_completed("by hand")
        return "by return"

    def thread(job: Job) -> str:
        job.move_to_completed("by hand").result()
        return "by return"

    async with Worker(queue, thread if in_thread else in_loop):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "by hand"
        assert (await again(queue, job)).attempts_made == 1
        assert await (await queue.add("b")).result(timeout="10s") == "by hand"


async def test_a_run_may_fail_its_own_job(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.move_to_failed("by hand", retry=False)

    async with Worker(queue, work):
        job = await queue.add("a", attempts=3)
        with pytest.raises(JobFailed, match="by hand"):
            await job.result(timeout="10s")
    assert await state_of(queue, job) == "failed"


async def test_error_is_emitted_for_a_run_that_raises_after_ending_its_job(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Any] = []

    async def work(job: Job) -> None:
        await job.move_to_completed("done")
        raise ValueError("afterwards")

    async with Worker(queue, work) as worker:
        worker.on("error", errors.append)
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "done"
        await until(lambda: errors)
    assert "afterwards" in str(errors[0])
    assert await state_of(queue, job) == "completed"


async def test_a_run_that_lost_its_job_cannot_put_it_off(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    problems: list[BaseException] = []

    async def work(job: Job) -> str:
        if job.stalled_count == 0:
            await take_away(queue)
            try:
                await job.move_to_delayed(soon(60_000))
            except LostLock as error:
                problems.append(error)
                raise
        return "second run"

    async with Worker(queue, work, concurrency=2):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "second run"
    assert len(problems) == 1


async def test_a_worker_whose_jobs_end_themselves_stays_as_busy_as_it_may(queue: Queue) -> None:
    """Each ends its run by hand: the worker must count it as ended, once."""
    running = most = 0

    async def work(job: Job) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        await job.move_to_completed(job.data)

    async with Worker(queue, work, concurrency=3):
        jobs = await queue.add_bulk([{"name": "a", "data": n} for n in range(60)])
        assert [await job.result(timeout="15s") for job in jobs] == list(range(60))
    assert most == 3
