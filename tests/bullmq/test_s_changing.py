"""Area S of the catalogue: schedulers that are changed, removed or interfered with."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from bullite import Job, JobScheduler, Queue, QueueEvents, SchedulerOwnsJob, Worker
from tests.support.helpers import until

MINUTE, HOUR = 60_000, 3_600_000
HOURLY, DAILY = "0 * * * *", "0 3 * * *"


async def nothing(job: Job) -> None: ...


class Gate:
    """A processor whose jobs run until it is opened."""

    def __init__(self) -> None:
        self.began: list[Job] = []
        self.open = asyncio.Event()

    async def __call__(self, job: Job) -> None:
        self.began.append(job)
        await self.open.wait()


async def entry(queue: Queue, id: str = "test") -> JobScheduler:
    found = await queue.get_job_scheduler(id)
    assert found is not None
    return found


async def the_delayed(queue: Queue) -> Job:
    [job] = await queue.get_delayed()
    return job


async def test_S_006_concurrent_upserts_leave_one_scheduler(queue: Queue) -> None:
    every = (1_000, 2_000, 3_000, 1_000, 1_000)
    await asyncio.gather(*[queue.upsert_job_scheduler("test", every=e) for e in every])
    assert await queue.get_job_schedulers_count() == 1
    assert await queue.get_waiting_count() == await queue.count() == 1


async def test_S_007_upserts_with_the_same_interval_add_nothing(queue: Queue) -> None:
    work = Gate()
    await queue.upsert_job_scheduler("test", every="5m")
    async with Worker(queue, work):
        await until(lambda: work.began)
        next_run = (await entry(queue)).next_run_at
        for _ in range(3):
            await queue.upsert_job_scheduler("test", every="5m")
        assert await queue.get_job_schedulers_count() == 1
        assert (await entry(queue)).next_run_at == next_run
        work.open.set()
        await until(queue.get_completed_count)
    assert await queue.count() == 1


async def test_S_011_a_processor_upserts_its_own_scheduler(queue: Queue) -> None:
    ran = asyncio.Event()

    async def work(job: Job) -> None:
        if not ran.is_set():
            template: Any = {"data": {"foo": "baz"}}
            await queue.upsert_job_scheduler("test", pattern=HOURLY, template=template)
            ran.set()

    first = await queue.upsert_job_scheduler("test", pattern=HOURLY, template={"data": {"foo": 1}})
    await first.promote()
    async with Worker(queue, work):
        await ran.wait()
        await until(queue.get_completed_count)
    job = await the_delayed(queue)
    assert job.data == {"foo": "baz"}
    assert HOUR < job.delay <= 2 * HOUR  # the tick of the promoted job is taken
    found = await entry(queue)
    assert (found.iteration_count, found.pattern, found.offset) == (2, HOURLY, 0)
    assert found.template["data"] == {"foo": "baz"}


async def test_S_012_another_interval_runs_at_once(queue: Queue) -> None:
    first = await queue.upsert_job_scheduler("test", every="10s")
    async with Worker(queue, nothing):
        await first.result()
    assert await queue.get_delayed_count() == 1
    job = await queue.upsert_job_scheduler("test", every="2s")
    assert (job.delay, job.opts["repeat"]["every"]) == (0, 2_000)
    assert await queue.get_job_counts("waiting", "delayed") == {"waiting": 1, "delayed": 0}


@pytest.mark.parametrize("priority", [0, 1], ids=["waiting", "prioritized"])
async def test_S_015_an_upsert_replaces_a_promoted_job(queue: Queue, priority: int) -> None:
    template: Any = {"opts": {"priority": priority}}
    job = await queue.upsert_job_scheduler("test", pattern=HOURLY, template=template)
    await job.promote()
    await queue.upsert_job_scheduler("test", pattern=DAILY, template=template)
    counts = await queue.get_job_counts("waiting", "prioritized", "delayed")
    assert counts == {"waiting": 0, "prioritized": 0, "delayed": 1}


async def test_in_a_paused_queue_an_upsert_replaces_a_promoted_job_too(queue: Queue) -> None:
    """Not as S-016 has it: one pending job is all that a scheduler has."""
    await queue.pause()
    job = await queue.upsert_job_scheduler("test", pattern=HOURLY)
    await job.promote()
    await queue.upsert_job_scheduler("test", pattern=DAILY)
    assert await queue.get_job_counts("waiting", "delayed") == {"waiting": 0, "delayed": 1}


async def test_S_029_a_promoted_job_leaves_one_successor(queue: Queue) -> None:
    job = await queue.upsert_job_scheduler("test", pattern=HOURLY)
    await job.promote()
    async with Worker(queue, nothing):
        await job.result()
    assert await queue.get_delayed_count() == await queue.count() == 1
    assert await queue.get_job_schedulers_count() == 1


async def test_S_030_a_scheduler_removed_in_its_third_run_has_no_fourth(queue: Queue) -> None:
    ran: list[str] = []

    async def work(job: Job) -> None:
        ran.append(job.id)
        if len(ran) == 3:
            assert await queue.remove_job_scheduler("test")

    await queue.upsert_job_scheduler("test", every=20)
    async with Worker(queue, work):
        await until(lambda: len(ran) == 3)
        await asyncio.sleep(0.1)
    assert len(ran) == 3
    assert await queue.count() == 0


async def test_S_031_removing_answers_whether_there_was_one(queue: Queue) -> None:
    await queue.upsert_job_scheduler("test", every="1h")
    assert await queue.remove_job_scheduler("test") is True
    assert await queue.remove_job_scheduler("test") is False


async def test_S_032_a_failure_does_not_end_the_schedule(queue: Queue) -> None:
    async def fail(job: Job) -> None:
        raise ValueError("failing")

    template: Any = {"name": "a", "data": {"foo": "bar"}, "opts": {"priority": 1}}
    job = await queue.upsert_job_scheduler(
        "test", pattern=DAILY, tz="Europe/Athens", template=template
    )
    await job.promote()
    assert await queue.get_prioritized_count() == 1
    async with Worker(queue, fail):
        await until(queue.get_failed_count)
    assert await queue.get_delayed_count() == 1
    found = await entry(queue)
    assert (found.id, found.name, found.tz) == ("test", "a", "Europe/Athens")
    assert (found.pattern, found.offset, found.iteration_count) == (DAILY, 0, 2)
    assert found.template == template


@pytest.mark.parametrize("intervals", [(10_000, 35_160), (5_000, 4_000, 5_000)], ids=str)
async def test_S_034_other_intervals_leave_one_waiting_job(
    queue: Queue, intervals: tuple[int, ...]
) -> None:
    for every in intervals:
        await queue.upsert_job_scheduler("test", every=every)
    assert await queue.get_job_schedulers_count() == await queue.get_waiting_count() == 1


async def test_S_035_an_upsert_changes_name_data_and_priority(queue: Queue) -> None:
    await queue.upsert_job_scheduler("test", pattern=HOURLY, template={"name": "a"})
    template: Any = {"name": "b", "data": {"foo": "baz"}, "opts": {"priority": 2}}
    await queue.upsert_job_scheduler("test", pattern=HOURLY, template=template)
    job = await the_delayed(queue)
    assert (job.name, job.data, job.priority) == ("b", {"foo": "baz"}, 2)


async def test_S_035_another_pattern_moves_the_pending_job(queue: Queue) -> None:
    far = int(time.time() * 1000) + 10 * HOUR
    await queue.upsert_job_scheduler("test", pattern=HOURLY, start_date=far)
    before = (await the_delayed(queue)).delay
    await queue.upsert_job_scheduler("test", pattern="30 * * * *", start_date=far)
    assert abs((await the_delayed(queue)).delay - before) == pytest.approx(30 * MINUTE, abs=5_000)
    assert (await entry(queue)).pattern == "30 * * * *"


async def test_S_036_removing_tells_of_the_delayed_job_and_it_can_be_made_again(
    queue: Queue,
) -> None:
    removed: list[Any] = []
    job = await queue.upsert_job_scheduler("test", pattern=HOURLY)
    async with QueueEvents(queue.name, queue.store) as events:
        events.on("removed", lambda payload, id: removed.append(payload))
        await queue.remove_job_scheduler("test")
        await until(lambda: removed)
    assert removed == [{"job_id": job.id, "prev": "delayed"}]
    assert await queue.get_delayed_count() == 0
    await queue.upsert_job_scheduler("test", pattern=HOURLY)
    assert await queue.get_delayed_count() == 1


async def test_S_037_the_pending_job_cannot_be_removed_directly(queue: Queue) -> None:
    job = await queue.upsert_job_scheduler("test", pattern=HOURLY)
    with pytest.raises(SchedulerOwnsJob, match="belongs to the job scheduler 'test'"):
        await job.remove()
    assert await queue.get_delayed_count() == 1


async def test_S_039_cleaning_keeps_a_waiting_job_of_a_scheduler(queue: Queue) -> None:
    await queue.upsert_job_scheduler("test", every="1h")
    assert await queue.clean(0, 100, "wait") == []
    assert await queue.get_waiting_count() == 1


async def test_S_040_a_processor_may_remove_and_upsert_its_own_scheduler(queue: Queue) -> None:
    ended: list[str] = []
    errors: list[Any] = []

    async def work(job: Job) -> None:
        await queue.remove_job_scheduler("test")
        await queue.upsert_job_scheduler("test", every=30)

    async def upsert(job: Job, *more: Any) -> None:
        ended.append(job.id)
        await queue.upsert_job_scheduler("test", every=30)

    await queue.upsert_job_scheduler("test", every=30)
    worker = Worker(queue, work, concurrency=2)
    worker.on("error", errors.append)
    worker.on("completed", upsert)
    async with worker:
        await until(lambda: len(ended) >= 6)
    assert errors == []
    assert await queue.get_job_schedulers_count() == 1


@pytest.mark.parametrize(
    "settings",
    [{"every": 50_000, "offset": 1}, {"pattern": HOURLY}, {"pattern": HOURLY, "limit": 9}],
    ids=str,
)
async def test_S_049_promoting_all_jobs_keeps_the_schedule(
    queue: Queue, settings: dict[str, Any]
) -> None:
    job = await queue.upsert_job_scheduler("test", **settings)
    assert await queue.promote_jobs() == [job.id]
    assert await queue.get_job_counts("waiting", "delayed") == {"waiting": 1, "delayed": 0}
    async with Worker(queue, nothing):
        await job.result()
    assert await queue.get_job_counts("waiting", "delayed") == {"waiting": 0, "delayed": 1}


async def test_S_051_changing_the_interval_under_way_leaves_one_job(queue: Queue) -> None:
    duplicated: list[Any] = []
    template: Any = {"opts": {"remove_on_complete": True}}
    async with QueueEvents(queue.name, queue.store) as events, Worker(queue, nothing):
        events.on("duplicated", lambda payload, id: duplicated.append(payload))
        for every in (800, 400, 200, 600_000):
            await queue.upsert_job_scheduler("test", every=every, template=template)
            await until(queue.get_delayed_count)
            for _ in range(5):
                counts = await queue.get_job_counts("active", "delayed", "waiting")
                assert sum(counts.values()) in (1, 2)
        await until(lambda: _is_quiet(queue))
    assert duplicated == []
    assert await queue.get_job_counts() == {
        "waiting": 0,
        "prioritized": 0,
        "delayed": 1,
        "active": 0,
        "waiting-children": 0,
        "completed": 0,
        "failed": 0,
    }


async def _is_quiet(queue: Queue) -> bool:
    return not sum((await queue.get_job_counts("active", "waiting")).values())


async def test_S_054_the_last_of_quick_upserts_counts(queue: Queue) -> None:
    duplicated: list[Any] = []
    async with QueueEvents(queue.name, queue.store) as events, Worker(queue, nothing):
        events.on("duplicated", lambda payload, id: duplicated.append(payload))
        for n in range(1, 6):
            template: Any = {"name": f"name {n}", "data": {"n": n}}
            await queue.upsert_job_scheduler("test", every=n * 600_000, template=template)
            await asyncio.sleep(0.05)
        await until(lambda: _is_quiet(queue))
    job = await the_delayed(queue)
    assert (job.name, job.data) == ("name 5", {"n": 5})
    assert await queue.get_job_schedulers_count() == 1
    assert duplicated == []


# --- lines of other areas ------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["failed", "completed"])
async def test_C_007_cleaning_takes_finished_jobs_of_a_scheduler_and_spares_the_pending_one(
    queue: Queue, state: str
) -> None:
    async def work(job: Job) -> None:
        if state == "failed":
            raise ValueError("failing")

    await queue.add("a")
    await queue.add("b")
    await queue.upsert_job_scheduler("test", every="1h")
    async with Worker(queue, work):
        await until(lambda: _has(queue, state, 3))
    assert len(await queue.clean(0, 0, state)) == 3
    assert await queue.count() == 1


async def _has(queue: Queue, state: str, number: int) -> bool:
    return (await queue.get_job_counts(state))[state] == number


async def test_Z_002_obliterating_takes_schedulers_along(queue: Queue) -> None:
    work = Gate()
    await queue.upsert_job_scheduler("test", every="1h")
    worker = Worker(queue, work)
    async with worker:
        await until(lambda: work.began)
        await queue.obliterate(force=True)
        work.open.set()
    assert await queue.get_job_schedulers() == []
    assert await queue.count() == 0
