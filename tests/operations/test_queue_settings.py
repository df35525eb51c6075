"""What is decided for a whole queue: settings, pauses, its event log."""

from __future__ import annotations

import json

import pytest

from bullite.core.states import REMOVE, RESTORE_WAITING
from bullite.operations import queues
from bullite.operations.add import AddJobs, StaleSettings
from bullite.operations.queues import (
    Configure,
    LogCleaned,
    OpenQueue,
    PublishEvent,
    ResetQueue,
    SetPaused,
    Settings,
    TrimEvents,
)
from tests.support.harness import QUEUE, Event, Store, new_job


def settings(store: Store, **changes: object) -> Settings:
    now: Settings = store.ask(Configure(store.queue, changes))
    return now


# --- settings ------------------------------------------------------------------------------------


def test_a_new_queue_keeps_completed_jobs_for_a_week_and_failed_ones_for_ever(store: Store) -> None:
    new = settings(store)
    assert (new.keep_completed_age, new.keep_completed_count) == (7 * 24 * 3600 * 1000, None)
    assert (new.keep_failed_age, new.keep_failed_count) == (None, None)
    assert (new.trash_age, new.max_events) == (24 * 3600 * 1000, 10_000)
    assert (new.dead_letter, new.default_job_options, new.paused) == (None, None, 0)


def test_what_is_not_named_stays_as_it_was(store: Store) -> None:
    settings(store, dead_letter="dead", keep_failed_count=5)
    now = settings(store, trash_age=7)
    assert (now.dead_letter, now.keep_failed_count, now.trash_age) == ("dead", 5, 7)


