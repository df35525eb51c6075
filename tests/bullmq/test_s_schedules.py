"""Area S of the catalogue: when the jobs of schedulers are made, and what they are."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from bullite import BulliteError, Job, JobScheduler, Queue, Worker
from bullite.core.recurrence import check_recurrence, first_tick, next_tick
from bullite.errors import StoreError
from tests.operations.test_schedulers import (
    EVERY,
    MINUTE,
    opts,
    pending,
    run,
    run_all,
    scheduler,
    the_pending,
    tick_of,
    upsert,
)
from tests.support.harness import Store, new_job
from tests.support.helpers import again, until

DAY = 86_400_000


async def nothing(job: Job) -> None: ...


def in_ms(ms: int) -> int:
    return int(time.time() * 1000) + ms


async def entry(queue: Queue, id: str) -> JobScheduler:
    found = await queue.get_job_scheduler(id)
    assert found is not None
    return found


async def test_S_001_an_end_date_that_has_passed_is_refused(queue: Queue) -> None:
    with pytest.raises(BulliteError, match="end_date must be in the future"):
        await queue.upsert_job_scheduler("test", every=1_000, end_date=in_ms(-1_000))


async def test_S_002_the_removed_option_debounce_is_refused(queue: Queue) -> None:
    template: Any = {"opts": {"debounce": {"id": "x"}}}
    with pytest.raises(BulliteError, match="debounce"):
        await queue.upsert_job_scheduler("test", every=1_000, template=template)


def test_S_004_no_job_is_planned_after_the_end_date(store: Store) -> None:
    upsert(store, every=100, end_date=store.clock.now() + 1_000)
    worker = store.worker()
    store.clock.advance(101)
    ran = 0
    for _ in range(20):
        ran += len(run_all(store, worker))
        store.clock.advance(100)
    assert ran == 10
    assert store.counts() == {"completed": 10}


async def test_S_005_schedulers_of_one_pattern_have_a_job_each(queue: Queue) -> None:
    for id in ("first", "second", "third"):
        await queue.upsert_job_scheduler(id, pattern="10 * * * *")
    assert await queue.get_job_schedulers_count() == 3
    assert await queue.get_delayed_count() == await queue.count() == 3


def test_S_009_an_offset_places_the_slots(store: Store) -> None:
    job = upsert(store, every=15 * MINUTE, offset=3 * MINUTE)
    now, row = store.clock.now(), store.row(job)
    slot = now // (15 * MINUTE) * 15 * MINUTE + 3 * MINUTE
    expected = slot if slot > now else slot + 15 * MINUTE
    assert (row.due_at, row.created_at + row.delay) == (expected, expected)
    assert row.delay > 0
    assert opts(store, job)["repeat"]["offset"] == 3 * MINUTE


def test_S_010_the_slot_of_a_running_job_is_stepped_over(store: Store) -> None:
    store.clock.advance(-store.clock.now() % MINUTE)
    now = store.clock.now()
    upsert(store, every=MINUTE)
    store.worker().claim_one()
    job = upsert(store, every=2 * MINUTE)
    kept = scheduler(store)
    assert (kept.next_at, kept.iterations) == (now + 2 * MINUTE, 2)
    assert opts(store, job)["repeat"]["offset"] == 0
    assert store.counts() == {"active": 1, "delayed": 1}


async def test_S_017_an_unknown_scheduler_is_none(queue: Queue) -> None:
    assert await queue.get_job_scheduler("unknown") is None


async def test_S_019_an_entry_shows_its_pattern_and_next_run(queue: Queue) -> None:
    job = await queue.upsert_job_scheduler(
        "test", pattern="*/2 * * * * *", template={"data": {"foo": "bar"}}
    )
    found = await entry(queue, "test")
    assert (found.id, found.name, found.pattern) == ("test", "test", "*/2 * * * * *")
    assert (found.offset, found.iteration_count) == (0, 1)
    assert found.template == {"name": "test", "data": {"foo": "bar"}, "opts": {}}
    assert found.next_run_at == job.process_at
    assert job.process_at is not None
    assert job.process_at.second % 2 == job.process_at.microsecond == 0


def test_S_019_runs_of_a_pattern_are_never_closer_than_it_says(store: Store) -> None:
    upsert(store, pattern="*/2 * * * * *")
    worker, began = store.worker(), list[int]()
    for _ in range(201):
        began += [store.clock.now()] * len(run_all(store, worker))
        store.clock.advance(100)
    assert len(began) == 10
    assert {b - a for a, b in pairwise(began)} == {2_000}


def test_S_020_a_pattern_begins_with_the_first_match_after_its_start_date(store: Store) -> None:
    now = store.clock.now()
    start = now - now % MINUTE + 5 * MINUTE + 5_000
    job = upsert(store, pattern="*/2 * * * * *", start_date=start)
    assert store.row(job).due_at == start + 1_000


def test_S_020_a_start_date_in_the_past_is_harmless(store: Store) -> None:
    job = upsert(store, pattern="*/2 * * * * *", start_date=1)
    assert store.row(job).delay <= 2_000


async def test_S_021_options_of_the_queue_hold_for_made_jobs(location: str) -> None:
    ran: list[str] = []
    defaults: Any = {"remove_on_complete": True}
    async with Queue("emails", location, default_job_options=defaults) as queue:
        await queue.upsert_job_scheduler("repeat", every=20, limit=5)
        async with Worker(queue, lambda job: ran.append(job.id)):
            await until(lambda: len(ran) == 5)
        assert await queue.get_completed_count() == 0


def test_S_024_an_interval_does_not_drift(store: Store) -> None:
    store.clock.advance(1_900 - store.clock.now() % 2_000)
    upsert(store, every=2_000)
    worker, began = store.worker(), list[int]()
    for _ in range(10):
        store.clock.advance(100)
        began.append(store.clock.now())
        held = run(worker)
        assert opts(store, held.id)["repeat"]["offset"] == 1_900
        store.clock.advance(1_900)
    gaps = {b - a for a, b in pairwise(began)}
    assert gaps == {2_000}


async def test_S_025_an_interval_that_is_made_again_starts_at_once(queue: Queue) -> None:
    for _ in range(2):
        job = await queue.upsert_job_scheduler("repeat", every="5m")
        assert (job.delay, job.state) == (0, "waiting")
        async with Worker(queue, nothing):
            await job.result()
        await queue.remove_job_scheduler("repeat")
        await asyncio.sleep(0.002)


@pytest.mark.parametrize("end", [None, 10 * MINUTE], ids=["without end", "with an end"])
def test_S_026_a_pattern_may_begin_immediately(store: Store, end: int | None) -> None:
    now = store.clock.now()
    upsert(
        store,
        pattern="0 * * * * *",
        immediately=True,
        end_date=None if end is None else now + end,
    )
    worker = store.worker()
    assert run_all(store, worker) == [now]
    assert tick_of(the_pending(store)) == now - now % MINUTE + MINUTE


CALENDAR: list[tuple[dict[str, Any], timedelta]] = [
    ({"pattern": "30 19 * * *", "tz": "Asia/Calcutta"}, timedelta(days=1)),
    ({"pattern": "0 1 * * *"}, timedelta(days=1)),
    ({"pattern": "25 9 7 * *"}, timedelta(days=28)),
]


@pytest.mark.parametrize(("settings", "apart"), CALENDAR, ids=["daily", "at one", "monthly"])
def test_S_027_runs_by_the_calendar_follow_each_other(
    settings: dict[str, Any], apart: timedelta
) -> None:
    start = datetime(2030, 1, 31, 14, 0, tzinfo=UTC)  # a match of the first
    now = round(start.timestamp() * 1000)
    recurrence = check_recurrence(now - DAY, start_date=start, **settings)
    ticks = [first_tick(recurrence, now - DAY)]
    while len(ticks) < 25 and ticks[-1] is not None:
        ticks.append(next_tick(recurrence, ticks[-1], ticks[-1]))
    times = [tick for tick in ticks if tick is not None]
    assert len(times) == 25
    gaps = [timedelta(milliseconds=b - a) for a, b in pairwise(times)]
    assert min(gaps) >= apart
    if "tz" in settings:
        assert times[0] == now


def test_S_044_overdue_jobs_with_priorities_run_by_priority(store: Store) -> None:
    for priority in (1, 2, 3):
        store.add(priority=priority, delay=(4 - priority) * 1_000)
    store.clock.advance(5_000)
    held = store.worker().claim(3)
    assert [h.row.priority for h in held] == [1, 2, 3]


def test_S_045_two_schedulers_of_one_interval_alternate(store: Store) -> None:
    upsert(store, "a")
    store.clock.advance(1)
    upsert(store, "b")
    worker, ran = store.worker(), ""
    while len(ran) < 20:
        for held in worker.claim(5):
            worker.complete(held, flags=held.row.traits)
            ran += (held.row.custom_id or "").split(":")[1]
        store.clock.advance(EVERY // 2)
    assert ran == "ab" * 10


def test_S_046_an_interval_with_a_start_date_begins_then(store: Store) -> None:
    start, worker, began = store.clock.now() + 10_000, store.worker(), list[int]()
    job = upsert(store, every=DAY, start_date=start)
    assert store.row(job).delay == 10_000
    store.clock.advance(10_000)
    for _ in range(4):
        began += run_all(store, worker)
        store.clock.advance(DAY)
    assert began == [start + n * DAY for n in range(4)]


async def test_S_047_the_upsert_answers_the_job_that_will_run(queue: Queue) -> None:
    ran: list[Job] = []
    job = await queue.upsert_job_scheduler("test", every=1_000, template={"data": {"foo": "bar"}})
    assert (job.data, job.opts["repeat"]["every"]) == ({"foo": "bar"}, 1_000)
    async with Worker(queue, lambda job: ran.append(job)):
        await job.result()
    assert ran[0].opts["repeat"]["count"] == 1


async def test_S_050_an_id_may_have_many_colons(queue: Queue) -> None:
    id = "a:b:c:d:e:f"
    job = await queue.upsert_job_scheduler(id, every="1h")
    async with Worker(queue, nothing):
        await job.result()
    assert [s.id for s in await queue.get_job_schedulers()] == [id]
    assert (await again(queue, job)).repeat_job_key == id


async def test_S_052_the_first_job_runs_at_once(queue: Queue) -> None:
    async with Worker(queue, nothing):
        job = await queue.upsert_job_scheduler("test", every=4_000)
        await job.result(timeout="10s")
    ended = await again(queue, job)
    assert ended.finished_on is not None
    assert ended.finished_on - ended.timestamp < 1_000


def test_S_055_delays_are_what_is_left_of_the_interval(store: Store) -> None:
    upsert(store, every=2_000)
    worker, delays = store.worker(), list[int]()
    for _ in range(5):
        store.clock.advance(50)
        delays.append(opts(store, run(worker).id)["delay"])
        store.clock.advance(1_950)
    assert delays == [0, 1_950, 1_950, 1_950, 1_950]
    assert store.counts() == {"completed": 5, "delayed": 1}


def test_S_041_without_its_successor_a_job_is_not_run_and_the_worker_hears_why(
    store: Store,
) -> None:
    upsert(store)
    worker = store.worker()
    store.home.driver.fail_at["insert_jobs"] = StoreError("no room")
    with pytest.raises(StoreError, match="no room"):
        worker.claim(1)
    assert worker.received == []
    assert len(pending(store)) == 1


def test_S_042_a_job_of_a_living_scheduler_never_fails_of_stalling(store: Store) -> None:
    upsert(store, job=new_job("tick", data="{}"))
    for _ in range(4):
        other = store.process()
        other.worker(max_stalled_count=2).claim_one()
        store.kill(other)
        store.home.recover()
    held = store.worker().claim_one()
    assert (held.row.stalled_count, held.row.deferred_failure) == (4, None)
    assert scheduler(store).iterations == 2
