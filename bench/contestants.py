"""Who is measured on PostgreSQL, each doing the same jobs: ours and the bare loop; see `rivals`.

Figures are jobs a second, or for latency three percentiles in milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from bullite import Queue

from . import ours, presence
from .bare import BATCH
from .barepg import COUNT_FINISHED, COUNT_WAITING, BarePostgres
from .ground import Ground
from .peers.protocol import WARM_UP
from .rounds import seconds_for
from .workload import payloads

LIST = 1_000
"""Jobs per call of `add_bulk`."""

Figures = Sequence[float]


class Contestant(Protocol):
    """Does the cells of the benchmark, each in a fresh database."""

    @property
    def name(self) -> str: ...

    def settings(self, cell: str) -> str:
        """With what it runs, in words."""

    def measure(self, cell: str, jobs: int) -> Figures: ...


def check(found: int, expected: int) -> None:
    """A figure for work that was not done is worse than none."""
    if found != expected:
        raise RuntimeError(f"{found} jobs were done, not {expected}")


# --- ours -----------------------------------------------------------------------------------------


_COUNT_OURS = "select count(*) from bullite.bullite_jobs where state = '{state}'"


class Ours:
    """The package, driven as a user would; `ours` checks its counts, and here rows are counted."""

    name = "ours"
    concurrency = 100

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._cells: dict[str, Callable[[int], Figures]] = {
            "process": self._process,
            "add_bulk": self._add_bulk,
            "add": self._add,
            "latency": self._latency,
        }

    def settings(self, cell: str) -> str:
        return f"concurrency {self.concurrency}" if cell == "process" else ""

    def measure(self, cell: str, jobs: int) -> Figures:
        return self._cells[cell](jobs)

    def _process(self, jobs: int) -> Figures:
        async def measure(queue: Queue, database: str) -> float:
            await ours.fill(queue, jobs)
            await asyncio.to_thread(self._ground.analyze, database)
            return await ours.seconds_to_process(queue, jobs, self.concurrency)

        return [1 / self._with_queue(measure, "completed", jobs)]

    def _add_bulk(self, jobs: int) -> Figures:
        async def measure(queue: Queue, database: str) -> float:
            await ours.fill(queue, WARM_UP)
            return await ours.seconds_to_add_bulk(queue, jobs, LIST)

        return [1 / self._with_queue(measure, "waiting", WARM_UP + jobs)]

    def _add(self, jobs: int) -> Figures:
        async def measure(queue: Queue, database: str) -> float:
            await ours.fill(queue, WARM_UP)
            return await ours.seconds_to_add(queue, jobs, callers=1)

        return [1 / self._with_queue(measure, "waiting", WARM_UP + jobs)]

    def _latency(self, jobs: int) -> Figures:
        database = self._ground.fresh()
        delays = presence.delays(self._ground.url(database), jobs)
        self._check(database, "completed", presence.WARM_UP + jobs)
        return presence.percentiles(delays)

    def _with_queue(self, measure: Callable[[Queue, str], Any], state: str, expected: int) -> float:
        """Seconds a job; afterwards so many jobs must be in that state."""

        async def opened(database: str) -> float:
            async with Queue("bench", self._ground.url(database)) as queue:
                seconds: float = await measure(queue, database)
                return seconds

        database = self._ground.fresh()
        seconds_a_job = asyncio.run(opened(database))
        self._check(database, state, expected)
        return seconds_a_job

    def _check(self, database: str, state: str, expected: int) -> None:
        check(self._ground.count(database, _COUNT_OURS.format(state=state)), expected)


# --- the bare loop --------------------------------------------------------------------------------


_A_COMMIT = {"process": BATCH, "add_bulk": LIST, "add": 1}


class Bare:
    """Plain psycopg; it has no latency, for nobody is told of anything."""

    name = "the bare loop"

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._cells: dict[str, Callable[[int], Figures]] = {
            "process": self._process,
            "add_bulk": partial(self._add, "add_bulk"),
            "add": partial(self._add, "add"),
        }

    def settings(self, cell: str) -> str:
        return f"{_A_COMMIT[cell]} a commit"

    def measure(self, cell: str, jobs: int) -> Figures:
        return self._cells[cell](jobs)

    def _process(self, jobs: int) -> Figures:
        database = self._ground.fresh()
        bare = BarePostgres(self._ground.url(database))
        bare.add(payloads(jobs), LIST)
        self._ground.analyze(database)
        took = seconds_for(bare.process)
        bare.close()
        check(self._ground.count(database, COUNT_FINISHED), jobs)
        return [jobs / took]

    def _add(self, cell: str, jobs: int) -> Figures:
        database = self._ground.fresh()
        data = payloads(jobs)
        bare = BarePostgres(self._ground.url(database))
        bare.add(payloads(WARM_UP), LIST)
        took = seconds_for(partial(bare.add, data, _A_COMMIT[cell]))
        bare.close()
        check(self._ground.count(database, COUNT_WAITING), WARM_UP + jobs)
        return [jobs / took]
