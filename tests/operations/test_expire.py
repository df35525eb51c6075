"""Jobs that must begin in time: who fails when nobody began them, and who is spared."""

from __future__ import annotations

import pytest

from bullite.core.states import REMOVE, RESTORE, RETRY_FINISHED, RETRY_FINISHED_DELAYED, Move, State
from bullite.engine.maintenance import Maintenance
from bullite.operations import cancel_and_expire, claim
from bullite.operations.cancel_and_expire import EXPIRED_REASON, Expire
from tests.support.harness import Event, Store, new_job


def expire(store: Store) -> int:
    expired: int = store.ask(Expire(store.queue))
    return expired


def test_a_job_that_nobody_began_in_time_fails(store: Store) -> None:
    job = store.add(expires=50)
    store.clock.advance(49)
    assert expire(store) == 0
    store.clock.advance(1)
    assert expire(store) == 1
    assert store.counts() == {"failed": 1}
    assert store.row(job).finished_at == store.clock.now()
    assert (store.result(job).failed_reason, store.result(job).outcome) == (
        EXPIRED_REASON,
        "expired",
    )


def test_it_tells_where_it_expired(store: Store) -> None:
    waiting, delayed = store.add(expires=5), store.add(expires=5, delay=100, custom_id="late")
    store.clock.advance(5)
    assert expire(store) == 2
    assert store.events()[-2:] == [
        Event("expire", waiting, ["waiting", EXPIRED_REASON]),
        Event("expire", "late", ["delayed", EXPIRED_REASON, delayed]),
    ]
    assert store.row(delayed).due_at is None


def test_a_job_with_a_priority_is_counted_out_of_its_own_count(store: Store) -> None:
    store.add(expires=5, priority=3)
    store.clock.advance(5)
    expire(store)
    assert store.counts() == {"failed": 1}


def test_an_expired_job_is_no_attempt(store: Store) -> None:
    job = store.add(expires=5)
    store.clock.advance(5)
    expire(store)
    row = store.row(job)
    assert (row.attempts_made, row.attempts_started) == (0, 0)
    assert store.attempts(job) == []


def test_an_expired_job_is_never_handed_out(store: Store) -> None:
    job, good = store.add(expires=5), store.add()
    store.clock.advance(5)
    assert [held.id for held in store.worker().claim(2)] == [good]
    assert store.state(job) == "failed"


def test_a_delayed_job_that_is_due_and_expired_at_once_is_not_handed_out(store: Store) -> None:
    job = store.add(expires=5, delay=5)
    store.clock.advance(5)
    assert store.worker().claim(1) == []
    assert store.state(job) == "failed"


def test_no_expired_job_is_handed_out_even_when_there_are_more_than_one_go_can_fail(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (cancel_and_expire, claim):
        monkeypatch.setattr(module, "MAX_EXPIRED", 2)
    store.add_all(*(new_job(expires=5) for _ in range(5)))
    good = store.add()
    store.clock.advance(5)
    worker = store.worker()
    assert worker.claim(9) == []
    assert worker.claim(9) == []
    assert [held.id for held in worker.claim(9)] == [good]
    assert store.counts() == {"failed": 5, "active": 1}


def test_a_job_that_runs_does_not_expire(store: Store) -> None:
    job = store.add(expires=5)
    worker = store.worker()
    held = worker.claim_one()
    store.clock.advance(50)
    assert expire(store) == 0
    worker.complete(held)
    assert store.state(job) == "completed"


@pytest.mark.parametrize("how", ["retry", "release", "stall"])
def test_a_job_that_was_begun_in_time_does_not_expire_while_it_waits_to_run_again(
    store: Store, how: str
) -> None:
    job = store.add(expires=5)
    process = store.process()
    worker = process.worker()
    held = worker.claim_one()
    if how == "stall":
        store.kill(process)
        store.home.recover()
    else:
        getattr(worker, how)(held)
    store.clock.advance(50)
    assert expire(store) == 0
    assert store.worker().claim_one().id == job


def test_a_job_that_backs_off_past_its_time_is_tried_again(store: Store) -> None:
    job = store.add(expires=5)
    worker = store.worker()
    worker.back_off(worker.claim_one(), delay=50)
    store.clock.advance(50)
    assert worker.claim_one().id == job


def test_a_job_that_was_only_fetched_ahead_still_expires(store: Store) -> None:
    store.add()
    job = store.add(expires=5)
    worker = store.worker()
    _, ahead = worker.claim(1, ahead=1)
    worker.give_back(ahead)
    store.clock.advance(5)
    assert expire(store) == 1
    assert store.state(job) == "failed"


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("move", [RETRY_FINISHED, RETRY_FINISHED_DELAYED], ids=str)
def test_an_expired_job_that_is_retried_by_hand_can_run(
    store: Store, move: Move, forget: bool
) -> None:
    job = store.add(expires=5)
    store.clock.advance(5)
    expire(store)
    assert store.move(move, job, delay=1, forget_attempts=forget) == [job]
    store.clock.advance(1)
    assert [held.id for held in store.worker().claim(1)] == [job]


def test_a_removed_job_expires_only_when_it_is_back(store: Store) -> None:
    job = store.add(expires=5)
    store.move(REMOVE, job)
    store.clock.advance(5)
    assert expire(store) == 0
    store.move(RESTORE[State.WAITING], job)
    assert expire(store) == 1


def test_expired_jobs_fail_in_pieces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel_and_expire, "MAX_EXPIRED", 2)
    store.add_all(*(new_job(expires=5) for _ in range(5)))
    store.clock.advance(5)
    assert [expire(store) for _ in range(4)] == [2, 2, 1, 0]


def test_what_a_job_says_of_its_failure_holds_when_it_expires(store: Store) -> None:
    gone = store.add(expires=5, opts='{"remove_on_fail":true}')
    kept = store.add(expires=5)
    store.clock.advance(5)
    assert expire(store) == 2
    assert store.states(gone, kept) == [None, "failed"]
    assert store.counts() == {"failed": 1}


def test_an_expired_job_is_no_dead_letter(store: Store) -> None:
    store.home.configure(dead_letter="dead")
    job = store.add(expires=5)
    store.clock.advance(5)
    expire(store)
    assert store.row(job).queue == store.queue


def test_jobs_of_other_queues_are_left_alone(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    job = store.home.add(queue=elsewhere, expires=5)
    store.clock.advance(5)
    assert expire(store) == 0
    assert store.state(job) == "waiting"


def test_the_scheduler_finds_expired_jobs_of_queues_without_a_worker(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    job = store.home.add(queue=elsewhere, expires=5)
    assert store.home.chores(Expire) == []
    store.clock.advance(5)
    store.worker()
    store.home.engine._maintenance.schedule = Maintenance(store.home.driver)
    store.home.engine.turn()
    assert store.state(job) == "failed"
