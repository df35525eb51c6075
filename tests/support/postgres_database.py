"""A PostgreSQL database for a test: a schema of its own on the server that this process started.

`BULLITE_TEST_PG` names another server instead: the URL of a database in which schemas may be made.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg

from bullite.client.verify import CHECKS
from bullite.core.clock import Clock
from bullite.database.driver import Driver
from bullite.database.locations import parse_location
from bullite.database.postgres import connections
from bullite.database.postgres.driver import PostgresDriver
from bullite.database.postgres.location import ServerLocation
from bullite.database.postgres.statements import Prepared, statements
from tests.support.databases import PATIENCE
from tests.support.server import Server

if TYPE_CHECKING:
    import pytest


class StillDriver(PostgresDriver):
    """Its leases are renewed when a test says so, not behind its back while it moves the clock."""

    def renewal(self) -> tuple[Prepared, dict[str, int]]:
        statement, values = super().renewal()
        return statement, {**values, "nonce": 0}


_TABLES = (
    *("queues", "counts", "jobs", "payloads", "results", "attempts", "logs"),
    *("workers", "worker_names", "events", "processes"),
    *("links", "deduplication", "schedulers", "steps", "signals", "locks", "limits"),
    *("tags", "minutes", "runs", "output", "kept"),
)
_NUMBERS = ("numbers", "queues_id_seq", "workers_id_seq", "events_id_seq", "schedulers_id_seq")


@cache
def server_url() -> str:
    """Return the URL of the server of this process. The first call starts it."""
    return os.environ.get("BULLITE_TEST_PG") or Server().url()


class PostgresDatabase:
    libraries = frozenset({"psycopg"})
    tables = (
        *("queues", "counts", "jobs", "payloads", "results"),
        *("attempts", "logs", "events", "deduplication", "tags"),
    )
    recovery_time = 4_000
    short_lease: Mapping[str, Any] = {"lock_duration": 1_000, "stalled_interval": 250}

    _free: ClassVar[list[str]] = []
    """Schemas that were used, and hold nothing any more."""
    _made = 0

    def __init__(self, location: str) -> None:
        self.location = location
        self._schema = dict(parse_qsl(urlsplit(location).query))["schema"]
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._others: list[PostgresDatabase] = []
        self._is_altered = self._is_visited = False

    @classmethod
    def make(cls, folder: Path) -> PostgresDatabase:
        cls._made += 1
        schema = f"test_{os.getpid()}_{cls._made}"
        if cls._free:
            # Never under the same name: what an earlier test left open must not be shared.
            _administer(f"alter schema {cls._free.pop()} rename to {schema}")
        return cls.in_schema(schema)

    @classmethod
    def visit(cls, location: str) -> PostgresDatabase:
        """One that somebody else made: closing it takes nothing away."""
        visited = cls(location)
        visited._is_visited = True
        return visited

    @classmethod
    def in_schema(cls, schema: str, **options: str) -> PostgresDatabase:
        # By the name of the application all that a test left open is found.
        query = {"schema": schema, "application_name": schema, **options}
        return cls(with_options(server_url(), **query))

    def exists(self) -> bool:
        # In a schema that was used before, everybody who opens the store takes ids of events.
        taken = f"pg_sequence_last_value(to_regclass('{self._schema}.bullite_events_id_seq'))"
        return _administer(f"select {taken}")[0][0] is not None

    def problems(self) -> list[str]:
        # All in one message, on a connection that knows the tables since an earlier test.
        known = statements(self._schema)
        return [row[0] for row in _administer("; ".join(known[c].text.decode() for c in CHECKS))]

    def _has_tables(self) -> bool:
        return bool(_administer(f"select to_regclass('{self._schema}.bullite_meta')")[0][0])

    def another(self) -> PostgresDatabase:
        other = self.make(Path())
        self._others.append(other)
        return other

    def missing(self) -> str:
        parts = urlsplit(self.location)
        return parts._replace(path="/missing").geturl()

    def driver(self, clock: Clock, random_bits: Callable[[int], int]) -> Driver:
        location = parse_location(self.location)
        assert isinstance(location, ServerLocation)
        return StillDriver(location, clock, random_bits)

    def rows(self, table: str, where: str = "true") -> list[dict[str, Any]]:
        query = f"select * from bullite_{table} where {where} order by 1"
        cursor = self._connect().execute(query.encode())
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def query(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        return self._connect().execute(_numbered(query), params).fetchall()

    def write(self, statement: str, *params: Any) -> None:
        self._is_altered |= statement.split()[0].lower() not in ("insert", "update", "delete")
        self._connect().execute(_numbered(statement), params)

    @contextmanager
    def locked(self) -> Iterator[None]:
        tables = ", ".join(f"bullite_{table}" for table in _TABLES)
        with psycopg.connect(self.location_of_libpq()) as connection:
            connection.execute(f"lock table {tables} in share mode".encode())
            yield
            connection.rollback()

    def give_up_on_locks(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(connections.SESSION, "lock_timeout", int(seconds * 1000))

    def location_of_libpq(self) -> str:
        """The same place for somebody who knows nothing of Bullite."""
        parts = urlsplit(self.location)
        query = dict(parse_qsl(parts.query))
        for ours in ("schema", "durability", "pooler", "listen"):
            query.pop(ours, None)
        plain = parts._replace(query=urlencode(query, quote_via=quote)).geturl()
        options = f"-c search_path={self._schema}"
        return with_options(plain, options=options, application_name="a test")

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = psycopg.connect(self.location_of_libpq(), autocommit=True)
        return self._connection

    def checked_states(self) -> set[str]:
        [[allowed]] = self.query(
            "select pg_get_constraintdef(oid) from pg_constraint "
            "where conrelid = 'bullite_jobs'::regclass and contype = 'c'"
        )
        return set(re.findall(r"'(.*?)'", allowed))

    def leave_corpse(self, nonce: int) -> None:
        # The nearest to certainty: it is not among those that are heard of.
        self.write(f"delete from bullite_processes where nonce = {nonce}")

    def clear_traces(self, nonce: int) -> None:
        self.write(f"insert into bullite_processes values ({nonce}, 0, {2**53})")

    def close(self) -> None:
        for database in self._others:
            database.close()
        if not self._is_visited and self._has_tables():
            self._wipe()
            if self._is_altered:
                _administer(f"drop schema {self._schema} cascade")
            else:
                self._free.append(self._schema)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _wipe(self) -> None:
        self._end_sessions()
        deletes = [f"delete from {self._schema}.bullite_{table}" for table in _TABLES]
        restarts = [f"select setval('{self._schema}.bullite_{n}', 1, false)" for n in _NUMBERS]
        _administer("; ".join(deletes + restarts))

    def _end_sessions(self) -> None:
        # The server itself would look again only after 100 ms whether one has ended.
        ends = time.monotonic() + PATIENCE
        ending = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = "
        while _administer(f"{ending}'{self._schema}'"):
            assert time.monotonic() < ends, "a session of a test does not end"
            time.sleep(0.001)


_administrator: list[psycopg.Connection[tuple[Any, ...]]] = []


def _administer(statements: str) -> list[tuple[Any, ...]]:
    """What the statements answer, on a connection that outlives the tests."""
    for last in (False, True):
        if not _administrator:
            _administrator.append(psycopg.connect(server_url(), autocommit=True))
        try:
            cursor = _administrator[0].execute(statements.encode())
            answers = [result.fetchall() for result in cursor.results() if result.description]
            return list(chain.from_iterable(answers))
        except psycopg.OperationalError:  # a test restarted the server, or ended all sessions
            _administrator.pop().close()
            if last:
                raise
    raise AssertionError("unreachable")


def with_options(url: str, **options: str) -> str:
    """A URL with more options."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query)) | options
    return parts._replace(query=urlencode(query, quote_via=quote)).geturl()


def _numbered(query: str) -> bytes:
    return query.replace("?", "%s").encode()
