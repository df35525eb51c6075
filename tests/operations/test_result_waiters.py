"""Waiting for the end of a job, also of one that is gone when somebody looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bullite.core.event_log import MAX_COPIED_LENGTH
from bullite.core.retention import Retention
from bullite.core.states import REMOVE
from bullite.engine.replies import SAME_THREAD, PendingRequest
from bullite.errors import JobNotFound, StoreBusy
from bullite.operations.cancel_and_expire import EXPIRED_REASON, Expire
from bullite.operations.move import MoveJob
from tests.support.harness import Store, new_job


def watch(store: Store, job: int) -> list[Any]:
    told: list[Any] = []
    store.home.engine.result_waiters.watch(store.watched(job), told.append, SAME_THREAD)
    store.home.turn()
    return told


def look(store: Store) -> None:
    store.home.engine.poll_now()
    store.home.turn()


def test_the_end_of_a_job_that_is_gone_at_once_is_known_from_its_verdict(store: Store) -> None:
    told = watch(store, store.add())
    worker = store.worker()
    worker.complete(worker.claim_one(), value="7", retention=Retention(0))
    assert told == [["completed", "7", None]]


@pytest.mark.parametrize("custom_id", [None, "mine"])
@pytest.mark.parametrize(
    ("value", "text"), [("7", "7"), (None, "null"), ('{"a":[1]}', '{"a":[1]}')]
)
def test_the_end_of_a_job_that_another_process_finished_and_deleted_is_in_the_log(
    store: Store, custom_id: str | None, value: str | None, text: str
) -> None:
    told = watch(store, store.add(custom_id=custom_id))
    worker = store.process().worker()
    worker.complete(worker.claim_one(), value=value, retention=Retention(0))
    look(store)
    assert told == [["completed", text, None]]


def test_so_is_its_failure(store: Store) -> None:
    told = watch(store, store.add())
    worker = store.process().worker()
    worker.fail(worker.claim_one(), reason="no", retention=Retention(0))
    look(store)
    assert told == [["failed", None, "no"]]


def test_a_result_too_long_for_the_log_is_gone_with_its_job(store: Store) -> None:
    told = watch(store, store.add())
    worker = store.process().worker()
    value = '"' + "x" * MAX_COPIED_LENGTH + '"'
    worker.complete(worker.claim_one(), value=value, retention=Retention(0))
    look(store)
    assert [type(answer) for answer in told] == [JobNotFound]


def test_the_end_of_an_earlier_job_of_the_same_id_does_not_count(store: Store) -> None:
    store.add(custom_id="x")
    worker = store.worker()
    worker.complete(worker.claim_one(), value="1", retention=Retention(0))
    store.clock.advance(5)
    job = store.add(custom_id="x")
    told = watch(store, job)
    store.move(REMOVE, job)
    assert [type(answer) for answer in told] == [JobNotFound]


def test_the_newest_end_in_the_log_is_the_one(store: Store) -> None:
    job = store.add()
    told = watch(store, job)
    worker = store.process().worker()
    worker.retry(worker.claim_one())
    worker.complete(worker.claim_one(), value="2", retention=Retention(0))
    look(store)
    assert told == [["completed", "2", None]]


def test_a_job_made_to_look_younger_than_it_is_is_found_in_the_log(store: Store) -> None:
    told = watch(store, store.add(timestamp=store.clock.now() + 60_000))
    worker = store.process().worker()
    worker.complete(worker.claim_one(), value="7", retention=Retention(0))
    look(store)
    assert told == [["completed", "7", None]]


def test_who_waits_for_a_job_that_expires_is_told(store: Store) -> None:
    told = watch(store, store.add(expires=5))
    store.clock.advance(5)
    store.ask(Expire(store.queue))
    look(store)
    assert told == [["failed", None, EXPIRED_REASON]]


def test_who_waits_for_a_job_that_expires_and_is_deleted_is_told_how_it_ended(
    store: Store,
) -> None:
    told = watch(store, store.add(expires=5, opts='{"remove_on_fail":true}'))
    store.clock.advance(5)
    store.ask(Expire(store.queue))
    look(store)
    assert told == [["failed", None, EXPIRED_REASON]]


def test_who_waits_for_a_buried_job_is_told_of_its_failure(store: Store) -> None:
    store.home.configure(dead_letter="dead")
    told = watch(store, store.add())
    worker = store.process().worker()
    worker.fail(worker.claim_one(), reason="no")
    look(store)
    assert told == [["failed", None, "no"]]


def test_a_removal_of_one_job_is_told_at_once(store: Store) -> None:
    job = store.add()
    told = watch(store, job)
    store.ask(MoveJob(REMOVE, job, str(job)))
    assert [type(answer) for answer in told] == [JobNotFound]


def test_a_verdict_that_was_lost_ends_nobodys_wait(store: Store) -> None:
    told = watch(store, store.add())
    worker = store.worker()
    held = worker.claim_one()
    worker.complete(held._replace(token=held.token + 1), value="1")
    assert told == []


def test_a_run_that_will_be_tried_again_ends_nobodys_wait(store: Store) -> None:
    told = watch(store, store.add())
    worker = store.worker()
    worker.retry(worker.claim_one())
    assert told == []


def test_who_waits_no_more_is_not_told(store: Store) -> None:
    job = store.add()
    told: list[Any] = []
    other: list[Any] = []
    reply = told.append
    store.home.engine.result_waiters.watch(store.watched(job), reply, SAME_THREAD)
    store.home.engine.result_waiters.watch(store.watched(job), other.append, SAME_THREAD)
    store.home.engine.result_waiters.unwatch(job, reply)
    worker = store.worker()
    worker.complete(worker.claim_one())
    assert (told, len(other)) == ([], 1)


def test_nothing_is_remembered_of_jobs_that_nobody_waits_for_any_more(store: Store) -> None:
    """A program may wait for millions."""
    job = store.add()
    watch(store, job)
    worker = store.worker()
    worker.complete(worker.claim_one())
    answers: list[Any] = []
    reply = answers.append
    gone = store.add()
    store.home.engine.result_waiters.watch(store.watched(gone), reply, SAME_THREAD)
    store.home.engine.result_waiters.unwatch(gone, reply)
    store.home.engine.turn()
    watchers = store.home.engine.result_waiters
    assert [len(kept) for kept in (watchers._callers, watchers._jobs)] == [0, 0]


class _Joiner:
    def merge(self, parts: Sequence[Any]) -> list[PendingRequest]:
        return []


@pytest.mark.parametrize("is_watched", [False, True])
def test_while_somebody_waits_for_a_job_every_end_is_urgent(store: Store, is_watched: bool) -> None:
    job, engine = store.add(), store.home.engine
    if is_watched:
        engine.result_waiters.watch(store.watched(job), lambda answer: None, SAME_THREAD)
        engine.turn()
    engine.submit_merged(_Joiner(), "the end of a run", urgent=False)
    assert engine._inbox.has_urgent() is is_watched


# --- reads that fail -----------------------------------------------------------------------------

READS = ("finished_jobs", "existing_jobs", "ends_in_log")


@pytest.mark.parametrize("statement", READS)
def test_a_look_for_results_that_fails_is_repeated(
    store: Store, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = watch(store, store.add())
    worker = store.process().worker()
    worker.complete(worker.claim_one(), value="7", retention=Retention(0))
    store.home.driver.fail_at[statement] = StoreBusy("locked")
    look(store)
    assert (told, store.home.driver.fail_at) == ([], {})
    assert "could not look for results: locked" in caplog.text
    look(store)
    assert told == [["completed", "7", None]]


@pytest.mark.parametrize("statement", READS)
def test_committed_requests_are_answered_although_looking_for_results_fails(
    store: Store, statement: str
) -> None:
    job = store.add()
    told = watch(store, job)
    store.home.driver.fail_at[statement] = StoreBusy("locked")
    assert store.ask(MoveJob(REMOVE, job, str(job))) is None
    assert (told, store.home.driver.fail_at) == ([], {})
    look(store)
    assert [type(answer) for answer in told] == [JobNotFound]


def test_a_job_that_is_deleted_between_two_reads_of_a_look_ends_a_wait_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = store.add()
    told = watch(store, job)
    worker = store.process().worker()
    worker.complete(worker.claim_one(), value="7")
    execute = store.home.driver.execute

    def delete_meanwhile(statement: str, params: Any) -> Any:
        result = execute(statement, params)
        if statement == "finished_jobs":
            store.process().move(REMOVE, job)
        return result

    monkeypatch.setattr(store.home.driver, "execute", delete_meanwhile)
    look(store)
    assert told == [["completed", "7", None]]


# --- jobs that are gone --------------------------------------------------------------------------


def test_how_jobs_ended_that_are_gone_is_read_for_all_of_them_at_once(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(1_000)))
    watched = [store.watched(job) for job in jobs]
    worker = store.process().worker()
    worker.complete(*worker.claim(1_000), value="7", retention=Retention(0))
    told: list[Any] = []
    for each in watched:
        store.home.engine.result_waiters.watch(each, told.append, SAME_THREAD)
    store.home.turn()
    assert told == [["completed", "7", None]] * 1_000
    assert [statement for statement, _ in store.home.reads.asked] == ["ends_in_log"]


def test_the_event_log_is_not_read_again_before_it_has_been_read(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(3)))
    watched = [store.watched(job) for job in jobs]
    worker = store.process().worker()
    worker.complete(*worker.claim(3), value="7", retention=Retention(0))
    reads = store.home.reads
    reads.is_slow = True
    told: list[Any] = []
    for each in watched:
        store.home.engine.result_waiters.watch(each, told.append, SAME_THREAD)
        look(store)
    assert (told, len(reads.asked)) == ([], 1)
    reads.go_on()
    store.home.turn()
    assert (told, len(reads.asked)) == ([["completed", "7", None]], 2)
    reads.go_on()
    store.home.turn()
    assert (told, len(reads.asked)) == ([["completed", "7", None]] * 3, 2)