def test_settings_are_the_queues_own(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    settings(store, max_events=3)
    other: Settings = store.ask(Configure(elsewhere, {}))
    assert (other.name, other.max_events) == ("elsewhere", 10_000)


def test_only_a_change_makes_a_new_version(store: Store) -> None:
    first = settings(store).version
    assert settings(store, max_events=9).version == first + 1
    assert settings(store, max_events=9).version == first + 1


def test_open_queue_returns_the_settings_for_producers(store: Store) -> None:
    settings(store, default_job_options='{"attempts":4}')
    opened = store.process().ask(OpenQueue(QUEUE, None))
    assert (opened.version, opened.default_job_options) == (2, '{"attempts":4}')


def test_jobs_resolved_under_older_settings_are_not_added(store: Store) -> None:
    settings(store, default_job_options='{"attempts":4}')
    late, right = store.ask_together(
        AddJobs(store.queue, [new_job("late"), new_job("too")], version=1),
        AddJobs(store.queue, [new_job("right")], version=2),
    )
    assert isinstance(late, StaleSettings)
    assert store.row(right.ids[0]).name == "right"
    assert store.counts() == {"waiting": 1}


def test_a_custom_id_of_jobs_that_were_not_added_is_free(store: Store) -> None:
    settings(store, max_events=9)
    late, right = store.ask_together(
        AddJobs(store.queue, [new_job(custom_id="x")], version=1),
        AddJobs(store.queue, [new_job(custom_id="x")], version=2),
    )
    assert isinstance(late, StaleSettings)
    assert right.existing == set()


def test_a_change_in_a_batch_holds_for_what_comes_after_it(store: Store) -> None:
    before, _, after = store.ask_together(
        AddJobs(store.queue, [new_job()], version=1),
        Configure(store.queue, {"max_events": 9}),
        AddJobs(store.queue, [new_job()], version=1),
    )
    assert len(before.ids) == 1
    assert isinstance(after, StaleSettings)


def test_a_new_order_of_priorities_turns_the_line_around(store: Store) -> None:
    one, two, none = store.add(priority=1), store.add(priority=2), store.add()
    settings(store, priority_order="high")
    assert [held.id for held in store.worker().claim(3)] == [two, one, none]


def test_settings_that_do_not_change_the_order_leave_the_line_alone(store: Store) -> None:
    one, two = store.add(priority=1), store.add(priority=2)
    settings(store, max_events=7, priority_order="low")
    assert [held.id for held in store.worker().claim(2)] == [one, two]


# --- pausing -------------------------------------------------------------------------------------


def pause(store: Store, paused: bool = True) -> bool:
    changed: bool = store.ask(SetPaused(store.queue, paused))
    return changed


def test_a_paused_queue_hands_out_nothing(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    assert pause(store) is True
    assert worker.claim(1) == []
    assert store.state(job) == "waiting"
    pause(store, False)
    assert worker.claim_one().id == job


def test_a_pause_is_the_queues_own(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    job = store.home.add(queue=elsewhere)
    pause(store)
    assert store.worker(queue=elsewhere).claim_one().id == job


def test_a_pause_is_told_once(store: Store) -> None:
    assert [pause(store), pause(store)] == [True, False]
    assert [pause(store, False), pause(store, False)] == [True, False]
    assert store.events() == [Event("paused", None, None), Event("resumed", None, None)]


def test_running_jobs_end_as_usual_while_their_queue_is_paused(store: Store) -> None:
    store.add()
    worker = store.worker()
    held = worker.claim_one()
    pause(store)
    assert worker.complete(held) == []


def test_due_jobs_join_the_line_of_a_paused_queue(store: Store) -> None:
    job = store.add(delay=5)
    pause(store)
    store.clock.advance(5)
    assert store.worker().claim(1) == []
    assert store.state(job) == "waiting"


def test_prefetched_jobs_are_returned_when_a_claim_finds_a_pause_of_another_process(
    store: Store,
) -> None:
    store.add_all(*(new_job() for _ in range(3)))
    worker = store.worker()
    worker.claim(1, ahead=2)
    assert store.process().ask(SetPaused(store.queue, True))
    returned = worker.unloaded
    worker.wants(1)
    store.home.turn()
    assert worker.unloaded > returned


def test_claim_happens_when_a_queue_is_resumed_if_a_worker_is_idle(store: Store) -> None:
    pause(store)
    job = store.add()
    worker = store.worker()
    worker.wants(1)
    store.home.engine.turn()
    assert worker.received == []
    pause(store, False)
    assert [held.id for held in worker.received] == [job]


def test_jobs_fetched_ahead_can_be_counted(store: Store) -> None:
    store.add_all(*(new_job() for _ in range(3)))
    store.worker().claim(1, ahead=2)
    assert store.read("count_prefetched", queue=store.queue) == [(2,)]


# --- the event log -------------------------------------------------------------------------------


def test_an_event_of_the_users_own_is_told(store: Store) -> None:
    store.ask(PublishEvent(store.queue, "lunch", {"at": 12}))
    assert store.events() == [Event("custom", None, ["lunch", {"at": 12}])]


def test_publishing_may_keep_the_log_short(store: Store) -> None:
    for n in range(6):
        store.ask(PublishEvent(store.queue, "tick", {"n": n}, keep=2))
    assert [event.detail[1]["n"] for event in store.events()][-2:] == [4, 5]
    assert len(store.events()) <= 3


def test_a_cleaning_is_told(store: Store) -> None:
    store.ask(LogCleaned(store.queue, 17))
    assert store.events() == [Event("cleaned", None, 17)]


def test_the_log_is_trimmed_to_the_newest(store: Store) -> None:
    jobs = [store.add() for _ in range(5)]
    assert store.ask(TrimEvents(store.queue, 4)) == 3
    assert [event.job for event in store.events()] == jobs[-2:]


def test_a_log_trimmed_to_nothing_hands_out_no_event_id_twice(store: Store) -> None:
    store.add()
    store.add()
    last = store.event_rows()[-1]
    store.ask(TrimEvents(store.queue, 0))
    assert store.events() == []
    store.add()
    new = store.event_rows()[-1]
    assert new.id > last.id
    assert new.total > last.total


def test_trimming_leaves_other_logs_alone(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    store.home.add(queue=elsewhere)
    store.ask(TrimEvents(store.queue, 0))
    assert len(store.events(elsewhere)) == 1


# --- as new --------------------------------------------------------------------------------------


def test_a_queue_can_be_made_as_new(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "MAX_TRIMMED", 2)
    new = settings(store)
    settings(store, dead_letter="dead", keep_failed_age=5, max_events=9)
    pause(store)
    for n in range(7):
        store.ask(PublishEvent(store.queue, "tick", {"n": n}))
    store.ask(ResetQueue(store.queue))
    assert settings(store)._replace(version=new.version) == new
    assert store.events() == []


def test_a_queue_made_as_new_has_new_settings_for_its_producers(store: Store) -> None:
    version = settings(store).version
    store.ask(ResetQueue(store.queue))
    assert settings(store).version > version


# --- duplicates ----------------------------------------------------------------------------------


def test_a_job_that_exists_already_is_told(store: Store) -> None:
    store.add(custom_id="x")
    store.add(custom_id="x")
    rows = [row for row in store.event_rows() if row.kind == "duplicated"]
    assert [json.loads(row.jobs) for row in rows] == [["x"]]


def test_restore_triggers_a_claim_for_an_idle_worker(store: Store) -> None:
    job = store.add()
    store.move(REMOVE, job)
    worker = store.worker()
    worker.wants(1)
    store.home.engine.turn()
    store.move(RESTORE_WAITING, job)
    assert [held.id for held in worker.received] == [job]
