# mypy: disable-error-code="import-not-found"
# The package is not in our environment, so its names have no types here.
"""pgqueuer: queue managers in one process, on uvloop as its own command line runs them."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import uvloop
from pgqueuer import PgQueuer
from pgqueuer.adapters.connections import connect_asyncpg, connect_psycopg, create_asyncpg_pool
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver, PsycopgDriver
from pgqueuer.errors import RetryRequested
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from .handling import FailedOnPurpose, Handler
from .protocol import main, run_until

ENTRYPOINT = "mail"

DRIVERS = {
    "asyncpg": (connect_asyncpg, AsyncpgDriver),
    "asyncpg pool": (create_asyncpg_pool, AsyncpgPoolDriver),
    "psycopg": (connect_psycopg, PsycopgDriver),
}

COUNT = """
select (select count(*) from pgqueuer where status = 'queued') as waiting,
    (select count(distinct job_id) from pgqueuer_log where status = 'successful') as finished
"""


class Pgqueuer:
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._url = url
        self._connect, self._driver_type = DRIVERS[options.get("driver", "asyncpg")]
        self._concurrency: int | None = options.get("concurrency")
        self._limit: int = options.get("limit", 0)
        self._batch: int = options.get("batch", 10)
        self._managers: int = options.get("managers", 1)
        self._stack = AsyncExitStack()

    async def install(self) -> None:
        await self.open()
        await self._queries.install()
        await self.close()

    async def open(self) -> None:
        """Each manager has a connection of its own; jobs are added with the first."""
        self._drivers = [
            self._driver_type(await self._stack.enter_async_context(self._connect(self._url)))
            for _ in range(self._managers)
        ]
        self._queries = Queries(self._drivers[0])

    async def close(self) -> None:
        await self._stack.aclose()

    async def add(self, data: dict[str, Any]) -> None:
        await self._queries.enqueue(ENTRYPOINT, json.dumps(data).encode())

    async def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        payloads = [json.dumps(data).encode() for data in jobs]
        await self._queries.enqueue([ENTRYPOINT] * len(jobs), payloads, [0] * len(jobs))

    async def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        await self.add_bulk(jobs)  # it is the handler that asks to be called again

    async def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        later = timedelta(milliseconds=milliseconds)
        await self._queries.enqueue(ENTRYPOINT, json.dumps(data).encode(), execute_after=later)

    async def work(self, handle: Handler, stop: asyncio.Event) -> None:
        async def mail(job: Job) -> None:
            try:
                handle(job.payload, job.attempts + 1)
            except FailedOnPurpose:
                raise RetryRequested from None

        managers = [PgQueuer(driver) for driver in self._drivers]
        for manager in managers:
            manager.entrypoint(ENTRYPOINT, concurrency_limit=self._limit)(mail)
        runs = (
            manager.run(batch_size=self._batch, max_concurrent_tasks=self._concurrency)
            for manager in managers
        )
        running = asyncio.gather(*runs)
        await run_until(stop, running)
        for manager in managers:
            manager.shutdown.set()
        await running

    async def count(self) -> dict[str, int | None]:
        (row,) = await self._drivers[0].fetch(COUNT)
        return {"waiting": row["waiting"], "finished": row["finished"]}


if __name__ == "__main__":
    main(Pgqueuer, uvloop.run)
