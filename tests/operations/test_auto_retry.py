"""Failed jobs that are tried again by themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bullite.core.states import (
    CANCELLED,
    REMOVE,
    RESTORE_FAILED,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    STALLED,
    TIMED_OUT,
)
from bullite.operations import after_failure
from bullite.operations.after_failure import RetryFailedDue
from bullite.operations.cancel_and_expire import Cancel, Expire
from tests.support.harness import QUEUE, Store, Worker, new_job

HOUR = 3_600_000
DEAD = "dead"


def retrying(store: Store, queue: int | None = None, times: int = 1) -> None:
    store.home.configure(queue, retry_failed_after=HOUR, retry_failed_times=times)


def fail_one(store: Store, worker: Worker | None = None, **details: Any) -> int:
    worker = worker or store.worker()
    held = worker.claim_one()
    worker.fail(held, **details)
    return held.id


def revive(store: Store) -> int:
    """How many jobs the scheduler service tries again now."""
    return store.home.do_chores(RetryFailedDue)


def is_tried_again(store: Store, job: int) -> bool:
    """Whether a job that failed just now is back in line after its hour, and not before."""
    store.clock.advance(HOUR - 1)
    assert revive(store) == 0
    store.clock.advance(1)
    revive(store)
    return store.state(job) == "waiting"


def test_a_failed_job_is_tried_again_after_its_time_as_if_it_had_never_run(store: Store) -> None:
    retrying(store)
    job = store.add(attempts=3)
    fail_one(store)
    assert store.row(job).due_at == store.clock.now() + HOUR
    assert is_tried_again(store, job)
    row = store.row(job)
    assert (row.attempts_made, row.attempts_started, row.due_at, row.finished_at) == (
        *(0, 0),
        *(None, None),
    )
    assert store.counts() == {"waiting": 1}
    assert [attempt.error for attempt in store.attempts(job)] == ["it broke"], "its history stays"
    assert store.events()[-1].kind == RETRY_FINISHED.name
    assert store.worker().claim_one().id == job


@pytest.mark.parametrize("times", [1, 2, 3])
def test_it_is_tried_again_so_often_and_no_more(store: Store, times: int) -> None:
    retrying(store, times=times)
    job = store.add()
    worker = store.worker()
    for _ in range(times):
        fail_one(store, worker)
        assert is_tried_again(store, job)
    fail_one(store, worker)
    assert not is_tried_again(store, job)
    assert store.row(job).due_at is None


@pytest.mark.parametrize("outcome", ["error", TIMED_OUT, STALLED])
def test_however_it_failed(store: Store, outcome: str) -> None:
    retrying(store)
    store.add()
    assert is_tried_again(store, fail_one(store, outcome=outcome))


def test_what_was_cancelled_or_expired_is_not(store: Store) -> None:
    for when in ("before", "after"):
        if when == "before":
            retrying(store)
        else:
            store.home.configure(retry_failed_after=None)
        cancelled, late, running = store.add_all(new_job(), new_job(expires=1), new_job())
        store.ask(Cancel(cancelled, str(cancelled), "not wanted"))
        store.clock.advance(2)
        store.ask(Expire(store.queue))
        assert fail_one(store, outcome=CANCELLED) == running
        retrying(store)
        store.clock.advance(2 * HOUR)
        assert revive(store) == 0
        assert store.states(cancelled, late, running) == ["failed"] * 3


def test_what_failed_before_it_was_settled_is_tried_again_too(store: Store) -> None:
    job = store.add()
    fail_one(store)
    store.clock.advance(1_000)
    assert revive(store) == 0
    retrying(store)
    assert store.row(job).due_at == store.clock.now() - 1_000 + HOUR
    store.clock.advance(HOUR)
    assert revive(store) == 1
    assert store.state(job) == "waiting"


def test_what_was_tried_often_enough_is_again_when_more_is_allowed(store: Store) -> None:
    retrying(store, times=1)
    job = store.add()
    worker = store.worker()
    fail_one(store, worker)
    assert is_tried_again(store, job)
    fail_one(store, worker)
    retrying(store, times=2)
    assert is_tried_again(store, job)


def test_another_time_holds_for_those_that_wait_for_theirs(store: Store) -> None:
    retrying(store)
    job = store.add()
    fail_one(store)
    store.home.configure(retry_failed_after=5)
    store.clock.advance(5)
    assert revive(store) == 1
    assert store.state(job) == "waiting"


def test_none_switches_it_off(store: Store) -> None:
    retrying(store)
    jobs = store.add_all(new_job(), new_job())
    worker = store.worker()
    fail_one(store, worker)
    store.home.configure(retry_failed_after=None)
    fail_one(store, worker)
    store.clock.advance(2 * HOUR)
    assert revive(store) == 0
    assert store.states(*jobs) == ["failed"] * 2
    assert [store.row(job).due_at for job in jobs] == [None, None]


def test_other_settings_leave_those_times_alone(store: Store) -> None:
    retrying(store)
    job = store.add()
    fail_one(store)
    due = store.row(job).due_at
    store.home.configure(max_events=77)
    assert store.row(job).due_at == due


def test_queues_have_settings_of_their_own(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    retrying(store, elsewhere)
    job = store.add()
    fail_one(store)
    assert not is_tried_again(store, job)


@pytest.mark.parametrize("move", [RETRY_FINISHED, RETRY_FINISHED_DELAYED])
def test_what_somebody_tries_by_hand_first_is_not_tried_again_by_itself(
    store: Store, move: Any
) -> None:
    retrying(store)
    job = store.add()
    fail_one(store)
    store.move(move, job, delay=3 * HOUR)
    store.clock.advance(2 * HOUR)
    assert revive(store) == 0
    assert store.counts() in ({"waiting": 1}, {"delayed": 1})
    assert store.state(job) == move.target


def test_a_removed_job_is_left_alone_until_it_is_restored(store: Store) -> None:
    retrying(store)
    job = store.add()
    fail_one(store)
    store.move(REMOVE, job)
    store.clock.advance(HOUR)
    assert revive(store) == 0
    store.move(RESTORE_FAILED, job)
    assert revive(store) == 1
    assert store.state(job) == "waiting"


def test_many_are_tried_again_piece_by_piece(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(after_failure, "MAX_RETRIED", 2)
    retrying(store)
    store.add_all(*[new_job() for _ in range(5)])
    worker = store.worker()
    worker.fail(*worker.claim(5))
    store.clock.advance(HOUR)
    assert [revive(store) for _ in range(4)] == [2, 2, 1, 0]
    assert store.counts() == {"waiting": 5}


def test_two_processes_do_not_try_the_same_again(store: Store) -> None:
    retrying(store, times=5)
    job = store.add()
    fail_one(store)
    store.clock.advance(HOUR)
    other = store.process()
    assert (revive(store), other.ask(RetryFailedDue(store.queue))) == (1, 0)
    assert store.counts() == {"waiting": 1}
    assert store.result(job).revived == 1


def test_a_notice_goes_out_each_time(store: Store) -> None:
    notice = {"queue": "news", "name": "tell", "data": {}, "attempts": 1}
    store.home.configure(on_failure=json.dumps(notice))
    retrying(store)
    job = store.add()
    worker = store.worker()
    fail_one(store, worker)
    assert is_tried_again(store, job)
    fail_one(store, worker)
    assert store.counts(store.home.open_queue("news")) == {"waiting": 2}


# --- dead letters --------------------------------------------------------------------------------


def bury(store: Store, times: int = 1, **options: Any) -> tuple[int, int]:
    """A dead letter, and the queue of those, which tries them again."""
    dead = store.home.open_queue(DEAD)
    store.home.configure(dead_letter=DEAD)
    retrying(store, dead, times)
    job = store.add(**options)
    fail_one(store)
    assert store.row(job).queue == dead
    return job, dead


def test_a_dead_letter_goes_back_to_the_queue_it_came_from(store: Store) -> None:
    job, dead = bury(store)
    assert is_tried_again(store, job)
    row = store.row(job)
    assert (row.queue, row.original_queue) == (store.queue, None)
    assert (store.counts(), store.counts(dead)) == ({"waiting": 1}, {})


def test_a_dead_letter_is_tried_again_so_often_and_no_more(store: Store) -> None:
    job, dead = bury(store, times=2)
    worker = store.worker()
    assert is_tried_again(store, job)
    fail_one(store, worker)
    assert is_tried_again(store, job)
    fail_one(store, worker)
    assert not is_tried_again(store, job)
    assert store.row(job).queue == dead


def test_the_queue_it_came_from_has_the_first_say(store: Store) -> None:
    dead = store.home.open_queue(DEAD)
    store.home.configure(dead, retry_failed_after=5 * HOUR)
    store.home.configure(dead_letter=DEAD)
    retrying(store)
    job = store.add()
    fail_one(store)
    assert store.row(job).queue == dead
    assert is_tried_again(store, job)


def test_the_queue_it_came_from_may_change_its_mind(store: Store) -> None:
    job, _ = bury(store)
    failed_at = store.clock.now()
    store.home.configure(retry_failed_after=5)
    assert store.row(job).due_at == failed_at + 5
    store.home.configure(retry_failed_after=None)
    assert store.row(job).due_at == failed_at + HOUR, "which the other queue has said"


def test_what_the_queue_of_dead_letters_says_is_not_for_those_of_a_queue_that_has_a_say(
    store: Store,
) -> None:
    job, dead = bury(store)
    failed_at = store.clock.now()
    store.home.configure(retry_failed_after=5)
    store.home.configure(dead, retry_failed_after=None)
    assert store.row(job).due_at == failed_at + 5


def test_what_a_queue_says_is_not_for_the_dead_letters_of_others(store: Store) -> None:
    job, dead = bury(store)
    due = store.row(job).due_at
    other = store.home.open_queue("other")
    store.home.configure(other, dead_letter=DEAD, retry_failed_after=5)
    assert store.row(job).due_at == due
    assert store.row(job).queue == dead


def test_one_whose_id_is_taken_there_stays_and_is_not_tried_in_a_loop(store: Store) -> None:
    job, dead = bury(store, custom_id="x")
    other, _ = bury(store, custom_id="y")
    new = store.add(custom_id="x")
    store.clock.advance(HOUR)
    revive(store)
    assert store.states(job, other, new) == ["failed", "waiting", "waiting"]
    assert store.row(job).queue == dead
    assert store.row(job).due_at is None
    assert revive(store) == 0
    assert store.result(job).revived == 0, "it was not tried"


def test_what_failed_into_the_dead_letters_before_it_was_settled(store: Store) -> None:
    dead = store.home.open_queue(DEAD)
    store.home.configure(dead_letter=DEAD)
    job = store.add()
    fail_one(store)
    retrying(store, dead)
    assert is_tried_again(store, job)
    assert store.row(job).queue == store.home.open_queue(QUEUE)
