"""What workers are told while their database fails, also those that have nothing to do."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from bullite.engine.maintenance import Maintenance
from bullite.errors import StoreUnavailable, StoreUnsynced
from tests.support.harness import Process, Store, Worker

LOOKS = ("has_ready_or_due", "workers", "due_queues", "expired_queues", "late_schedulers")


class Outage:
    """Nothing can be read or written while it lasts."""

    def __init__(self, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
        process.engine._maintenance.schedule = Maintenance(process.driver)
        self._process = process
        self._patch = monkeypatch
        self.error = StoreUnavailable("the database cannot be reached")

    def begin(self) -> None:
        self._patch.setattr(self._process.driver, "execute", self._fail)
        self._patch.setattr(self._process.driver, "begin", self._fail)

    def begin_for_looks(self) -> None:
        """What is read beside transactions cannot be read; everything else works."""
        execute = self._process.driver.execute

        def fail(statement: str, params: Any) -> Any:
            return (self._fail if statement in LOOKS else execute)(statement, params)

        self._patch.setattr(self._process.driver, "execute", fail)

    def end(self) -> None:
        self._patch.undo()

    def _fail(self, *args: Any, **kwargs: Any) -> Any:
        raise self.error


@pytest.fixture
def outage(store: Store, monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(store.home, monkeypatch)


def idle_worker(store: Store) -> Worker:
    worker = store.worker()
    assert worker.claim(1) == []
    worker.wants(1)
    return worker


def seconds_of_errors(store: Store, worker: Worker, seconds: int) -> list[float]:
    """When, in a time of so many seconds, it was told of an error."""
    told: list[float] = []
    for tenth in range(10 * seconds):
        store.home.engine.poll_now()
        store.home.turn()
        told += [tenth / 10] * len(worker.errors)
        worker.errors.clear()
        store.clock.advance(100)
    return told


def test_an_idle_worker_is_told_that_its_database_cannot_be_reached(
    store: Store, outage: Outage
) -> None:
    worker = idle_worker(store)
    outage.begin()
    store.clock.advance(1_000)
    store.home.turn()
    store.home.turn()
    assert worker.errors == [outage.error]
    outage.end()


def test_an_idle_worker_is_told_again_after_1_second_doubling_to_15(
    store: Store, outage: Outage
) -> None:
    worker = idle_worker(store)
    outage.begin()
    told = seconds_of_errors(store, worker, 50)
    assert [round(later - sooner) for sooner, later in pairwise(told)] == [
        *(1, 2, 4, 8),
        *(15, 15),
    ]
    outage.end()


def test_a_worker_is_not_told_more_often_because_only_reading_fails(
    store: Store, outage: Outage
) -> None:
    worker = idle_worker(store)
    outage.begin_for_looks()
    assert len(seconds_of_errors(store, worker, 50)) <= 7
    outage.end()


def test_a_worker_whose_slots_are_full_is_told_too(store: Store, outage: Outage) -> None:
    store.add()
    worker = store.worker()
    worker.claim_one()
    outage.begin()
    assert seconds_of_errors(store, worker, 3) != []
    outage.end()


def test_a_look_that_fails_does_not_keep_leases_from_being_renewed(
    store: Store, outage: Outage
) -> None:
    worker = idle_worker(store)
    before = [row["lease_until"] for row in store.database.rows("workers")]
    outage.begin_for_looks()
    store.clock.advance(20_000)
    store.home.turn()
    outage.end()
    store.home.turn()
    assert worker.id in store.workers()
    assert [row["lease_until"] for row in store.database.rows("workers")] > before


def test_the_next_outage_is_told_at_once(store: Store, outage: Outage) -> None:
    worker = idle_worker(store)
    outage.begin()
    seconds_of_errors(store, worker, 10)
    outage.end()
    assert seconds_of_errors(store, worker, 2) == []
    outage.begin()
    assert seconds_of_errors(store, worker, 1)[0] < 1
    outage.end()


def test_an_idle_worker_takes_jobs_again_after_an_outage(store: Store, outage: Outage) -> None:
    worker = idle_worker(store)
    outage.begin()
    seconds_of_errors(store, worker, 5)
    outage.end()
    job = store.add()
    seconds_of_errors(store, worker, 20)
    assert [held.id for held in worker.received] == [job]


def test_workers_are_told_that_their_engine_has_ended(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = idle_worker(store)
    ending = StoreUnsynced("the disk failed")

    def fail() -> None:
        raise ending

    process = store.process()
    idle = process.worker()
    assert idle.claim(1) == []
    idle.wants(0)
    monkeypatch.setattr(process.driver, "sync", fail)
    monkeypatch.setattr(process.driver, "commit", lambda: True)
    assert worker.errors == []
    with pytest.raises(StoreUnsynced):
        process.configure(max_waiting=3)
    assert idle.errors == [ending]
