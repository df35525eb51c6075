"""A sync that fails ends the engine, and no process writes behind what was lost."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bullite import Job, Queue, QueueEvents, Store, Worker
from bullite.client.runtime.store_reader import StoreReader
from bullite.core.clock import SystemClock
from bullite.database.sqlite import checkpoints, driver, wal_sync
from bullite.database.sqlite.driver import SQLiteDriver
from bullite.database.sqlite.sync_mark import SyncMark
from bullite.errors import StoreUnsynced
from tests.support.helpers import until

READER, ENGINE = "bullite-reader", "bullite-engine"


class BrokenDisk:
    """The next sync in a thread of a given name fails, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.thread: str | None = None
        self.failures = 0
        self._sync = os.fdatasync
        monkeypatch.setattr(wal_sync.os, "fdatasync", self._fdatasync)

    def _fdatasync(self, descriptor: int) -> None:
        if threading.current_thread().name == self.thread:
            self.thread = None
            self.failures += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._sync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> BrokenDisk:
    return BrokenDisk(monkeypatch)


async def nothing(job: Job) -> None:
    pass


async def assert_ended(queue: Queue) -> None:
    with pytest.raises(StoreUnsynced, match="could not be synced"):
        await queue.add("job", 2)


# --- the engine ends, wherever it is noticed -----------------------------------------------------


async def test_a_failed_sync_of_a_commit_ends_the_engine(database, disk):
    async with Queue("work", database) as queue:
        await queue.add("job", 1)
        disk.thread = ENGINE
        with pytest.raises(StoreUnsynced):
            await queue.add("job", 1)
        await assert_ended(queue)


async def test_a_failed_sync_of_a_result_that_is_waited_for_ends_the_engine(database, disk):
    async with Queue("work", database) as queue:
        job = await queue.add("job", 1)
        async with Worker(queue, nothing):
            await job.result(timeout=10_000)
        disk.thread = ENGINE
        with pytest.raises(StoreUnsynced):
            await job.result(timeout=10_000)
        await assert_ended(queue)


async def test_a_failed_sync_of_queue_events_ends_the_engine(database, disk):
    async with Queue("work", database) as queue, QueueEvents("work", queue.store) as events:
        errors: list[Exception] = []
        events.on("error", errors.append)
        disk.thread = READER
        with contextlib.suppress(StoreUnsynced):  # the event may be read before this is answered
            await queue.add("job", 1)
        await until(lambda: bool(errors))
        assert [type(error) for error in errors] == [StoreUnsynced]
        await assert_ended(queue)


async def test_a_failed_sync_of_a_read_ends_the_engine(database, disk):
    async with Queue("work", database) as queue:
        await queue.add("job", 1)
        disk.thread = READER
        with pytest.raises(StoreUnsynced):
            StoreReader(queue.store).read("log_position", {"after": -1, "queue": None})
        await assert_ended(queue)


async def test_a_failed_sync_of_the_log_of_how_jobs_ended_ends_the_engine(database, disk):
    async with Queue("work", database) as queue:
        job = await queue.add("job", 1)
        async with Worker(queue, nothing, remove_on_complete=True) as worker:
            ended = asyncio.Event()
            worker.on("completed", lambda *about: ended.set())
            await asyncio.wait_for(ended.wait(), 10)
        disk.thread = READER
        with pytest.raises(StoreUnsynced):
            await job.result(timeout=10_000)
        await assert_ended(queue)


def unsynced() -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    return error


def fail(writer: sqlite3.Connection, other: sqlite3.Connection) -> tuple[int, int]:
    raise unsynced()


def test_a_failed_sync_of_a_checkpoint_is_marked(other, mark, monkeypatch):
    with monkeypatch.context() as failing:
        failing.setattr(driver, "checkpoint", fail)
        with pytest.raises(StoreUnsynced):
            other.checkpoint()
    assert mark.is_set()


async def test_a_failed_sync_of_a_checkpoint_ends_the_engine(database, monkeypatch):
    async with Queue("work", database) as queue:
        await queue.add("job", 1)
        engine = queue.store.open()
        with monkeypatch.context() as failing:
            failing.setattr(driver, "checkpoint", fail)
            failing.setattr(engine.driver._gauge, "is_due", lambda: True)
            engine.poll_now()
            await until(lambda: engine.is_stopping)
        await assert_ended(queue)


# --- nobody writes behind what was lost ----------------------------------------------------------


@pytest.fixture
def other(database) -> Iterator[SQLiteDriver]:
    """What another process has open."""
    driver = SQLiteDriver(database, SystemClock(), random.getrandbits)
    driver.open()
    yield driver
    driver.close()


@pytest.fixture
def mark(other) -> SyncMark:
    return SyncMark(other._places.write_lock)


