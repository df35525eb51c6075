"""Deleting what is past keeping, in small pieces."""

from __future__ import annotations

import pytest

from bullite.core.decide_outcome import RunOutcome
from bullite.core.states import COMPLETE, DELETE, REMOVE, RESTORE, State
from bullite.engine import maintenance
from bullite.operations import retention
from bullite.operations.finish import FinishRuns
from bullite.operations.move import MoveJobs
from tests.support.harness import Store, new_job


def finish(store: Store, number: int) -> list[int]:
    jobs = store.add_all(*(new_job() for _ in range(number)))
    worker = store.worker()
    worker.complete(*worker.claim(number), value="1")
    return jobs


def test_completed_jobs_are_deleted_when_they_are_older_than_the_limit(store: Store) -> None:
    [old] = finish(store, 1)
    store.clock.advance(50)
    [young] = finish(store, 1)
    store.clock.advance(51)
    assert store.home.sweep(keep_completed_age=100) == 1
    assert store.states(old, young) == [None, "completed"]
    assert store.counts() == {"completed": 1}


def test_a_completed_job_of_exactly_the_limit_is_kept(store: Store) -> None:
    finish(store, 1)
    store.clock.advance(100)
    assert store.home.sweep(keep_completed_age=100) == 0


def test_failed_jobs_are_kept(store: Store) -> None:
    job = store.add()
    worker = store.worker()
    worker.fail(worker.claim_one())
    store.clock.advance(10_000)
    assert store.home.sweep(keep_completed_age=1, trash_age=1) == 0
    assert store.state(job) == "failed"


def test_removed_jobs_are_deleted_after_their_time_in_the_trash(store: Store) -> None:
    old, young = store.add(), store.add(delay=5)
    store.move(REMOVE, old)
    store.clock.advance(50)
    store.move(REMOVE, young)
    store.clock.advance(51)
    assert store.home.sweep(trash_age=100) == 1
    assert store.states(old, young) == [None, "removed"]
    assert store.move(RESTORE[State.WAITING], old) == []
    assert store.move(RESTORE[State.DELAYED], young) == [young]


def test_a_deleted_job_takes_its_payload_and_its_result_along(store: Store) -> None:
    [job] = finish(store, 1)
    store.clock.advance(11)
    store.home.sweep(keep_completed_age=10)
    assert store.row(job, "payloads", key="job") is None
    assert store.result(job) is None


def test_a_job_deleted_by_hand_takes_its_payload_and_its_result_along(store: Store) -> None:
    [job] = finish(store, 1)
    assert store.ask(MoveJobs(DELETE, [job])) == [job]
    assert store.row(job, "payloads", key="job") is None
    assert store.result(job) is None


def test_a_sweep_deletes_a_small_piece_at_a_time_the_oldest_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MAX_PRUNED", 2)
    jobs = []
    for _ in range(5):
        jobs += finish(store, 1)
        store.clock.advance(1)
    store.clock.advance(10)
    assert store.home.sweep(keep_completed_age=5) == 2
    assert store.states(*jobs) == [None, None, "completed", "completed", "completed"]
    assert [store.home.sweep(keep_completed_age=5) for _ in range(3)] == [2, 1, 0]


def test_other_queues_are_not_swept(store: Store) -> None:
    elsewhere = store.home.open_queue("elsewhere")
    job = store.home.add(queue=elsewhere)
    worker = store.worker(queue=elsewhere)
    held = worker.claim_one()
    store.ask(FinishRuns(elsewhere, [RunOutcome(job, held.token, COMPLETE)]))
    store.clock.advance(100)
    assert store.home.sweep(keep_completed_age=1, max_events=0) == 0
    assert store.state(job) == "completed"
    assert len(store.events(elsewhere)) == 4


def test_the_event_log_keeps_the_newest(store: Store) -> None:
    jobs = [store.add() for _ in range(10)]
    store.home.sweep(max_events=8)
    assert [event.job for event in store.events()] == jobs[-4:], "each was added and waits"


def test_the_cap_of_the_event_log_counts_events_not_rows(store: Store) -> None:
    store.add_all(*(new_job() for _ in range(5)))
    new = store.add_all(*(new_job() for _ in range(5)))
    store.home.sweep(max_events=10)
    assert [event.job for event in store.events()] == new
    store.home.sweep(max_events=3)
    assert [event.job for event in store.events()] == new, "a row is deleted only as a whole"


def test_the_event_log_is_trimmed_a_small_piece_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MAX_PRUNED", 3)
    for _ in range(8):
        store.add()
    assert [store.home.sweep(max_events=1) for _ in range(4)] == [3, 3, 1, 0]


def test_the_scheduler_sweeps_until_nothing_is_left_to_sweep(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MAX_PRUNED", 2)
    jobs = finish(store, 5)
    store.home.configure(keep_completed_age=10)
    store.clock.advance(11)
    store.worker()
    store.home.engine._maintenance.schedule = maintenance.Maintenance(store.home.driver)
    for _ in range(4):
        store.home.engine.turn()
    assert store.states(*jobs) == [None] * 5
