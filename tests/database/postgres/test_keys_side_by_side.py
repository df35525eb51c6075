"""Deduplication keys among writers side by side: each waits for the key, nobody for each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bullite.core.decide_outcome import RunOutcome
from bullite.core.deduplication import DeduplicationRule
from bullite.core.job_flags import DEDUPLICATED
from bullite.core.states import COMPLETE, REMOVE
from bullite.database.driver import TransactionAborted
from bullite.operations.add import AddJobs, add
from bullite.operations.finish import FinishRuns, finish_runs
from bullite.operations.move import MoveJobs, move_jobs
from tests.database.postgres.test_collisions import waiting_for_locks
from tests.support.harness import Held, Process, Store, new_job, open_store
from tests.support.postgres_database import PostgresDatabase

X = DeduplicationRule("x")
KEEP = DeduplicationRule("x", keep_last_if_active=True)
REPLACE = DeduplicationRule("x", replace=True)


@pytest.fixture
def store(database: PostgresDatabase) -> Iterator[Store]:
    with open_store(database) as store:
        yield store
        assert store.problems() == []


class Meanwhile:
    """Something that another process does, which has to wait for us."""

    def __init__(self, database: PostgresDatabase, act: Callable[[], Any]) -> None:
        self._answers: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._answers.append(act()))
        self._thread.start()
        patience = time.monotonic() + 10
        while not waiting_for_locks(database):
            assert time.monotonic() < patience, "it does not wait"
            time.sleep(0.005)

    def answer(self) -> Any:
        self._thread.join(10)
        return self._answers[0]


def adding(store: Store, *rules: DeduplicationRule, **options: Any) -> AddJobs:
    return AddJobs(store.queue, [new_job(deduplication=rule, **options) for rule in rules])


def settling(store: Store, held: Held) -> FinishRuns:
    verdict = RunOutcome(held.id, held.token, COMPLETE, flags=DEDUPLICATED)
    return FinishRuns(store.queue, [verdict])


def begun(store: Store, process: Process) -> Held:
    process.add(deduplication=KEEP)
    return process.worker().claim_one()


def test_of_two_adds_at_once_the_second_answers_the_job_of_the_first(
    store: Store, database: PostgresDatabase
) -> None:
    other = store.process()
    with store.home.transaction() as open:
        [added] = open.run(add(open.tx, [adding(store, X)]))
        second = Meanwhile(database, lambda: other.ask(adding(store, X)))
    assert list(second.answer().ids) == list(added.ids)


def test_an_add_that_is_undone_leaves_the_key_to_the_next(
    store: Store, database: PostgresDatabase
) -> None:
    other = store.process()
    with pytest.raises(KeyboardInterrupt), store.home.transaction() as open:
        [added] = open.run(add(open.tx, [adding(store, X)]))
        second = Meanwhile(database, lambda: other.ask(adding(store, X)))
        raise KeyboardInterrupt
    assert second.answer().ids[0] not in added.ids
    assert store.state(second.answer().ids[0]) == "waiting"


def test_adds_of_many_keys_in_any_order_wait_and_are_not_undone(
    store: Store, database: PostgresDatabase
) -> None:
    other = store.process()
    y = DeduplicationRule("y")
    with store.home.transaction() as open:
        [added] = open.run(add(open.tx, [adding(store, y, X)]))
        second = Meanwhile(database, lambda: other.ask(adding(store, X, y)))
    assert list(second.answer().ids) == list(reversed(added.ids))


def test_a_job_that_is_kept_while_its_holder_ends_is_made_by_that(
    store: Store, database: PostgresDatabase
) -> None:
    other = store.process()
    held = begun(store, other)
    with store.home.transaction() as open:
        [added] = open.run(add(open.tx, [adding(store, KEEP, data='"kept"')]))
        assert list(added.ids) == [held.id]
        end = Meanwhile(database, lambda: other.ask(settling(store, held)))
    assert end.answer().lost == ()
    assert other.worker().claim_one().row.data == '"kept"'


def test_a_job_that_comes_when_the_holder_has_as_good_as_ended_is_added(
    store: Store, database: PostgresDatabase
) -> None:
    other = store.process()
    held = begun(store, store.home)
    with store.home.transaction() as open:
        open.run(finish_runs(open.tx, [settling(store, held)]))
        second = Meanwhile(database, lambda: other.ask(adding(store, KEEP)))
    assert store.state(second.answer().ids[0]) == "waiting"


def test_who_replaces_a_job_that_is_being_removed_lets_that_go_first(
    store: Store, database: PostgresDatabase
) -> None:
    """The one has the job and wants the key, the other has the key and wants the job."""
    other = store.process()
    [old] = store.add_all(new_job(deduplication=REPLACE, delay=500))
    with pytest.raises(TransactionAborted), store.home.transaction() as open:
        steps = open.start(add(open.tx, [adding(store, REPLACE)])).until("key_holders")
        removal = Meanwhile(database, lambda: other.ask(MoveJobs(REMOVE, [old])))
        steps.finish()
    assert removal.answer() == [old]
    assert store.ask(adding(store, REPLACE)).ids[0] != old


def test_a_removal_that_is_under_way_lets_the_next_add_wait(
    store: Store, database: PostgresDatabase
) -> None:
    other = store.process()
    [old] = store.add_all(new_job(deduplication=X))
    with store.home.transaction() as open:
        open.run(move_jobs(open.tx, [MoveJobs(REMOVE, [old])]))
        second = Meanwhile(database, lambda: other.ask(adding(store, X)))
    assert store.state(second.answer().ids[0]) == "waiting"
