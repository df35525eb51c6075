# mypy: disable-error-code="import-not-found"
# The package is not in our environment, so its names have no types here.
"""SAQ on Redis: one worker on uvloop, jobs and their results kept for ten minutes (its default)."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import uvloop
from saq import Job, Queue, Worker

from .handling import Handler
from .protocol import main, run_until
from .settling import Settling

FUNCTION = "mail"
TOGETHER = 20
"""Jobs under way at once when many are added: as many connections as its queue uses."""


class Saq:
    def __init__(self, place: str, options: dict[str, Any]) -> None:
        self._place = place
        self._concurrency: int = options.get("concurrency", 10)
        self._threads: bool = options.get("threads", False)

    async def install(self) -> None:
        """Redis has no tables."""

    async def open(self) -> None:
        self._queue = Queue.from_url(self._place, max_concurrent_ops=TOGETHER)
        await self._queue.connect()

    async def close(self) -> None:
        await self._queue.disconnect()

    async def add(self, data: dict[str, Any]) -> None:
        await self._queue.enqueue(FUNCTION, **data)

    async def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        await self._add_together([Job(FUNCTION, kwargs=data) for data in jobs])

    async def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        # It takes whole seconds; a job is not due before the second it names.
        await self._queue.enqueue(FUNCTION, scheduled=int(time.time() + milliseconds / 1e3), **data)

    async def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        await self._add_together([Job(FUNCTION, kwargs=data, retries=2) for data in jobs])

    async def work(self, handle: Handler, stop: asyncio.Event) -> None:
        async def coroutine(context: Any, **data: Any) -> None:
            handle(data, context["job"].attempts)

        def function(context: Any, **data: Any) -> None:
            handle(data, context["job"].attempts)

        settling = self._settling = Settling()

        async def settled(context: Any) -> None:
            settling.settled()

        worker = Worker(
            self._queue,
            [(FUNCTION, function if self._threads else coroutine)],
            concurrency=self._concurrency,
            after_process=settled,
            dequeue_timeout=1,  # so that it can end without dropping what it is about to take
            shutdown_grace_period_s=5,
        )
        running = asyncio.create_task(worker.start())
        await run_until(stop, running)
        await worker.stop()
        await running

    def extra(self) -> dict[str, Any]:
        return self._settling.report()

    async def count(self) -> dict[str, int | None]:
        return {"waiting": await self._queue.count("incomplete"), "finished": None}

    async def _add_together(self, jobs: list[Job]) -> None:
        """It has no call for many: several callers are its way to be quick."""
        left = iter(jobs)

        async def caller() -> None:
            for job in left:
                await self._queue.enqueue(job)

        await asyncio.gather(*(caller() for _ in range(TOGETHER)))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # each attempt that fails on purpose is logged as an error
    main(Saq, uvloop.run)
