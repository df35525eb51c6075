"""Which finished jobs stay, and for how long."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bullite import Job, JobFailed, JobNotFound, Queue, Scheduler, Worker
from bullite.client.runtime import bridge
from bullite.core.event_log import UNCOUNTED
from bullite.operations.queues import Settings
from bullite.operations.retention import PruneQueue
from tests.support.helpers import case, fresh, until


async def work(job: Job) -> Any:
    if job.name == "bad":
        raise ValueError("broken")
    return job.data


async def finished(queue: Queue, count: int, name: str = "good", **options: Any) -> list[Job]:
    """Jobs run one after the other, the oldest first."""
    jobs = []
    for number in range(count):
        jobs.append(await queue.add(name, number, **options))
        try:
            await jobs[-1].result(timeout="10s")
        except JobFailed:
            pass
    return jobs


async def kept(queue: Queue, state: str = "completed") -> list[Any]:
    return [job.data for job in await queue.get_jobs(state, asc=True)]


async def sweep(queue: Queue) -> None:
    """What housekeeping does every few seconds."""
    await bridge.submit(queue.store, PruneQueue(queue._pk))


# --- when a job ends -----------------------------------------------------------------------------


async def test_a_completed_job_is_kept_unless_it_says_otherwise(queue: Queue) -> None:
    async with Worker(queue, work):
        await finished(queue, 3)
    assert await kept(queue) == [0, 1, 2]


async def test_a_completed_job_may_go_at_once(queue: Queue) -> None:
    async with Worker(queue, work):
        [job] = await finished(queue, 1, remove_on_complete=True)
    assert await queue.get_job(job.id) is None
    assert await queue.get_completed_count() == 0


async def test_who_waits_for_a_job_that_goes_at_once_gets_its_result(queue: Queue) -> None:
    async with Worker(queue, work):
        job = await queue.add("good", {"a": 1}, remove_on_complete=True)
        assert await job.result(timeout="10s") == {"a": 1}


async def test_who_asks_later_for_the_result_of_a_job_that_went_at_once_gets_it(
    queue: Queue,
) -> None:
    async with Worker(queue, work):
        job = await queue.add("good", {"a": 1}, remove_on_complete=True)
        await until(lambda: is_gone(queue, job))
        assert await job.result(timeout="10s") == {"a": 1}


async def test_a_large_result_that_went_with_its_job_is_not_mistaken_for_none(
    queue: Queue,
) -> None:
    async with Worker(queue, work):
        job = await queue.add("good", "x" * 10_000, remove_on_complete=True)
        await until(lambda: is_gone(queue, job))
        with pytest.raises(JobNotFound):
            await job.result(timeout="10s")


async def test_the_result_of_a_job_that_went_is_not_that_of_another_with_its_id(
    queue: Queue,
) -> None:
    async with Worker(queue, work):
        jobs = []
        for number in range(2):
            jobs.append(await queue.add("good", number, job_id="x", remove_on_complete=True))
            await until(lambda: is_gone(queue, jobs[-1]))
            await asyncio.sleep(0.01)
        assert [await job.result(timeout="10s") for job in jobs] == [0, 1]


async def is_gone(queue: Queue, job: Job) -> bool:
    return await queue.get_job(job.id) is None


async def test_a_job_that_went_cannot_be_restored(queue: Queue) -> None:
    async with Worker(queue, work):
        [job] = await finished(queue, 1, remove_on_complete=True)
    with pytest.raises(JobNotFound):
        await queue.restore(job.id)


async def test_what_goes_leaves_nothing_behind(queue: Queue, location: str) -> None:
    """The fixture verifies that no payload, result, attempt or log is left without its job."""

    async def talk(job: Job) -> str:
        await job.log("a line")
        await job.update_progress(50)
        if job.attempts_made == 0:
            raise ValueError("not yet")
        return "result"

    async with Worker(queue, talk):
        job = await queue.add("a", attempts=2, remove_on_complete=True)
        assert await job.result(timeout="10s") == "result"
    assert await queue.get_job_count_by_types() == 0


async def test_a_failed_job_may_go_at_once(queue: Queue) -> None:
    async with Worker(queue, work):
        job = await queue.add("bad", remove_on_fail=True)
        with pytest.raises(JobFailed, match="broken"):
            await job.result(timeout="10s")
    assert await queue.get_job(job.id) is None


async def test_a_job_with_tries_left_does_not_go(queue: Queue) -> None:
    async with Worker(queue, work):
        job = await queue.add("bad", attempts=2, backoff="1h", remove_on_fail=True)
        await until(lambda: queue.get_delayed_count())
    assert await queue.get_job(job.id) is not None


async def test_what_is_said_of_failures_does_not_hold_for_success(queue: Queue) -> None:
    async with Worker(queue, work):
        await finished(queue, 1, remove_on_fail=True)
        await finished(queue, 1, name="bad", remove_on_complete=True)
    counts = await queue.get_job_counts("completed", "failed")
    assert counts == {"completed": 1, "failed": 1}


@pytest.mark.parametrize("keep", [2, {"count": 2}])
async def test_so_many_of_the_newest_stay(queue: Queue, keep: Any) -> None:
    async with Worker(queue, work):
        await finished(queue, 5, remove_on_complete=keep)
    assert await kept(queue) == [3, 4]


async def test_so_many_of_the_newest_failures_stay(queue: Queue) -> None:
    async with Worker(queue, work):
        await finished(queue, 5, name="bad", remove_on_fail=2)
    assert await kept(queue, "failed") == [3, 4]


@pytest.mark.parametrize("keep", [0, {"count": 0}])
async def test_to_keep_none_is_to_go_at_once(queue: Queue, keep: Any) -> None:
    async with Worker(queue, work):
        await finished(queue, 1, remove_on_complete=keep)
    assert await kept(queue) == []


async def test_to_keep_all_is_to_keep_all(queue: Queue) -> None:
    for keep in [False, -1, {}, {"count": -1}]:
        with case(keep):
            queue = fresh(queue)
            async with Worker(queue, work):
                await finished(queue, 3, remove_on_complete=keep)
            assert await kept(queue) == [0, 1, 2]


@pytest.mark.parametrize("age", [0.2, timedelta(milliseconds=200), "200ms"])
async def test_what_is_too_old_goes_when_another_ends(queue: Queue, age: Any) -> None:
    async with Worker(queue, work):
        await finished(queue, 3)
        await asyncio.sleep(0.3)
        await finished(queue, 1, remove_on_complete={"age": age})
    assert await kept(queue) == [0]
    assert await queue.get_completed_count() == 1


async def test_an_age_in_numbers_is_in_seconds(queue: Queue) -> None:
    async with Worker(queue, work):
        await finished(queue, 2)
        await asyncio.sleep(0.05)
        await finished(queue, 1, remove_on_complete={"age": 30})
    assert await queue.get_completed_count() == 3


async def test_age_and_count_hold_together(queue: Queue) -> None:
    async with Worker(queue, work):
        await finished(queue, 3, remove_on_complete={"age": 3_600, "count": 2})
    assert await kept(queue) == [1, 2]


async def test_only_so_many_go_at_a_time(queue: Queue) -> None:
    async with Worker(queue, work):
        await finished(queue, 6)
        await finished(queue, 1, remove_on_complete={"count": 1, "limit": 2})
        assert await queue.get_completed_count() == 5
        await finished(queue, 1, remove_on_complete={"count": 1, "limit": 2})
        assert await queue.get_completed_count() == 4


async def test_many_jobs_that_end_at_once_leave_so_many(queue: Queue) -> None:
    async with Worker(queue, work, concurrency=50):
        options: Any = {"remove_on_complete": 7}
        jobs = await queue.add_bulk([{"name": "good", "opts": options}] * 300)
        await asyncio.gather(*(job.result(timeout="15s") for job in jobs))
    assert await queue.get_completed_count() == 7


async def test_a_job_that_went_leaves_its_id_to_others(queue: Queue) -> None:
    async with Worker(queue, work):
        first = await queue.add("good", 1, job_id="x", remove_on_complete=True)
        await first.result(timeout="10s")
        second = await queue.add("good", 2, job_id="x", remove_on_complete=True)
        assert await second.result(timeout="10s") == 2
    assert first.pk != second.pk


# --- who says so ---------------------------------------------------------------------------------


async def test_a_worker_decides_for_jobs_that_do_not(queue: Queue) -> None:
    async with Worker(queue, work, remove_on_complete=1, remove_on_fail=True):
        await finished(queue, 3)
        await finished(queue, 3, name="bad")
    assert await kept(queue) == [2]
    assert await kept(queue, "failed") == []


async def test_the_jobs_own_word_beats_its_workers(queue: Queue) -> None:
    async with Worker(queue, work, remove_on_complete=True, remove_on_fail=True):
        await finished(queue, 2, remove_on_complete=False)
        await finished(queue, 2, name="bad", remove_on_fail=5)
    assert await queue.get_job_counts("completed", "failed") == {"completed": 2, "failed": 2}


async def test_the_defaults_of_the_queue_hold_for_its_jobs(location: str) -> None:
    defaults: Any = {"remove_on_complete": True}
    async with (
        Queue("emails", location, default_job_options=defaults) as queue,
        Worker(queue, work),
    ):
        await finished(queue, 1)
        assert await kept(queue) == []
        await finished(queue, 1, remove_on_complete=False)
        assert await kept(queue) == [0]


async def test_stored_defaults_beat_the_worker(queue: Queue) -> None:
    await queue.configure(default_job_options={"remove_on_complete": False})
    async with Worker(queue, work, remove_on_complete=True):
        await finished(queue, 1)
    assert await kept(queue) == [0]


async def test_a_worker_decides_for_jobs_taken_by_hand_too(queue: Queue) -> None:
    done, failed = await queue.add("good"), await queue.add("bad")
    async with Worker(queue, remove_on_complete=True, remove_on_fail=True) as worker:
        first, second = await worker.get_next_job(), await worker.get_next_job()
        assert first is not None
        assert second is not None
        await first.move_to_completed("done")
        await second.move_to_failed("broken")
    assert await queue.get_job(done.id) is None
    assert await queue.get_job(failed.id) is None


# --- settings of the queue -----------------------------------------------------------------------


async def test_a_new_queue_keeps_completed_jobs_for_a_week_and_failed_ones_for_ever(
    queue: Queue,
) -> None:
    meta = await queue.get_meta()
    assert meta["keep_completed_age"] == 7 * 24 * 3600 * 1000
    assert meta["keep_failed_age"] is None
    assert meta["keep_completed_count"] is None
    assert meta["keep_failed_count"] is None
    assert meta["trash_age"] == 24 * 3600 * 1000
    assert meta["max_events"] == 10_000


async def test_a_sweep_leaves_what_is_young_enough(queue: Queue) -> None:
    async with Worker(queue, work):
        await finished(queue, 2)
        await finished(queue, 2, name="bad")
    await sweep(queue)
    assert await queue.get_job_counts("completed", "failed") == {"completed": 2, "failed": 2}


async def test_completed_jobs_past_the_queues_age_are_swept(queue: Queue) -> None:
    await queue.configure(keep_completed=50)
    async with Worker(queue, work):
        await finished(queue, 3)
        await finished(queue, 2, name="bad")
        await asyncio.sleep(0.1)
        await sweep(queue)
    assert await queue.get_job_counts("completed", "failed") == {"completed": 0, "failed": 2}


async def test_failed_jobs_past_the_queues_age_are_swept(queue: Queue) -> None:
    await queue.configure(keep_failed="50ms")
    async with Worker(queue, work):
        await finished(queue, 3)
        await finished(queue, 2, name="bad")
        await asyncio.sleep(0.1)
        await sweep(queue)
    assert await queue.get_job_counts("completed", "failed") == {"completed": 3, "failed": 0}


async def test_more_than_the_queues_number_are_swept(queue: Queue) -> None:
    await queue.configure(keep_completed={"count": 2}, keep_failed={"count": 1})
    async with Worker(queue, work):
        await finished(queue, 4)
        await finished(queue, 3, name="bad")
        await sweep(queue)
    assert await kept(queue) == [2, 3]
    assert await kept(queue, "failed") == [2]


async def test_a_queue_may_keep_everything_for_ever(queue: Queue) -> None:
    meta = await queue.configure(keep_completed=None)
    assert meta["keep_completed_age"] is None
    async with Worker(queue, work):
        await finished(queue, 2)
        await sweep(queue)
    assert await queue.get_completed_count() == 2


async def test_housekeeping_sweeps_by_itself(location: str) -> None:
    settings: Any = {"keep_completed": {"count": 1}, "trash_age": 0, "max_events": 5}
    async with Queue("emails", location, **settings) as queue:
        async with Worker(queue, work):
            await finished(queue, 4)
        removed = await queue.add("good")
        await removed.remove()
        await asyncio.sleep(0.01)
    # A scheduler applies retention as soon as it starts.
    async with Queue("emails", location) as queue, Scheduler(queue.store):
        await until(lambda: is_one(queue))
        with pytest.raises(JobNotFound):
            await queue.restore(removed.id)


async def is_one(queue: Queue) -> bool:
    return await queue.get_completed_count() == 1


async def test_removed_jobs_past_the_trash_age_are_deleted(queue: Queue) -> None:
    await queue.configure(trash_age=0)
    job = await queue.add("a")
    await job.remove()
    await asyncio.sleep(0.01)
    await sweep(queue)
    await queue.configure(trash_age="1h")
    with pytest.raises(JobNotFound):
        await queue.restore(job.id)


async def test_the_log_of_events_is_capped_by_the_sweep(queue: Queue) -> None:
    await queue.configure(max_events=10)
    for number in range(30):
        await queue.add("a", number)
    await sweep(queue)
    page = {"after": 0, "queue": None, "most": 100, **UNCOUNTED}
    rows = await bridge.query(queue.store, "events_after", page)
    assert 5 <= len(rows) <= 10


async def test_every_setting_of_retention_is_told(queue: Queue) -> None:
    meta = await queue.configure(
        keep_completed={"age": 5, "count": 3},
        keep_failed={"age": "2h"},
        trash_age=timedelta(minutes=1),
        max_events=0,
    )
    wanted = {
        "keep_completed_age": 5_000,
        "keep_completed_count": 3,
        "keep_failed_age": 7_200_000,
        "keep_failed_count": None,
        "trash_age": 60_000,
        "max_events": 0,
    }
    assert {name: meta[name] for name in wanted} == wanted
    assert wanted.keys() >= {name for name in Settings._fields if name.startswith("keep_")}
