"""Drives the package as a user would, and tells how long things took."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from bullite import Job, Queue, Worker

from .workload import JOB_NAME, bulk, payloads

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
        self._count = itertools.count(1)  # one step is atomic, also among threads

    def as_coroutine(self) -> Callable[[Job], Any]:
        count, enough, reached = self._count, self._enough, self.reached

        async def no_op(job: Job) -> None:
            if next(count) == enough:
                reached.set()

        return no_op

    def as_function(self) -> Callable[[Job], Any]:
        count, enough, reached = self._count, self._enough, self.reached
        loop = asyncio.get_running_loop()

        def no_op(job: Job) -> None:
            if next(count) == enough:
                loop.call_soon_threadsafe(reached.set)

        return no_op

    def total(self) -> int:
        """How many were handled; ask once, at the end."""
        return next(self._count) - 1


async def seconds_to_process(
    queue: Queue, count: int, concurrency: int, *, in_threads: bool = False, only: str | None = None
) -> float:
    """Seconds per job, from the start of a worker until all its jobs are completed on the disk.

    With more than `count` jobs in the line a few more may be done; they are counted.
    """
    tally = Tally(count)
    handler = tally.as_function() if in_threads else tally.as_coroutine()
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


async def seconds_to_add_bulk(queue: Queue, count: int, size: int) -> float:
    """Seconds per job, adding lists of `size`."""
    jobs: Any = bulk(size)
    before = (await queue.get_job_counts())["waiting"]
    gc.collect()
    begin = time.perf_counter()
    for _ in range(0, count, size):
        await queue.add_bulk(jobs)
    took = time.perf_counter() - begin
    _check("waiting", before + count, await queue.get_job_counts())
    return took / count


async def seconds_to_add(queue: Queue, count: int, callers: int) -> float:
    """Seconds per job, with so many callers that each await one `add` after the other."""
    share = payloads(count // callers)

    async def caller() -> None:
        for data in share:
            await queue.add(JOB_NAME, data)

    before = (await queue.get_job_counts())["waiting"]
    gc.collect()
    begin = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    took = time.perf_counter() - begin
    _check("waiting", before + count, await queue.get_job_counts())
    return took / count


def _check(state: str, expected: int, counts: Mapping[str, int]) -> None:
    """A figure for work that was not done is worse than none."""
    if counts[state] != expected:
        raise RuntimeError(f"{counts[state]} jobs are {state}, not {expected}")
