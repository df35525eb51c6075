"""Runs that take longer than they may."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from bullite import Job, JobFailed, JobTimedOut, Queue, Signal, Worker
from bullite.errors import InvalidOption
from tests.support.helpers import again, state_of, until


async def hang(job: Job) -> None:
    await asyncio.Event().wait()


async def test_a_coroutine_that_ends_in_time_is_left_alone(queue: Queue) -> None:
    async def work(job: Job) -> str:
        return "quick"

    async with Worker(queue, work):
        assert await (await queue.add("a", timeout="30s")).result(timeout="10s") == "quick"


async def test_a_coroutine_is_cancelled_when_its_time_is_over(queue: Queue) -> None:
    cancelled = asyncio.Event()

    async def work(job: Job) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with Worker(queue, work):
        job = await queue.add("a", timeout=50)
        with pytest.raises(JobFailed, match="timeout of 50 ms"):
            await job.result(timeout="10s")
    assert cancelled.is_set()
    failed = await again(queue, job)
    assert (failed.outcome, failed.attempts_made) == ("timed-out", 1)


async def test_the_time_is_for_each_attempt(queue: Queue) -> None:
    runs: list[int] = []

    async def work(job: Job) -> str:
        runs.append(job.attempts_made)
        await asyncio.sleep(0 if len(runs) == 3 else 60)
        return "at last"

    async with Worker(queue, work):
        job = await queue.add("a", timeout=50, attempts=5)
        assert await job.result(timeout="10s") == "at last"
    assert runs == [0, 1, 2]


async def test_waiting_for_the_next_try_is_no_part_of_the_time(queue: Queue) -> None:
    async def work(job: Job) -> str:
        if job.attempts_made == 0:
            raise ValueError("not yet")
        return "done"

    async with Worker(queue, work):
        job = await queue.add("a", timeout=200, attempts=2, backoff=300)
        assert await job.result(timeout="10s") == "done"


async def test_get_attempts_shows_which_attempts_timed_out(queue: Queue) -> None:
    async def work(job: Job) -> None:
        if job.attempts_made == 0:
            await asyncio.sleep(60)
        raise ValueError("broken")

    async with Worker(queue, work):
        job = await queue.add("a", timeout=50, attempts=2)
        with pytest.raises(JobFailed, match="broken"):
            await job.result(timeout="10s")
    done = await again(queue, job)
    assert [attempt.outcome for attempt in await done.get_attempts()] == ["timed-out", "error"]
    assert done.outcome == "error"


async def test_the_signal_says_that_the_time_is_over(queue: Queue) -> None:
    reasons: list[Any] = []

    async def work(job: Job, token: str, signal: Signal) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append((signal.aborted, signal.reason))

    async with Worker(queue, work):
        with pytest.raises(JobFailed):
            await (await queue.add("a", timeout=50)).result(timeout="10s")
    [(aborted, reason)] = reasons
    assert aborted
    assert isinstance(reason, JobTimedOut)


async def test_a_coroutine_that_ends_well_too_late_has_timed_out(queue: Queue) -> None:
    async def work(job: Job) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return "too late"

    async with Worker(queue, work):
        job = await queue.add("a", timeout=50)
        with pytest.raises(JobFailed, match="timeout"):
            await job.result(timeout="10s")


async def test_a_coroutine_that_will_not_stop_is_reported_as_stuck(queue: Queue) -> None:
    go_on, stuck = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                pass

    async with Worker(queue, work) as worker:
        worker.on("stuck", lambda job: stuck.set())
        job = await queue.add("a", timeout=50)
        await stuck.wait()
        assert await state_of(queue, job) == "active"
        go_on.set()
        with pytest.raises(JobFailed, match="timeout"):
            await job.result(timeout="10s")


async def test_an_error_of_the_run_itself_is_not_a_timeout(queue: Queue) -> None:
    async def work(job: Job) -> None:
        raise TimeoutError("the server was slow")

    async with Worker(queue, work):
        job = await queue.add("a", timeout="30s")
        with pytest.raises(JobFailed, match="the server was slow"):
            await job.result(timeout="10s")
    assert (await again(queue, job)).outcome == "error"


async def test_other_jobs_run_on_when_one_times_out(queue: Queue) -> None:
    async def work(job: Job) -> str:
        await asyncio.sleep(60 if job.name == "slow" else 0.1)
        return "fine"

    async with Worker(queue, work, concurrency=2):
        slow, good = await queue.add("slow", timeout=50), await queue.add("good")
        assert await good.result(timeout="10s") == "fine"
        with pytest.raises(JobFailed, match="timeout"):
            await slow.result(timeout="10s")


async def test_failed_is_emitted_for_a_timeout(queue: Queue) -> None:
    heard: list[Any] = []
    async with Worker(queue, hang) as worker:
        worker.on("failed", lambda job, error, prev: heard.append(error))
        with pytest.raises(JobFailed):
            await (await queue.add("a", timeout=50)).result(timeout="10s")
        await until(lambda: heard)
    assert isinstance(heard[0], JobTimedOut)


async def test_rules_by_error_know_timeouts(queue: Queue) -> None:
    rules: Any = [{"on": "TimeoutError", "retry": False}]
    async with Worker(queue, hang):
        job = await queue.add("a", timeout=50, attempts=5, backoff=rules)
        with pytest.raises(JobFailed, match="timeout"):
            await job.result(timeout="10s")
    assert (await again(queue, job)).attempts_made == 1


async def test_closing_by_force_is_no_timeout(queue: Queue) -> None:
    begun = asyncio.Event()

    async def work(job: Job) -> None:
        begun.set()
        await asyncio.Event().wait()

    worker = Worker(queue, work)
    job = await queue.add("a", timeout="30s")
    await begun.wait()
    await worker.close(force=True)
    given_back = await again(queue, job)
    assert (given_back.state, given_back.attempts_made) == ("waiting", 0)


# --- threads -------------------------------------------------------------------------------------


async def test_a_thread_that_ends_in_time_is_left_alone(queue: Queue) -> None:
    def work(job: Job) -> str:
        return "quick"

    async with Worker(queue, work):
        assert await (await queue.add("a", timeout="30s")).result(timeout="10s") == "quick"


async def test_the_result_of_a_thread_that_is_too_late_is_refused(queue: Queue) -> None:
    def work(job: Job) -> str:
        time.sleep(0.2)
        return "too late"

    async with Worker(queue, work):
        job = await queue.add("a", timeout=50)
        with pytest.raises(JobFailed, match="timeout of 50 ms"):
            await job.result(timeout="10s")
    assert (await again(queue, job)).outcome == "timed-out"


async def test_a_thread_past_its_time_is_reported_as_stuck_and_keeps_its_job(
    queue: Queue,
) -> None:
    go_on, stuck = threading.Event(), asyncio.Event()

    def work(job: Job) -> None:
        go_on.wait(20)

    async with Worker(queue, work) as worker:
        worker.on("stuck", lambda job: stuck.set())
        job = await queue.add("a", timeout=50)
        await stuck.wait()
        assert await state_of(queue, job) == "active"
        go_on.set()
        with pytest.raises(JobFailed, match="timeout"):
            await job.result(timeout="10s")


async def test_the_retry_of_a_thread_waits_until_it_has_ended(queue: Queue) -> None:
    go_on, running = threading.Event(), threading.Semaphore(1)
    overlaps: list[int] = []

    def work(job: Job) -> str:
        if not running.acquire(blocking=False):
            overlaps.append(job.attempts_made)
            return "overlapped"
        try:
            if job.attempts_made == 0:
                go_on.wait(20)
            return "second try"
        finally:
            running.release()

    async with Worker(queue, work, concurrency=2):
        job = await queue.add("a", timeout=50, attempts=2)
        await asyncio.sleep(0.2)
        assert await state_of(queue, job) == "active"
        go_on.set()
        assert await job.result(timeout="10s") == "second try"
    assert overlaps == []


async def test_a_thread_may_ask_its_signal_whether_to_stop(queue: Queue) -> None:
    seen: list[Any] = []

    def work(job: Job, token: str, signal: Signal) -> None:
        seen.append(signal.wait_in_thread(20))
        seen.append(signal.reason)

    async with Worker(queue, work):
        with pytest.raises(JobFailed):
            await (await queue.add("a", timeout=50)).result(timeout="10s")
    assert seen[0] is True
    assert isinstance(seen[1], JobTimedOut)


async def test_a_thread_that_raises_after_its_time_has_timed_out(queue: Queue) -> None:
    def work(job: Job, token: str, signal: Signal) -> None:
        signal.wait_in_thread(20)
        signal.throw_if_aborted()

    async with Worker(queue, work):
        job = await queue.add("a", timeout=50)
        with pytest.raises(JobFailed, match="timeout"):
            await job.result(timeout="10s")
    assert (await again(queue, job)).outcome == "timed-out"


# --- the option ----------------------------------------------------------------------------------


async def test_a_timeout_is_at_least_a_millisecond(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match="timeout"):
        await queue.add("a", timeout=0)


async def test_a_job_has_its_timeout(queue: Queue) -> None:
    job = await queue.add("a", timeout="2s")
    assert (await again(queue, job)).timeout == 2_000
    assert (await queue.add("a")).timeout is None
