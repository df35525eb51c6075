"""The PostgreSQL server that everybody is measured on: a fresh database for each measurement."""

from __future__ import annotations

import itertools
from typing import Self

from psycopg import sql

from tests.support.server import Server

_SETTINGS = {
    # Every commit is synced: those are the server's defaults, and this is said, not left to them.
    "fsync": "on",
    "synchronous_commit": "on",
    # What the server does by the clock would fall into anybody's timing.
    "checkpoint_timeout": "30min",
    "max_wal_size": "8GB",
    "autovacuum": "off",
}


class Ground:
    """One server, reached over its Unix socket."""

    def __init__(self) -> None:
        self._server = Server(_SETTINGS)
        self._numbers = itertools.count(1)
        self._used: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.destroy()

    @property
    def version(self) -> str:
        with self._server.connect() as connection:
            return str(connection.info.parameter_status("server_version"))

    def url(self, database: str) -> str:
        return self._server.url(database)

    def make(self, name: str) -> str:
        """An empty database that stays."""
        return self._create(name, "template1")

    def fresh(self, template: str = "template1") -> str:
        """A database for one measurement, like `template`."""
        name = self._create(f"bench_{next(self._numbers)}", template)
        self._used.append(name)
        return name

    def sweep(self) -> None:
        """Drop what was used. That makes a checkpoint: call it where nobody is measured."""
        with self._server.connect() as connection:
            for name in self._used:
                drop = sql.SQL("drop database {} with (force)")
                connection.execute(drop.format(sql.Identifier(name)))
        self._used.clear()

    def analyze(self, database: str) -> None:
        """What autovacuum would have done to a table that lives longer than ours do."""
        with self._server.connect(database) as connection:
            connection.execute("analyze")

    def count(self, database: str, query: str) -> int:
        with self._server.connect(database) as connection:
            row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return int(str(row[0]))

    def _create(self, name: str, template: str) -> str:
        with self._server.connect() as connection:
            create = sql.SQL("create database {} template {}")
            connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        return name
