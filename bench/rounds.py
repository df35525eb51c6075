"""What measurements share: fresh files, rounds, and taking turns."""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bullite import Queue

from .bare import Bare

T = TypeVar("T")


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int = 5
    jobs: int = 20_000
    backlog: int = 1_000_000
    beside: int = 3_000
    latencies: int = 300
    idle: float = 10.0
    imports: int = 7


QUICK = Size(rounds=3, jobs=6_000, backlog=100_000, beside=600, latencies=150, idle=5.0, imports=5)

Measure = Callable[[], float]


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that is gone afterwards.

    It must be on a disk: on a tmpfs a sync is free, and every ratio would flatter somebody.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as path:
        yield Path(path)


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
        try:
            return measure(bare)
        finally:
            bare.close()


def rounds(what: str, number: int) -> Iterator[int]:
    """0, 1, 2, …; people at a terminal are told where we are."""
    for index in range(number):
        tell(f"{what}: round {index + 1} of {number}")
        yield index


def tell(text: str) -> None:
    """Progress, on stderr, and only to people: stdout is for the figures."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def in_turn(index: int, one: Measure, other: Measure) -> tuple[float, float]:
    """Both, right after each other; who goes first changes from round to round."""
    if index % 2:
        second = other()
        return one(), second
    return one(), other()


def seconds_for(action: Callable[[], object]) -> float:
    gc.collect()
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin
