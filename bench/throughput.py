"""How many jobs a second, against the bare loop."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bullite import Queue

from . import ours
from .bare import BATCH, Bare
from .figures import Line, Section, Target
from .rounds import Size, in_turn, rounds, seconds_for, with_bare, with_queue
from .workload import payloads

WARM_UP = 1_000
"""Jobs added before adding is timed: the first ones pay for making the log."""

_WAYS_TO_PROCESS = (
    # what, concurrency, in threads, the share of the jobs that is enough for a steady figure
    ("concurrency 100", 100, False, 1.0),
    ("concurrency 1000", 1000, False, 1.0),
    ("concurrency 10", 10, False, 0.3),
    ("concurrency 1", 1, False, 0.05),
    ("8 threads (def)", 8, True, 0.3),
)


def process(size: Size) -> Iterator[Section]:
    lines = [Line(what, "jobs/s") for what, *_ in _WAYS_TO_PROCESS]
    lines[0].target = Target(at_least=0.5)
    for index in rounds("process", size.rounds):
        for line, (_, concurrency, in_threads, share) in zip(lines, _WAYS_TO_PROCESS):
            ours_took, bare_took = in_turn(
                index,
                partial(process_ours, int(size.jobs * share), concurrency, in_threads),
                partial(process_bare, size.jobs),
            )
            line.add(1 / ours_took, 1 / bare_took)
    yield Section("process no-op jobs", "ours", "bare", lines)


def process_ours(count: int, concurrency: int, in_threads: bool = False) -> float:
    async def measure(queue: Queue) -> float:
        await ours.fill(queue, count)
        return await ours.seconds_to_process(queue, count, concurrency, in_threads=in_threads)

    return with_queue(measure)


def process_bare(count: int) -> float:
    def measure(bare: Bare) -> float:
        bare.add(payloads(count))
        return seconds_for(bare.process) / count

    return with_bare(measure)


def add(size: Size) -> Iterator[Section]:
    bulk = Line("add_bulk(1000)", "jobs/s", Target(at_least=0.45))
    callers = Line("50 callers awaiting add()", "jobs/s")
    single = Line("add() one by one; bare: 1 a commit", "jobs/s")
    few = size.jobs // 20
    pairs = (
        (bulk, partial(add_ours_in_bulk, size.jobs), partial(add_bare, size.jobs)),
        (callers, partial(add_ours, size.jobs // 2, 50), partial(add_bare, size.jobs)),
        (single, partial(add_ours, few, 1), partial(add_bare, few, batch=1)),
    )
    for index in rounds("add", size.rounds):
        for line, one, other in pairs:
            ours_took, bare_took = in_turn(index, one, other)
            line.add(1 / ours_took, 1 / bare_took)
    yield Section("add jobs", "ours", "bare", [line for line, *_ in pairs])


def add_ours_in_bulk(count: int) -> float:
    async def measure(queue: Queue) -> float:
        await ours.fill(queue, WARM_UP)
        return await ours.seconds_to_add_bulk(queue, count, 1_000)

    return with_queue(measure)


def add_ours(count: int, callers: int) -> float:
    async def measure(queue: Queue) -> float:
        await ours.fill(queue, WARM_UP)
        return await ours.seconds_to_add(queue, count, callers)

    return with_queue(measure)


def add_bare(count: int, batch: int = BATCH) -> float:
    jobs = payloads(count)

    def measure(bare: Bare) -> float:
        bare.add(payloads(WARM_UP))
        return seconds_for(partial(bare.add, jobs, batch)) / count

    return with_bare(measure)
