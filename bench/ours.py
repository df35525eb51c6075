"""Drives the package as a user would, and tells how long things took."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from bullite import Job, Queue, Worker

from .workload import JOB_NAME, bulk

PRELOAD = 1_000
"""Jobs per `add_bulk` when a queue is filled."""


async def fill(queue: Queue, count: int, name: str = JOB_NAME) -> None:
    """Put `count` jobs into the line, outside of any timing."""
    for start in range(0, count, PRELOAD):
        await queue.add_bulk(bulk(min(PRELOAD, count - start), name))  # type: ignore[arg-type]


class Tally:
    """No-op handlers that count, and an event that tells when there were enough."""

    def __init__(self, enough: int) -> None:
        self.reached = asyncio.Event()
        self._enough = enough
        self._count = itertools.count(1)

    def as_coroutine(self) -> Callable[[Job], Any]:
        count, enough, reached = self._count, self._enough, self.reached

        async def no_op(job: Job) -> None:
            if next(count) == enough:
                reached.set()

        return no_op

    def total(self) -> int:
        """How many were handled; ask once, at the end."""
        return next(self._count) - 1


async def seconds_to_process(
    queue: Queue, count: int, concurrency: int, *, only: str | None = None
) -> float:
    """Seconds per job, from the start of a worker until all its jobs are completed on the disk.

    With more than `count` jobs in the line a few more may be done; they are counted.
    """
    tally = Tally(count)
    handler = tally.as_coroutine()
    processor: Any = handler if only is None else {only: handler}
    before = (await queue.get_job_counts())["completed"]
    gc.collect()
    begin = time.perf_counter()
    worker = Worker(queue, processor, concurrency=concurrency)
    await tally.reached.wait()
    await worker.close()
    took = time.perf_counter() - begin
    handled = tally.total()
    _check("completed", before + handled, await queue.get_job_counts())
    return took / handled


def _check(state: str, expected: int, counts: Mapping[str, int]) -> None:
    """A figure for work that was not done is worse than none."""
    if counts[state] != expected:
        raise RuntimeError(f"{counts[state]} jobs are {state}, not {expected}")
