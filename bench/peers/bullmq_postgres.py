# mypy: disable-error-code="import-not-found"
# The package is not in our environment, so its names have no types here.
"""BullMQ's Python port on its PostgreSQL backend: one worker, jobs kept when they are done."""

from __future__ import annotations

import asyncio
from typing import Any

from bullmq import Worker

from .bullmq_port import QUEUE, Port
from .handling import Handler
from .protocol import main, run_until


class Bullmq(Port):
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        super().__init__({"backend": "postgres", "connection": url}, options)
        self._worker_options["drainDelay"] = options.get("drain_delay", 5)

    async def install(self) -> None:
        await self.open()
        await self._queue.getJobCounts("waiting")  # the first query makes the tables
        await self.close()

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
