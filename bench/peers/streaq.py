# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# The package is not in our environment, so its names have no types here.
"""streaQ on Redis: one worker on uvloop, results kept for five minutes (its default)."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack
from typing import Any

import uvloop
from streaq import StreaqRetry, Worker

from .handling import FailedOnPurpose, Handler
from .protocol import main, run_until
from .settling import Settling

NAME = "mail"


class Streaq:
    def __init__(self, place: str, options: dict[str, Any]) -> None:
        self._place = place
        self._concurrency: int = options.get("concurrency", 16)
        self._prefetch: int | None = options.get("prefetch")
        self._threads: bool = options.get("threads", False)
        self._stack = AsyncExitStack()

    async def install(self) -> None:
        """Redis has no tables."""

    async def open(self) -> None:
        self._queue = Worker(redis_url=self._place)

        @self._queue.task(name=NAME)
        async def mail(**data: Any) -> None: ...

        self._mail = mail
        await self._stack.enter_async_context(self._queue)

    async def close(self) -> None:
        await self._stack.aclose()

    async def add(self, data: dict[str, Any]) -> None:
        await self._mail.enqueue(**data)

    async def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        await self._queue.enqueue_many([self._mail.enqueue(**data) for data in jobs])

    async def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        await self._mail.enqueue(**data).start(delay=milliseconds / 1e3)

    async def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        await self.add_bulk(jobs)  # how often a job is tried is said by its handler

    async def work(self, handle: Handler, stop: asyncio.Event) -> None:
        self._settling = Settling()
        worker = _Worker(
            self._settling,
            redis_url=self._place,
            concurrency=self._concurrency,
            prefetch=self._prefetch,
            grace_period=5,
        )

        def call(data: dict[str, Any]) -> None:
            try:
                handle(data, task.context.tries)
            except FailedOnPurpose:
                raise StreaqRetry(delay=0) from None  # its only way to try again

        async def coroutine(**data: Any) -> None:
            call(data)

        def function(**data: Any) -> None:
            call(data)

        # Silent: otherwise it makes two lines of text for each job, which nobody reads.
        task = worker.task(name=NAME, silent=True)(function if self._threads else coroutine)
        running = asyncio.create_task(worker.run_async())
        await run_until(stop, running)
        signal.raise_signal(signal.SIGTERM)  # how it is told to end, in one process too
        await running

    def extra(self) -> dict[str, Any]:
        return self._settling.report()

    async def count(self) -> dict[str, int | None]:
        return {"waiting": await self._queue.queue_size(), "finished": None}


class _Worker(Worker):
    """Tells when a task has been finished in Redis; its own hooks end before that."""

    def __init__(self, settling: Settling, **options: Any) -> None:
        super().__init__(**options)
        self._settling = settling

    async def finish_task(self, *arguments: Any, **more: Any) -> None:
        await super().finish_task(*arguments, **more)
        self._settling.settled()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(Streaq, uvloop.run)
