"""No two transactions wait for each other: rows are locked in one order, or not waited for."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from bullite.core.decide_outcome import RunOutcome
from bullite.core.deduplication import DeduplicationRule
from bullite.core.states import COMPLETE, FAIL, PROMOTE, REMOVE, RETRY_FINISHED, Move
from bullite.operations.add import AddJobs, NewJob
from bullite.operations.add_flow import AddFlow
from bullite.operations.claim import Promote
from bullite.operations.finish import FinishRuns
from bullite.operations.flow_graph import Node
from bullite.operations.key_values import UpdateKeyValue, update_key_value
from bullite.operations.metrics import MinuteTotals, WriteMetrics, write_metrics
from bullite.operations.move import MoveJobs
from bullite.operations.queues import Configure
from bullite.operations.retention import PruneQueue
from tests.support.harness import Held, Process, Store, new_job, node, open_store
from tests.support.postgres_database import PostgresDatabase
from tests.support.processes import wait_until

ROUNDS = 60


@pytest.fixture
def store(database: PostgresDatabase) -> Iterator[Store]:
    with open_store(database) as store:
        yield store
        assert store.problems() == []


def beside(work: Callable[[], Any]) -> Future[Any]:
    """What a process does on a thread of its own."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def waits(database: PostgresDatabase) -> bool:
    return bool(
        database.query("select 1 from pg_stat_activity where wait_event_type = 'Lock' limit 1")
    )


