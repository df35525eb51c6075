"""Taking jobs out, and bringing them back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bullite import Job, JobFailed, JobIdTaken, JobLocked, JobNotFound, Queue, Store, Worker
from bullite.client.runtime import bridge
from bullite.errors import InvalidOption, QueueHasActiveJobs
from tests.support.helpers import again, state_of, until


async def work(job: Job) -> Any:
    if job.name == "bad":
        raise ValueError("broken")
    return job.data


async def run_all(queue: Queue) -> None:
    """Let everything that waits run."""
    async with Worker(queue, work):
        await until(lambda: nothing_left(queue))


async def nothing_left(queue: Queue) -> bool:
    return await queue.get_job_count_by_types("waiting", "prioritized", "active") == 0


async def in_every_state(queue: Queue) -> dict[str, Job]:
    """A job in each state that a job can be removed from."""
    completed, failed = await queue.add("good", 1), await queue.add("bad")
    await run_all(queue)
    return {
        "completed": completed,
        "failed": failed,
        "waiting": await queue.add("a"),
        "prioritized": await queue.add("a", priority=5),
        "delayed": await queue.add("a", delay="1h"),
    }


# --- one job -------------------------------------------------------------------------------------


async def test_a_removed_job_is_nowhere(queue: Queue) -> None:
    for state, job in (await in_every_state(queue)).items():
        assert await queue.remove(job.id) is True
        assert await queue.get_job(job.id) is None
        assert await queue.get_job_state(job.id) == "unknown"
        assert (await queue.get_job_counts(state))[state] == 0
        assert await queue.get_jobs(state) == []
    assert await queue.get_job_count_by_types() == 0


async def test_there_is_no_job_to_remove(queue: Queue) -> None:
    assert await queue.remove("nobody") is False
    assert await queue.remove_job("99") is False


async def test_a_running_job_is_not_removed(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await worker.get_next_job()
        assert job is not None
        assert await queue.remove(job.id) is False
        outside = await again(queue, job)
        with pytest.raises(JobLocked, match=job.id):
            await outside.remove()
        await job.move_to_completed()


async def test_a_removed_job_cannot_be_removed_again(queue: Queue) -> None:
    job = await queue.add("a")
    await job.remove()
    assert await queue.remove(job.id) is False
    with pytest.raises(JobNotFound):
        await job.remove()


async def test_a_removed_job_does_not_run(queue: Queue) -> None:
    ran: list[str] = []

    async def note(job: Job) -> None:
        ran.append(job.name)

    removed, stays = await queue.add("removed"), await queue.add("stays")
    await removed.remove()
    async with Worker(queue, note):
        await stays.result(timeout="10s")
    assert ran == ["stays"]


async def test_a_removed_job_changes_no_more(queue: Queue) -> None:
    job = await queue.add("a", delay="1h")
    await job.remove()
    for call in (
        lambda: job.promote(),
        lambda: job.retry(),
        lambda: job.change_delay(5),
        lambda: job.change_priority(5),
        lambda: job.update_data(5),
        lambda: job.log("line"),
        lambda: job.clear_logs(),
        lambda: queue.retry_job(job.id),
        lambda: queue.update_job_progress(job.id, 5),
        lambda: queue.add_job_log(job.id, "line"),
    ):
        with pytest.raises(JobNotFound):
            await call()


async def test_the_queue_tells_of_a_removed_job(queue: Queue) -> None:
    told: list[str] = []
    queue.on("removed", told.append)
    job = await queue.add("a")
    await queue.remove(job.id)
    assert told == [job.id]


# --- bringing back -------------------------------------------------------------------------------


async def test_a_removed_job_comes_back_to_where_it_was(queue: Queue) -> None:
    for state, job in (await in_every_state(queue)).items():
        before = await again(queue, job)
        await queue.remove(job.id)
        restored = await queue.restore(job.id)
        assert restored.state == state
        assert (restored.pk, restored.data) == (before.pk, before.data)
        assert (restored.return_value, restored.failed_reason, restored.process_at) == (
            before.return_value,
            before.failed_reason,
            before.process_at,
        )
        assert (await queue.get_job_counts(state))[state] == 1


async def test_a_restored_job_stands_where_it_stood(queue: Queue) -> None:
    jobs = [await queue.add("a", number) for number in range(3)]
    await jobs[0].remove()
    await queue.restore(jobs[0].id)
    assert [job.data for job in await queue.get_waiting()] == [0, 1, 2]


async def test_a_restored_job_runs(queue: Queue) -> None:
    job = await queue.add("a", 1)
    await job.remove()
    async with Worker(queue, work):
        await asyncio.sleep(0.05)
        assert await (await queue.restore(job.id)).result(timeout="10s") == 1


async def test_a_restored_delayed_job_is_due_when_it_was(queue: Queue) -> None:
    async with Worker(queue, work):
        job = await queue.add("a", 1, delay=100)
        await job.remove()
        await asyncio.sleep(0.15)
        restored = await queue.restore(job.id)
        assert await restored.result(timeout="10s") == 1


async def test_a_job_with_an_id_of_its_own_is_restored_by_it(queue: Queue) -> None:
    await (await queue.add("a", 1, job_id="x")).remove()
    assert (await queue.restore("x")).data == 1


async def test_of_several_removed_jobs_with_one_id_the_last_comes_back(queue: Queue) -> None:
    for number in range(3):
        await (await queue.add("a", number, job_id="x")).remove()
    assert (await queue.restore("x")).data == 2


async def test_a_removed_jobs_id_is_free(queue: Queue) -> None:
    first = await queue.add("a", 1, job_id="x")
    await first.remove()
    second = await queue.add("a", 2, job_id="x")
    assert (second.data, second.pk != first.pk) == (2, True)


async def test_a_job_whose_id_was_taken_meanwhile_does_not_come_back(queue: Queue) -> None:
    first = await queue.add("a", 1, job_id="x")
    await first.remove()
    await queue.add("a", 2, job_id="x")
    with pytest.raises(JobIdTaken, match="x"):
        await queue.restore("x")
    assert (await again(queue, first)).data == 2
    await queue.remove("x")
    assert (await queue.restore(str(first.pk))).data == 1


async def test_what_was_not_removed_cannot_be_restored(queue: Queue) -> None:
    job = await queue.add("a")
    for id in (job.id, "nobody", "99"):
        with pytest.raises(JobNotFound):
            await queue.restore(id)


async def test_a_job_is_restored_in_its_own_queue_only(queue: Queue) -> None:
    job = await queue.add("a", job_id="x")
    await job.remove()
    async with Queue("other", queue.store) as other:
        for id in ("x", str(job.pk)):
            with pytest.raises(JobNotFound):
                await other.restore(id)


async def test_a_job_is_restored_for_so_long_only(queue: Queue) -> None:
    await queue.configure(trash_age=30)
    job = await queue.add("a")
    await job.remove()
    await asyncio.sleep(0.06)
    with pytest.raises(JobNotFound):
        await queue.restore(job.id)


async def test_a_restored_job_keeps_its_history_and_logs(queue: Queue) -> None:
    job = await queue.add("bad")
    await job.log("a line")
    await run_all(queue)
    await queue.remove(job.id)
    restored = await queue.restore(job.id)
    assert [attempt.error for attempt in await restored.get_attempts()] == ["broken"]
    assert (await restored.get_logs())["count"] == 1


# --- draining ------------------------------------------------------------------------------------


async def test_draining_removes_what_waits(queue: Queue) -> None:
    jobs = await in_every_state(queue)
    await queue.drain()
    left = await queue.get_job_counts()
    assert {state for state, count in left.items() if count} == {"delayed", "completed", "failed"}
    assert (await queue.restore(jobs["prioritized"].id)).state == "prioritized"


async def test_draining_may_take_the_delayed_along(queue: Queue) -> None:
    await in_every_state(queue)
    await queue.empty(delayed=True)
    left = await queue.get_job_counts()
    assert {state for state, count in left.items() if count} == {"completed", "failed"}


async def test_draining_leaves_running_jobs_alone(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await worker.get_next_job()
        assert job is not None
        await queue.drain(delayed=True)
        await job.move_to_completed()
    assert await queue.get_completed_count() == 1


async def test_draining_takes_jobs_that_say_they_were_made_later(queue: Queue) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    await queue.add("a", timestamp=later)
    await queue.add("a", timestamp=later, priority=3)
    await queue.add("a", timestamp=later, delay=5)
    await queue.drain(delayed=True)
    assert await queue.get_job_count_by_types() == 0


async def test_draining_takes_many(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a", "opts": {"priority": n % 2}} for n in range(2_500)])
    await queue.drain()
    assert await queue.count() == 0


async def test_draining_a_queue_that_is_served_by_name(queue: Queue) -> None:
    async with Worker(queue, {"other": work}):
        await queue.add_bulk([{"name": "a", "opts": {"priority": n % 2}} for n in range(10)])
        await queue.drain()
        assert await queue.count() == 0


async def all_stand_in_lanes(queue: Queue) -> bool:
    return ("",) not in await bridge.query(queue.store, "lanes", {"queue": queue._pk})


async def test_draining_a_queue_while_its_jobs_are_sorted_by_name(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.add_bulk([{"name": "a"} for _ in range(10)])
    reads = bridge.query

    async def read_then_sort(store: Store, statement: str, params: Mapping[str, Any]) -> Any:
        rows = await reads(store, statement, params)
        if statement == "add_info":
            monkeypatch.setattr(bridge, "query", reads)
            async with Worker(queue, {"other": work}):
                await until(lambda: all_stand_in_lanes(queue))
        return rows

    monkeypatch.setattr(bridge, "query", read_then_sort)
    await queue.drain()
    assert await queue.count() == 0


# --- cleaning ------------------------------------------------------------------------------------


async def test_cleaning_removes_the_jobs_of_a_state(queue: Queue) -> None:
    for state, job in (await in_every_state(queue)).items():
        assert await queue.clean(0, state=state) == [job.id]
        assert (await queue.restore(job.id)).state == state
        await queue.remove(job.id)


async def test_cleaning_means_completed_jobs_unless_told(queue: Queue) -> None:
    jobs = await in_every_state(queue)
    assert await queue.clean(0) == [jobs["completed"].id]


async def test_cleaning_leaves_what_is_younger_than_its_grace(queue: Queue) -> None:
    await in_every_state(queue)
    for state in ("completed", "failed", "waiting", "delayed"):
        assert await queue.clean("1h", state=state) == []


async def test_cleaning_takes_the_oldest_first_up_to_its_limit(queue: Queue) -> None:
    jobs = [await queue.add("good", number) for number in range(5)]
    await run_all(queue)
    assert await queue.clean(0, 2) == [jobs[0].id, jobs[1].id]
    assert await queue.get_completed_count() == 3


async def test_cleaning_tells_custom_ids(queue: Queue) -> None:
    await queue.add("a", job_id="x")
    assert await queue.clean(0, state="waiting") == ["x"]


async def test_cleaning_never_takes_running_jobs(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await worker.get_next_job()
        assert job is not None
        assert await queue.clean(0, state="active") == []
        await job.move_to_completed()


async def test_cleaning_takes_more_than_one_piece(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a"}] * 2_100)
    assert len(await queue.clean(0, state="waiting")) == 2_100
    assert await queue.count() == 0


async def test_the_waiting_jobs_of_a_paused_queue_may_be_cleaned_as_paused(queue: Queue) -> None:
    plain, first = await queue.add("a"), await queue.add("a", priority=5)
    await queue.pause()
    assert set(await queue.clean(0, state="paused")) == {plain.id, first.id}
    await queue.resume()
    assert await queue.clean(0, state="paused") == []


async def test_an_unknown_state_is_not_cleaned(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match="state"):
        await queue.clean(0, state="dirty")


async def test_the_queue_tells_what_was_cleaned(queue: Queue) -> None:
    told: list[Any] = []
    queue.on("cleaned", lambda ids, state: told.append((ids, state)))
    job = await queue.add("a")
    await queue.clean(0, state="wait")
    assert told == [([job.id], "waiting")]


# --- obliterating --------------------------------------------------------------------------------


async def test_obliterating_deletes_everything_for_good(queue: Queue) -> None:
    jobs = await in_every_state(queue)
    removed = await queue.add("a")
    await removed.remove()
    await queue.obliterate()
    assert await queue.get_job_count_by_types() == 0
    for job in [*jobs.values(), removed]:
        with pytest.raises(JobNotFound):
            await queue.restore(job.id)


async def test_obliterating_makes_the_settings_as_new(queue: Queue) -> None:
    fresh = await queue.get_meta()
    await queue.configure(
        dead_letter="dead", keep_completed=5, trash_age=7, default_job_options={"attempts": 3}
    )
    await queue.pause()
    await queue.obliterate()
    meta = await queue.get_meta()
    assert meta | {"version": 0} == fresh | {"version": 0}
    assert (await queue.add("a")).attempts == 1


async def test_a_queue_with_running_jobs_is_not_obliterated(queue: Queue) -> None:
    waiting = None
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await worker.get_next_job()
        assert job is not None
        waiting = await queue.add("b")
        with pytest.raises(QueueHasActiveJobs, match="emails"):
            await queue.obliterate()
        assert await state_of(queue, waiting) == "waiting"
        await job.move_to_completed()
    assert await state_of(queue, job) == "completed"


async def test_by_force_running_jobs_are_torn_away(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    errors: list[Any] = []

    async def slow(job: Job) -> str:
        if job.name == "torn":
            begun.set()
            await go_on.wait()
        return job.name

    async with Worker(queue, slow) as worker:
        worker.on("error", errors.append)
        await queue.add("torn")
        await begun.wait()
        await queue.obliterate(force=True)
        assert await queue.get_job_count_by_types() == 0
        go_on.set()
        await until(lambda: errors)
        assert await (await queue.add("next")).result(timeout="10s") == "next"
    assert await queue.get_completed_count() == 1


async def test_the_same_worker_goes_on_after_obliteration(queue: Queue) -> None:
    async with Worker(queue, work, concurrency=3):
        for _ in range(3):
            jobs = await queue.add_bulk([{"name": "good", "data": n} for n in range(20)])
            assert [await job.result(timeout="10s") for job in jobs] == list(range(20))
            await queue.obliterate()
            assert await queue.get_job_count_by_types() == 0


async def test_the_same_worker_by_name_goes_on_after_obliteration(queue: Queue) -> None:
    async with Worker(queue, {"good": work}):
        await (await queue.add("good")).result(timeout="10s")
        await queue.add("other")
        await queue.obliterate()
        assert await (await queue.add("good", 1)).result(timeout="10s") == 1


async def test_obliterating_takes_small_pieces(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a"}] * 50)
    await queue.obliterate(count=7)
    assert await queue.get_job_count_by_types() == 0


async def test_obliterating_one_queue_leaves_the_others(queue: Queue) -> None:
    async with Queue("other", queue.store) as other:
        job = await other.add("a", 1)
        await other.configure(trash_age=5)
        await queue.add("a")
        await queue.obliterate(force=True)
        assert (await again(other, job)).data == 1
        assert (await other.get_meta())["trash_age"] == 5


async def test_who_waits_for_an_obliterated_job_is_told(queue: Queue) -> None:
    job = await queue.add("a")
    waiting = asyncio.create_task(job.result(timeout="10s"))
    await asyncio.sleep(0.05)
    await queue.obliterate()
    with pytest.raises((JobNotFound, JobFailed)):
        await waiting
