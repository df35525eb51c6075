"""Opening a database: connections with the right settings, and the schema brought up to date."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import sys
from pathlib import Path

from ..engine.migrations import scripts
from ..errors import NotABulliteDatabase, SchemaTooNew, SQLiteTooOld, StoreBusy, StoreUnwritable
from .files import Places
from .gate import Gate

log = logging.getLogger("bullite.sqlite")

OLDEST_SQLITE = (3, 38, 0)
BUSY_TIMEOUT = 30.0
"""Seconds to wait for the gate, and for a foreign writer that does not know it."""

_SETTINGS = (
    "pragma synchronous = full",
    # Checkpoints happen in one place and one way only: see checkpoints.py.
    "pragma wal_autocheckpoint = 0",
    "pragma journal_size_limit = 67108864",
    # On in some distributions' builds: overwrites what is deleted, at a third of the speed.
    "pragma secure_delete = off",
    "pragma cache_size = -16000",
    "pragma temp_store = memory",
    "pragma mmap_size = 0",
)


def connect(path: Path) -> sqlite3.Connection:
    """A connection with our settings, in autocommit mode."""
    connection = sqlite3.connect(
        path,
        timeout=BUSY_TIMEOUT,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
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


def prepare(places: Places, gate: Gate) -> sqlite3.Connection:
    """Open the file, making it if need be, and migrate it. Any number of processes may race."""
    enter(gate, places.database)
    try:
        return _open_and_migrate(places.database)
    except sqlite3.Error as error:
        raise _cannot_open(places.database, error) from error
    finally:
        gate.leave()


def enter(gate: Gate, path: Path) -> None:
    """Pass the gate, or say that somebody holds it."""
    if not gate.enter(BUSY_TIMEOUT):
        raise StoreBusy(
            f"another process has been writing to {path} for {BUSY_TIMEOUT:.0f} s; nothing was "
            "written: if it is stopped, continue or end it"
        )


def _open_and_migrate(path: Path) -> sqlite3.Connection:
    is_new = not path.exists()
    connection = connect(path)
    try:
        if is_new:
            # By name, not by a descriptor of our own; and the file is still empty.
            os.chmod(path, 0o600)
        _schema_version(connection, path)  # a file that is not ours is left as it is
        _switch_to_wal(connection, path, is_new)
        _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _cannot_open(path: Path, error: sqlite3.Error) -> Exception:
    if "not a database" in str(error) or "malformed" in str(error):
        return NotABulliteDatabase(
            f"{path} is not a SQLite database ({error}); it was left as it is: name another file"
        )
    return StoreUnwritable(
        f"cannot open {path}: {error}; check that the file and its folder exist and can be written"
    )


def _switch_to_wal(connection: sqlite3.Connection, path: Path, is_new: bool) -> None:
    mode = connection.execute("pragma journal_mode").fetchone()[0]
    if mode == "wal":
        return
    mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
    if mode != "wal":
        raise StoreUnwritable(f"{path} cannot be switched to WAL mode (it stays in {mode} mode)")
    if not is_new:
        log.info("%s was switched to WAL mode", path)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    migrations = scripts(__package__)
    connection.execute("begin immediate")
    try:
        version = _schema_version(connection, path)
        if version > len(migrations):
            raise SchemaTooNew(
                f"{path} has schema {version}, this Bullite knows {len(migrations)}; upgrade it"
            )
        for number, script in enumerate(migrations, start=1):
            if number > version:
                for statement in _statements_of(script):
                    connection.execute(statement)
                connection.execute(
                    "insert into bullite_meta values ('schema', ?) "
                    "on conflict (key) do update set value = excluded.value",
                    (str(number),),
                )
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _schema_version(connection: sqlite3.Connection, path: Path) -> int:
    tables = {
        row[0]
        for row in connection.execute(
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
        if row is not None and str(row[0]).isdecimal():
            return int(row[0])
    raise NotABulliteDatabase(
        f"{path} holds tables called {', '.join(sorted(tables))} that Bullite did not make; "
        "name another file"
    )


def _statements_of(script: str) -> list[str]:
    """The statements of a migration; `executescript` would commit our transaction first."""
    text = re.sub(r"--[^\n]*", "", script)
    return [statement.strip() for statement in text.split(";") if statement.strip()]
