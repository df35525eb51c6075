"""Events that are sent at the very moment in which a job goes to wait, times out, or is woken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bullite.operations.claim import promote_due
from bullite.operations.locks import TakeLock, take_locks
from bullite.operations.steps import (
    EVENT,
    SendEvent,
    StepDone,
    Suspend,
    Suspended,
    send_events,
    suspend,
)
from tests.database.postgres.test_collisions import waiting_for_locks
from tests.support.harness import Held, Process, Store, open_store
from tests.support.postgres_database import PostgresDatabase
from tests.support.processes import wait_until


@pytest.fixture
def store(database: PostgresDatabase) -> Iterator[Store]:
    with open_store(database) as store:
        yield store
        assert store.problems() == []


def waiting(store: Store, held: Held, ms: int | None = 500) -> Suspend:
    return Suspend(store.queue, held.id, held.token, EVENT, "paid", 1, 1, ms)


class Meanwhile:
    """Something another process asks for, that has to wait for a transaction under way."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._answers: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._answers.append(ask()))
        self._thread.start()

    def answer(self) -> Any:
        self._thread.join(20)
        return self._answers[0]


def test_an_event_and_the_timeout_of_its_wait_at_the_same_time_wake_the_job_once(
    store: Store, database: PostgresDatabase
) -> None:
    store.add()
    worker, other = store.worker(), store.process()
    held = worker.claim_one()
    store.ask(waiting(store, held))
    store.clock.advance(500)
    with store.home.transaction() as open:
        assert open.run(promote_due(open.tx, store.queue)) == 1
        sending = Meanwhile(lambda: other.ask(SendEvent(held.id, "paid", "7")))
        wait_until(lambda: waiting_for_locks(database))
    assert sending.answer() is False
    assert store.history(held.id) == ["add", "claim", "delay", "promote"]
    assert store.ask(waiting(store, worker.claim_one())) == StepDone("7")


def test_a_timer_passes_over_a_job_that_an_event_is_just_waking(store: Store) -> None:
    store.add()
    worker, other = store.worker(), store.process()
    held = worker.claim_one()
    store.ask(waiting(store, held))
    store.clock.advance(500)
    with other.transaction() as open:
        assert open.run(send_events(open.tx, [SendEvent(held.id, "paid", "7")])) == [True]
        assert store.home.promote_due() == 0
    assert store.history(held.id) == ["add", "claim", "delay", "promote"]
    assert store.ask(waiting(store, worker.claim_one())) == StepDone("7")


def test_an_event_that_is_sent_while_the_job_goes_to_wait_wakes_it(
    store: Store, database: PostgresDatabase
) -> None:
    store.add()
    worker, other = store.worker(), store.process()
    held = worker.claim_one()
    with store.home.transaction() as open:
        [answer] = open.run(suspend(open.tx, [waiting(store, held, None)]))
        assert isinstance(answer, Suspended)
        sending = Meanwhile(lambda: other.ask(SendEvent(held.id, "paid", "7")))
        wait_until(lambda: waiting_for_locks(database))
    assert sending.answer() is True
    assert store.state(held.id) == "waiting"


def test_a_job_that_goes_to_wait_while_its_event_is_sent_takes_it_at_once(
    store: Store, database: PostgresDatabase
) -> None:
    store.add()
    held, other = store.worker().claim_one(), store.process()
    with other.transaction() as open:
        assert open.run(send_events(open.tx, [SendEvent(held.id, "paid", "7")])) == [False]
        going = Meanwhile(lambda: store.ask(waiting(store, held, None)))
        wait_until(lambda: waiting_for_locks(database))
    assert going.answer() == StepDone("7")
    assert store.state(held.id) == "active"


def test_of_two_who_take_a_lock_at_the_same_time_one_gets_it(
    store: Store, database: PostgresDatabase
) -> None:
    def take(process: Process) -> TakeLock:
        return TakeLock("invoice", 10_000, process.clock.boot)

    other = store.process()
    with store.home.transaction() as open:
        [first] = open.run(take_locks(open.tx, [take(store.home)]))
        second = Meanwhile(lambda: other.ask(take(other)))
        wait_until(lambda: waiting_for_locks(database))
    assert first is not None
    assert second.answer() is None
