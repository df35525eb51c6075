# mypy: disable-error-code="import-not-found"
# The package is not in our environment, so its names have no types here.
"""BullMQ's Python port on its PostgreSQL backend: one worker, jobs kept when they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bullmq import Queue, Worker

from .protocol import main, run_until

QUEUE = "bench"
NAME = "mail"


class Bullmq:
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._options = {"backend": "postgres", "connection": url}
        self._concurrency: int = options.get("concurrency", 1)

    async def install(self) -> None:
        await self.open()
        await self._queue.getJobCounts("waiting")  # the first query makes the tables
        await self.close()

    async def open(self) -> None:
        self._queue = Queue(QUEUE, self._options)

    async def close(self) -> None:
        await self._queue.close()

    async def add(self, data: dict[str, Any]) -> None:
        await self._queue.add(NAME, data)

    async def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        await self._queue.addBulk([{"name": NAME, "data": data} for data in jobs])

    async def work(self, handle: Callable[[Any], None], stop: asyncio.Event) -> None:
        async def process(job: Any, token: str) -> None:
            handle(job.data)

        options = {**self._options, "concurrency": self._concurrency, "autorun": False}
        worker = Worker(QUEUE, process, options)
        running = asyncio.create_task(worker.run())
        await run_until(stop, running)
        await worker.close()


if __name__ == "__main__":
    main(Bullmq)
