"""`job.update_progress()`: saying how far a run is."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from bullite import Job, JobNotFound, LostLock, Queue, Worker
from bullite.errors import UnserializableData
from tests.support.helpers import again, case, take_away


async def test_progress_is_zero_at_first(queue: Queue) -> None:
    assert (await queue.add("a")).progress == 0


async def test_progress_is_stored_as_given(queue: Queue) -> None:
    async def work(job: Job) -> object:
        await job.update_progress(job.data)
        assert job.progress == job.data
        return (await again(queue, job)).progress

    async with Worker(queue, work):
        for progress in [50, 0, 250, -1, "half way", {"page": 3, "of": 7}, [1], None]:
            with case(progress):
                assert await (await queue.add("a", progress)).result() == progress


async def test_a_thread_can_wait_until_progress_is_stored(queue: Queue) -> None:
    reported, seen = threading.Event(), threading.Event()

    def work(job: Job) -> None:
        job.update_progress(30).result(timeout=10)
        reported.set()
        assert seen.wait(10)

    async with Worker(queue, work):
        job = await queue.add("a")
        await asyncio.to_thread(reported.wait, 10)
        assert (await again(queue, job)).progress == 30
        seen.set()
        await job.result()


async def test_progress_need_not_be_waited_for(queue: Queue) -> None:
    async def in_loop(job: Job) -> None:
        for percent in range(101):
            job.update_progress(percent)

    def in_thread(job: Job) -> None:
        for percent in range(101):
            job.update_progress(percent)

    async with Worker(queue, {"loop": in_loop, "thread": in_thread}):
        for name in ("loop", "thread"):
            job = await queue.add(name)
            await job.result()
            assert (await again(queue, job)).progress == 100


async def test_what_was_asked_for_in_a_loop_is_awaited_there(queue: Queue) -> None:
    async def work(job: Job) -> str:
        pending = job.update_progress(1)
        with pytest.raises(RuntimeError, match="result of an event loop: await it there"):
            pending.result()
        await pending
        return "fine"

    async with Worker(queue, work):
        assert await (await queue.add("a")).result() == "fine"


async def test_what_was_asked_for_in_a_thread_may_be_awaited_in_a_loop(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await (await asyncio.to_thread(job.update_progress, "begun"))

    async with Worker(queue, work):
        job = await queue.add("a")
        await job.result()
    assert (await again(queue, job)).progress == "begun"


async def test_a_completed_job_shows_a_number_as_all_of_it(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.update_progress(job.data)

    async with Worker(queue, work):
        for reported, shown in [(7, 100), (99.5, 100), ("half", "half"), (True, True), ([7], [7])]:
            with case((reported, shown)):
                job = await queue.add("a", reported)
                await job.result()
                progress = (await again(queue, job)).progress
                assert (progress, type(progress)) == (shown, type(shown))


async def test_the_progress_of_a_failed_try_is_kept(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.update_progress(40)
        raise ValueError("no")

    async with Worker(queue, work):
        job = await queue.add("a")
        with pytest.raises(Exception, match="no"):
            await job.result()
    assert (await again(queue, job)).progress == 40


async def test_progress_that_cannot_be_stored_is_refused(queue: Queue) -> None:
    async def work(job: Job) -> str:
        with pytest.raises(UnserializableData, match="the progress cannot be stored as JSON"):
            job.update_progress(object())
        return "went on"

    async with Worker(queue, work):
        assert await (await queue.add("a")).result() == "went on"


async def test_somebody_outside_its_run_may_say_how_far_a_job_is(queue: Queue) -> None:
    job = await queue.add("a")
    await job.update_progress(1)
    assert (await again(queue, job)).progress == 1


async def test_a_job_that_is_gone_gets_no_further(queue: Queue) -> None:
    job = await queue.add("a")
    await job.remove()
    with pytest.raises(JobNotFound):
        await job.update_progress(1)


# --- after the job was taken away ----------------------------------------------------------------


class Robbed:
    """A processor whose job is taken away during its first run."""

    def __init__(self) -> None:
        self.runs = 0
        self.running, self.robbed = asyncio.Event(), asyncio.Event()
        self.error: BaseException | None = None

    async def __call__(self, job: Job) -> str:
        self.runs += 1
        if self.runs > 1:
            await job.update_progress("second")
            return "second run"
        self.running.set()
        await self.robbed.wait()
        try:
            await job.update_progress("first")
        except LostLock as error:
            self.error = error
        return "first run"


async def rob(queue: Queue, robbed: Robbed) -> None:
    await robbed.running.wait()
    await take_away(queue)
    robbed.robbed.set()


async def test_a_run_that_lost_its_job_is_told(queue: Queue) -> None:
    robbed = Robbed()
    async with Worker(queue, robbed):
        job = await queue.add("a")
        await rob(queue, robbed)
        await job.result()
    assert isinstance(robbed.error, LostLock)
    assert "no longer held by this run; its progress was not stored" in str(robbed.error)
    assert (await again(queue, job)).progress == "second"


async def test_the_result_of_a_run_that_lost_its_job_is_refused(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    robbed: Any = Robbed()
    async with Worker(queue, robbed):
        job = await queue.add("a")
        await rob(queue, robbed)
        assert await job.result() == "second run"
    stalled = await again(queue, job)
    assert (stalled.stalled_count, stalled.attempts_made, stalled.attempts_started) == (1, 1, 2)
    assert f"job {job.pk} was no longer held when its run ended" in caplog.text


async def test_a_job_that_is_taken_away_too_often_fails_without_running(queue: Queue) -> None:
    robbed = Robbed()
    async with Worker(queue, robbed, max_stalled_count=0):
        job = await queue.add("a", attempts=5)
        await rob(queue, robbed)
        with pytest.raises(Exception, match="job stalled more than allowable limit"):
            await job.result()
    assert robbed.runs == 1
