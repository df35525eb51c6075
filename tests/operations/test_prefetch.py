"""Jobs that a worker holds beyond those it runs: claimed, but not begun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bullite.core.states import COMPLETE
from bullite.engine.replies import PendingRequest
from bullite.engine.subscription import PREFETCH_RETURN_AFTER
from bullite.operations.update import AddLog, Progress
from tests.support.harness import Store, new_job


def test_only_the_jobs_that_begin_are_told_to_be_active(store: Store) -> None:
    first, second, third = store.add_all(*(new_job() for _ in range(3)))
    store.worker().claim(1, ahead=2)
    assert store.counts() == {"active": 3}
    assert [store.row(job).ahead for job in (first, second, third)] == [0, 1, 1]
    assert [store.row(job).attempts_started for job in (first, second, third)] == [1, 0, 0]
    assert [store.history(job) for job in (first, second)] == [["add", "claim"], ["add"]]


def test_no_more_are_fetched_ahead_than_asked_for(store: Store) -> None:
    store.add_all(*(new_job() for _ in range(5)))
    assert len(store.worker().claim(1, ahead=2)) == 3


def test_nobody_holds_more_ahead_than_its_share_of_what_waits(store: Store) -> None:
    store.add_all(*(new_job() for _ in range(12)))
    one, _, _ = store.worker(), store.worker(), store.worker()
    [first] = one.claim(1)
    one.complete(first)
    assert len(one.claim(1, ahead=10)) == 1 + 12 // 3


def test_who_wants_nothing_when_nothing_is_left_looks_again_when_it_does(store: Store) -> None:
    """Others do not know that it will want something, and wake it for nothing."""
    store.add()
    worker, engine = store.worker(), store.home.engine
    worker.wants(1)
    engine.poll_now()
    engine.turn()
    worker.subscription.prefetched = 1
    engine.turn()
    [held] = worker.received
    worker.subscription.remove_held(1, store.clock.lease_now())
    worker.complete(held)
    assert worker.subscription.advertised_idle


def test_the_beginning_of_such_a_job_is_told_with_its_end(store: Store) -> None:
    store.add()
    job = store.add()
    worker = store.worker()
    _, held = worker.claim(1, ahead=1)
    worker.settle(COMPLETE, held, prefetched=True)
    assert store.history(job) == ["add", "claim", "complete"]
    row = store.row(job)
    assert (row.attempts_started, row.attempts_made, row.ahead) == (1, 1, 0)


def test_given_back_it_has_its_old_place_and_was_never_started(store: Store) -> None:
    jobs = store.add_all(*(new_job() for _ in range(3)))
    worker = store.worker()
    held = worker.claim(1, ahead=2)
    worker.give_back(*held[1:])
    assert [store.row(job).attempts_started for job in jobs] == [1, 0, 0]
    assert [store.row(job).ahead for job in jobs] == [0, 0, 0]
    assert [job.id for job in store.worker().claim(3)] == jobs[1:]


def test_when_its_worker_dies_it_goes_back_unharmed(store: Store) -> None:
    """It never ran: it must not be blamed, however often that happens."""
    begun, ahead, waiting = store.add_all(*(new_job() for _ in range(3)))
    doomed = store.process()
    doomed.worker(max_stalled_count=0).claim(1, ahead=1)
    store.kill(doomed)
    assert store.home.recover() == 2
    assert [store.row(job).stalled_count for job in (begun, ahead)] == [1, 0]
    assert store.row(ahead).deferred_failure is None
    assert store.history(ahead) == ["add"]
    assert [held.id for held in store.worker().claim(3)] == [begun, ahead, waiting]


def test_a_job_that_says_something_has_begun_and_that_is_told_first(store: Store) -> None:
    store.add()
    job = store.add()
    worker = store.worker()
    _, held = worker.claim(1, ahead=1)
    worker.progress(held, "5")
    row = store.row(job)
    assert (row.attempts_started, row.ahead) == (1, 0)
    worker.complete(held)
    assert store.row(job).attempts_started == 1
    assert store.history(job) == ["add", "claim", "progress", "complete"]


def test_its_lines_of_a_batch_begin_it_once(store: Store) -> None:
    store.add()
    job = store.add()
    _, held = store.worker().claim(1, ahead=1)
    lines = [AddLog(store.queue, job, held.token, "info", text, None) for text in "ab"]
    assert store.ask_together(*lines) == [1, 2]
    assert store.row(job).attempts_started == 1
    assert store.history(job) == ["add", "claim", "log_added", "log_added"]


def test_what_somebody_else_says_of_it_before_it_began_is_no_beginning(store: Store) -> None:
    store.add()
    job = store.add()
    store.worker().claim(1, ahead=1)
    store.ask(Progress(store.queue, job, None, "5"))
    assert store.row(job).attempts_started == 0


def test_a_worker_none_of_whose_jobs_end_is_told_to_give_back_what_it_has_not_begun(
    store: Store,
) -> None:
    store.add_all(*(new_job() for _ in range(3)))
    worker = store.worker()
    worker.wants(1, ahead=2)
    store.home.engine.poll_now()
    store.home.engine.turn()
    store.clock.advance(PREFETCH_RETURN_AFTER - 1)
    store.home.engine.turn()
    assert worker.unloaded == 0
    store.clock.advance(1)
    store.home.engine.turn()
    assert worker.unloaded == 1


def test_a_worker_that_only_runs_what_it_holds_is_left_alone(store: Store) -> None:
    store.add_all(*(new_job() for _ in range(3)))
    worker = store.worker()
    worker.wants(3)
    store.home.engine.poll_now()
    store.home.engine.turn()
    store.clock.advance(10 * PREFETCH_RETURN_AFTER)
    store.home.engine.turn()
    assert worker.unloaded == 0


@pytest.mark.parametrize(
    ("ahead", "later", "waits"),
    [(2, 0, True), (2, PREFETCH_RETURN_AFTER, False), (0, 0, False)],
    ids=["ahead", "too long", "nothing ahead"],
)
def test_ends_of_runs_wait_only_as_long_as_jobs_may_be_held_ahead(
    store: Store, ahead: int, later: int, waits: bool
) -> None:
    store.add_all(*(new_job() for _ in range(3)))
    worker, engine, taken = store.worker(), store.home.engine, Taken()
    worker.wants(1, ahead=ahead)
    engine.poll_now()
    engine.turn()
    engine.submit_merged(taken, "the end of a run", urgent=False)
    store.clock.advance(later)
    engine.turn()
    assert (taken.parts == []) is waits


class Taken:
    """A joiner that only notes what it is to join."""

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def merge(self, parts: Sequence[Any]) -> list[PendingRequest]:
        self.parts += parts
        return []
