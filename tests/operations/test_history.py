"""How the runs of a job ended: what is remembered of each, and for how long."""

from __future__ import annotations

import pytest

from bullite.core.states import COMPLETE, FAIL, RETRY_FINISHED, TIMED_OUT
from tests.support.harness import Store


def outcomes(store: Store, job: int) -> list[tuple[int, str, str | None]]:
    return [(a.number, a.outcome, a.error) for a in store.attempts(job)]


def test_every_failed_run_is_remembered_with_its_times_and_its_worker(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    started = store.clock.now()
    held = worker.claim_one()
    store.clock.advance(30)
    worker.back_off(held, delay=1)
    [attempt] = store.attempts(job)
    assert (attempt.number, attempt.outcome, attempt.error) == (1, "error", "it broke")
    assert (attempt.started_at, attempt.ended_at) == (started, store.clock.now())
    assert (attempt.worker, attempt.stack) == ("a worker", "where it broke")


def test_runs_are_numbered_in_the_order_they_ended(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.retry(worker.claim_one())
    worker.fail(worker.claim_one(), reason="again", outcome=TIMED_OUT)
    assert outcomes(store, job) == [(1, "error", "it broke"), (2, "timed-out", "again")]


def test_a_run_whose_worker_died_is_remembered(store: Store) -> None:
    job = store.add()
    doomed = store.process()
    doomed.worker().claim_one()
    store.kill(doomed)
    store.home.recover()
    assert outcomes(store, job) == [(1, "stalled", None)]


@pytest.mark.parametrize("how", ["give_back", "release", "delay"])
def test_a_run_that_did_not_count_is_not_remembered(store: Store, how: str) -> None:
    job = store.add()
    worker = store.worker()
    getattr(worker, how)(worker.claim_one())
    assert store.attempts(job) == []


def test_a_success_is_told_by_the_job_itself_until_it_runs_again(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.settle(COMPLETE, worker.claim_one(), value="1")
    ended = store.clock.now()
    assert store.attempts(job) == []
    store.clock.advance(5)
    store.move(RETRY_FINISHED, job)
    [attempt] = store.attempts(job)
    assert (attempt.outcome, attempt.error, attempt.ended_at) == ("completed", None, ended)


def test_the_history_outlives_a_retry_by_hand(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.fail(worker.claim_one())
    store.move(RETRY_FINISHED, job)
    worker.settle(FAIL, worker.claim_one(), reason="again")
    assert outcomes(store, job) == [(1, "error", "it broke"), (2, "error", "again")]


# --- stacks --------------------------------------------------------------------------------------


def test_only_so_many_stacks_are_kept_the_newest(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    for made in (1, 2, 3):
        held = worker.claim_one()
        worker.fail(held, attempts_made=made, stack_limit=2)
        store.move(RETRY_FINISHED, job)
    stacks = [attempt.stack for attempt in store.attempts(job)]
    assert stacks == [None, "where it broke", "where it broke"]


def test_stacks_are_limited_although_the_attempts_were_forgotten(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    for _ in range(2):
        worker.fail(worker.claim_one(), attempts_made=1, stack_limit=1)
        store.move(RETRY_FINISHED, job, forget_attempts=True)
    stacks = [attempt.stack for attempt in store.attempts(job)]
    assert stacks == [None, "where it broke"]


def test_without_a_limit_every_stack_is_kept(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    for made in (1, 2, 3):
        worker.fail(worker.claim_one(), attempts_made=made)
        store.move(RETRY_FINISHED, job)
    assert len([a.stack for a in store.attempts(job) if a.stack]) == 3


def test_the_history_is_read_in_order(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    for reason in ("a", "b"):
        worker.fail(worker.claim_one(), reason=reason)
        store.move(RETRY_FINISHED, job)
    rows = store.read("attempts", job=job)
    assert [(row[0], row[5]) for row in rows] == [(1, "a"), (2, "b")]
