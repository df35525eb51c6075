# mypy: disable-error-code="import-not-found"
# The package is not in our environment, so its names have no types here.
"""BullMQ's Python port on its PostgreSQL backend: one worker, jobs kept when they are done."""

from __future__ import annotations

import asyncio
from typing import Any

from bullmq import Queue, Worker

from .handling import Handler
from .protocol import main, run_until

QUEUE = "bench"
NAME = "mail"

TWICE = {"attempts": 2}
"""Without a back-off, a failed job runs again at once."""


class Bullmq:
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._options = {"backend": "postgres", "connection": url}
        self._worker_options = {
            **self._options,
            "autorun": False,
            "concurrency": options.get("concurrency", 1),
            "drainDelay": options.get("drain_delay", 5),
        }

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

    async def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        await self._queue.add(NAME, data, {"delay": milliseconds})

    async def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        await self._queue.addBulk([{"name": NAME, "data": data, "opts": TWICE} for data in jobs])

    async def work(self, handle: Handler, stop: asyncio.Event) -> None:
        async def process(job: Any, token: str) -> None:
            handle(job.data, job.attemptsMade + 1)

        worker = Worker(QUEUE, process, self._worker_options)
        running = asyncio.create_task(worker.run())
        await run_until(stop, running)
        await worker.close()

    async def count(self) -> dict[str, int | None]:
        found = await self._queue.getJobCounts("waiting", "delayed", "completed")
        return {"waiting": found["waiting"] + found["delayed"], "finished": found["completed"]}


if __name__ == "__main__":
    main(Bullmq)
