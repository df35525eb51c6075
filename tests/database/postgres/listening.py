"""Workers that only a NOTIFY can wake, and a look at how soon it does."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bullite import Job, Queue, Worker
from tests.database.postgres.proxy import kind_of
from tests.support.helpers import until
from tests.support.postgres_database import PostgresDatabase

NEVER = 60_000
"""Ms between two looks of a worker that nobody wakes."""

SOON = 1.0
"""Seconds in which a worker begins that was woken."""


class Starts:
    """A processor that tells when jobs began."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}

    async def __call__(self, job: Job) -> None:
        self.at[job.pk] = time.monotonic()

    async def of(self, job: Job, limit: float = 10.0) -> float:
        """When a job began."""
        await until(lambda: job.pk in self.at, limit)
        return self.at[job.pk]


def sleeper(location: str, starts: Starts, **options: Any) -> Worker:
    """A worker that finds out about new jobs only by being woken."""
    habits = dict.fromkeys(("poll_interval", "maintenance_interval", "stalled_interval"), NEVER)
    return Worker("work", starts, store=location, **habits, **options)


async def seconds_to_start(queue: Queue, starts: Starts) -> float:
    """From the beginning of an add until the job begins."""
    began = time.monotonic()
    return await starts.of(await queue.add("a")) - began


async def becomes_idle(database: PostgresDatabase, workers: int = 1) -> None:
    """Wait until workers have said that they have nothing to do, and listen."""
    await until(lambda: len(database.rows("workers", "hungry = 1")) >= workers)
    await until(lambda: len(backends(database, "listener")) >= workers)


def backends(database: PostgresDatabase, kind: str) -> list[int]:
    """The server's processes behind our connections of a kind."""
    [(schema,)] = database.query("select current_schema()")
    rows = database.query(
        "select pid, query from pg_stat_activity where application_name = ?", schema
    )
    return [pid for pid, query in rows if kind_of(query) == kind]


async def terminate(database: PostgresDatabase, pid: int) -> None:
    database.query("select pg_terminate_backend(?)", pid)
    gone = "select 1 from pg_stat_activity where pid = ?"
    await until(lambda: not database.query(gone, pid))
    await asyncio.sleep(0)
