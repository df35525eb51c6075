"""Changing what a job says without moving it: who may, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest

from bullite.core.decide_outcome import RunOutcome
from bullite.core.event_log import MAX_COPIED_LENGTH
from bullite.core.states import COMPLETE, DELETE, REMOVE
from bullite.errors import IllegalMove, JobNotFound, LostLock
from bullite.operations.finish import FinishRuns
from bullite.operations.update import AddLog, ClearLogs, ExtendLease, Progress, SetData, SetPriority
from tests.support.harness import LOCK_DURATION, Held, Process, Store, new_job


def answer(process: Process, request: Any) -> Any:
    [given] = process.ask_together(request)
    return given


def start(store: Store, **options: Any) -> Held:
    store.add(**options)
    return store.worker().claim_one()


def log(held_or_job: Held | int, message: str, keep: int | None = None, queue: int = 1) -> AddLog:
    if isinstance(held_or_job, Held):
        return AddLog(queue, held_or_job.id, held_or_job.token, "info", message, keep)
    return AddLog(queue, held_or_job, None, "info", message, keep)


def fenced(store: Store, job: int, token: int) -> list[Any]:
    """Every change that a processor makes, each fenced by its token."""
    return [
        SetData(job, token, '"new"'),
        ExtendLease(job, token, 99_000),
        AddLog(store.queue, job, token, "info", "hello", None),
    ]


# --- the fence -----------------------------------------------------------------------------------


@pytest.mark.parametrize("which", range(3))
def test_the_holder_of_a_job_may_change_it(store: Store, which: int) -> None:
    held = start(store)
    request = fenced(store, held.id, held.token)[which]
    assert not isinstance(answer(store.home, request), Exception)


@pytest.mark.parametrize("which", range(3))
def test_a_change_needs_the_number_of_the_token(store: Store, which: int) -> None:
    held = start(store)
    before = store.everything()
    request = fenced(store, held.id, held.token + 1)[which]
    assert isinstance(answer(store.home, request), LostLock)
    assert store.everything() == before


@pytest.mark.parametrize("which", range(3))
def test_a_change_needs_the_nonce_of_the_token(store: Store, which: int) -> None:
    held = start(store)
    before = store.everything()
    request = fenced(store, held.id, held.token)[which]
    assert isinstance(answer(store.process(), request), LostLock)
    assert store.everything() == before


@pytest.mark.parametrize("which", range(3))
def test_a_change_with_a_token_needs_a_job_that_runs(store: Store, which: int) -> None:
    store.add()
    worker = store.worker()
    held = worker.claim_one()
    worker.complete(held)
    before = store.everything()
    request = fenced(store, held.id, held.token)[which]
    assert isinstance(answer(store.home, request), LostLock)
    assert store.everything() == before


@pytest.mark.parametrize("move", [REMOVE, DELETE], ids=str)
def test_a_job_that_is_gone_cannot_be_changed_by_anybody(store: Store, move: Any) -> None:
    job = store.add()
    store.move(move, job)
    requests = [
        SetData(job, None, "1"),
        SetPriority(job, 1, False, False),
        log(job, "hello"),
        ClearLogs(job, 0),
    ]
    before = {table: rows for table, rows in store.everything().items() if table != "sequence"}
    answers = store.ask_together(*requests)
    assert [type(given) for given in answers] == [JobNotFound] * 4
    after = {table: rows for table, rows in store.everything().items() if table != "sequence"}
    assert after == before


# --- data ----------------------------------------------------------------------------------------


def test_anybody_may_replace_the_data_of_a_job_that_exists(store: Store) -> None:
    job = store.add(data="1")
    assert answer(store.home, SetData(job, None, '{"n":2}')) is None
    assert store.worker().claim_one().row.data == '{"n":2}'


# --- progress ------------------------------------------------------------------------------------


def test_somebody_who_does_not_hold_a_job_may_say_how_far_it_is(store: Store) -> None:
    job = store.add()
    assert store.ask(Progress(store.queue, job, None, "40")) is True
    assert store.result(job).progress == "40"
    assert store.events()[-1].detail == 40


def test_nothing_is_said_of_a_job_that_is_gone(store: Store) -> None:
    job = store.add()
    store.move(REMOVE, job)
    assert store.ask(Progress(store.queue, job, None, "40")) is False
    assert store.result(job) is None


def test_reports_with_and_without_a_token_share_a_batch(store: Store) -> None:
    held = start(store)
    waiting = store.add()
    answers = store.ask_together(
        Progress(store.queue, held.id, held.token, "1"),
        Progress(store.queue, waiting, None, "2"),
        Progress(store.queue, held.id, held.token + 1, "3"),
    )
    assert answers == [True, True, False]
    assert (store.result(held.id).progress, store.result(waiting).progress) == ("1", "2")


# --- priority ------------------------------------------------------------------------------------


def set_priority(store: Store, job: int, priority: int, lifo: bool = False) -> Any:
    return answer(store.home, SetPriority(job, priority, False, lifo))


def test_a_new_priority_means_a_new_place_behind_its_equals(store: Store) -> None:
    a, b, c = store.add(), store.add(priority=2), store.add()
    assert set_priority(store, a, 2) == 2
    assert [held.id for held in store.worker().claim(3)] == [c, b, a]


def test_last_in_first_out_means_a_place_in_front_of_its_equals(store: Store) -> None:
    a, b, c = store.add(), store.add(priority=2), store.add()
    set_priority(store, a, 2, lifo=True)
    assert [held.id for held in store.worker().claim(3)] == [c, a, b]


def test_the_counts_follow_a_priority(store: Store) -> None:
    job = store.add()
    set_priority(store, job, 4)
    assert store.counts() == {"prioritized": 1}
    set_priority(store, job, 0)
    assert store.counts() == {"waiting": 1}


def test_a_delayed_job_has_its_new_priority_when_it_is_due(store: Store) -> None:
    job, other = store.add(delay=5), store.add(priority=1)
    set_priority(store, job, 2)
    assert store.counts() == {"delayed": 1, "prioritized": 1}
    store.clock.advance(5)
    assert [held.id for held in store.worker().claim(2)] == [other, job]


def test_a_running_job_has_its_new_priority_when_it_comes_back(store: Store) -> None:
    job, other = store.add(), store.add()
    worker = store.worker()
    held = worker.claim_one()
    assert set_priority(store, job, 3) == 3
    assert store.counts() == {"active": 1, "waiting": 1}
    worker.release(held)
    assert store.counts() == {"prioritized": 1, "waiting": 1}
    assert [held.id for held in worker.claim(2)] == [other, job]


def test_a_finished_job_has_no_use_for_a_priority(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.complete(worker.claim_one())
    assert isinstance(set_priority(store, job, 3), IllegalMove)
    assert store.row(job).priority == 0


def test_set_priority_triggers_a_claim_for_an_idle_worker(store: Store) -> None:
    """No other notification follows."""
    job = store.add()
    worker = store.worker()
    store.home.engine.turn()
    worker.wants(1)
    set_priority(store, job, 1)
    assert [held.id for held in worker.received] == [job]


# --- leases --------------------------------------------------------------------------------------


def test_a_lease_can_be_extended_by_its_holder(store: Store) -> None:
    store.add()
    worker = store.worker(renews=False)
    held = worker.claim_one()
    assert answer(store.home, ExtendLease(held.id, held.token, 2 * LOCK_DURATION)) is None
    store.clock.advance(LOCK_DURATION + 1)
    assert store.home.recover() == 0
    store.clock.advance(LOCK_DURATION)
    assert store.home.recover() == 1


# --- logs ----------------------------------------------------------------------------------------


def test_lines_are_appended_in_the_order_they_came(store: Store) -> None:
    held = start(store)
    answers = store.ask_together(*(log(held, f"line {n}") for n in range(3)))
    assert answers == [1, 2, 3]
    assert answer(store.home, log(held.id, "line 3")) == 4
    assert store.logs(held.id) == [f"line {n}" for n in range(4)]


def test_a_line_is_told_with_its_time_and_its_level(store: Store) -> None:
    job = store.add(custom_id="x")
    store.clock.advance(3)
    store.ask(AddLog(store.queue, job, None, "warn", "careful", None))
    told = store.events()[-1]
    assert (told.kind, told.job) == ("log_added", "x")
    now = store.clock.now()
    assert told.detail == {"timestamp": now, "message": "careful", "level": "warn"}


def test_a_long_line_is_stored_whole_and_told_in_part(store: Store) -> None:
    job = store.add()
    store.ask(log(job, "x" * (MAX_COPIED_LENGTH + 1)))
    assert [len(line) for line in store.logs(job)] == [MAX_COPIED_LENGTH + 1]
    assert len(store.events()[-1].detail["message"]) == MAX_COPIED_LENGTH


def test_only_the_newest_lines_are_kept_when_that_is_wanted(store: Store) -> None:
    job = store.add()
    assert [store.ask(log(job, str(n), keep=2)) for n in range(4)] == [1, 2, 2, 2]
    assert store.logs(job) == ["2", "3"]


def test_many_lines_of_one_batch_keep_to_their_limit(store: Store) -> None:
    job = store.add()
    assert store.ask_together(*(log(job, str(n), keep=2) for n in range(4))) == [1, 2, 2, 2]
    assert store.logs(job) == ["2", "3"]


def test_lines_of_many_jobs_do_not_mix(store: Store) -> None:
    a, b = store.add(), store.add()
    assert store.ask_together(log(a, "a1"), log(b, "b1"), log(a, "a2", keep=1)) == [1, 1, 1]
    assert (store.logs(a), store.logs(b)) == (["a2"], ["b1"])


def test_a_refused_line_does_not_keep_the_others_out(store: Store) -> None:
    held = start(store)
    stale = held._replace(token=held.token + 1)
    first, refused, last = store.ask_together(log(held, "1"), log(stale, "2"), log(held, "3"))
    assert (first, type(refused), last) == (1, LostLock, 2)
    assert store.logs(held.id) == ["1", "3"]


def test_a_line_that_came_before_the_end_of_its_run_is_not_refused(store: Store) -> None:
    """Nobody need wait for a line: the run may end in the same batch, among other ends."""
    store.add_all(new_job(), new_job())
    one, two = store.worker().claim(2)
    settled, logged, _ = store.ask_together(
        FinishRuns(store.queue, [RunOutcome(one.id, one.token, COMPLETE)]),
        log(two, "almost done"),
        FinishRuns(store.queue, [RunOutcome(two.id, two.token, COMPLETE)]),
    )
    assert (list(settled.lost), logged) == ([], 1)
    assert store.logs(two.id) == ["almost done"]


def test_a_log_is_cleared_but_for_its_newest_lines(store: Store) -> None:
    job = store.add()
    store.ask_together(*(log(job, str(n)) for n in range(5)))
    assert answer(store.home, ClearLogs(job, 2)) is None
    assert store.logs(job) == ["3", "4"]
    assert store.ask(log(job, "5")) == 3
    assert answer(store.home, ClearLogs(job, 0)) is None
    assert store.logs(job) == []
    assert store.ask(log(job, "6")) == 1


def test_a_log_is_cleared_after_what_came_before_in_its_batch(store: Store) -> None:
    job = store.add()
    store.ask_together(log(job, "old"), ClearLogs(job, 0), log(job, "new"))
    assert store.logs(job) == ["new"]


def test_a_deleted_job_takes_its_log_and_its_history_along(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.retry(worker.claim_one())
    store.ask(log(job, "hello"))
    store.move(DELETE, job)
    assert (store.logs(job), store.attempts(job)) == ([], [])
