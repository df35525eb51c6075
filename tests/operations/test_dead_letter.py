"""Dead letters: failed jobs that move to another queue, and their way back."""

from __future__ import annotations

from typing import Any

import pytest

from bullite.core.retention import Retention
from bullite.core.states import (
    CANCELLED,
    FAIL,
    REMOVE,
    RESTORE_FAILED,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    Move,
)
from tests.support.harness import Event, Store

DEAD = "dead"


def bury(store: Store, **options: Any) -> int:
    """A job that failed for good and went to the queue of dead letters."""
    store.home.configure(dead_letter=DEAD)
    job = store.add(**options)
    worker = store.worker()
    worker.fail(worker.claim_one())
    return job


def dead_queue(store: Store) -> int:
    return store.home.open_queue(DEAD)


def test_a_job_that_failed_for_good_moves_as_it_is(store: Store) -> None:
    job = bury(store, priority=2, data='"x"')
    row = store.row(job)
    assert (row.queue, row.original_queue) == (dead_queue(store), store.queue)
    assert (row.state, row.attempts_made, row.finished_at) == ("failed", 1, store.clock.now())
    assert store.result(job).failed_reason == "it broke"
    assert [attempt.error for attempt in store.attempts(job)] == ["it broke"]
    assert (store.counts(), store.counts(dead_queue(store))) == ({}, {"failed": 1})


def test_the_move_is_told_in_both_queues(store: Store) -> None:
    bury(store, custom_id="x")
    told = Event("dead_lettered", "x", ["work", DEAD])
    kinds = [event.kind for event in store.events()]
    assert kinds[-3:] == ["fail", "dead_lettered", "drained"]
    assert told in store.events()
    assert store.events(dead_queue(store)) == [told]


@pytest.mark.parametrize("how", ["retry", "back_off", "complete"])
def test_only_a_job_that_failed_for_good_moves(store: Store, how: str) -> None:
    store.home.configure(dead_letter=DEAD)
    job = store.add()
    worker = store.worker()
    getattr(worker, how)(worker.claim_one())
    assert store.row(job).queue == store.queue


def test_a_cancelled_job_stays(store: Store) -> None:
    store.home.configure(dead_letter=DEAD)
    job = store.add()
    worker = store.worker()
    worker.fail(worker.claim_one(), outcome=CANCELLED)
    assert store.row(job).queue == store.queue


def test_a_job_whose_id_is_taken_there_stays(store: Store) -> None:
    taken = store.home.add(queue=dead_queue(store), custom_id="x")
    job = bury(store, custom_id="x")
    assert store.row(job).queue == store.queue
    assert store.row(taken).queue == dead_queue(store)
    assert store.counts() == {"failed": 1}


def test_of_jobs_that_fail_together_only_the_one_whose_id_is_taken_stays(store: Store) -> None:
    store.home.add(queue=dead_queue(store), custom_id="x")
    store.home.configure(dead_letter=DEAD)
    jobs = [store.add(custom_id="x"), store.add(custom_id="y"), store.add()]
    worker = store.worker()
    worker.fail(worker.claim(3)[0])
    worker.fail(*worker.received[1:])
    assert [store.row(job).queue for job in jobs] == [store.queue, *[dead_queue(store)] * 2]


def test_jobs_of_two_queues_that_share_an_id_do_not_meet_in_the_third(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    store.home.configure(elsewhere, dead_letter=DEAD)
    first = bury(store, custom_id="x")
    second = store.home.add(queue=elsewhere, custom_id="x")
    worker = store.worker(queue=elsewhere)
    worker.fail(worker.claim_one())
    assert [store.row(job).queue for job in (first, second)] == [dead_queue(store), elsewhere]


def test_a_job_that_moves_is_spared_by_its_own_retention(store: Store) -> None:
    store.home.configure(dead_letter=DEAD)
    job = store.add()
    worker = store.worker()
    worker.fail(worker.claim_one(), retention=Retention(0))
    assert store.state(job) == "failed"


def test_a_queue_is_not_its_own_dead_letter(store: Store) -> None:
    store.home.configure(dead_letter="work")
    job = store.add()
    worker = store.worker()
    worker.fail(worker.claim_one())
    assert store.row(job).original_queue is None
    assert store.counts() == {"failed": 1}


def test_the_line_of_the_other_order_has_the_job_where_it_belongs(store: Store) -> None:
    store.home.open_queue(DEAD, "high")
    job = bury(store, priority=3)
    assert (store.row(job).priority, store.row(job).rank) == (3, -3)
    store.move(RETRY_FINISHED, job)
    assert store.row(job).rank == 3


# --- and back ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("move", "state"), [(RETRY_FINISHED, "waiting"), (RETRY_FINISHED_DELAYED, "delayed")]
)
def test_a_revived_job_goes_back_to_the_queue_it_came_from(
    store: Store, move: Move, state: str
) -> None:
    job = bury(store)
    assert store.move(move, job, delay=5) == [job]
    row = store.row(job)
    assert (row.queue, row.original_queue, row.state) == (store.queue, None, state)
    assert (store.counts(), store.counts(dead_queue(store))) == ({state: 1}, {})
    assert store.events()[-1].kind == move.name, "it is told where it is now"
    store.clock.advance(5)
    assert store.worker().claim_one().id == job


def test_a_revived_job_stands_in_the_lane_of_its_name(store: Store) -> None:
    job = bury(store, name="mail")
    store.worker(names=["mail"])
    store.move(RETRY_FINISHED, job)
    assert store.worker(names=["mail"]).claim_one().id == job


def test_a_job_whose_id_was_taken_meanwhile_stays_with_the_dead(store: Store) -> None:
    job = bury(store, custom_id="x")
    new = store.add(custom_id="x")
    assert new != job
    assert store.move(RETRY_FINISHED, job) == []
    assert store.row(job).queue == dead_queue(store)


def test_a_removed_dead_letter_is_restored_among_the_dead(store: Store) -> None:
    job = bury(store)
    store.move(REMOVE, job)
    assert store.counts(dead_queue(store)) == {}
    assert store.move(RESTORE_FAILED, job) == [job]
    assert store.counts(dead_queue(store)) == {"failed": 1}


def test_a_verdict_that_is_sent_again_after_its_job_was_buried_is_recognised(store: Store) -> None:
    store.home.configure(dead_letter=DEAD)
    store.add()
    worker = store.worker()
    held = worker.claim_one()
    assert worker.settle(FAIL, held) == []
    before = store.everything()
    assert worker.settle(FAIL, held, again=True) == []
    assert store.everything() == before
