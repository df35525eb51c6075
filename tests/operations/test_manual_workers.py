"""Workers that are fed only what they are asked for, job by job."""

from __future__ import annotations

from typing import Any

from bullite.engine.replies import SAME_THREAD
from bullite.operations.queues import SetPaused
from bullite.operations.workers import DeregisterWorker
from tests.support.harness import LOCK_DURATION, Store, Worker, new_job


def claim_now(worker: Worker) -> Any:
    answers: list[Any] = []
    worker.process.engine.subscriptions.claim_one(worker.subscription, answers.append, SAME_THREAD)
    worker.process.engine.turn()
    [answer] = answers
    return answer


def test_a_worker_by_hand_is_given_nothing_it_did_not_ask_for(store: Store) -> None:
    store.add()
    worker = store.worker(by_hand=True)
    store.home.engine.poll_now()
    store.home.engine.turn()
    assert worker.received == []


def test_it_is_given_one_job_for_each_time_it_is_asked(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(3)))
    worker = store.worker(by_hand=True)
    for _ in range(2):
        store.home.engine.subscriptions.request_job(worker.subscription)
    store.home.engine.turn()
    store.home.engine.turn()
    assert [held.id for held in worker.received] == jobs[:2]


def test_it_is_given_a_job_that_comes_later(store: Store) -> None:
    worker = store.worker(by_hand=True)
    store.home.engine.subscriptions.request_job(worker.subscription)
    store.home.engine.turn()
    assert worker.received == []
    job = store.add()
    assert [held.id for held in worker.received] == [job]


def test_who_waits_no_more_is_given_nothing(store: Store) -> None:
    worker = store.worker(by_hand=True)
    store.home.engine.subscriptions.request_job(worker.subscription)
    store.home.engine.subscriptions.cancel_request_job(worker.subscription)
    store.add()
    assert worker.received == []


def test_to_stop_waiting_twice_does_no_harm(store: Store) -> None:
    worker = store.worker(by_hand=True)
    store.home.engine.subscriptions.cancel_request_job(worker.subscription)
    store.home.engine.subscriptions.request_job(worker.subscription)
    job = store.add()
    assert [held.id for held in worker.received] == [job]


def test_jobs_it_still_runs_do_not_keep_it_from_more(store: Store) -> None:
    store.add_all(new_job(), new_job())
    worker = store.worker(by_hand=True)
    for _ in range(2):
        store.home.engine.subscriptions.request_job(worker.subscription)
        store.home.engine.turn()
    assert len(worker.received) == 2


# --- at once -------------------------------------------------------------------------------------


def test_a_job_can_be_had_at_once(store: Store) -> None:
    job = store.add()
    claimed = claim_now(store.worker(by_hand=True))
    assert [row[0] for row in claimed.rows] == [job]
    assert store.row(job).attempts_started == 1


def test_or_none_if_there_is_none(store: Store) -> None:
    assert list(claim_now(store.worker(by_hand=True)).rows) == []


def test_every_job_is_held_with_a_token_of_its_own(store: Store) -> None:
    store.add_all(new_job(), new_job())
    worker = store.worker(by_hand=True)
    assert len({claim_now(worker).token for _ in range(2)}) == 2


def test_manual_claim_returns_nothing_until_the_subscription_is_resumed(store: Store) -> None:
    store.add()
    worker = store.worker(by_hand=True)
    answers: list[Any] = []
    store.home.engine.subscriptions.pause(worker.subscription, answers.append)
    assert claim_now(worker) is None
    assert answers == [None]
    store.home.engine.subscriptions.resume(worker.subscription)
    assert len(claim_now(worker).rows) == 1


def test_a_paused_queue_hands_out_nothing_by_hand_either(store: Store) -> None:
    store.add()
    worker = store.worker(by_hand=True)
    store.ask(SetPaused(store.queue, paused=True))
    assert list(claim_now(worker).rows) == []


def test_a_worker_that_is_not_registered_takes_nothing(store: Store) -> None:
    """What nobody on the register holds could never be taken back."""
    job = store.add()
    worker = store.worker(by_hand=True)
    store.ask(DeregisterWorker(worker.id))
    worker.subscription.worker = 0
    claimed = claim_now(worker)
    assert claimed is None or not claimed.rows
    assert store.state(job) == "waiting"


# --- a lease that nobody renews ------------------------------------------------------------------


def test_a_lease_that_is_not_renewed_ends_although_its_worker_lives(store: Store) -> None:
    job = store.add()
    worker = store.worker(renews=False)
    worker.claim_one()
    store.clock.advance(LOCK_DURATION // 2)
    store.home.renew()
    store.clock.advance(LOCK_DURATION // 2 + 1)
    assert store.home.recover() == 1
    assert store.row(job).stalled_count == 1


def test_its_worker_stays_on_the_register(store: Store) -> None:
    worker = store.worker(renews=False)
    store.add()
    worker.claim_one()
    store.clock.advance(LOCK_DURATION + 1)
    store.home.recover()
    assert store.workers() == [worker.id]
    assert store.home.renew() == {worker.id}


def test_when_its_process_dies_it_is_cleared_away_like_the_others(store: Store) -> None:
    doomed = store.process()
    store.add()
    doomed.worker(renews=False).claim_one()
    store.kill(doomed)
    assert store.home.recover() == 1
    assert store.workers() == []


def test_when_it_leaves_it_is_cleared_away_once_its_lease_is_over(store: Store) -> None:
    worker = store.worker(renews=False)
    store.add()
    worker.claim_one()
    worker.leave()
    store.clock.advance(LOCK_DURATION + 1)
    store.home.recover()
    assert store.workers() == []
