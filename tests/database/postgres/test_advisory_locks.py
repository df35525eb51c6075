"""Advisory locks can be held by every role that may connect: nothing may wait for one for long."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from bullite import Queue, Store, Worker
from bullite.database.postgres.connections import SESSION
from bullite.database.postgres.listener import ALERT, Listener
from bullite.database.postgres.maintenance_locks import FORGOTTEN, HINDERED
from bullite.operations.key_values import UpdateKeyValue
from bullite.operations.metrics import MinuteTotals, WriteMetrics
from bullite.operations.retention import PruneQueue
from tests.database.postgres.places import database_of_its_own, guarded_server, role, url_for
from tests.support.harness import open_store
from tests.support.helpers import until
from tests.support.postgres_database import PostgresDatabase

WITHIN = 3_000
"""Ms after which a statement of Bullite that waits for a lock is given up in these tests."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SESSION, "lock_timeout", WITHIN)


@contextmanager
def held(database: PostgresDatabase, key: str) -> Iterator[int]:
    """An advisory lock that another session holds; its process id."""
    with closing(psycopg.connect(database.location_of_libpq(), autocommit=True)) as connection:
        connection.execute(f"select pg_advisory_lock({key})".encode())
        yield connection.info.backend_pid
        # Closing alone does not wait until the server has freed it.
        connection.execute(f"select pg_advisory_unlock({key})".encode())


def named(text: str) -> str:
    return f"hashtextextended('{text}', 0)"


# --- locks that Bullite does not wait for --------------------------------------------------------


def test_an_advisory_lock_does_not_stop_the_making_of_tables():
    server = guarded_server()
    digest = hashlib.blake2s(b"bullite migrations bullite", digest_size=8).digest()
    with role(server, "mallory"), database_of_its_own(server, "shop") as shop:
        with (
            closing(psycopg.connect(url_for(server, "mallory", "secret", "shop"))) as stranger,
            closing(Store(server.url("shop"))) as store,
        ):
            key = int.from_bytes(digest, "big", signed=True)
            stranger.execute(f"select pg_advisory_lock({key})".encode())
            store.open()

        assert shop.execute("select count(*) from bullite.bullite_meta").fetchone() == (1,)


@pytest.mark.usefixtures("impatient")
def test_an_advisory_lock_does_not_stop_a_process_from_connecting(database):
    with closing(Store(database.location)) as store:
        store.open()
    with (
        held(database, "'bullite_events'::regclass::oid::bigint"),
        closing(Store(f"{database.location}&keepalives_idle=11")) as store,
    ):
        store.open()


@pytest.mark.usefixtures("impatient")
def test_an_advisory_lock_does_not_stop_minutes_from_being_recorded(database):
    with open_store(database) as store:
        with held(database, f"{store.queue}, 7"):
            store.ask(WriteMetrics({(store.queue, 7): MinuteTotals(completed=1)}, {}))

        assert [row["completed"] for row in database.rows("minutes")] == [1]


@pytest.mark.usefixtures("impatient")
def test_an_advisory_lock_does_not_stop_a_value_from_being_changed(database):
    with open_store(database) as store, held(database, named("config\x1ftheme")):
        assert store.ask(UpdateKeyValue("config", "theme", lambda old: '"dark"')) == (
            None,
            '"dark"',
        )


# --- the locks of housekeeping -------------------------------------------------------------------


def key_of_sweep(database: PostgresDatabase, queue: int) -> str:
    [[schema]] = database.query("select current_schema()")
    return named(f'"{schema}".bullite_queues sweep{queue}')


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def test_a_session_that_keeps_bullite_from_housekeeping_is_named(database, caplog):
    with open_store(database) as store, held(database, key_of_sweep(database, store.queue)) as pid:
        for _ in range(3):
            store.ask(PruneQueue(store.queue))
            store.clock.advance(HINDERED)

        [told] = warnings(caplog)
    assert "sweep" in told
    assert f"session {pid} of role 'postgres'" in told


def test_a_session_that_keeps_bullite_from_housekeeping_is_named_once_a_minute(database, caplog):
    with open_store(database) as store, held(database, key_of_sweep(database, store.queue)):
        for _ in range(121):
            store.ask(PruneQueue(store.queue))
            store.clock.advance(1_000)

    assert len(warnings(caplog)) == 2


def test_processes_that_take_turns_at_housekeeping_are_not_warned_of(database, caplog):
    with open_store(database) as store:
        for _ in range(3):
            with held(database, key_of_sweep(database, store.queue)):
                store.ask(PruneQueue(store.queue))
            store.clock.advance(HINDERED)
            store.ask(PruneQueue(store.queue))

    assert warnings(caplog) == []


def test_refusals_that_lie_far_apart_are_not_warned_of(database, caplog):
    with open_store(database) as store, held(database, key_of_sweep(database, store.queue)):
        for _ in range(5):
            store.ask(PruneQueue(store.queue))
            store.clock.advance(FORGOTTEN + 1)

    assert warnings(caplog) == []


# --- the channels of wake-ups --------------------------------------------------------------------


async def test_a_flood_of_notifications_runs_every_job_once(database):
    ran: list[object] = []

    async def note(job):
        ran.append(job.data)

    async with Queue("emails", database.location) as queue, Worker(queue, note) as worker:
        channel = Listener.channel(queue.store.location.schema, queue._pk)
        for number in range(20):
            for said in ("", "no such job", ALERT, "x" * 7_000):
                database.query("select pg_notify(?, ?)", channel, said)
            await queue.add("job", number)
        await until(lambda: len(ran) >= 20)
        await worker.close()

    assert sorted(ran) == list(range(20))
