"""How the file is spoken to: settings, transactions, and when the disk is waited for."""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullite import Job, Queue, Worker
from bullite.core.clock import SystemClock
from bullite.database.sqlite.connections import refuse_old_sqlite
from bullite.database.sqlite.driver import SQLiteDriver
from bullite.database.sqlite.wal_sync import WalFile
from bullite.errors import SQLiteTooOld
from tests.support.processes import wait_until

# --- settings ------------------------------------------------------------------------------------

FULL = 2
SETTINGS = {
    "journal_mode": "wal",
    "wal_autocheckpoint": 0,
    "journal_size_limit": 64 * 1024 * 1024,
    "busy_timeout": 30_000,
    "secure_delete": 0,
    "mmap_size": 0,
    "temp_store": 2,
    "cache_size": -16_000,
    "synchronous": FULL,
}


@pytest.fixture
def driver(database: Path) -> Iterator[SQLiteDriver]:
    driver = SQLiteDriver(database, SystemClock(), random.getrandbits)
    driver.open()
    yield driver
    driver.close()


def settings_of(connection: sqlite3.Connection) -> dict[str, object]:
    return {name: connection.execute(f"pragma {name}").fetchone()[0] for name in SETTINGS}


def test_the_connection_that_writes_has_our_settings(driver):
    assert settings_of(driver._writer) == SETTINGS


def test_the_connection_that_checkpoints_has_our_settings(driver):
    assert settings_of(driver._checkpointer) == SETTINGS


def test_a_connection_that_reads_has_our_settings(driver):
    reader = driver.reader()
    try:
        assert settings_of(reader._connection) == SETTINGS
    finally:
        reader.close()


def test_a_sqlite_that_is_too_old_is_named_with_the_fix():
    with pytest.raises(SQLiteTooOld, match=r"SQLite 3\.37\.2; Bullite needs 3\.38\.0 .* newer"):
        refuse_old_sqlite((3, 37, 2))


def test_the_oldest_sqlite_that_works_is_taken():
    refuse_old_sqlite((3, 38, 0))
    refuse_old_sqlite()


# --- transactions --------------------------------------------------------------------------------


class Trace:
    """Everything a store's writing connection is told, cut into transactions."""

    def __init__(self, queue: Queue) -> None:
        self.statements: list[str] = []
        driver = queue.store.open().driver
        self._level = {1: "normal", FULL: "full"}[
            driver._writer.execute("pragma synchronous").fetchone()[0]
        ]
        driver._writer.set_trace_callback(self.statements.append)
        commit, sync = driver.commit, driver.sync

        def traced_commit() -> bool:
            is_due = commit()
            self.statements.append("-- sync is due" if is_due else "-- no sync is due")
            return is_due

        def traced_sync() -> None:
            sync()
            self.statements.append("-- synced")

        driver.commit, driver.sync = traced_commit, traced_sync

    def count(self, mark: str) -> int:
        return sum(mark in statement for statement in self.statements)

    def transactions(self) -> list[tuple[str, list[str]]]:
        """(how it is synced, its statements) for each that was committed."""
        found, level, is_due = [], self._level, False
        current: list[str] | None = None
        for statement in self.statements:
            if changed := re.match("pragma synchronous = (full|normal)", statement):
                level = changed[1]
            elif statement == "-- sync is due":
                is_due = True
            elif statement == "-- synced" and is_due:
                found[-1] = ("full", found[-1][1])
                is_due = False
            elif statement.startswith("begin"):
                assert statement == "begin immediate"
                assert current is None
                assert not is_due
                current = []
            elif statement in ("commit", "rollback"):
                assert current is not None
                if statement == "commit":
                    found.append((level, current))
                current = None
            elif re.match("(insert|update|delete)", statement, re.IGNORECASE):
                assert current is not None, f"written outside of a transaction: {statement}"
                current.append(statement)
        return found

    def levels(self, *marks: str) -> set[str]:
        """How the transactions that write one of these are synced."""
        return {
            level
            for level, statements in self.transactions()
            if any(mark in statement for mark in marks for statement in statements)
        }

    def levels_without(self, *marks: str) -> set[str]:
        """How the transactions that write none of these are synced."""
        return {
            level
            for level, statements in self.transactions()
            if not any(mark in statement for mark in marks for statement in statements)
        }


ADDS = "insert into bullite_jobs"
CLAIMS = "set state = 'active'"
COMPLETES = "set state = 'completed'"
REPORTS_PROGRESS = "insert into bullite_results (job, progress)"
REGISTERS = "insert into bullite_workers"
RENEWS = "update bullite_workers set lease_until"


def life_of_some_jobs(location: str | Path) -> Trace:
    """Jobs are added, then claimed by a new worker, report progress, outlast a lease, complete."""

    async def process(job: Job) -> None:
        await job.update_progress(50)
        await asyncio.to_thread(wait_until, lambda: trace.count(RENEWS) > 1)

    async def scenario() -> Trace:
        nonlocal trace
        async with Queue("work", location) as queue:
            trace = Trace(queue)
            jobs = [await queue.add("job", number) for number in range(5)]
            async with Worker(queue, process, concurrency=2, lock_duration=100):
                for job in jobs:
                    await job.result(timeout=10_000)
            queue.store.open().driver._writer.set_trace_callback(None)
        return trace

    trace: Trace
    return asyncio.run(scenario())


def test_every_write_happens_in_a_transaction_that_begins_immediate(database):
    trace = life_of_some_jobs(database)

    written = " ".join(statement for _, some in trace.transactions() for statement in some)
    for kind in (ADDS, CLAIMS, COMPLETES, REPORTS_PROGRESS, RENEWS):
        assert kind in written


def test_a_transaction_that_adds_or_settles_waits_for_the_disk(database):
    assert life_of_some_jobs(database).levels(ADDS, COMPLETES) == {"full"}


def test_where_the_log_cannot_be_synced_apart_sqlite_syncs_in_the_commit(database, monkeypatch):
    monkeypatch.setattr(WalFile, "of", classmethod(lambda cls, path, mark: None))
    trace = life_of_some_jobs(database)

    assert trace.levels(ADDS, COMPLETES) == {"full"}
    assert trace.levels_without(ADDS, COMPLETES, REGISTERS) == {"normal"}
    assert trace.count("-- sync is due") == 0


def test_a_transaction_that_only_claims_renews_or_reports_progress_does_not(database):
    trace = life_of_some_jobs(database)

    assert trace.levels_without(ADDS, COMPLETES, REGISTERS) == {"normal"}
    assert "normal" in trace.levels(CLAIMS)
    assert "normal" in trace.levels(REPORTS_PROGRESS)
    assert "normal" in trace.levels(RENEWS)


def test_with_relaxed_durability_no_transaction_waits_for_the_disk(database):
    trace = life_of_some_jobs(f"sqlite:///{database}?durability=relaxed")

    assert {level for level, _ in trace.transactions()} == {"normal"}
