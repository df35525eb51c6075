"""Queues for the jobs that failed for good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bullite import Job, JobFailed, JobIdTaken, Queue, UnrecoverableError, Worker
from bullite.errors import InvalidOption
from tests.support.helpers import again, case, take_away, until


async def fail(job: Job) -> None:
    raise ValueError("broken")


async def echo(job: Job) -> Any:
    return job.data


@asynccontextmanager
async def dead_letters(queue: Queue) -> AsyncIterator[Queue]:
    """The queue that takes the dead letters of this one."""
    await queue.configure(dead_letter="dead")
    async with Queue("dead", queue.store) as dead:
        yield dead


async def buried(queue: Queue, dead: Queue, **options: Any) -> Job:
    async with Worker(queue, fail):
        job = await queue.add("a", {"n": 1}, **options)
        with pytest.raises(JobFailed, match="broken"):
            await job.result(timeout="10s")
    return await again(dead, job)


async def test_without_a_dead_letter_queue_jobs_stay_where_they_fail(queue: Queue) -> None:
    async with Worker(queue, fail):
        with pytest.raises(JobFailed):
            await (await queue.add("a")).result(timeout="10s")
    assert await queue.get_failed_count() == 1


async def test_a_job_that_failed_for_good_moves_as_it_is(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        job = await buried(queue, dead, tags=["urgent"])
        assert (job.state, job.failed_reason, job.data) == ("failed", "broken", {"n": 1})
        assert (job.original_queue, job.queue_name) == ("emails", "dead")
        assert job.tags == ("urgent",)
        assert await queue.get_job(job.id) is None
        assert (await queue.get_failed_count(), await dead.get_failed_count()) == (0, 1)


@pytest.mark.parametrize("criteria", [{}, {"name": "a"}, {"tag": "urgent"}], ids=repr)
async def test_it_is_found_where_it_is(queue: Queue, criteria: Any) -> None:
    async with dead_letters(queue) as dead:
        job = await buried(queue, dead, tags=["urgent"])
        assert [found.id for found in (await dead.find(**criteria)).jobs] == [job.id]
        assert (await queue.find(**criteria)).jobs == []
        await job.retry()
        assert [found.id for found in (await queue.find(**criteria)).jobs] == [job.id]
        assert (await dead.find(**criteria)).jobs == []


async def test_a_custom_id_goes_along(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        assert (await buried(queue, dead, job_id="order-7")).id == "order-7"


async def test_the_history_goes_along(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        job = await buried(queue, dead, attempts=3)
        attempts = await job.get_attempts()
        assert [attempt.error for attempt in attempts] == ["broken"] * 3
        assert len(job.stacktrace) == 3
        assert job.attempts_made == 3


async def test_logs_and_progress_go_along(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.log("before the end")
        await job.update_progress(99)
        raise ValueError("broken")

    async with dead_letters(queue) as dead:
        async with Worker(queue, work):
            job = await queue.add("a")
            with pytest.raises(JobFailed):
                await job.result(timeout="10s")
        moved = await again(dead, job)
        assert moved.progress == 99
        assert (await moved.get_logs())["logs"][0]["message"] == "before the end"


async def test_a_job_with_tries_left_does_not_move(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        async with Worker(queue, fail):
            await queue.add("a", attempts=2, backoff="1h")
            await until(lambda: queue.get_delayed_count())
        assert await dead.get_job_count_by_types() == 0


async def test_an_unrecoverable_error_is_a_dead_letter(queue: Queue) -> None:
    async def work(job: Job) -> None:
        raise UnrecoverableError("hopeless")

    async with dead_letters(queue) as dead:
        async with Worker(queue, work):
            job = await queue.add("a", attempts=5)
            with pytest.raises(JobFailed):
                await job.result(timeout="10s")
        assert (await again(dead, job)).failed_reason == "hopeless"


async def test_a_job_that_stalled_too_often_is_a_dead_letter(queue: Queue) -> None:
    async def hang(job: Job) -> None:
        await take_away(queue)
        await asyncio.sleep(0.05)

    async with dead_letters(queue) as dead:
        async with Worker(queue, hang, max_stalled_count=0):
            job = await queue.add("a")
            with pytest.raises(JobFailed, match="stalled"):
                await job.result(timeout="10s")
        moved = await again(dead, job)
        assert (moved.outcome, moved.original_queue) == ("stalled", "emails")


async def test_a_job_that_timed_out_is_a_dead_letter(queue: Queue) -> None:
    async def hang(job: Job) -> None:
        await asyncio.Event().wait()

    async with dead_letters(queue) as dead:
        async with Worker(queue, hang):
            job = await queue.add("a", timeout=30)
            with pytest.raises(JobFailed):
                await job.result(timeout="10s")
        assert (await again(dead, job)).outcome == "timed-out"


async def test_a_job_failed_by_hand_is_a_dead_letter(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        await queue.add("a")
        async with Worker(queue, None) as worker:
            job = await worker.get_next_job()
            assert job is not None
            await job.move_to_failed("by hand")
        assert (await again(dead, job)).failed_reason == "by hand"


async def test_a_job_whose_id_is_taken_there_stays_where_it_failed(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        await dead.add("other", job_id="x")
        async with Worker(queue, fail):
            job = await queue.add("a", job_id="x")
            with pytest.raises(JobFailed):
                await job.result(timeout="10s")
        stays = await again(queue, job)
        assert (stays.state, stays.original_queue) == ("failed", None)
        assert (await again(dead, job)).name == "other"


async def test_an_id_is_free_at_home_once_its_job_is_a_dead_letter(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        first = await buried(queue, dead, job_id="x")
        second = await queue.add("a", job_id="x")
        assert first.pk != second.pk


async def test_failures_that_are_to_go_are_dead_letters_all_the_same(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        assert (await buried(queue, dead, remove_on_fail=True)).state == "failed"


async def test_the_workers_of_the_dead_letter_queue_leave_them_alone(queue: Queue) -> None:
    async with dead_letters(queue) as dead, Worker(dead, echo):
        job = await buried(queue, dead)
        await asyncio.sleep(0.1)
        assert (await again(dead, job)).state == "failed"


async def test_many_fail_at_once_and_all_move(queue: Queue) -> None:
    async with dead_letters(queue) as dead, Worker(queue, fail, concurrency=20):
        await queue.add_bulk([{"name": "a", "opts": {"priority": n % 3}} for n in range(200)])
        await until(lambda: all_buried(dead, 200))
        assert await queue.get_job_count_by_types() == 0


async def all_buried(dead: Queue, number: int) -> bool:
    return await dead.get_failed_count() == number


# --- going home ----------------------------------------------------------------------------------


async def test_a_retried_dead_letter_goes_home(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        job = await buried(queue, dead)
        retried = await dead.retry_job(job.id)
        assert (retried.state, retried.queue_name) == ("waiting", "emails")
        assert (retried.original_queue, retried.failed_reason) == (None, None)
        assert await dead.get_job(job.id) is None
        async with Worker(queue, echo):
            assert await retried.result(timeout="10s") == {"n": 1}
        assert len(await (await again(queue, job)).get_attempts()) == 2


async def test_a_dead_letter_may_go_home_for_later(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        job = await buried(queue, dead, attempts=2)
        retried = await dead.retry_job(job.id, delay="1h", reset_attempts=True)
        assert (retried.state, retried.attempts_made) == ("delayed", 0)
        assert await queue.get_delayed_count() == 1


async def test_the_job_itself_may_be_told_to_go_home(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        job = await buried(queue, dead)
        await job.retry()
        assert (await again(queue, job)).state == "waiting"


async def test_all_dead_letters_go_home(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        jobs = [await buried(queue, dead, job_id=f"job-{n}") for n in range(3)]
        assert set(await dead.retry_jobs()) == {job.id for job in jobs}
        assert await queue.get_waiting_count() == 3
        assert await dead.get_job_count_by_types() == 0


async def test_a_dead_letter_whose_id_is_taken_at_home_stays(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        job = await buried(queue, dead, job_id="x")
        await queue.add("other", job_id="x")
        with pytest.raises(JobIdTaken, match="x"):
            await dead.retry_job("x")
        assert (await again(dead, job)).state == "failed"


async def test_one_that_cannot_go_home_does_not_keep_the_others(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        for id in ("x", "y", "z"):
            await buried(queue, dead, job_id=id)
        await queue.add("other", job_id="x")
        assert await dead.retry_jobs(count=1) == ["y", "z"]


async def test_a_dead_letter_goes_home_to_its_rank(location: str) -> None:
    """The two queues may count priorities in opposite ways."""
    async with (
        Queue("emails", location, priority_order="high", dead_letter="dead") as queue,
        Queue("dead", queue.store, priority_order="low") as dead,
    ):
        job = await buried(queue, dead, priority=5)
        await queue.add("less", priority=1)
        await queue.add("more", priority=9)
        await dead.retry_job(job.id)
        assert [each.priority for each in await queue.get_prioritized()] == [9, 5, 1]


async def test_a_dead_letter_goes_home_to_a_queue_that_is_served_by_name(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        job = await buried(queue, dead)
        async with Worker(queue, {"a": echo}):
            await dead.retry_job(job.id)
            assert await job.result(timeout="10s") == {"n": 1}


async def test_a_dead_letter_may_be_removed_and_restored(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        job = await buried(queue, dead)
        assert await dead.remove(job.id) is True
        restored = await dead.restore(job.id)
        assert (restored.state, restored.original_queue) == ("failed", "emails")


async def test_a_dead_letter_that_fails_again_comes_back(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        job = await buried(queue, dead)
        async with Worker(queue, fail):
            await dead.retry_job(job.id)
            await until(lambda: all_buried(dead, 1))
        assert (await again(dead, job)).original_queue == "emails"


# --- the setting ---------------------------------------------------------------------------------


async def test_the_setting_may_be_given_with_the_queue(location: str) -> None:
    async with Queue("emails", location, dead_letter="dead") as queue:
        assert (await queue.get_meta())["dead_letter"] == "dead"
    async with Queue("emails", location) as queue:
        assert (await queue.get_meta())["dead_letter"] == "dead"


async def test_the_setting_may_be_taken_back(queue: Queue) -> None:
    async with dead_letters(queue) as dead:
        await queue.configure(dead_letter=None)
        async with Worker(queue, fail):
            with pytest.raises(JobFailed):
                await (await queue.add("a")).result(timeout="10s")
        assert await dead.get_job_count_by_types() == 0


async def test_a_queue_is_not_its_own_dead_letter_queue(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match="dead_letter"):
        await queue.configure(dead_letter="emails")


async def test_a_dead_letter_queue_has_a_good_name(queue: Queue) -> None:
    for name in ["", "a\x00b", "x" * 256, 5]:
        with case(name):
            with pytest.raises((ValueError, TypeError), match="dead_letter"):
                await queue.configure(dead_letter=name)
            assert (await queue.get_meta())["dead_letter"] is None


async def test_dead_letters_hold_for_workers_in_other_objects_at_once(
    queue: Queue, location: str
) -> None:
    async with Queue("emails", location) as other, Worker(other, fail):
        await other.wait_until_ready()
        async with dead_letters(queue) as dead:
            job = await queue.add("a")
            with pytest.raises(JobFailed):
                await job.result(timeout="10s")
            assert (await again(dead, job)).state == "failed"
