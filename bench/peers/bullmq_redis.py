# mypy: disable-error-code="import-not-found"
# The package is not in our environment, so its names have no types here.
"""BullMQ's Python port on Redis: one worker, jobs kept when they are done (its default)."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from bullmq import Queue, Worker

from .handling import Handler
from .protocol import main, run_until
from .settling import Settling

QUEUE = "bench"
NAME = "mail"


class Bullmq:
    def __init__(self, place: str, options: dict[str, Any]) -> None:
        self._place = place
        self._concurrency: int = options.get("concurrency", 1)

    async def install(self) -> None:
        """Redis has no tables."""

    async def open(self) -> None:
        self._queue = Queue(QUEUE, {"connection": self._place})

    async def close(self) -> None:
        await self._queue.close()

    async def add(self, data: dict[str, Any]) -> None:
        await self._queue.add(NAME, data)

    async def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        await self._queue.addBulk([{"name": NAME, "data": data} for data in jobs])

    async def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        await self._queue.add(NAME, data, {"delay": milliseconds})

    async def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        twice = {"attempts": 2}
        await self._queue.addBulk([{"name": NAME, "data": data, "opts": twice} for data in jobs])

    async def work(self, handle: Handler, stop: asyncio.Event) -> None:
        async def process(job: Any, token: str) -> None:
            handle(job.data, job.attemptsMade + 1)

        self._settling = Settling()
        worker = Worker(
            QUEUE,
            process,
            {"connection": self._place, "concurrency": self._concurrency, "autorun": False},
        )
        worker.on("completed", self._settling.settled)
        worker.on("failed", self._settling.settled)
        running = asyncio.create_task(worker.run())
        await run_until(stop, running)
        await worker.close()
        await running

    def extra(self) -> dict[str, Any]:
        return self._settling.report()

    async def count(self) -> dict[str, int | None]:
        found = await self._queue.getJobCounts("wait", "active", "delayed", "completed")
        finished = found.pop("completed")
        return {"waiting": sum(found.values()), "finished": finished}


if __name__ == "__main__":
    main(Bullmq, uvloop.run)
