"""Job schedulers: each has one pending job, and the next is made when a worker takes it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from bullite.core.job_flags import SCHEDULED
from bullite.core.log_throttle import ThrottledLog
from bullite.core.recurrence import GRACE, Recurrence
from bullite.core.states import PROMOTE, REMOVE, RETRY_FINISHED
from bullite.errors import (
    InvalidOption,
    SchedulerNotFound,
    SchedulerOwnsJob,
    SchedulerSlotsTaken,
    StoreError,
)
from bullite.operations import scheduler_ticks
from bullite.operations.add import NewJob, StaleSettings
from bullite.operations.cancel_and_expire import Expire
from bullite.operations.move import MoveJob
from bullite.operations.queues import SetPaused
from bullite.operations.scheduler_ticks import (
    MAX_SLOTS,
    CatchUpScheduler,
    SchedulerSpec,
    create_successor,
)
from bullite.operations.schedulers import (
    DeleteSchedulers,
    EnableScheduler,
    RemoveScheduler,
    RunScheduler,
    SchedulersUpserted,
    UpsertSchedulers,
)
from tests.support.harness import Held, Process, Store, Worker, new_job

MINUTE, HOUR = 60_000, 3_600_000
EVERY = 10_000


def plan(key: str = "s", *, job: NewJob | None = None, **recurrence: Any) -> SchedulerSpec:
    if not {"every", "pattern"} & recurrence.keys():
        recurrence["every"] = EVERY
    return SchedulerSpec(key, Recurrence(**recurrence), job or new_job("tick", data="{}"))


def ask(process: Process, *wanted: Any) -> Any:
    version = process.version(process.queue)
    return process.ask(UpsertSchedulers(process.queue, wanted, version))


def upsert(store: Store, key: str = "s", *, by: Process | None = None, **wanted: Any) -> int:
    """The number of the pending job."""
    planned: SchedulersUpserted = ask(by or store.home, plan(key, **wanted))
    return planned.added.ids[0]


def scheduler(store: Store, key: str = "s") -> Any:
    found = [row for row in store.database.rows("schedulers") if row["key"] == key]
    return SimpleNamespace(**found[0]) if found else None


def pending(store: Store, key: str = "s") -> list[Any]:
    """The jobs of a scheduler that wait, for a worker or for their time."""
    rows = store.database.rows("jobs", "state in ('waiting', 'delayed')")
    jobs = [SimpleNamespace(**row) for row in rows]
    return [job for job in jobs if (job.custom_id or "").startswith(f"repeat:{key}:")]


def the_pending(store: Store, key: str = "s") -> Any:
    [job] = pending(store, key)
    return job


def tick_of(job: Any) -> int:
    return int(job.custom_id.rpartition(":")[2])


def opts(store: Store, job: int) -> Any:
    return json.loads(store.row(job, "payloads", key="job").opts)


def run(worker: Worker) -> Held:
    held = worker.claim_one()
    assert worker.complete(held, flags=SCHEDULED) == []
    return held


def run_all(store: Store, worker: Worker) -> list[int]:
    """The ticks of the jobs that can be run now, one after the other."""
    ticks = []
    while claimed := worker.claim(1):
        worker.complete(*claimed, flags=SCHEDULED)
        ticks.append(int((claimed[0].row.custom_id or "").rpartition(":")[2]))
        assert len(pending(store)) <= 1
    return ticks


def catch_up(store: Store) -> int:
    return store.home.do_chores(CatchUpScheduler)


# --- the chain -----------------------------------------------------------------------------------


def test_a_new_scheduler_has_one_job_which_is_due_at_once(store: Store) -> None:
    now = store.clock.now()
    job = upsert(store)
    row = store.row(job)
    assert (row.state, row.custom_id, row.traits) == ("waiting", f"repeat:s:{now}", SCHEDULED)
    repeat = {"key": "s", "every": EVERY, "offset": now % EVERY, "count": 1}
    assert opts(store, job)["repeat"] == repeat
    kept = scheduler(store)
    assert (kept.job, kept.next_at, kept.iterations, kept.enabled) == (job, now, 1, 1)


def test_the_job_of_a_pattern_waits_for_its_time(store: Store) -> None:
    now = store.clock.now()
    job = upsert(store, pattern="* * * * *")
    row = store.row(job)
    tick = now - now % MINUTE + MINUTE
    assert (row.state, row.due_at, row.delay) == ("delayed", tick, tick - now)
    assert row.custom_id == f"repeat:s:{tick}"


def test_taking_the_pending_job_makes_the_next(store: Store) -> None:
    now = store.clock.now()
    first = upsert(store)
    held = store.worker().claim_one()
    assert held.id == first
    following = the_pending(store)
    assert (following.state, following.due_at) == ("delayed", now + EVERY)
    assert opts(store, following.id)["repeat"]["count"] == 2
    kept = scheduler(store)
    assert (kept.job, kept.next_at, kept.iterations) == (following.id, now + EVERY, 2)
    assert (kept.last_at, kept.last_job) == (now, f"repeat:s:{now}")


def test_a_chain_that_is_late_goes_on_in_its_own_slots(store: Store) -> None:
    start, worker = store.clock.now(), store.worker()
    upsert(store)
    for _ in range(5):
        run(worker)
        store.clock.advance(EVERY + 99)
    run(worker)
    assert tick_of(the_pending(store)) == start + 6 * EVERY


def test_slots_that_pass_while_nobody_takes_the_job_are_left_out(store: Store) -> None:
    start = store.clock.now()
    upsert(store)
    store.clock.advance(10 * EVERY + 1)
    run(store.worker())
    assert tick_of(the_pending(store)) == start + 11 * EVERY


def test_failing_retrying_and_reviving_make_no_second_chain(store: Store) -> None:
    upsert(store)
    worker = store.worker()
    worker.retry(worker.claim_one())
    worker.back_off(worker.claim_one(), delay=1)
    store.clock.advance(1)
    held = worker.claim_one()
    worker.fail(held, flags=SCHEDULED)
    assert len(pending(store)) == 1
    store.move(RETRY_FINISHED, held.id)
    run(worker)
    assert len(pending(store)) == 1
    assert scheduler(store).iterations == 2


def test_a_job_that_is_given_back_makes_no_second_chain(store: Store) -> None:
    first = upsert(store)
    worker = store.worker()
    worker.give_back(worker.claim_one())
    assert worker.claim_one().id == first
    assert scheduler(store).iterations == 2


def test_a_job_whose_worker_died_makes_no_second_chain(store: Store) -> None:
    first = upsert(store)
    other = store.process()
    other.worker().claim_one()
    store.kill(other)
    store.home.recover()
    assert store.worker().claim_one().id == first
    assert (scheduler(store).iterations, len(pending(store))) == (2, 1)


def test_a_promoted_job_is_followed_by_the_tick_after_its_own(store: Store) -> None:
    now = store.clock.now()
    job = upsert(store, pattern="* * * * *")
    store.move(PROMOTE, job)
    run(store.worker())
    assert tick_of(the_pending(store)) == now - now % MINUTE + 2 * MINUTE


def test_a_paused_queue_keeps_one_pending_job(store: Store) -> None:
    upsert(store)
    store.ask(SetPaused(store.queue, True))
    store.clock.advance(100 * EVERY)
    assert store.worker().claim(5) == []
    catch_up(store)
    assert len(pending(store)) == 1


def test_many_schedulers_due_at_once_go_on_in_one_claim(store: Store) -> None:
    for n in range(20):
        upsert(store, f"s{n}", job=new_job(f"name {n}", data=str(n)))
    held = store.worker().claim(20)
    assert len(held) == 20
    for n in range(20):
        job = the_pending(store, f"s{n}")
        assert (job.name, scheduler(store, f"s{n}").job) == (f"name {n}", job.id)


def test_a_plain_job_pays_nothing_for_schedulers(store: Store) -> None:
    store.add()
    asked: list[str] = []
    execute = store.home.driver.execute

    def listen(statement: str, params: Any) -> Any:
        asked.append(statement)
        return execute(statement, params)

    store.home.driver.execute = listen  # type: ignore[method-assign]
    store.worker().claim_one()
    assert [statement for statement in asked if "scheduler" in statement] == []


def test_if_the_next_job_cannot_be_stored_the_current_one_is_not_run(store: Store) -> None:
    first = upsert(store)
    worker = store.worker()
    store.home.driver.fail_at["update_schedulers"] = StoreError("the disk is full")
    with pytest.raises(StoreError, match="the disk is full"):
        worker.claim(1)
    assert (store.state(first), len(pending(store))) == ("waiting", 1)
    store.clock.advance(20_000)
    assert worker.claim_one().id == first
    assert len(pending(store)) == 1


def test_after_ten_minutes_without_a_database_the_chain_goes_on(store: Store) -> None:
    upsert(store)
    worker = store.worker()
    for _ in range(10):
        store.home.driver.fail_at["claim_info"] = StoreError("nobody is there")
        with pytest.raises(StoreError, match="nobody is there"):
            worker.claim(1)
        store.clock.advance(MINUTE)
    run(worker)
    assert tick_of(the_pending(store)) > store.clock.now()


def test_the_rank_of_a_new_job_follows_the_order_of_its_queue(store: Store) -> None:
    upsert(store, job=new_job("tick", data="{}", priority=7))
    assert the_pending(store).rank == 7
    store.home.configure(priority_order="high")
    run(store.worker())
    job = the_pending(store)
    assert (job.priority, job.rank) == (7, -7)


def test_a_job_made_by_a_scheduler_expires_counted_from_its_tick(store: Store) -> None:
    template = new_job("tick", data="{}", expires=1_000, opts='{"expires":1000}')
    upsert(store, job=template)
    run(store.worker())
    job = the_pending(store)
    assert job.expires_at == job.due_at + 1_000


def test_a_pending_job_that_expires_is_followed_by_the_next(store: Store) -> None:
    template = new_job("tick", data="{}", expires=1_000, opts='{"expires":1000}')
    first = upsert(store, job=template)
    store.clock.advance(1_000)
    assert store.ask(Expire(store.queue)) == 1
    assert (store.state(first), len(pending(store))) == ("failed", 1)
    kept = scheduler(store)
    assert (kept.iterations, kept.last_at) == (2, None)


# --- limit and end -------------------------------------------------------------------------------


def test_at_its_limit_a_scheduler_is_kept_and_disabled(store: Store) -> None:
    worker = store.worker()
    upsert(store, limit=3)
    for _ in range(3):
        run(worker)
        store.clock.advance(EVERY)
    assert (worker.claim(1), pending(store)) == ([], [])
    kept = scheduler(store)
    assert (kept.enabled, kept.next_at, kept.job, kept.iterations) == (0, None, None, 3)


def test_at_its_end_date_a_scheduler_is_kept_and_disabled(store: Store) -> None:
    worker, now = store.worker(), store.clock.now()
    upsert(store, end_date=now + 2 * EVERY)
    ticks = []
    for _ in range(5):
        ticks += run_all(store, worker)
        store.clock.advance(EVERY)
    assert ticks == [now, now + EVERY, now + 2 * EVERY]
    assert (scheduler(store).enabled, scheduler(store).next_at) == (0, None)


def test_one_that_ended_begins_anew_when_it_is_upserted(store: Store) -> None:
    worker = store.worker()
    upsert(store, limit=1)
    run(worker)
    assert not scheduler(store).enabled
    store.clock.advance(1)
    upsert(store, limit=2)
    kept = scheduler(store)
    assert (kept.enabled, kept.iterations) == (1, 1)
    assert len(pending(store)) == 1


def test_a_limit_that_is_reached_already_is_refused(store: Store) -> None:
    worker = store.worker()
    upsert(store)
    for _ in range(4):
        run(worker)
        store.clock.advance(EVERY)
    before = store.everything()
    with pytest.raises(InvalidOption, match="limit must be more than"):
        ask(store.home, plan(limit=3))
    assert store.everything() == before


def test_an_end_date_before_the_first_tick_is_refused(store: Store) -> None:
    end = store.clock.now() + 1
    with pytest.raises(InvalidOption, match="end_date"):
        ask(store.home, plan(pattern="0 0 1 1 *", end_date=end))
    assert scheduler(store) is None


# --- ticks that were missed ----------------------------------------------------------------------

DOWN = 26 * HOUR


def test_after_26_hours_one_tick_stands_for_all_that_were_missed(store: Store) -> None:
    start = store.clock.now()
    upsert(store, every=MINUTE)
    store.clock.advance(DOWN)
    assert catch_up(store) == 0
    assert run_all(store, store.worker()) == [start]
    assert tick_of(the_pending(store)) == start + DOWN + MINUTE


def test_after_26_hours_missed_ticks_can_be_skipped(store: Store) -> None:
    start = store.clock.now()
    upsert(store, every=HOUR, missed="skip")
    store.clock.advance(DOWN + 2 * GRACE)
    assert catch_up(store) == 1
    assert run_all(store, store.worker()) == []
    assert tick_of(the_pending(store)) == start + 27 * HOUR
    assert scheduler(store).iterations == 1


def test_after_26_hours_all_missed_ticks_can_be_made_up_one_after_the_other(store: Store) -> None:
    start = store.clock.now()
    upsert(store, every=HOUR, missed="all")
    store.clock.advance(DOWN)
    assert catch_up(store) == 0
    assert run_all(store, store.worker()) == [start + n * HOUR for n in range(27)]
    assert tick_of(the_pending(store)) == start + 27 * HOUR


def test_who_takes_a_missed_tick_looks_for_the_next_at_once(store: Store) -> None:
    upsert(store, missed="all")
    store.clock.advance(5 * EVERY)
    worker = store.worker()
    worker.wants(5)
    for _ in range(6):
        store.home.engine.turn()
    assert len(worker.received) == 5


def test_of_all_missed_ticks_only_the_newest_are_made_up(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_ticks, "_throttled", ThrottledLog(scheduler_ticks.log))
    start = store.clock.now()
    upsert(store, every=MINUTE, missed="all", most_missed=10)
    store.clock.advance(DOWN)
    assert catch_up(store) == 1
    minutes = DOWN // MINUTE
    ticks = run_all(store, store.worker())
    assert ticks == [start + n * MINUTE for n in range(minutes - 9, minutes + 1)]
    assert "missed too many ticks" in caplog.text


def test_a_tick_that_is_a_little_late_is_not_missed(store: Store) -> None:
    start = store.clock.now()
    upsert(store, every=HOUR, missed="skip")
    store.clock.advance(GRACE)
    assert catch_up(store) == 0
    assert run_all(store, store.worker()) == [start]


def test_the_service_goes_on_when_the_pending_job_is_gone(store: Store) -> None:
    start = store.clock.now()
    job = upsert(store)
    store.database.write(f"update bullite_schedulers set job = null where job = {job}")
    store.clock.advance(1)
    assert catch_up(store) == 1
    assert tick_of(scheduler_job(store)) == start + EVERY


def scheduler_job(store: Store) -> Any:
    return store.row(scheduler(store).job)


def test_the_service_leaves_alone_what_is_in_order(store: Store) -> None:
    upsert(store)
    upsert(store, "t", pattern="* * * * *")
    store.clock.advance(HOUR)
    assert store.home.chores(CatchUpScheduler) == []


def test_the_service_looks_again_at_what_others_have_put_in_order(store: Store) -> None:
    upsert(store, missed="skip")
    store.clock.advance(HOUR)
    [late] = store.home.chores(CatchUpScheduler)
    assert [store.process().ask(late), store.ask(late)] == [1, 0]
    assert len(pending(store)) == 1


@pytest.fixture
def unknown_zone(store: Store) -> None:
    """A scheduler whose zone this machine does not know, due, and one that is in order."""
    upsert(store, pattern="* * * * *", missed="skip")
    upsert(store, "fine", missed="skip")
    store.database.write(
        "update bullite_schedulers set recurrence = replace(recurrence, 'UTC', 'Mars/Olympus') "
        "where key = 's'"
    )
    store.clock.advance(HOUR)


def test_an_unknown_zone_stops_no_other_scheduler(store: Store, unknown_zone: None) -> None:
    assert catch_up(store) == 1
    assert tick_of(the_pending(store, "fine")) == store.clock.now() - GRACE


def test_a_job_whose_zone_is_unknown_runs_and_somebody_who_knows_it_goes_on(
    store: Store, unknown_zone: None
) -> None:
    assert len(store.worker().claim(5)) == 2
    assert pending(store) == []
    store.database.write(
        "update bullite_schedulers set recurrence = replace(recurrence, 'Mars/Olympus', 'UTC')"
    )
    assert catch_up(store) == 1
    assert len(pending(store)) == 1
    assert scheduler(store).iterations == 2


def test_a_clock_that_is_put_back_makes_no_tick_twice(store: Store) -> None:
    start, worker = store.clock.now(), store.worker()
    upsert(store)
    run(worker)
    store.clock.advance(-24 * HOUR)
    assert worker.claim(1) == []
    assert (catch_up(store), tick_of(the_pending(store))) == (0, start + EVERY)


def test_a_clock_that_jumps_a_year_makes_one_tick(store: Store) -> None:
    worker = store.worker()
    upsert(store)
    run(worker)
    store.clock.advance(365 * 24 * HOUR)
    assert len(run_all(store, worker)) == 1


# --- changing one --------------------------------------------------------------------------------


def test_an_upsert_replaces_the_pending_job(store: Store) -> None:
    old = upsert(store)
    new = upsert(store, job=new_job("other", data='{"a":1}', priority=2))
    assert (store.state(old), the_pending(store).id) == (None, new)
    assert (the_pending(store).name, the_pending(store).priority) == ("other", 2)
    assert store.counts() == {"prioritized": 1}
    assert scheduler(store).iterations == 1


def test_an_upsert_with_the_same_interval_keeps_the_next_time(store: Store) -> None:
    upsert(store)
    run(store.worker())
    tick = scheduler(store).next_at
    for _ in range(3):
        store.clock.advance(7)
        upsert(store)
    assert (tick_of(the_pending(store)), scheduler(store).iterations) == (tick, 2)


def test_an_upsert_with_another_interval_runs_now(store: Store) -> None:
    upsert(store)
    run(store.worker())
    store.clock.advance(7)
    job = upsert(store, every=2_000)
    assert (store.state(job), tick_of(the_pending(store))) == ("waiting", store.clock.now())


def test_an_upsert_with_another_pattern_moves_the_pending_job(store: Store) -> None:
    now = store.clock.now()
    upsert(store, pattern="* * * * *")
    upsert(store, pattern="0 * * * *")
    assert the_pending(store).due_at == now - now % HOUR + HOUR


def test_an_upsert_with_the_same_pattern_keeps_a_tick_that_nobody_took_yet(store: Store) -> None:
    upsert(store, pattern="* * * * *")
    tick = scheduler(store).next_at
    store.clock.advance(HOUR)
    job = upsert(store, pattern="* * * * *", immediately=True)
    assert (scheduler(store).next_at, store.state(job)) == (tick, "waiting")


def test_an_upsert_in_the_slot_of_a_running_job_takes_the_next_slot(store: Store) -> None:
    now = store.clock.now()
    upsert(store, every=MINUTE)
    store.worker().claim_one()
    upsert(store, every=2 * MINUTE)
    assert tick_of(the_pending(store)) == now + 2 * MINUTE
    assert scheduler(store).iterations == 2


def test_a_scheduler_made_again_in_the_slot_of_a_finished_job_takes_the_next(store: Store) -> None:
    now = store.clock.now()
    upsert(store)
    run(store.worker())
    store.ask(RemoveScheduler(store.queue, "s"))
    upsert(store)
    assert tick_of(the_pending(store)) == now + EVERY


def occupy(store: Store, slots: int, every: int = EVERY) -> None:
    """Finished jobs that have the ids of the next slots."""
    now = store.clock.now()
    ids = [f"repeat:s:{now + n * every}" for n in range(slots)]
    store.add_all(*[new_job(custom_id=id) for id in ids])
    worker = store.worker()
    while held := worker.claim(100):
        worker.complete(*held)
    worker.leave()


def test_so_many_slots_are_passed_over(store: Store) -> None:
    now = store.clock.now()
    occupy(store, MAX_SLOTS)
    upsert(store)
    assert tick_of(the_pending(store)) == now + MAX_SLOTS * EVERY


def test_one_more_is_refused(store: Store) -> None:
    occupy(store, MAX_SLOTS + 1)
    before = store.everything()
    with pytest.raises(SchedulerSlotsTaken, match="current and next time slots already have jobs"):
        ask(store.home, plan())
    assert (store.everything(), scheduler(store)) == (before, None)


def test_a_chain_whose_slots_are_all_taken_waits_until_they_are_free(store: Store) -> None:
    upsert(store)
    store.clock.advance(1)
    start = store.clock.now() - 1
    ids = [f"repeat:s:{start + n * EVERY}" for n in range(1, MAX_SLOTS + 2)]
    jobs = store.add_all(*[new_job(custom_id=id, delay=HOUR) for id in ids])
    worker = store.worker()
    run(worker)
    assert scheduler(store).job is None
    store.move(REMOVE, *jobs)
    assert catch_up(store) == 1
    assert tick_of(the_pending(store)) == start + EVERY


def test_a_pattern_tells_of_the_ids_that_it_passes_over(store: Store) -> None:
    now = store.clock.now()
    tick = now - now % MINUTE + MINUTE
    store.add(custom_id=f"repeat:s:{tick}", delay=HOUR)
    upsert(store, pattern="* * * * *")
    assert scheduler(store).next_at == tick + MINUTE
    assert [e.job for e in store.events() if e.kind == "duplicated"] == [f"repeat:s:{tick}"]


def test_options_that_were_resolved_under_old_settings_are_sent_back(store: Store) -> None:
    version = store.home.version(store.queue)
    store.home.configure(trash_age=1)
    assert store.ask(UpsertSchedulers(store.queue, [plan()], version)) == StaleSettings()
    assert scheduler(store) is None


def test_jobs_and_schedulers_are_added_together_or_not_at_all(store: Store) -> None:
    planned = ask(store.home, new_job("a"), plan(), new_job("b"))
    assert [job.name for job in planned.jobs] == ["a", "tick", "b"]
    assert [store.row(id).name for id in planned.added.ids] == ["a", "tick", "b"]
    before = store.everything()
    with pytest.raises(InvalidOption):
        ask(store.home, new_job("c"), plan("t"), plan("u", end_date=1))
    assert (store.everything(), scheduler(store, "t")) == (before, None)


def test_a_scheduler_named_twice_at_once_is_one(store: Store) -> None:
    planned = ask(store.home, plan(), plan(job=new_job("last", data="{}")))
    assert len(set(planned.added.ids)) == 1
    assert the_pending(store).name == "last"


def test_upserts_of_many_processes_leave_one_scheduler_and_one_job(store: Store) -> None:
    processes = [store.process() for _ in range(4)]
    for n in range(12):
        upsert(store, by=processes[n % 4], every=1_000 + n)
        store.clock.advance(n % 3 - 1)
    assert len(store.database.rows("schedulers")) == len(pending(store)) == 1


def test_requests_of_one_batch_keep_their_order(store: Store) -> None:
    version = store.home.version(store.queue)
    add, remove = (
        UpsertSchedulers(store.queue, [plan()], version),
        RemoveScheduler(store.queue, "s"),
    )
    answers = store.ask_together(add, remove, add, remove)
    assert answers[1::2] == [True, True]
    assert (scheduler(store), store.ask(remove)) == (None, False)


# --- removing, pausing, running now --------------------------------------------------------------


def test_removing_a_scheduler_takes_its_delayed_job_along(store: Store) -> None:
    upsert(store)
    run(store.worker())
    job = the_pending(store)
    assert store.ask(RemoveScheduler(store.queue, "s"))
    assert (store.state(job.id), scheduler(store)) == (None, None)
    removed = [(e.job, e.detail) for e in store.events() if e.kind == "remove"]
    assert removed == [(job.custom_id, "delayed")]
    assert store.counts() == {"completed": 1}


def test_removing_a_scheduler_leaves_a_job_that_was_promoted(store: Store) -> None:
    job = upsert(store, pattern="* * * * *")
    store.move(PROMOTE, job)
    store.ask(RemoveScheduler(store.queue, "s"))
    assert store.state(job) == "waiting"
    run(store.worker())
    assert pending(store) == []


def test_a_paused_scheduler_has_no_job_and_makes_none(store: Store) -> None:
    upsert(store)
    assert store.ask(EnableScheduler(store.queue, "s", False))
    assert not store.ask(EnableScheduler(store.queue, "s", False))
    store.clock.advance(HOUR)
    assert (store.worker().claim(1), catch_up(store), store.counts()) == ([], 0, {})


@pytest.mark.parametrize(
    ("missed", "ticks"), [("once", [0]), ("skip", []), ("all", [0, 1, 2, 3])], ids=str
)
def test_what_was_missed_while_paused_is_up_to_the_rule(
    store: Store, missed: str, ticks: list[int]
) -> None:
    start = store.clock.now()
    upsert(store, every=HOUR, missed=missed)
    store.ask(EnableScheduler(store.queue, "s", False))
    store.clock.advance(3 * HOUR + 2 * GRACE)
    assert store.ask(EnableScheduler(store.queue, "s", True))
    assert not store.ask(EnableScheduler(store.queue, "s", True))
    assert run_all(store, store.worker()) == [start + n * HOUR for n in ticks]
    assert tick_of(the_pending(store)) == start + 4 * HOUR
    assert scheduler(store).iterations == 1 + len(ticks)


def test_one_that_ended_cannot_be_resumed(store: Store) -> None:
    upsert(store, limit=1)
    run(store.worker())
    assert store.ask(EnableScheduler(store.queue, "s", True)) is False


def test_an_upsert_enables_a_paused_scheduler_again(store: Store) -> None:
    now = store.clock.now()
    upsert(store)
    store.ask(EnableScheduler(store.queue, "s", False))
    store.clock.advance(1)
    upsert(store)
    kept = scheduler(store)
    assert (kept.enabled, kept.next_at, kept.iterations) == (1, now, 1)


def test_running_one_now_does_not_disturb_its_schedule(store: Store) -> None:
    upsert(store, pattern="* * * * *", job=new_job("tick", data='{"a":1}'))
    before = scheduler(store)
    planned = store.ask(RunScheduler(store.queue, "s"))
    again = store.ask(RunScheduler(store.queue, "s"))
    [job], [other] = planned.added.ids, again.added.ids
    assert (store.states(job, other), job != other) == (["waiting", "waiting"], True)
    worker = store.worker()
    run(worker)
    run(worker)
    assert scheduler(store) == before
    assert opts(store, job)["repeat"] == {"key": "s", "pattern": "* * * * *", "tz": "UTC"}


@pytest.mark.parametrize("request_of", [RunScheduler, lambda q, k: EnableScheduler(q, k, True)])
def test_an_unknown_scheduler_is_named(store: Store, request_of: Any) -> None:
    with pytest.raises(SchedulerNotFound, match="'nobody'"):
        store.ask(request_of(store.queue, "nobody"))


# --- its pending job is protected ----------------------------------------------------------------


def test_the_pending_job_cannot_be_removed_by_itself(store: Store) -> None:
    job = upsert(store)
    with pytest.raises(SchedulerOwnsJob, match="'s'"):
        store.ask(MoveJob(REMOVE, job, f"repeat:s:{store.clock.now()}"))
    assert store.move(REMOVE, job) == []
    assert store.state(job) == "waiting"


def test_a_finished_job_of_a_scheduler_can_be_removed(store: Store) -> None:
    upsert(store)
    held = run(store.worker())
    assert store.move(REMOVE, held.id) == [held.id]


def test_a_job_that_its_scheduler_left_behind_can_be_removed(store: Store) -> None:
    job = upsert(store)
    store.ask(RemoveScheduler(store.queue, "s"))
    assert store.move(REMOVE, job) == [job]


def test_all_schedulers_of_a_queue_can_be_forgotten(store: Store) -> None:
    upsert(store)
    upsert(store, "t")
    store.ask(DeleteSchedulers(store.queue))
    assert store.database.rows("schedulers") == []


def stall(store: Store, times: int) -> int:
    """Let the processes that take the next job die, so many times."""
    job = 0
    for _ in range(times):
        other = store.process()
        worker = other.worker(max_stalled_count=0)
        job = worker.claim_one().id
        store.kill(other)
        store.home.recover()
    return job


def test_a_job_of_a_scheduler_may_stall_as_often_as_it_likes(store: Store) -> None:
    upsert(store)
    job = stall(store, 3)
    row = store.row(job)
    assert (row.stalled_count, row.deferred_failure) == (3, None)


def test_but_not_once_its_scheduler_is_removed(store: Store) -> None:
    upsert(store)
    stall(store, 1)
    store.ask(RemoveScheduler(store.queue, "s"))
    job = stall(store, 1)
    assert store.row(job).deferred_failure == "job stalled more than allowable limit"


def test_an_id_that_only_looks_like_a_schedulers_is_a_plain_job(store: Store) -> None:
    upsert(store)
    run(store.worker())
    job = store.add(custom_id="repeat:s:17")
    assert stall(store, 1) == job
    assert store.row(job).deferred_failure is not None
    assert store.move(REMOVE, job) == [job]


# --- others at the same time ---------------------------------------------------------------------


def test_a_job_that_its_scheduler_does_not_wait_for_any_more_makes_nothing(store: Store) -> None:
    upsert(store)
    held = store.worker().claim_one()
    with store.process().transaction() as open:
        open.run(create_successor(open.tx, store.queue, [held.id]))
    assert (len(pending(store)), scheduler(store).iterations) == (1, 2)


def test_broken_promises_are_found(store: Store) -> None:
    job = upsert(store)
    store.database.write(f"update bullite_schedulers set job = 99 where job = {job}")
    assert store.problems() == ["scheduler s waits for job 99, which does not wait"]
    store.database.write("update bullite_schedulers set job = null")
    assert store.problems() == ["scheduler s is enabled and waits for no job"]
    store.database.write(f"update bullite_schedulers set job = {job}, enabled = 0")
    assert store.problems() == [f"scheduler s is not enabled and waits for job {job}"]
    store.database.write("delete from bullite_schedulers")
