"""Changing jobs that are there: data, delay, priority, and letting them run again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bullite import IllegalMove, Job, JobFailed, JobNotFound, Queue, Worker
from bullite.client.runtime import bridge
from bullite.core.event_log import UNCOUNTED
from bullite.errors import BulliteError, InvalidOption, PayloadTooLarge, UnserializableData
from tests.support.helpers import again, case, fresh, state_of, until

STATES = ("waiting", "prioritized", "delayed", "active", "completed", "failed")


async def work(job: Job) -> Any:
    if job.name == "bad":
        raise ValueError("broken")
    return job.data


@asynccontextmanager
async def job_in(queue: Queue, state: str) -> AsyncIterator[Job]:
    """A job in a state, seen from outside."""
    options: Any = {"prioritized": {"priority": 5}, "delayed": {"delay": "1h"}}.get(state, {})
    job = await queue.add("bad" if state == "failed" else "good", "old", **options)
    if state in ("completed", "failed"):
        async with Worker(queue, work):
            await until(lambda: is_in(queue, job, state))
    async with Worker(queue, None) as worker:
        held = await worker.get_next_job() if state == "active" else None
        yield await again(queue, job)
        if held is not None:
            await held.move_to_completed()


async def is_in(queue: Queue, job: Job, state: str) -> bool:
    return await state_of(queue, job) == state


async def failed_job(queue: Queue, **options: Any) -> Job:
    async with Worker(queue, work):
        job = await queue.add("bad", "old", **options)
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
    return await again(queue, job)


async def completed_job(queue: Queue, **options: Any) -> Job:
    async with Worker(queue, work):
        job = await queue.add("good", "old", **options)
        await job.result(timeout="10s")
    return await again(queue, job)


# --- data ----------------------------------------------------------------------------------------


async def test_data_may_be_replaced_in_every_state(queue: Queue) -> None:
    for state in STATES:
        with case(state):
            queue = fresh(queue)
            async with job_in(queue, state) as job:
                await job.update_data({"new": [1, 2]})
                assert job.data == {"new": [1, 2]}
                now = await again(queue, job)
                assert (now.data, now.state) == ({"new": [1, 2]}, state)


async def test_a_later_attempt_sees_the_new_data(queue: Queue) -> None:
    async def count(job: Job) -> int:
        if job.data < 3:
            await job.update_data(job.data + 1)
            raise ValueError("again")
        return job.data

    async with Worker(queue, count):
        assert await (await queue.add("a", 1, attempts=5)).result(timeout="10s") == 3


async def test_a_thread_may_replace_the_data(queue: Queue) -> None:
    def replace(job: Job) -> None:
        job.update_data("new").result()

    async with Worker(queue, replace):
        job = await queue.add("a", "old")
        await job.result(timeout="10s")
    assert (await again(queue, job)).data == "new"


async def test_data_that_cannot_be_stored_is_refused_and_the_old_stays(queue: Queue) -> None:
    for bad in [float("nan"), object(), {"a": float("inf")}, "\ud800", {1, object()}]:
        with case(bad):
            job = await queue.add("a", "old")
            with pytest.raises(UnserializableData, match="data"):
                await job.update_data(bad)
            assert job.data == "old"
            assert (await again(queue, job)).data == "old"


async def test_new_data_may_be_as_large_as_the_first_and_not_larger(queue: Queue) -> None:
    job = await queue.add("a", "old")
    await job.update_data("x" * (1024 * 1024 - 2))
    with pytest.raises(PayloadTooLarge, match="1048576"):
        await job.update_data("x" * (1024 * 1024 - 1))
    assert len((await again(queue, job)).data) == 1024 * 1024 - 2


async def test_new_data_keeps_to_the_jobs_own_limit(queue: Queue) -> None:
    job = await queue.add("a", "old", size_limit=10)
    with pytest.raises(PayloadTooLarge, match="10"):
        await job.update_data("x" * 20)
    assert (await again(queue, job)).data == "old"


# --- delay ---------------------------------------------------------------------------------------


async def test_a_delayed_job_may_be_due_at_another_time(queue: Queue) -> None:
    job = await queue.add("a", delay="1h")
    await job.change_delay("2h")
    now = await again(queue, job)
    assert (now.state, now.delay) == ("delayed", 7_200_000)
    assert now.process_at is not None
    assert now.process_at - datetime.now(UTC) > timedelta(minutes=110)


async def test_a_delayed_job_may_be_due_sooner(queue: Queue) -> None:
    async with Worker(queue, work):
        job = await queue.add("good", 1, delay="1h")
        await job.change_delay(20)
        assert await job.result(timeout="10s") == 1


async def test_a_delayed_job_may_be_due_at_once(queue: Queue) -> None:
    async with Worker(queue, work):
        job = await queue.add("good", 1, delay="1h")
        await job.change_delay(0)
        assert await job.result(timeout="10s") == 1


async def test_only_a_delayed_job_has_a_delay_to_change(queue: Queue) -> None:
    for state in [state for state in STATES if state != "delayed"]:
        with case(state):
            queue = fresh(queue)
            async with job_in(queue, state) as job:
                with pytest.raises(IllegalMove, match="delayed"):
                    await job.change_delay(1_000)
                assert await state_of(queue, job) == state


async def test_a_delayed_job_may_be_promoted(queue: Queue) -> None:
    async with Worker(queue, work):
        job = await queue.add("good", 1, delay="1h")
        await job.promote()
        assert await job.result(timeout="10s") == 1
    assert (await again(queue, job)).delay == 0


async def test_a_promoted_job_keeps_its_priority(queue: Queue) -> None:
    job = await queue.add("a", delay="1h", priority=4)
    await job.promote()
    assert job.state == "prioritized"
    assert await state_of(queue, job) == "prioritized"


async def test_only_a_delayed_job_can_be_promoted(queue: Queue) -> None:
    for state in [state for state in STATES if state != "delayed"]:
        with case(state):
            queue = fresh(queue)
            async with job_in(queue, state) as job:
                with pytest.raises(IllegalMove, match="delayed"):
                    await job.promote()


async def test_all_delayed_jobs_are_promoted_in_the_order_of_their_time(queue: Queue) -> None:
    for number, hours in enumerate((3, 1, 2)):
        await queue.add("a", number, delay=f"{hours}h")
    await queue.add("a", "waits")
    assert len(await queue.promote_jobs(count=2)) == 3
    assert [job.data for job in await queue.get_waiting()] == ["waits", 1, 2, 0]


async def test_jobs_that_say_they_were_made_later_are_promoted_too(queue: Queue) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    job = await queue.add("a", timestamp=later, delay=1_000)
    assert await queue.promote_jobs() == [job.id]


async def test_promoting_nothing_is_nothing(queue: Queue) -> None:
    assert await queue.promote_jobs() == []


# --- priority ------------------------------------------------------------------------------------


async def test_a_priority_may_be_changed_until_the_job_has_ended(queue: Queue) -> None:
    for state in ["waiting", "prioritized", "delayed", "active"]:
        with case(state):
            queue = fresh(queue)
            async with job_in(queue, state) as job:
                await job.change_priority(9)
                assert job.priority == 9
                now = await again(queue, job)
                assert now.priority == 9
                assert now.state == ("prioritized" if state == "waiting" else state)


async def test_a_finished_job_has_no_priority_to_change(queue: Queue) -> None:
    for state in ["completed", "failed"]:
        with case(state):
            queue = fresh(queue)
            async with job_in(queue, state) as job:
                with pytest.raises(IllegalMove, match=state):
                    await job.change_priority(9)
                assert (await again(queue, job)).priority == 0


async def test_a_priority_may_be_taken_away(queue: Queue) -> None:
    job = await queue.add("a", priority=5)
    await job.change_priority(0)
    assert await state_of(queue, job) == "waiting"
    assert await queue.get_job_counts("waiting", "prioritized") == {"waiting": 1, "prioritized": 0}


async def test_a_changed_job_goes_to_the_end_of_its_new_line(queue: Queue) -> None:
    first, second = await queue.add("a", 1, priority=9), await queue.add("a", 2, priority=3)
    await first.change_priority(3)
    assert [job.data for job in await queue.get_prioritized()] == [2, 1]
    await first.change_priority(3, lifo=True)
    assert [job.data for job in await queue.get_prioritized()] == [1, 2]
    await second.change_priority(lifo=True)
    assert [job.data for job in await queue.get_prioritized()] == [2, 1]


async def test_a_delayed_job_waits_with_its_new_priority(queue: Queue) -> None:
    job = await queue.add("a", 1, delay="1h")
    await queue.add("a", 2, priority=5)
    await job.change_priority(3)
    await job.promote()
    assert [each.data for each in await queue.get_prioritized()] == [1, 2]


async def test_a_running_job_is_tried_again_with_its_new_priority(queue: Queue) -> None:
    await queue.add("a", 1, attempts=2)
    async with Worker(queue, None) as worker:
        job = await worker.get_next_job()
        assert job is not None
        await queue.add("a", 2, priority=5)
        await job.change_priority(9)
        await job.move_to_failed("again")
    assert [each.data for each in await queue.get_prioritized()] == [2, 1]


# --- again ---------------------------------------------------------------------------------------


async def test_a_failed_job_may_run_once_more(queue: Queue) -> None:
    job = await failed_job(queue, attempts=2)
    await job.retry()
    now = await again(queue, job)
    assert (now.state, now.failed_reason, now.finished_at) == ("waiting", None, None)
    assert (now.attempts_made, now.attempts_started, now.outcome) == (2, 2, None)
    async with Worker(queue, work):
        with pytest.raises(JobFailed):
            await now.result(timeout="10s")
    assert (await again(queue, job)).attempts_made == 3


async def test_attempts_may_be_reset(queue: Queue) -> None:
    job = await failed_job(queue, attempts=2)
    await job.retry(reset_attempts=True)
    assert (job.attempts_made, job.state) == (0, "waiting")
    async with Worker(queue, work):
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
    assert (await again(queue, job)).attempts_made == 2


async def test_a_retry_may_wait(queue: Queue) -> None:
    job = await failed_job(queue)
    await job.retry(delay="1h")
    now = await again(queue, job)
    assert (now.state, now.delay, now.failed_reason) == ("delayed", 3_600_000, None)


async def test_a_retry_that_waits_runs_when_its_time_comes(queue: Queue) -> None:
    job = await completed_job(queue)
    async with Worker(queue, work):
        await job.retry("completed", delay=30)
        await until(lambda: made_two_attempts(queue, job))


async def made_two_attempts(queue: Queue, job: Job) -> bool:
    return (await again(queue, job)).attempts_made == 2


async def test_a_completed_job_runs_again_when_asked_so(queue: Queue) -> None:
    job = await completed_job(queue)
    with pytest.raises(IllegalMove):
        await job.retry()
    await job.retry("completed")
    now = await again(queue, job)
    assert (now.state, now.return_value, now.attempts_made) == ("waiting", None, 1)


async def test_what_has_not_failed_is_not_retried(queue: Queue) -> None:
    for state in ["waiting", "prioritized", "delayed", "active", "completed"]:
        with case(state):
            queue = fresh(queue)
            async with job_in(queue, state) as job:
                with pytest.raises(IllegalMove, match="failed"):
                    await job.retry()
                assert await state_of(queue, job) == state


async def test_a_retry_keeps_the_jobs_priority(queue: Queue) -> None:
    job = await failed_job(queue, priority=4)
    await job.retry()
    assert await state_of(queue, job) == "prioritized"


async def test_a_retry_goes_to_the_end_of_the_line(queue: Queue) -> None:
    job = await failed_job(queue)
    other = await queue.add("a")
    await job.retry()
    assert [each.id for each in await queue.get_waiting()] == [other.id, job.id]


async def test_the_queue_retries_a_job_by_its_id(queue: Queue) -> None:
    await failed_job(queue, job_id="x", attempts=3)
    job = await queue.retry_job("x", reset_attempts=True, delay="1h")
    assert (job.id, job.state, job.attempts_made) == ("x", "delayed", 0)
    with pytest.raises(JobNotFound):
        await queue.retry_job("nobody")


async def test_a_retry_is_no_error_when_the_job_is_gone_before_one_can_look(queue: Queue) -> None:
    async def second_time(job: Job) -> None:
        if job.attempts_made == 0:
            raise ValueError("not yet")

    async with Worker(queue, second_time, concurrency=5):
        jobs = await queue.add_bulk([{"name": "a", "opts": {"remove_on_complete": True}}] * 30)
        await until(lambda: count_is(queue, "failed", 30))
        for job in jobs:
            await queue.retry_job(job.id)
        await until(lambda: count_is(queue, "failed", 0))


async def test_all_failed_jobs_run_again(queue: Queue) -> None:
    async with Worker(queue, work):
        jobs = await queue.add_bulk([{"name": "bad", "data": n} for n in range(25)])
        await until(lambda: count_is(queue, "failed", 25))
    ids = await queue.retry_jobs(count=10)
    assert set(ids) == {job.id for job in jobs}
    assert await queue.get_waiting_count() == 25


async def count_is(queue: Queue, state: str, number: int) -> bool:
    return (await queue.get_job_counts(state))[state] == number


async def test_all_completed_jobs_run_again(queue: Queue) -> None:
    job, failed = await completed_job(queue), await failed_job(queue)
    assert await queue.retry_jobs(state="completed") == [job.id]
    assert await state_of(queue, failed) == "failed"


async def test_only_jobs_that_ended_by_then_run_again(queue: Queue) -> None:
    early = await failed_job(queue)
    await asyncio.sleep(0.02)
    then = datetime.now(UTC)
    await asyncio.sleep(0.02)
    late = await failed_job(queue)
    assert await queue.retry_jobs(timestamp=then) == [early.id]
    assert await state_of(queue, late) == "failed"


async def test_many_may_have_their_attempts_reset(queue: Queue) -> None:
    job = await failed_job(queue, attempts=3)
    await queue.retry_jobs(reset_attempts=True)
    assert (await again(queue, job)).attempts_made == 0


async def test_many_may_run_again_after_a_delay(queue: Queue) -> None:
    job = await failed_job(queue)
    assert await queue.retry_jobs(delay="1h") == [job.id]
    assert (await again(queue, job)).delay == 3_600_000
    assert await state_of(queue, job) == "delayed"


async def test_only_jobs_that_fit_run_again(queue: Queue) -> None:
    first, second = await failed_job(queue), await failed_job(queue)
    assert await queue.retry_jobs(fits=lambda job: job.id == second.id) == [second.id]
    assert await state_of(queue, first) == "failed"


async def test_it_is_told_how_many_run_again_so_far(queue: Queue) -> None:
    for _ in range(5):
        await failed_job(queue)
    told: list[int] = []
    await queue.retry_jobs(count=2, on_piece=told.append)
    assert told == [2, 4, 5]


async def test_a_worker_that_fails_jobs_again_does_not_keep_retry_jobs_for_ever(
    queue: Queue,
) -> None:
    async with Worker(queue, work, concurrency=5):
        await queue.add_bulk([{"name": "bad"}] * 50)
        await until(lambda: count_is(queue, "failed", 50))
        assert len(await queue.retry_jobs(count=5)) == 50
        await until(lambda: count_is(queue, "failed", 50))


async def test_only_finished_jobs_run_again(queue: Queue) -> None:
    for state in ["waiting", "delayed", "", "removed"]:
        with case(state), pytest.raises(InvalidOption, match="state"):
            await queue.retry_jobs(state=state)


# --- progress from outside -----------------------------------------------------------------------


async def test_progress_may_be_told_from_outside(queue: Queue) -> None:
    for state in STATES:
        with case(state):
            queue = fresh(queue)
            async with job_in(queue, state) as job:
                await queue.update_job_progress(job.id, {"step": 3})
                assert (await again(queue, job)).progress == {"step": 3}


async def test_progress_of_nobody_is_refused(queue: Queue) -> None:
    with pytest.raises(JobNotFound):
        await queue.update_job_progress("nobody", 5)


async def test_the_queue_hears_of_progress_from_outside(queue: Queue) -> None:
    heard: list[Any] = []
    queue.on("progress", lambda job_id, progress: heard.append((job_id, progress)))
    job = await queue.add("a")
    await queue.update_job_progress(job.id, 42)
    assert heard == [(job.id, 42)]


async def test_every_change_sets_the_time_of_the_last_one(queue: Queue) -> None:
    job = await queue.add("a", delay="1h")
    for change in (lambda: job.change_delay("2h"), lambda: job.change_priority(3), job.promote):
        before = (await again(queue, job)).updated_at
        await asyncio.sleep(0.005)
        await change()
        assert (await again(queue, job)).updated_at > before


async def test_a_job_that_is_gone_cannot_be_changed(queue: Queue) -> None:
    job = await queue.add("a", delay="1h")
    await queue.obliterate()
    for call in (
        lambda: job.update_data(1),
        lambda: job.change_delay(1),
        lambda: job.change_priority(1),
        lambda: job.promote(),
        lambda: job.retry(),
        lambda: job.remove(),
        lambda: job.log("line"),
    ):
        with pytest.raises(BulliteError):
            await call()


async def test_promoting_takes_no_more_at_a_time_than_it_is_told(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a", "opts": {"delay": "1h"}}] * 350)
    assert len(await queue.promote_jobs(count=100)) == 350
    page = {"queue": None, "after": 0, "most": 100, **UNCOUNTED}
    rows = await bridge.query(queue.store, "events_after", page)
    sizes = [len(json.loads(row[3])) for row in rows if row[2] == "promote"]
    assert sizes == [100, 100, 100, 50]
