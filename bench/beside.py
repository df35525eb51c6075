"""Processing while pure Python keeps the interpreter busy in four threads of the same process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from bullite import Job, Queue, Worker

from . import ours
from .bare import Bare
from .figures import Line, Section
from .places import folder
from .rounds import Size, in_turn, rounds, seconds_for
from .workload import payloads

T = TypeVar("T")

BURNERS = 4
CONCURRENCY = 100


def beside(size: Size, ends: float) -> Iterator[Section]:
    us = Line("ours, concurrency 100", "jobs/s")
    bare = Line("the bare loop", "jobs/s")
    for index in rounds("beside CPU-bound handlers", size.rounds):
        for line, beside, alone in (
            (us, partial(ours_beside, size.beside), partial(process_ours, size.jobs, CONCURRENCY)),
            (bare, partial(bare_beside, size.beside), partial(process_bare, size.jobs)),
        ):
            slow, fast = in_turn(index, beside, alone)
            line.add(1 / slow, 1 / fast)
    yield Section("process beside 4 CPU-bound handlers", "beside", "alone", [us, bare])


def process_ours(count: int, concurrency: int) -> float:
    async def measure(queue: Queue) -> float:
        await ours.fill(queue, count)
        return await ours.seconds_to_process(queue, count, concurrency)

    return with_queue(measure)


def process_bare(count: int) -> float:
    def measure(bare: Bare) -> float:
        bare.add(payloads(count))
        return seconds_for(bare.process) / count

    return with_bare(measure)


def ours_beside(count: int) -> float:
    async def measure(queue: Queue) -> float:
        await ours.fill(queue, count)
        async with _burning_handlers(queue):
            return await ours.seconds_to_process(queue, count, CONCURRENCY)

    return with_queue(measure)


def bare_beside(count: int) -> float:
    def measure(bare: Bare) -> float:
        bare.add(payloads(count))
        with _burning_threads():
            return seconds_for(bare.process) / count

    return with_bare(measure)


def with_queue(measure: Callable[[Queue], Awaitable[T]]) -> T:
    """Measure on a queue in a file of its own."""

    async def opened(path: Path) -> T:
        async with Queue("bench", path) as queue:
            return await measure(queue)

    with folder() as path:
        return asyncio.run(opened(path / "jobs.db"))


def with_bare(measure: Callable[[Bare], T]) -> T:
    """Measure the bare loop on a file of its own."""
    with folder() as path:
        bare = Bare(path / "bare.db")
        bare.install()
        try:
            return measure(bare)
        finally:
            bare.close()


class Fire:
    """A pure Python loop that burns in four threads until it is put out."""

    def __init__(self) -> None:
        self._is_out = False
        self._lit = threading.Barrier(BURNERS + 1)

    def burn(self, job: Job | None = None) -> None:
        self._lit.wait()
        number = 0
        while not self._is_out:
            number = (number * 31 + 7) % 1_000_003

    def wait_until_lit(self) -> None:
        self._lit.wait()

    def put_out(self) -> None:
        self._is_out = True


@asynccontextmanager
async def _burning_handlers(queue: Queue) -> AsyncIterator[None]:
    """A second worker, on another queue of the same file, whose handlers never pause."""
    fire = Fire()
    other = Queue("burning", queue.store)
    await ours.fill(other, BURNERS)
    async with Worker(other, fire.burn, concurrency=BURNERS):
        await asyncio.to_thread(fire.wait_until_lit)
        try:
            yield
        finally:
            fire.put_out()


@contextmanager
def _burning_threads() -> Iterator[None]:
    fire = Fire()
    threads = [threading.Thread(target=fire.burn) for _ in range(BURNERS)]
    for thread in threads:
        thread.start()
    fire.wait_until_lit()
    try:
        yield
    finally:
        fire.put_out()
        for thread in threads:
            thread.join()
