"""A move of one job, by somebody who wants to know why not; and moves of many that share ids."""

from __future__ import annotations

from typing import Any

import pytest

from bullite.core.states import (
    DELETE,
    DELETE_ACTIVE,
    PROMOTE,
    REMOVE,
    RESCHEDULE,
    RESTORE_WAITING,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    Move,
    State,
)
from bullite.errors import IllegalMove, JobIdTaken, JobLocked, JobNotFound
from bullite.operations.move import MoveJob
from tests.support.harness import Event, Store


def move_one(store: Store, move: Move, job: int, **options: Any) -> Any:
    [answer] = store.ask_together(MoveJob(move, job, f"number {job}", **options))
    return answer


def failed(store: Store, **options: Any) -> int:
    job = store.add(**options)
    worker = store.worker()
    worker.fail(worker.claim_one())
    return job


# --- why not -------------------------------------------------------------------------------------


def test_a_move_that_was_made_needs_no_explanation(store: Store) -> None:
    job = store.add(delay=50)
    assert move_one(store, PROMOTE, job) is None
    assert store.state(job) == "waiting"


def test_a_job_that_never_was_is_not_found(store: Store) -> None:
    answer = move_one(store, REMOVE, 99)
    assert isinstance(answer, JobNotFound)
    assert "number 99" in str(answer)


def test_a_removed_job_is_not_found(store: Store) -> None:
    job = store.add()
    store.move(REMOVE, job)
    assert isinstance(move_one(store, REMOVE, job), JobNotFound)
    assert move_one(store, RESTORE_WAITING, job) is None


def test_a_running_job_is_locked(store: Store) -> None:
    job = store.add()
    store.worker().claim_one()
    before = store.everything()
    assert isinstance(move_one(store, REMOVE, job), JobLocked)
    assert store.everything() == before


def test_a_job_somewhere_else_is_told_where_it_is_and_where_it_should_be(store: Store) -> None:
    job = store.add()
    answer = move_one(store, PROMOTE, job)
    assert isinstance(answer, IllegalMove)
    assert "delayed" in str(answer)
    assert "waiting" in str(answer)


def test_a_caller_may_allow_only_one_of_the_states_a_move_starts_from(store: Store) -> None:
    job = failed(store)
    assert isinstance(move_one(store, RETRY_FINISHED, job, source=State.COMPLETED), IllegalMove)
    assert store.state(job) == "failed"
    assert move_one(store, RETRY_FINISHED, job, source=State.FAILED) is None


def test_an_id_that_is_taken_is_the_reason(store: Store) -> None:
    old = store.add(custom_id="x")
    store.move(REMOVE, old)
    store.add(custom_id="x")
    assert isinstance(move_one(store, RESTORE_WAITING, old), JobIdTaken)
    assert store.state(old) == "removed"


# --- delays and attempts -------------------------------------------------------------------------


def test_a_delayed_job_may_be_due_at_another_time(store: Store) -> None:
    job = store.add(delay=500)
    assert move_one(store, RESCHEDULE, job, delay=20) is None
    row = store.row(job)
    assert (row.due_at, row.delay) == (store.clock.now() + 20, 20)
    assert store.events()[-1] == Event("reschedule", job, store.clock.now() + 20)
    store.clock.advance(20)
    assert store.worker().claim_one().id == job


def test_reschedule_lets_an_idle_worker_claim_the_job_at_its_new_time(store: Store) -> None:
    job = store.add(delay=500)
    worker = store.worker()
    worker.wants(1)
    store.home.engine.turn()
    move_one(store, RESCHEDULE, job, delay=20)
    store.clock.advance(20)
    store.home.engine.turn()
    assert [held.id for held in worker.received] == [job]


def test_a_job_may_be_revived_for_later(store: Store) -> None:
    job = failed(store)
    assert move_one(store, RETRY_FINISHED_DELAYED, job, delay=20) is None
    row = store.row(job)
    assert (row.state, row.due_at, row.finished_at) == ("delayed", store.clock.now() + 20, None)
    assert store.events()[-1] == Event("revive_delayed", job, ["failed", store.clock.now() + 20])


@pytest.mark.parametrize("move", [RETRY_FINISHED, RETRY_FINISHED_DELAYED], ids=str)
@pytest.mark.parametrize("forget", [False, True])
def test_a_revived_job_keeps_its_attempts_unless_they_are_to_be_forgotten(
    store: Store, move: Move, forget: bool
) -> None:
    job = failed(store)
    move_one(store, move, job, forget_attempts=forget)
    row = store.row(job)
    assert (row.attempts_made, row.attempts_started) == ((0, 0) if forget else (1, 1))
    assert len(store.attempts(job)) == 1, "its history stays"


def test_a_revived_job_tells_what_it_was(store: Store) -> None:
    job = failed(store)
    move_one(store, RETRY_FINISHED, job)
    assert store.events()[-1] == Event("revive", job, "failed")


def test_a_running_job_can_be_torn_away_with_its_queue_and_is_lost_to_its_worker(
    store: Store,
) -> None:
    job = store.add()
    worker = store.worker()
    held = worker.claim_one()
    assert move_one(store, DELETE_ACTIVE, job) is None
    assert store.counts() == {}
    assert worker.complete(held) == [job]
    assert store.row(job, "payloads", key="job") is None


@pytest.mark.parametrize("options", [{}, {"delay": 50}, {"priority": 3}], ids=str)
def test_a_job_that_has_not_run_can_be_deleted_for_good(
    store: Store, options: dict[str, Any]
) -> None:
    job = store.add(**options)
    assert move_one(store, DELETE, job) is None
    assert (store.state(job), store.counts()) == (None, {})


# --- ids that are shared -------------------------------------------------------------------------


def test_of_removed_jobs_that_shared_an_id_only_one_is_restored(store: Store) -> None:
    jobs = []
    for _ in range(2):
        jobs.append(store.add(custom_id="x"))
        store.move(REMOVE, jobs[-1])
    assert len(store.move(RESTORE_WAITING, *jobs)) == 1
    assert sorted(map(str, store.states(*jobs))) == ["removed", "waiting"]
