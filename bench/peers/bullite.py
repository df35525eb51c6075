"""Our own package, driven as a user would: what the contestants that are ours share."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from bullite import Job, Queue, Worker

from ..workload import JOB_NAME
from .handling import Handler

BURST = 100
"""The concurrency of a worker that was told none."""


class Bullite:
    """A queue at a path or a URL."""

    def __init__(self, place: str, options: dict[str, Any]) -> None:
        self._options = options
        self._place = place
        self._worst_wait = 0.0
        logging.getLogger("bullite").setLevel(logging.ERROR)  # slow commits are what we measure
        if not options.get("prefetch", True):
            _fetch_nothing_ahead()
        if options.get("watch_the_gate"):
            self._watch_the_gate()

    async def install(self) -> None:
        await self.open()
        await self.close()

    async def open(self) -> None:
        self._queue = Queue("bench", self._place)
        await self._queue.wait_until_ready()

    async def close(self) -> None:
        await self._queue.close()

    async def add(self, data: dict[str, Any]) -> None:
        await self._queue.add(JOB_NAME, data)

    async def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        await self._queue.add_bulk([{"name": JOB_NAME, "data": data} for data in jobs])

    async def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        await self._queue.add(JOB_NAME, data, delay=milliseconds)

    async def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        twice: Any = {"attempts": 2}
        await self._queue.add_bulk(
            [{"name": JOB_NAME, "data": data, "opts": twice} for data in jobs]
        )

    async def work(self, handle: Handler, stop: asyncio.Event) -> None:
        make = _function if self._options.get("threads") else _coroutine
        concurrency = self._options.get("concurrency", BURST)
        worker = Worker(self._queue, make(handle), concurrency=concurrency)
        await stop.wait()
        await worker.close()

    async def count(self) -> dict[str, int | None]:
        counts = await self._queue.get_job_counts()
        return {"waiting": counts["waiting"], "finished": counts["completed"]}

    def extra(self) -> dict[str, Any]:
        watched = self._options.get("watch_the_gate")
        return {"worst_wait_ms": self._worst_wait * 1e3} if watched else {}

    def _watch_the_gate(self) -> None:
        """Note the longest that this process waited until it could write to the file."""
        from bullite.database.sqlite.write_lock import FairWriteLock

        enter = FairWriteLock.enter

        def watched(gate: FairWriteLock, timeout: float) -> bool:
            begin = time.perf_counter()
            entered = enter(gate, timeout)
            self._worst_wait = max(self._worst_wait, time.perf_counter() - begin)
            return entered

        FairWriteLock.enter = watched  # type: ignore[method-assign, assignment]


def _coroutine(handle: Handler) -> Any:
    """A payload is decoded when it is looked at, so a handler that only counts does not look."""
    counted = handle.counted

    async def no_op(job: Job) -> None:
        counted()

    async def call(job: Job) -> None:
        handle(job.data, job.attempts_made + 1)

    return no_op if handle.is_plain else call


def _function(handle: Handler) -> Any:
    counted = handle.counted

    def no_op(job: Job) -> None:
        counted()

    def call(job: Job) -> None:
        handle(job.data, job.attempts_made + 1)

    return no_op if handle.is_plain else call


def _fetch_nothing_ahead() -> None:
    """There is no option for it: what is fetched ahead is a matter of how long jobs take."""
    from bullite.worker import prefetch

    prefetch.PREFETCH_MAX = 0
