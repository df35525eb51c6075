"""No connection of ours waits, or lets others wait, without a limit."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from bullite import Queue, Store, Worker, verify
from bullite.database.driver import TransactionAborted
from bullite.database.locations import parse_location
from bullite.database.postgres.connections import SESSION, Connection
from bullite.database.postgres.location import ServerLocation
from bullite.database.postgres.reconnecting import ReconnectingConnection
from bullite.errors import StoreBusy
from tests.support.helpers import until
from tests.support.postgres_database import PostgresDatabase, with_options

TIMEOUTS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")


def read_timeouts(connection: psycopg.Connection[tuple[object, ...]]) -> dict[str, int]:
    names = ", ".join(f"'{name}'" for name in TIMEOUTS)
    query = f"select name, setting::integer from pg_settings where name in ({names})"
    return dict(connection.execute(query.encode()).fetchall())


def expected_timeouts() -> dict[str, int]:
    return {name: int(SESSION[name]) for name in TIMEOUTS}


@contextmanager
def somebody_locks(
    database: PostgresDatabase, what: str
) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with closing(psycopg.connect(database.location_of_libpq())) as connection:
        connection.execute(what.encode())
        yield connection


async def test_writer_reader_and_ear_have_all_the_timeouts(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, int]] = []
    really_open = Connection.open.__func__

    def opened(cls: type[Connection], *args: object) -> Connection:
        connection: Connection = really_open(cls, *args)
        seen.append(read_timeouts(connection))
        return connection

    monkeypatch.setattr(Connection, "open", classmethod(opened))
    async with Queue("work", location) as queue, Worker(queue, lambda job: None):
        await queue.add("a")
        await queue.get_job_counts()
        await until(lambda: len(seen) == 3)
    assert seen == [expected_timeouts()] * 3


def test_behind_a_pooler_every_transaction_has_all_the_timeouts(location: str) -> None:
    pooled = parse_location(with_options(location, pooler="transaction"))
    driver = pooled.driver(None, random.Random(1).getrandbits)
    driver.open()
    try:
        driver.begin(durable=True)
        assert driver._inside is not None
        assert read_timeouts(driver._inside) == expected_timeouts()
        driver.rollback()
    finally:
        driver.close()


def test_who_stops_in_the_middle_of_a_transaction_does_not_hold_its_locks(
    location: str, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SESSION, "idle_in_transaction_session_timeout", 200)
    driver = parse_location(location).driver(None, random.Random(1).getrandbits)
    driver.open()
    try:
        driver.begin(durable=True)
        driver.execute("insert_queue", {"name": "mine", "priority_order": "low", "now": 0})
        time.sleep(0.6)
        database.write("begin; lock table bullite_queues in exclusive mode nowait; commit")
        with pytest.raises(TransactionAborted):
            driver.commit()
        driver.begin(durable=True)
        driver.commit()
    finally:
        driver.close()
    assert database.rows("queues") == []


@pytest.mark.parametrize(("limit", "ms"), [("lock_timeout", 50), ("statement_timeout", 200)])
async def test_what_somebody_holds_up_for_too_long_ends_in_a_clear_error(
    location: str, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, limit: str, ms: int
) -> None:
    monkeypatch.setitem(SESSION, limit, ms)
    async with Queue("work", location) as queue:
        locked = somebody_locks(database, "lock table bullite_jobs in share mode")
        with locked, pytest.raises(StoreBusy) as caught:
            await queue.add("a")
        assert f"due to {limit.replace('_', ' ')}" in str(caught.value)
        assert "nothing was written" in str(caught.value)
        await queue.add("b")
    assert [row["name"] for row in database.rows("jobs")] == ["b"]


async def test_a_lock_is_waited_for_not_much_longer_than_its_timeout(
    location: str, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SESSION, "lock_timeout", 300)
    async with Queue("work", location) as queue:
        began = time.monotonic()
        locked = somebody_locks(database, "lock table bullite_jobs in share mode")
        with locked, pytest.raises(StoreBusy):
            await queue.add("a")
        assert time.monotonic() - began < 4 * 0.3 + 1


async def test_a_read_that_takes_too_long_ends_in_a_clear_error(
    location: str, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SESSION, "statement_timeout", 200)
    async with Queue("work", location) as queue:
        await queue.get_job_counts()
        locked = somebody_locks(database, "lock table bullite_counts in access exclusive mode")
        with locked, pytest.raises(StoreBusy, match="due to statement timeout"):
            await queue.get_job_counts()
        await queue.get_job_counts()


def test_an_opening_that_takes_too_long_is_not_told_as_a_server_out_of_reach(location: str) -> None:
    def welcome(connection: Connection) -> None:
        connection.execute("set statement_timeout = 20; select pg_sleep(5)")

    place = parse_location(location)
    assert isinstance(place, ServerLocation)
    with pytest.raises(StoreBusy, match="busy for too long"):
        ReconnectingConnection(place, place.access, welcome).connect()


def test_verifying_may_take_as_long_as_it_takes(
    database: PostgresDatabase, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SESSION, "statement_timeout", 200)
    with closing(Store(location)) as store:
        store.open()
        with somebody_locks(database, "lock table bullite_jobs in access exclusive mode") as lock:
            threading.Timer(1.0, lock.rollback).start()
            began = time.monotonic()
            assert verify(store).ok
    assert time.monotonic() - began > 0.5
