"""A connection that only reads: beside a driver, or on a file that needs no driver."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...core.clock import Clock
from ..driver import Params, Result
from ..migrations import newest
from . import connections, forks
from .connections import connect, schema_version, store_error
from .files import SideFiles
from .row_fetch import parse_json_rows
from .statements import DURABLE_READ, JSON_ROWS, STATEMENTS
from .sync_mark import SyncMark
from .wal_sync import WalFile


class SQLiteReader:
    """A connection that only reads."""

    def __init__(
        self,
        places: SideFiles,
        clock: Clock,
        durable: bool,
        connected: Callable[[Path], sqlite3.Connection] = connect,
    ) -> None:
        self.clock = clock
        self._path = places.database
        self._log = places.log
        self._durable = durable
        self._wal: WalFile | None = None
        self._mark = SyncMark(places.write_lock)
        self._in_use = threading.RLock()
        with forks.opening:
            self._connection = connected(self._path)
            forks.guard(self)

    @classmethod
    def of_file_as_it_is(
        cls, places: SideFiles, clock: Clock, durable: bool
    ) -> SQLiteReader | None:
        """Return a reader of a file that no driver has opened; None if a driver must open the file,
        to migrate it or to report its problem."""
        try:
            return cls(places, clock, durable, _connect_and_change_nothing)
        except (sqlite3.Error, _NotReady):
            return None

    def read(self, statement: str, params: Params) -> Result:
        known = STATEMENTS[statement]
        try:
            with self._in_use:
                cursor = self._connection.execute(known.text, params)
                rows: Sequence[Any] = cursor.fetchall()
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error
        except (OverflowError, UnicodeError):
            return Result((), 0)  # no row has such a value
        if known.flag in JSON_ROWS:
            rows = parse_json_rows(rows[0])
        if rows and known.flag in DURABLE_READ and self._durable:
            self._sync()
        return Result(rows, 0)

    def _sync(self) -> None:
        # Opened here and not before: a connection opens the WAL when it reads.
        self._wal = self._wal or WalFile.of(self._log, self._mark)
        if self._wal is not None:
            self._wal.sync()

    def close(self) -> None:
        forks.unguard(self)
        self._connection.close()
        self._let_go_of_log()

    def _let_go_of_log(self) -> None:
        if self._wal is not None:
            self._wal.close()
        self._mark.close()

    def before_fork(self) -> None:
        self._in_use.acquire()

    def after_fork_parent(self) -> None:
        self._in_use.release()

    def after_fork_child(self) -> None:
        self._connection.close()  # it is never in a transaction
        self._let_go_of_log()


class _NotReady(Exception):
    """The file is not in WAL mode, or its schema is not the newest."""


def _connect_and_change_nothing(path: Path) -> sqlite3.Connection:
    """Return a connection to a file of our schema that never changes the file.

    The last connection to close checkpoints the WAL into the database; a read-only one leaves it.
    If there is no WAL, SQLite creates an empty one to read, and only a connection that may write
    deletes it. Raise _NotReady if the file is not in WAL mode or its schema is not the newest.
    """
    mode = "ro" if os.path.exists(SideFiles(path).log) else "rw"
    # Timeout 0: if another process has locked the file, the driver waits and reports it.
    connection = connect(path, 0, mode)
    try:
        in_wal_mode = connection.execute("pragma journal_mode").fetchone()[0] == "wal"
        if not in_wal_mode or schema_version(connection, path) != newest(__package__):
            raise _NotReady
        connection.execute(
            f"pragma busy_timeout = {connections.BUSY_TIMEOUT * 1000:.0f}"
        ).fetchall()
    except BaseException:
        connection.close()
        raise
    return connection
