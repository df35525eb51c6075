"""What the end of a job asks to be deleted: itself, or older ones."""

from __future__ import annotations

from typing import Any

from bullite.core.retention import Retention
from bullite.core.states import COMPLETE, FAIL, RETRY_NOW, Move
from tests.support.harness import Event, Store, new_job


def end(store: Store, number: int = 1, move: Move = COMPLETE, **details: Any) -> list[int]:
    """Have that many jobs end, one a millisecond; the last of them with these details."""
    jobs = store.add_all(*(new_job() for _ in range(number)))
    worker = store.worker()
    *first, last = worker.claim(number)
    for held in first:
        worker.settle(move, held)
        store.clock.advance(1)
    worker.settle(move, last, **details)
    return jobs


def test_a_job_of_which_nothing_is_to_stay_is_gone_when_it_ends(store: Store) -> None:
    [job] = end(store, retention=Retention(0), value="1")
    assert store.state(job) is None
    assert store.counts() == {}
    assert (store.result(job), store.row(job, "payloads", key="job")) == (None, None)


def test_its_end_is_told_all_the_same(store: Store) -> None:
    [job] = end(store, retention=Retention(0), value="1")
    assert Event("complete", job, 1) in store.events()


def test_only_so_many_stay_the_newest(store: Store) -> None:
    jobs = end(store, 5, retention=Retention(2))
    assert store.states(*jobs) == [None, None, None, "completed", "completed"]
    assert store.counts() == {"completed": 2}


def test_those_of_the_same_moment_stay_by_their_number(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(4)))
    worker = store.worker()
    worker.complete(*worker.claim(4), retention=Retention(2))
    assert store.states(*jobs) == [None, None, "completed", "completed"]


def test_those_that_ended_too_long_ago_go(store: Store) -> None:
    jobs = end(store, 4, retention=Retention(age=2))
    assert store.states(*jobs) == [None, None, "completed", "completed"]


def test_age_and_number_hold_together(store: Store) -> None:
    jobs = end(store, 5, retention=Retention(1, age=3))
    assert store.states(*jobs) == [*[None] * 4, "completed"]


def test_one_end_deletes_no_more_than_its_limit_the_oldest_first(store: Store) -> None:
    jobs = end(store, 5, retention=Retention(1, limit=2))
    assert store.states(*jobs) == [None, None, "completed", "completed", "completed"]


def test_ends_that_share_a_batch_share_their_limits(store: Store) -> None:
    end(store, 6)
    store.add_all(new_job(), new_job())
    worker = store.worker()
    worker.complete(*worker.claim(2), retention=Retention(1, limit=2))
    assert store.counts() == {"completed": 4}


def test_failed_jobs_have_a_count_of_their_own(store: Store) -> None:
    done = end(store, 3)
    jobs = end(store, 3, FAIL, retention=Retention(1))
    assert store.states(*done) == ["completed"] * 3
    assert store.states(*jobs) == [None, None, "failed"]
    assert store.attempts(jobs[0]) == []


def test_a_job_that_will_be_tried_again_deletes_nothing(store: Store) -> None:
    jobs = end(store, 2)
    end(store, 1, RETRY_NOW, retention=Retention(0))
    assert store.counts() == {"completed": len(jobs), "waiting": 1}


def test_other_queues_keep_theirs(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    kept = store.home.add(queue=elsewhere)
    other = store.worker(queue=elsewhere)
    other.complete(other.claim_one())
    store.clock.advance(10)
    end(store, retention=Retention(0))
    end(store, retention=Retention(1, age=1))
    assert store.state(kept) == "completed"
