"""A database under soak, as somebody sees it who knows only its tables."""

from __future__ import annotations

import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from bullite import Store, verify

_ACTIVITY = """
select name,
    (select count(*) from bullite_jobs where queue = bullite_queues.id and state = 'waiting'),
    (select max(finished_at) from bullite_jobs
        where queue = bullite_queues.id and state = 'completed'),
    (select max(finished_at) from bullite_jobs
        where queue = bullite_queues.id and state = 'failed')
from bullite_queues
"""

UNFINISHED = ("waiting", "delayed", "active", "waiting-children")


class Soaked(Protocol):
    """One of the databases under soak."""

    name: str
    location: str

    def query(self, query: str) -> list[tuple[Any, ...]]: ...

    def tables(self) -> list[str]: ...

    def data_bytes(self) -> int:
        """The size of the database."""

    def log_bytes(self) -> int:
        """The size of the write-ahead log."""

    def server(self) -> int | None:
        """The process of the server; None if there is none."""

    def deadlocks(self) -> int:
        """How many the server has ended."""

    def errors(self) -> Counter[str]:
        """Errors in the log of the server, without their numbers."""

    def close(self) -> None: ...


class SoakedFile:
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._path = folder / "jobs.db"
        self.location = str(self._path)
        self._connection: sqlite3.Connection | None = None

    def query(self, query: str) -> list[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        return self._connection.execute(query).fetchall()

    def tables(self) -> list[str]:
        found = self.query("select name from sqlite_master where type = 'table'")
        return sorted(name for (name,) in found if name.startswith("bullite_"))

    def data_bytes(self) -> int:
        return self._path.stat().st_size

    def log_bytes(self) -> int:
        log = self._path.with_name(self._path.name + "-wal")
        return log.stat().st_size if log.exists() else 0

    def server(self) -> int | None:
        return None

    def deadlocks(self) -> int:
        return 0

    def errors(self) -> Counter[str]:
        return Counter()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class SoakedServer:
    name = "postgres"

    def __init__(self) -> None:
        import psycopg  # a soak of SQLite alone needs none

        from tests.support.server import Server

        self._server = Server({"log_min_messages": "error"})
        self.location = self._server.url()
        self._connection = psycopg.connect(
            self.location, autocommit=True, options="-c search_path=bullite"
        )

    def query(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query.encode()).fetchall()

    def tables(self) -> list[str]:
        found = self.query("select tablename from pg_tables where schemaname = 'bullite'")
        return sorted(name for (name,) in found)

    def data_bytes(self) -> int:
        return int(self.query("select pg_database_size(current_database())")[0][0])

    def log_bytes(self) -> int:
        return int(self.query("select sum(size) from pg_ls_waldir()")[0][0])

    def server(self) -> int | None:
        return self._server.pid

    def deadlocks(self) -> int:
        found = self.query("select deadlocks from pg_stat_database where datname = 'postgres'")
        return int(found[0][0])

    def errors(self) -> Counter[str]:
        lines = self._server.log().splitlines()
        return grouped(line.partition("ERROR:")[2] for line in lines if "ERROR:" in line)

    def close(self) -> None:
        self._connection.close()
        self._server.destroy()


def made(name: str, folder: Path) -> Soaked:
    return SoakedFile(folder) if name == "sqlite" else SoakedServer()


def grouped(messages: Iterable[str]) -> Counter[str]:
    """Messages that differ in numbers only, counted together."""
    return Counter(re.sub(r"\d+", "N", message.strip())[:160] for message in messages)


# --- what both are asked -------------------------------------------------------------------------


def activity(soaked: Soaked) -> list[tuple[str, int, float]]:
    """By queue: its name, how many jobs wait, and seconds since a job of it was finished."""
    now = time.time()
    return [
        (name, waiting, now - max(completed or 0, failed or 0) / 1000)
        for name, waiting, completed, failed in soaked.query(_ACTIVITY)
    ]


def rows(soaked: Soaked) -> dict[str, int]:
    """How many rows each table holds."""
    return {table: soaked.query(f"select count(*) from {table}")[0][0] for table in soaked.tables()}


def unfinished(soaked: Soaked) -> dict[str, str]:
    """The jobs that have not ended, with their states."""
    states = ", ".join(f"'{state}'" for state in UNFINISHED)
    found = soaked.query(f"select id, state from bullite_jobs where state in ({states})")
    return {str(job): state for job, state in found}


def problems(soaked: Soaked) -> list[str]:
    """What `bullite.verify` finds."""
    store = Store(soaked.location)
    try:
        return list(verify(store).problems)
    finally:
        store.close()
