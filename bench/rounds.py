"""What measurements share: how much is measured, rounds, and taking turns."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Measure = Callable[[], float]


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int = 5
    budget: float = 57 * 60
    """Seconds for everything."""

    alone: float = 13 * 60
    """Of these, seconds for what only we do."""

    trial: float = 0.25
    """Seconds that a trial of settings should take at least."""

    shortest: float = 0.8
    longest: float = 2.0
    """Seconds that a measurement should take at least and at most."""

    best: int = 2
    """So many of the others do the cells that not everybody does."""

    for_targets: bool = False
    """Whether only what the targets are about is measured, and those whom they name."""

    latencies: int = 250
    jobs: int = 20_000
    """What we alone are measured with, in each round."""

    backlogs: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)
    beside: int = 3_000
    idle: float = 10.0
    imports: int = 7


QUICK = Size(
    rounds=3,
    budget=9.5 * 60,
    alone=1.0 * 60,
    trial=0.08,
    shortest=0.3,
    longest=0.5,
    best=0,
    for_targets=True,
    latencies=80,
    jobs=6_000,
    backlogs=(100_000,),
    beside=600,
    idle=5.0,
    imports=5,
)


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


def note(text: str) -> None:
    """A line for the log of a run, or for people."""
    tell("")
    sys.stderr.write(f"{text}\n")
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
