"""Opening a database: create it if it is missing, switch to WAL mode, migrate its schema."""

from __future__ import annotations

import logging
import re
import sqlite3
from pathlib import Path

from ...errors import NotABulliteDatabase, SchemaTooNew, StoreBusy, StoreUnwritable
from ..migrations import scripts
from . import connections
from .connections import connect, is_busy, is_failed_sync, is_no_room, schema_version, store_error
from .files import SideFiles, is_full, no_room
from .write_lock import FairWriteLock

log = logging.getLogger("bullite.sqlite")
waiting = logging.getLogger("bullite.sqlite.waiting")
"""A separate logger, for a program that shows its user only the reason of a long wait."""

WARN_AFTER = 1.5
"""Seconds after which opening a database logs that it waits for another program's lock."""


def prepare(places: SideFiles, write_lock: FairWriteLock) -> sqlite3.Connection:
    """Open the file, created if missing, and migrate it. Any number of processes may race."""
    enter(write_lock, places.database)
    try:
        return _open_patiently(places)
    except sqlite3.Error as error:
        raise _cannot_open(places.database, error) from error
    finally:
        write_lock.leave()


def _open_patiently(places: SideFiles) -> sqlite3.Connection:
    path, is_new = places.database, places.make_database()
    try:
        connection = _open_and_migrate(path, is_new, min(WARN_AFTER, connections.BUSY_TIMEOUT))
    except sqlite3.Error as error:
        if not is_busy(error):
            raise
        waiting.warning("another process holds %s locked: waiting for it", path)
        return _open_and_migrate(path, is_new, connections.BUSY_TIMEOUT)
    connection.execute(f"pragma busy_timeout = {round(connections.BUSY_TIMEOUT * 1000)}").fetchall()
    return connection


def enter(write_lock: FairWriteLock, path: Path) -> None:
    """Take the write lock. Raise StoreBusy if another process holds it for too long."""
    if not write_lock.enter(connections.BUSY_TIMEOUT):
        raise StoreBusy(
            f"another process has been writing to {path} for {connections.BUSY_TIMEOUT:.0f} s; "
            "nothing was written: if it is stopped, continue or end it"
        )


def _open_and_migrate(path: Path, is_new: bool, patience: float) -> sqlite3.Connection:
    connection = connect(path, patience)
    try:
        schema_version(connection, path)  # a file that is not ours is not changed
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
    if is_busy(error):
        return StoreBusy(
            f"another process holds {path} locked; nothing was written: try again when it has ended"
        )
    if is_failed_sync(error) or is_no_room(error):
        return store_error(error, path)
    if is_full(path.parent):
        return no_room(path)  # SQLite does not say why it could not create one of its files
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
        version = schema_version(connection, path)
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


def _statements_of(script: str) -> list[str]:
    """Return the statements of a migration: `executescript` would commit our transaction first."""
    text = re.sub(r"--[^\n]*", "", script)
    return [statement.strip() for statement in text.split(";") if statement.strip()]
