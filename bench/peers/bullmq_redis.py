# mypy: disable-error-code="import-not-found"
# The package is not in our environment, so its names have no types here.
"""BullMQ's Python port on Redis: one worker, jobs kept when they are done (its default)."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from bullmq import Worker

from .bullmq_port import QUEUE, Port
from .handling import Handler
from .protocol import main, run_until
from .settling import Settling


class Bullmq(Port):
    def __init__(self, place: str, options: dict[str, Any]) -> None:
        super().__init__({"connection": place}, options)

    async def install(self) -> None:
        """Redis has no tables."""

    async def work(self, handle: Handler, stop: asyncio.Event) -> None:
        async def process(job: Any, token: str) -> None:
            handle(job.data, job.attemptsMade + 1)

        self._settling = Settling()
        worker = Worker(QUEUE, process, self._worker_options)
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