@contextmanager
def somebody(database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
    """Another transaction, which is the one that the server lets go on in a deadlock."""
    with psycopg.connect(database.location_of_libpq()) as connection:
        connection.execute("set deadlock_timeout = '1min'")
        yield connection


def lock(connection: psycopg.Connection[Any], table: str, id: int) -> None:
    connection.execute(f"select 1 from bullite_{table} where id = {id} for update")


@pytest.fixture
def deadlocks() -> Iterator[list[str]]:
    """What processes were told of deadlocks; nothing must be."""
    told: list[str] = []
    yield told
    assert told == []


def noting(process: Process, told: list[str]) -> None:
    """Note the deadlocks that the server tells a process of."""
    driver = process.driver._driver
    meaning = driver._meaning

    def noted(error: psycopg.Error) -> Exception:
        if isinstance(error, psycopg.errors.DeadlockDetected):
            told.append(str(error))
        result: Exception = meaning(error)
        return result

    driver._meaning = noted


def completed(store: Store, *held: Held) -> FinishRuns:
    return FinishRuns(
        store.queue, [RunOutcome(h.id, h.token, COMPLETE, flags=h.row.traits) for h in held]
    )


def test_a_claim_does_not_wait_for_its_queue_while_it_has_jobs(store, database, deadlocks):
    """It waits for it in a transaction of its own; the results are recorded before."""
    noting(store.home, deadlocks)
    worker = store.worker()
    first, second = store.add(), store.add()
    held = worker.claim_one()
    worker.wants(1)
    with somebody(database) as connection:
        lock(connection, "queues", store.queue)
        answer = beside(lambda: store.ask(completed(store, held)))
        wait_until(lambda: waits(database))
        lock(connection, "jobs", first)  # a change of the queue locks its jobs next
        connection.rollback()
    assert answer.result(20).lost == ()
    store.home.engine.turn()
    assert store.state(second) == "active"


def test_an_add_does_not_wait_for_its_queue_while_there_are_jobs_locked(store, database, deadlocks):
    noting(store.home, deadlocks)
    worker = store.worker()
    job = store.add()
    held = worker.claim_one()
    with somebody(database) as connection:
        lock(connection, "queues", store.queue)
        add = AddJobs(store.queue, [new_job()])
        answers = beside(lambda: store.ask_together(completed(store, held), add))
        wait_until(lambda: waits(database))
        lock(connection, "jobs", job)
        connection.rollback()
    settled, added = answers.result(20)
    assert (settled.lost, len(added.ids)) == ((), 1)


def test_requests_for_several_jobs_lock_them_in_order(store, database, deadlocks):
    noting(store.home, deadlocks)
    worker = store.worker()
    delayed = store.add(delay=60_000)
    store.add()
    held = worker.claim_one()
    with somebody(database) as connection:
        lock(connection, "jobs", delayed)
        answers = beside(
            lambda: store.ask_together(completed(store, held), MoveJobs(PROMOTE, [delayed]))
        )
        wait_until(lambda: waits(database))
        lock(connection, "jobs", held.id)
        connection.rollback()
    assert answers.result(20)[1] == [delayed]


def test_keys_are_not_locked_before_the_jobs_of_other_requests(store, database, deadlocks):
    noting(store.home, deadlocks)
    store.add(deduplication=DeduplicationRule("a"))
    worker = store.worker()
    held = worker.claim_one()
    add = AddJobs(store.queue, [new_job(deduplication=DeduplicationRule("a"))])
    with somebody(database) as connection:
        lock(connection, "jobs", held.id)
        answers = beside(lambda: store.ask_together(add, completed(store, held)))
        wait_until(lambda: waits(database))
        connection.execute("select 1 from bullite_deduplication where key = 'a' for update")
        connection.rollback()
    added, settled = answers.result(20)
    assert (added.existing, settled.lost) == ({held.id}, ())


def test_the_end_of_a_child_locks_its_parent_in_order(store, database, deadlocks):
    noting(store.home, deadlocks)
    parent, child = family(store)
    worker = store.worker()
    held = worker.claim_one()
    low, high = sorted((parent, child))
    assert held.id == child
    with somebody(database) as connection:
        lock(connection, "jobs", low)
        answer = beside(lambda: store.ask(completed(store, held)))
        wait_until(lambda: waits(database))
        lock(connection, "jobs", high)
        connection.rollback()
    assert answer.result(20).lost == ()
    assert store.state(parent) == "waiting"


def test_a_job_moved_by_hand_locks_who_waits_for_it_without_waiting(store, database, deadlocks):
    """If another has that one, the transaction begins again, and locks both in order."""
    noting(store.home, deadlocks)
    parent, child = family(store)
    store.home.worker()
    with somebody(database) as connection:
        lock(connection, "jobs", parent)
        answer = beside(lambda: store.move(REMOVE, child))
        wait_until(lambda: waits(database))
        if parent < child:
            lock(connection, "jobs", child)
        connection.rollback()
    assert answer.result(20) == [child]
    assert store.state(parent) == "waiting"


def test_settings_that_change_all_jobs_lock_them_in_order(store, database, deadlocks):
    noting(store.home, deadlocks)
    jobs = store.add_all(*[new_job(priority=priority) for priority in (3, 2, 1)])
    with somebody(database) as connection:
        lock(connection, "jobs", jobs[0])
        answer = beside(lambda: store.ask(Configure(store.queue, {"priority_order": "high"})))
        wait_until(lambda: waits(database))
        lock(connection, "jobs", jobs[2])
        connection.rollback()
    assert answer.result(20).priority_order == "high"


def test_processes_that_do_everything_at_once_never_wait_for_each_other(store, deadlocks):
    """Adds under keys, families, results, moves by hand, settings and housekeeping, all mixed."""
    processes = [store.process() for _ in range(4)]
    for process in processes:
        noting(process, deadlocks)
    at_work = [
        beside(lambda process=process, seed=seed: mixed_work(store, process, seed))
        for seed, process in enumerate(processes)
    ]
    for work in at_work:
        work.result(60)


def mixed_work(store: Store, process: Process, seed: int) -> None:
    dice = random.Random(seed)
    worker = process.worker()
    for _ in range(ROUNDS):
        recent: int = process.driver.execute("take_numbers", {"count": 1}).rows[0][0]
        some = sorted({dice.randint(max(1, recent - 40), recent) for _ in range(3)}, reverse=True)
        held = worker.claim(dice.randint(1, 4))
        ended: list[Any] = [
            FinishRuns(store.queue, [verdict_of(h, move)])
            for h in held
            for move in dice.sample([COMPLETE, FAIL], 1)
        ]
        others: list[Any] = [
            AddJobs(store.queue, [keyed_job(dice) for _ in range(3)], process.version(store.queue)),
            MoveJobs(dice.choice([PROMOTE, REMOVE, RETRY_FINISHED]), some),
            AddFlow([here(store, node()), here(store, node(parent=0)), here(store, node(parent=0))],
                 {store.queue: process.version(store.queue)}),
            dice.choice([Promote(store.queue), PruneQueue(store.queue), Configure(
                store.queue, {"priority_order": dice.choice(["low", "high"])})]),
        ]  # fmt: skip
        requests = ended + dice.sample(others, 3)
        dice.shuffle(requests)
        process.ask_together(*requests)


def verdict_of(held: Held, move: Move) -> RunOutcome:
    return RunOutcome(held.id, held.token, move, flags=held.row.traits, reason="it broke")


def keyed_job(dice: random.Random) -> NewJob:
    return new_job(
        deduplication=DeduplicationRule(dice.choice("abc")), delay=dice.choice([0, 0, 60_000])
    )


def here(store: Store, one: Node) -> Node:
    return one._replace(queue=store.queue)


def family(store: Store) -> tuple[int, int]:
    """A parent and its only child."""
    parent, child = store.grow(node(), node(parent=0))
    return parent, child


def test_two_processes_add_to_one_minute_and_nothing_is_lost(store, database):
    other = store.process()
    request = WriteMetrics({(store.queue, 7): MinuteTotals(completed=1)}, {})

    with store.home.transaction() as transaction:
        transaction.run(write_metrics(transaction.tx, [request]))
        added = beside(lambda: other.ask(request))
        wait_until(lambda: waits(database))
    added.result(30)

    assert [row["completed"] for row in database.rows("minutes")] == [2]


def test_two_processes_change_one_new_value_one_after_the_other(store, database):
    other = store.process()
    request = UpdateKeyValue("config", "count", lambda old: str(int(old or 0) + 1))

    with store.home.transaction() as transaction:
        transaction.run(update_key_value(transaction.tx, [request]))
        changed = beside(lambda: other.ask(request))
        wait_until(lambda: waits(database))

    assert changed.result(30) == ("1", "2")


def test_processes_that_connect_move_the_numbers_of_events_one_after_the_other(store, database):
    held = "select from bullite_meta where key = 'schema' for no key update"
    with psycopg.connect(database.location_of_libpq()) as connection:
        connection.execute(held)
        connected = beside(store.process)
        wait_until(lambda: waits(database))
        assert not connected.done()
    connected.result(30)
