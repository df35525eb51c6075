# mypy: disable-error-code="import-not-found, untyped-decorator"
# The package is not in our environment, so its names have no types here.
"""procrastinate: one worker, a pool of connections, jobs kept when they are done (its default)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import procrastinate

from .protocol import main, run_until

QUEUE = "bench"


class Procrastinate:
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._concurrency: int = options.get("concurrency", 1)
        # One for each running job, one to fetch with.
        size = self._concurrency + 1
        self._app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(
                conninfo=url, min_size=size, max_size=size, configure=_commit_each_statement
            )
        )
        self._handle: Callable[[Any], None] = lambda data: None

        @self._app.task(name="mail", queue=QUEUE)
        async def mail(**data: Any) -> None:
            self._handle(data)

        self._mail = mail

    async def install(self) -> None:
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self._app.open_async()

    async def close(self) -> None:
        await self._app.close_async()

    async def add(self, data: dict[str, Any]) -> None:
        await self._mail.defer_async(**data)

    async def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        await self._mail.batch_defer_async(*jobs)

    async def work(self, handle: Callable[[Any], None], stop: asyncio.Event) -> None:
        self._handle = handle
        worker = asyncio.create_task(
            self._app.run_worker_async(
                queues=[QUEUE], concurrency=self._concurrency, install_signal_handlers=False
            )
        )
        await run_until(stop, worker)
        worker.cancel()  # as its documentation says: jobs that run are waited for
        await asyncio.gather(worker, return_exceptions=True)


async def _commit_each_statement(connection: Any) -> None:
    """Each of its queries is one statement: this saves a round trip before and one after it."""
    await connection.set_autocommit(True)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main(Procrastinate)
