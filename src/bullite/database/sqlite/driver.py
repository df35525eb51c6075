"""The SQLite driver: runs the engine's statements on one file and translates its errors."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any

from ...core.clock import Clock
from ...core.codec import as_json
from ...core.ownership import named
from ...errors import StoreClosed, StoreError, StoreUnavailable, StoreUnsynced, StoreUnwritable
from ..driver import (
    ANY_NAME,
    ColumnarRows,
    ConstantColumn,
    InvalidData,
    Notifications,
    Params,
    Result,
    Step,
    WorkerRow,
)
from ..statements import Statement
from . import forks
from .checkpoints import CheckpointGauge, checkpoint, checkpoint_what_was_lost
from .connections import connect, is_failed_sync, refuse_old_sqlite, store_error
from .files import FileIdentity, SideFiles, cannot_make, refuse_network_file_system
from .liveness import Liveness, is_alive
from .notifications import Notifier
from .reader import SQLiteReader
from .row_fetch import RowLoader, parse_json_rows
from .schema import enter, prepare
from .statements import JSON_ROWS, STATEMENTS
from .sync_mark import SyncMark
from .wal_sync import WalFile
from .write_lock import FairWriteLock

log = logging.getLogger("bullite.sqlite")

ROWS_PER_INSERT = 100
BINDS_NUMBERS = not (3, 12) <= sys.version_info < (3, 12, 4)
"""Whether a value for `?1` may be given by position. Python 3.12.0 to 3.12.3 treat `?1` as a name
and warn about each one."""

MAX_INSERTS = 200
"""Texts of inserts to cache, by the number of rows and the columns that are constant."""


class SQLiteDriver:
    """One SQLite file, written by one thread of this process."""

    has_other_writers = False
    notices_changes = True
    recover_every = 250  # jobs of dead workers must be recovered within a second

    def __init__(
        self,
        path: Path,
        clock: Clock,
        random_bits: Callable[[int], int],
        durable: bool = True,
        allow_network: bool = False,
    ) -> None:
        self.clock = clock
        self.nonce = random_bits(64) - (1 << 63)
        # Links are resolved: all processes must use the same side folder.
        self.path = path.resolve()
        self._link = path if self.path != path.parent.resolve() / path.name else None
        self._places = SideFiles(self.path)
        self._durable = durable
        self._allow_network = allow_network
        self._synchronous_full = True
        self._sync_due = False
        self._written_rows = self._written_bytes = 0
        self._gauge = CheckpointGauge()
        self._loading = RowLoader()
        self._mark = SyncMark(self._places.write_lock)
        self._liveness: Liveness | None = None
        self._notifier = Notifier(self._places.socket(self.nonce))
        self._inserts: dict[tuple[str, int, tuple[bool, ...]], str] = {}
        self._writer: sqlite3.Connection | None = None
        self._inside = False
        self._in_use = threading.RLock()

    # --- opening and closing ---------------------------------------------------------------------

    def open(self) -> None:
        refuse_old_sqlite()
        if not self._allow_network:
            refuse_network_file_system(self.path)
        self._refuse_new_database_behind_link()
        self._places.make_side_folder()
        self._open_write_lock()
        with forks.opening:
            try:
                self._writer = prepare(self._places, self._write_lock)
                self._checkpointer = connect(self.path)
            except BaseException as error:
                if isinstance(error, StoreUnsynced):
                    self._mark.set()
                self._write_lock.close()
                self._mark.close()
                raise
            self._wal = WalFile.of(self._places.log, self._mark)
            forks.guard(self)
        self._identity = FileIdentity(self._places)
        self._data_version = self._read_data_version()
        try:
            self._mend_if_marked()  # a reader must not see commits that are not synced
        except BaseException:
            self._let_go()
            raise

    def _refuse_new_database_behind_link(self) -> None:
        if self._link is not None and not self.path.exists():
            raise StoreUnwritable(
                f"{self._link} is a symbolic link to {self.path}, which does not exist: a database "
                f"is not made through a link; name {self.path} itself"
            )

    def _open_write_lock(self) -> None:
        try:
            self._mark.make()
            self._write_lock = FairWriteLock(self._places.write_lock)
        except StoreError:
            self._mark.close()
            raise
        except OSError as error:
            self._mark.close()
            folder = self._places.side_folder
            owner = named(folder.stat().st_uid)
            fix = f"{folder} belongs to {owner}: do this as that user, or ask them for"
            raise cannot_make(
                self._places.write_lock,
                error,
                f"cannot open {self._places.write_lock}: {error.strerror}"
                + (f"; {fix} the right" if isinstance(error, PermissionError) else ""),
            ) from error

    def close(self, still_runs: bool = False, exiting: bool = False) -> None:
        if self._writer is None:
            return
        try:
            if not self._mark.is_set():
                # The next process to open the WAL gets no error of a failed sync: sync now.
                self.sync()
        except StoreUnsynced as error:
            log.warning("%s", error)
        try:
            self._mend_if_marked()
        except StoreError as error:
            log.warning("%s", error)
        self._let_go(still_runs)

    def _let_go(self, still_runs: bool = False) -> None:
        writer, self._writer = self._connection(), None
        forks.unguard(self)
        self._notifier.close()
        if self._liveness is not None:
            self._liveness.release(self._is_missed(writer), keep_lock=still_runs)
            self._liveness = None
        self._checkpointer.close()
        # The last connection to close checkpoints, under SQLite's own exclusive lock.
        writer.close()
        if self._wal is not None:
            self._wal.close()
        self._write_lock.close()
        self._mark.close()

    def _is_missed(self, writer: sqlite3.Connection) -> bool:
        """Return True if workers or locks remain: their recovery needs the liveness file."""
        try:
            text = STATEMENTS["workers_of_process"].text
            workers = writer.execute(text, {"nonce": self.nonce}).fetchone()[0] != "[]"
            locks = parse_json_rows(writer.execute(STATEMENTS["lock_holders"].text).fetchone())
            return workers or [self.nonce] in locks
        except sqlite3.Error:
            return True

    def before_fork(self) -> None:
        """Before a fork: wait until no thread is inside SQLite here, and keep threads out."""
        self._in_use.acquire()

    def after_fork_parent(self) -> None:
        self._in_use.release()

    def after_fork_child(self) -> None:
        if self._writer is not None:
            _drop(self._writer)
            _drop(self._checkpointer)
            self._writer = None
            if self._wal is not None:
                self._wal.close()
            self._write_lock.abandon()
            self._mark.close()
            self._notifier.abandon()

    def reader(self) -> SQLiteReader:
        return SQLiteReader(self._places, self.clock, self._durable)

    # --- transactions ----------------------------------------------------------------------------

    def begin(self, durable: bool, foreseen: Sequence[Step] = ()) -> None:
        writer = self._connection()
        self._sync_due = durable and self._durable
        full = self._sync_due and self._wal is None
        self._enter()
        self._in_use.acquire()
        self._inside = True
        try:
            if full != self._synchronous_full:
                writer.execute(f"pragma synchronous = {'full' if full else 'normal'}")
                self._synchronous_full = full
            writer.execute("begin immediate")
        except sqlite3.Error as error:
            self._end_transaction()
            raise self._error(error) from error

    def _end_transaction(self) -> None:
        self._inside = False
        self._in_use.release()
        self._write_lock.leave()

    def execute(self, statement: str, params: Params) -> Result:
        known = STATEMENTS[statement]
        try:
            if known.flag == "multi_row":
                return self._insert(known, params)
            with self._in_use:
                if known.flag == "payload_last":
                    return Result(self._loading.read(self._connection(), known.text, params), 0)
                cursor = self._connection().execute(known.text, params)
                rows: Sequence[Any] = cursor.fetchall()
        except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError) as error:
            raise InvalidData(str(error)) from error
        except (OverflowError, UnicodeError) as error:
            raise InvalidData(str(error)) from error
        except sqlite3.Error as error:
            raise self._error(error) from error
        changed = cursor.rowcount
        if changed > 0:
            self._written_rows += changed
        return Result(parse_json_rows(rows[0]) if known.flag in JSON_ROWS else rows, changed)

    def _insert(self, statement: Statement, rows: Params) -> Result:
        assert isinstance(rows, Sequence)
        writer, number = self._connection(), len(rows)
        places = _places(statement.text)
        if number == 1:
            [row] = rows
            writer.execute(statement.text, row[:places])
            self._wrote(1, row)
            return Result((), 1)
        columns = (rows if isinstance(rows, ColumnarRows) else ColumnarRows.of(rows)).columns[
            :places
        ]
        if not BINDS_NUMBERS:
            columns = [[c.value] * number if isinstance(c, ConstantColumn) else c for c in columns]
        shared = tuple([type(column) is ConstantColumn for column in columns])
        # A constant column is bound once: binding costs more than all else that SQLite does with a
        # row.
        common = [column.value for column in columns if isinstance(column, ConstantColumn)]
        own = [column for column in columns if not isinstance(column, ConstantColumn)]
        for start in range(0, number, ROWS_PER_INSERT):
            chunk = [column[start : start + ROWS_PER_INSERT] for column in own]
            size = min(ROWS_PER_INSERT, number - start)
            values = common + list(chain.from_iterable(zip(*chunk, strict=True)))
            writer.execute(self._insert_text(statement, size, shared), values)
            self._wrote(size, values[: len(columns)])
        return Result((), number)

    def _wrote(self, rows: int, one: Sequence[Any]) -> None:
        """Count rows, and estimate their size from one row: the gauge needs no more."""
        self._written_rows += rows
        self._written_bytes += rows * sum([len(value) for value in one if type(value) is str])

    def _insert_text(self, statement: Statement, rows: int, shared: tuple[bool, ...]) -> str:
        text = self._inserts.get((statement.name, rows, shared))
        if text is None:
            if len(self._inserts) >= MAX_INSERTS:
                self._inserts.clear()
            text = _insert_many(statement.text, rows, shared)
            self._inserts[statement.name, rows, shared] = text
        return text

    def commit(self) -> bool:
        try:
            self._connection().execute("commit")
        except sqlite3.Error as error:
            raise self._error(error) from error
        self._end_transaction()
        self._gauge.wrote(self._written_rows, self._written_bytes)
        self._written_rows = self._written_bytes = 0
        self._identity.check()
        return self._sync_due and self._wal is not None

    def sync(self) -> None:
        if self._durable and self._wal is not None:
            self._wal.sync()

    def rollback(self) -> None:
        self._notifier.forget()
        self._written_rows = self._written_bytes = 0
        if self._writer is not None and self._inside:
            with contextlib.suppress(sqlite3.Error):
                if self._writer.in_transaction:  # some errors roll back by themselves
                    self._writer.execute("rollback")
            self._end_transaction()

    def checkpoint_if_due(self) -> None:
        if self._gauge.is_due():
            self.checkpoint()

    def checkpoint(self) -> None:
        """Run a checkpoint now."""
        self._enter()
        try:
            with self._in_use:
                frames, _ = checkpoint(self._connection(), self._checkpointer)
        except sqlite3.Error as error:
            raise self._error(error) from error
        finally:
            self._write_lock.leave()
        self._gauge.found(frames)

    def _error(self, error: sqlite3.Error) -> StoreError:
        if is_failed_sync(error):
            self._mark.set()
        return store_error(error, self.path)

    # --- after a failed sync ---

    def _enter(self) -> None:
        """Take the write lock. The WAL is then complete on the disk until the lock is released."""
        enter(self._write_lock, self.path)
        if self._mark.is_set():
            try:
                self._mend()
            except BaseException:
                self._write_lock.leave()
                raise

    def _mend_if_marked(self) -> None:
        if self._mark.is_set():
            self._enter()
            self._write_lock.leave()

    def _mend(self) -> None:
        """Under the write lock: sync the commits that could not be synced, then clear the mark.

        Raise StoreUnsynced if the disk still fails. The mark then stays set.
        """
        self._identity.check()
        try:
            with self._in_use:
                checkpoint_what_was_lost(self._connection(), self._checkpointer, self._places.log)
        except sqlite3.Error as error:
            raise self._error(error) from error
        try:
            self._mark.clear()
        except OSError as error:
            raise StoreUnavailable(
                f"cannot write to {self._places.write_lock}: {error.strerror}; nothing was written"
            ) from error
        log.warning("the log of %s could not be synced: it was written again", self.path)

    def _connection(self) -> sqlite3.Connection:
        if self._writer is None:
            raise StoreClosed(f"{self.path} is closed")
        return self._writer

    # --- notifications ---------------------------------------------------------------------------

    def queue_notification(self, queue: int, names: Iterable[str], most: int) -> None:
        wanted = None if ANY_NAME in names else as_json(list(names))
        params = {"queue": queue, "names": wanted, "most": most, "nonce": self.nonce}
        rows = self.execute("idle_worker_addresses", params).rows
        self._notifier.note((address for [address] in rows), queue)

    def queue_cancel_notification(self, queue: int, nonce: int) -> None:
        for [address] in self.execute("address_of_process", {"nonce": nonce}).rows:
            self._notifier.note_alert(address)

    def send_notifications(self) -> None:
        self._notifier.send()

    def may_have_lost_commits(self) -> bool:
        return False

    def set_idle(self, worker: int, idle: bool) -> None:
        self.execute("set_worker_idle", {"worker": worker, "idle": int(idle)})

    def listen(self, queue: int) -> str | None:
        self.start_heartbeat()
        return self._notifier.listen()

    def registered(self) -> None:
        """Do nothing: the engine renews the leases."""

    def notification_fds(self) -> Sequence[int]:
        return self._notifier.notification_fds()

    def read_notifications(self) -> Notifications:
        return self._notifier.read_notifications()

    def changed(self) -> bool:
        version = self._read_data_version()
        was, self._data_version = self._data_version, version
        return version != was

    def _read_data_version(self) -> int:
        try:
            with self._in_use:
                version: int = self._connection().execute("pragma data_version").fetchone()[0]
        except sqlite3.Error:
            return -1  # count it as a change: the read that follows raises the error
        return version

    # --- dead processes --------------------------------------------------------------------------

    def start_heartbeat(self) -> None:
        if self._liveness is not None:
            return
        path = self._places.liveness(self.nonce)
        try:
            self._liveness = Liveness(path)
        except OSError as error:
            otherwise = f"cannot make {path}: {error.strerror}; nothing was written"
            raise cannot_make(path, error, otherwise) from error

    def is_dead(self, nonce: int, boot: str) -> bool:
        return boot != self.clock.boot or is_alive(self._places.liveness(nonce)) is False

    def find_dead(self, workers: Sequence[WorkerRow]) -> list[WorkerRow]:
        alive: dict[int, bool | None] = {}
        dead = []
        for worker in workers:
            if worker.boot != self.clock.boot:
                dead.append(worker)
                continue
            if worker.nonce not in alive:
                alive[worker.nonce] = is_alive(self._places.liveness(worker.nonce))
            if alive[worker.nonce] is False:
                dead.append(worker)
        return dead

    def is_alive_despite_lease(self, worker: WorkerRow) -> bool:
        if not (worker.registered and worker.renews):
            return False
        # Without a liveness file, the lease decides.
        return bool(is_alive(self._places.liveness(worker.nonce)))

    def remove_stale_files(self, known: Iterable[int]) -> None:
        for nonce in set(self._places.nonces()) - {*known, self.nonce}:
            liveness = self._places.liveness(nonce)
            if is_alive(liveness) is False:
                for path in (liveness, self._places.socket(nonce)):
                    with contextlib.suppress(OSError):
                        path.unlink(missing_ok=True)


@cache
def _places(text: str) -> int:
    """Return the number of columns that an insert takes."""
    return text.count("?")


def _insert_many(text: str, rows: int, shared: Sequence[bool]) -> str:
    """Return an insert of many rows. The constant columns are its first parameters."""
    before, _, rest = text.partition(" values ")
    after = rest[rest.index(")") + 1 :]
    first, own = count(1), count(1 + sum(shared))
    common = [f"?{next(first)}" if same else "" for same in shared]
    is_plain = not any(shared)
    each = [
        ", ".join([place or ("?" if is_plain else f"?{next(own)}") for place in common])
        for _ in range(rows)
    ]
    return f"{before} values ({'), ('.join(each)}){after}"


def _drop(connection: sqlite3.Connection) -> None:
    """In the child of a fork: drop an inherited connection."""
    if connection.in_transaction:
        # The thread that forks is in a transaction. The connection must not even be collected: that
        # would end the parent's transaction in the child's memory.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    else:
        connection.close()
