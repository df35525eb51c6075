"""The kinds of database that every test runs on, unless it is about one of them.

What a test must know of its database beyond the public interface, it asks a `Database`.
"""

from __future__ import annotations

import random
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bullite.client.verify import CHECKS
from bullite.core.clock import Clock, SystemClock
from bullite.database.driver import Driver
from bullite.database.sqlite import connections
from bullite.database.sqlite.driver import SQLiteDriver
from bullite.database.sqlite.files import SideFiles
from bullite.database.sqlite.statements import STATEMENTS

if TYPE_CHECKING:  # processes that tests start need not wait for it
    import pytest

PATIENCE = 20.0
"""Seconds after which something awaited counts as never going to happen."""


class Database(Protocol):
    """What the suite must know of a kind of database."""

    location: str
    """What a user hands to `Queue(name, location)` or `Store(location)`."""
    libraries: frozenset[str]
    """What Python must load to use it."""
    tables: tuple[str, ...]
    """Those with all that is stored about jobs."""
    recovery_time: int
    """Ms in which the jobs of a killed process are back in the queue."""
    short_lease: Mapping[str, Any]
    """Options of workers who notice within that time that one of them has died."""

    def exists(self) -> bool:
        """Whether anybody has opened a store there yet."""

    def problems(self) -> list[str]:
        """What is wrong with the books: what `bullite.verify` says, without opening a store."""

    def another(self) -> Database:
        """One more of the same kind, with nothing in it; gone when this one is closed."""

    def missing(self) -> str:
        """A location where nothing can be opened; `missing` is part of its name."""

    def driver(self, clock: Clock, random_bits: Callable[[int], int]) -> Driver:
        """A driver as another process would open it."""

    # --- behind the back of everybody: plain SQL that any database understands ---

    def rows(self, table: str, where: str = "true") -> list[dict[str, Any]]:
        """The committed rows of one of our tables, in the order of their first column."""

    def query(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        """What a reader who knows nothing of Bullite finds; a parameter is written `?`."""

    def write(self, statement: str, *params: Any) -> None:
        """Change something, in a transaction of its own."""

    def locked(self) -> AbstractContextManager[None]:
        """Meanwhile somebody else's transaction lets nobody write to our tables; all can read."""

    def give_up_on_locks(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let this process wait no longer than that for somebody else's lock."""

    # --- what only the tests of the store ask for ---

    def checked_states(self) -> set[str]:
        """The states that the schema allows a job to be in."""

    def leave_corpse(self, nonce: int) -> None:
        """Make a closed process look as if it had been killed."""

    def clear_traces(self, nonce: int) -> None:
        """Take away what a closed process left to be known by."""

    def close(self) -> None: ...


class SQLiteDatabase:
    libraries = frozenset({"sqlite3"})
    tables = (
        *("queues", "jobs", "payloads", "results"),
        *("attempts", "logs", "events", "sequence", "deduplication", "tags"),
    )
    recovery_time = 1_000
    # The kernel tells of a death, whatever the lease.
    short_lease: Mapping[str, Any] = {}

    def __init__(self, path: Path) -> None:
        self.location = str(path)
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._others: list[SQLiteDatabase] = []

    @classmethod
    def make(cls, folder: Path) -> SQLiteDatabase:
        made = cls(folder / "jobs.db")
        # To make the tables takes ten times as long as to open them.
        made._path.write_bytes(_empty_file())
        made._path.chmod(0o600)
        return made

    def exists(self) -> bool:
        return self._path.exists() and SideFiles(self._path).side_folder.exists()

    def problems(self) -> list[str]:
        return [
            row[0] for check in CHECKS for row in self._connect().execute(STATEMENTS[check].text)
        ]

    def another(self) -> SQLiteDatabase:
        other = SQLiteDatabase(self._path.with_name(f"another{len(self._others)}.db"))
        self._others.append(other)
        return other

    def missing(self) -> str:
        return str(self._path.parent / "missing" / "jobs.db")

    def driver(self, clock: Clock, random_bits: Callable[[int], int]) -> Driver:
        # Unsynced, for speed: what must be durable is told from what the driver is asked for.
        return SQLiteDriver(self._path, clock, random_bits, durable=False)

    def rows(self, table: str, where: str = "true") -> list[dict[str, Any]]:
        cursor = self._connect().execute(f"select * from bullite_{table} where {where} order by 1")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def query(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        return self._connect().execute(query, params).fetchall()

    def write(self, statement: str, *params: Any) -> None:
        self._connect().execute(statement, params)

    @contextmanager
    def locked(self) -> Iterator[None]:
        self._connect().execute("begin immediate")
        try:
            yield
        finally:
            self._connect().execute("rollback")

    def give_up_on_locks(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connections, "BUSY_TIMEOUT", seconds)

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(
                self._path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
        return self._connection

    def checked_states(self) -> set[str]:
        [[schema]] = self.query("select sql from sqlite_master where name = 'bullite_jobs'")
        [allowed] = re.findall(r"state text not null check \((.*?)\),\n", schema, re.DOTALL)
        return set(re.findall(r"'(.*?)'", allowed))

    def leave_corpse(self, nonce: int) -> None:
        # The kernel frees a dead process's lock; its file stays.
        SideFiles(self._path).liveness(nonce).touch()

    def clear_traces(self, nonce: int) -> None:
        SideFiles(self._path).liveness(nonce).unlink(missing_ok=True)

    def close(self) -> None:
        for database in self._others:
            database.close()
        if self._connection is not None:
            self._connection.close()


@cache
def _empty_file() -> bytes:
    """A database with our tables and nothing in them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.db"
        driver = SQLiteDriver(path, SystemClock(), random.getrandbits)
        driver.open()
        driver.close()
        return path.read_bytes()


def _postgres(folder: Path) -> Database:
    # Only who needs it starts a server: not every process that a test starts does.
    from tests.support.postgres_database import PostgresDatabase

    return PostgresDatabase.make(folder)


DATABASES: dict[str, Callable[[Path], Database]] = {
    "sqlite": SQLiteDatabase.make,
    "postgres": _postgres,
}
"""By name, what makes one with nothing in it; a folder is there to be used."""


def database_at(location: str) -> Database:
    """The one that somebody else made there."""
    if "://" in location:
        from tests.support.postgres_database import PostgresDatabase

        return PostgresDatabase.visit(location)
    return SQLiteDatabase(Path(location))