class Rewrites:
    """What is written to the log apart from SQLite."""

    def __init__(self, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log = Path(f"{database}-wal")
        self._reached = 0
        self.is_locked: list[bool] = []
        """Whether others could not write meanwhile."""
        self._database, self._pwrite = database, os.pwrite
        monkeypatch.setattr(wal_sync.os, "pwrite", self._note)

    def _note(self, descriptor: int, data: bytes, offset: int) -> int:
        if os.path.samestat(os.fstat(descriptor), os.stat(self._log)):
            assert offset == self._reached
            self._reached += len(data)
            self.is_locked.append(self._is_locked())
        return self._pwrite(descriptor, data, offset)

    def _is_locked(self) -> bool:
        with closing(sqlite3.connect(self._database, timeout=0)) as foreign:
            try:
                foreign.execute("begin immediate")
            except sqlite3.OperationalError:
                return True
        return False

    def are_complete(self) -> bool:
        """Whether all of the log has been written again."""
        return self._reached == self._log.stat().st_size > 0


@pytest.fixture
def rewrites(database, other, monkeypatch) -> Rewrites:
    return Rewrites(database, monkeypatch)


@contextmanager
def reading(database: Path) -> Iterator[None]:
    """A foreign connection reads the newest state, and holds the log with that."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("begin")
        connection.execute("select count(*) from bullite_meta").fetchone()
        yield


async def test_an_engine_that_ends_by_a_failed_sync_has_its_log_written_again(
    database, rewrites, disk, mark
):
    async with Queue("work", database) as queue:
        await queue.add("job", 1)
        disk.thread = ENGINE
        with pytest.raises(StoreUnsynced):
            await queue.add("job", 2)
        engine = queue.store.open()
        await until(lambda: engine.driver._writer is None)
        assert (rewrites.are_complete(), mark.is_set()) == (True, False)


def test_the_log_is_written_again_before_a_transaction_begins(other, rewrites, mark):
    mark.set()
    other.begin(durable=True)
    assert (rewrites.are_complete(), mark.is_set()) == (True, False)
    other.rollback()


def test_the_log_is_written_again_before_a_checkpoint(other, rewrites, mark, monkeypatch):
    checkpoint, complete = driver.checkpoint, []

    def note(*connections: sqlite3.Connection) -> tuple[int, int]:
        complete.append(rewrites.are_complete())
        return checkpoint(*connections)

    monkeypatch.setattr(driver, "checkpoint", note)
    mark.set()
    other.checkpoint()
    assert complete == [True]


def test_nobody_else_writes_while_the_log_is_written_again(other, rewrites, mark):
    mark.set()
    other.checkpoint()
    assert rewrites.is_locked == [True]


def test_the_log_is_written_again_while_others_read(database, other, rewrites, mark):
    mark.set()
    with reading(database):
        other.begin(durable=True)
        assert (rewrites.are_complete(), mark.is_set()) == (True, False)
        other.rollback()


def test_a_commit_is_not_acknowledged_if_another_process_met_a_failed_sync(other, mark):
    other.begin(durable=True)
    other.commit()
    mark.set()
    with pytest.raises(StoreUnsynced, match="another process"):
        other.sync()


async def test_no_event_is_told_after_a_failed_sync_before_the_log_is_whole(database, other, mark):
    async with Queue("work", database) as queue:
        await queue.add("job", 1)
        mark.set()
        with closing(other.reader()) as reader, pytest.raises(StoreUnsynced):
            reader.read("events_after", {"queue": None, "after": 0, "most": 10})


def test_the_log_is_written_again_when_the_database_is_opened(database, rewrites, mark):
    mark.set()
    with closing(Store(database)) as store:
        store.open()
        assert (rewrites.are_complete(), mark.is_set()) == (True, False)


def test_the_log_is_written_again_by_a_process_that_cannot_sync_it_when_it_closes(
    database, rewrites, disk, mark
):
    driver = SQLiteDriver(database, SystemClock(), random.getrandbits)
    driver.open()
    disk.thread = threading.current_thread().name
    driver.close()
    assert (disk.failures, rewrites.are_complete(), mark.is_set()) == (1, True, False)


class Reporting:
    """A connection whose first syncs report a write-back that failed before."""

    def __init__(self, connection: sqlite3.Connection, reports: int) -> None:
        self._connection, self._reports = connection, reports

    def execute(self, text: str) -> sqlite3.Cursor:
        if "wal_checkpoint" in text and self._reports:
            self._reports -= 1
            raise unsynced()
        return self._connection.execute(text)


def test_the_log_is_written_again_although_the_first_syncs_report_the_failure_again(
    other, mark, monkeypatch
):
    monkeypatch.setattr(other, "_checkpointer", Reporting(other._checkpointer, 2))
    mark.set()
    other.begin(durable=True)
    assert not mark.is_set()
    other.rollback()
    monkeypatch.undo()


def test_nothing_is_written_while_the_disk_still_fails(other, mark, monkeypatch):
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    mark.set()
    with monkeypatch.context() as failing:
        failing.setattr(wal_sync.os, "fdatasync", fail)
        with pytest.raises(StoreUnsynced):
            other.begin(durable=True)
        assert mark.is_set()
    other.begin(durable=True)
    other.rollback()


def test_a_database_is_not_opened_while_the_disk_still_fails(database, other, mark, monkeypatch):
    monkeypatch.setattr(checkpoints, "rewrite", rewrite_in_vain)
    mark.set()
    with closing(Store(database)) as store, pytest.raises(StoreUnsynced):
        store.open()
    assert mark.is_set()


def rewrite_in_vain(log: Path) -> None:
    raise StoreUnsynced("the disk fails")


def test_a_mark_that_cannot_be_made_is_reported(tmp_path, caplog):
    SyncMark(tmp_path / "none" / "mark").set()
    assert "stop all processes that use the database" in caplog.text
