"""Connections with our settings, the schema version of a file, and the meaning of errors."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from ...errors import (
    NotABulliteDatabase,
    SQLiteTooOld,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    StoreUnsynced,
    StoreUnwritable,
)
from .files import no_room

OLDEST_SQLITE = (3, 38, 0)
BUSY_TIMEOUT = 30.0
"""Seconds to wait for the write lock, and for a program that does not use it."""

_SETTINGS = (
    "pragma synchronous = full",
    # Checkpoints happen in one place and one way only: see checkpoints.py.
    "pragma wal_autocheckpoint = 0",
    "pragma journal_size_limit = 67108864",
    # On in the builds of some distributions: overwrites deleted data, at a third of the speed.
    "pragma secure_delete = off",
    "pragma cache_size = -16000",
    "pragma temp_store = memory",
    "pragma mmap_size = 0",
)


def connect(path: Path, patience: float | None = None, mode: str = "rw") -> sqlite3.Connection:
    """Return a connection with our settings, in autocommit mode; `mode` is SQLite's: ro or rw.

    Not rwc: SQLite would create a file that other users can read (`SideFiles.make_database`).
    """
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        timeout=BUSY_TIMEOUT if patience is None else patience,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        uri=True,
    )
    try:
        for setting in _SETTINGS:
            connection.execute(setting).fetchall()
        if sys.platform == "darwin":
            connection.execute("pragma fullfsync = 1").fetchall()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def refuse_old_sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    if version < OLDEST_SQLITE:
        wanted, found = (".".join(map(str, v)) for v in (OLDEST_SQLITE, version))
        raise SQLiteTooOld(
            f"this Python has SQLite {found}; Bullite needs {wanted} or newer: use a newer Python "
            "build or system library"
        )


def schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the schema; 0 if the file has no tables of Bullite yet."""
    tables = {
        table
        for [table] in connection.execute(
            "select name from sqlite_master where type = 'table' and name glob 'bullite_*'"
        )
    }
    if not tables:
        return 0
    if "bullite_meta" in tables:
        try:
            row = connection.execute(
                "select value from bullite_meta where key = 'schema'"
            ).fetchone()
        except sqlite3.Error:
            row = None
        for value in row or ():
            if str(value).isdecimal():
                return int(value)
    raise NotABulliteDatabase(
        f"{path} holds tables called {', '.join(sorted(tables))} that Bullite did not make; "
        "name another file"
    )


def is_busy(error: sqlite3.Error) -> bool:
    """Return True if the error means that another connection holds a lock."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_no_room(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def is_failed_sync(error: sqlite3.Error) -> bool:
    """Return True if the error means that SQLite could not sync a file or its folder."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code in (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)


def store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the StoreError for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if is_failed_sync(error):
        return StoreUnsynced(
            f"{path} could not be synced: {error}; whether the last requests are stored is not "
            "known: check the disk, then reopen the store"
        )
    if is_no_room(error):
        return no_room(path)
    if is_busy(error):
        return StoreBusy(
            f"{path} was locked by another connection for too long; nothing was written"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return StoreUnwritable(f"cannot write {path}: {error}")
    return StoreUnavailable(f"{path}: {error}; whether the request was stored is not known")
