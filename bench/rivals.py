"""Other queues on PostgreSQL: which they are, and how they are driven at their best."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import presence
from .contestants import LIST, Figures, check
from .environments import TIME_LIMIT, Environment, Unavailable, answer
from .ground import Ground
from .peers.protocol import WARM_UP

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class About:
    """What there is to know of another queue."""

    name: str
    requirements: Sequence[str]
    note: str
    """What it runs with in every cell."""

    waiting: str
    finished: str
    """Queries that count its jobs."""

    candidates: Mapping[str, Sequence[Settings]]
    """What is tried for a cell; the best is used."""

    share: Mapping[str, float]
    """The part of the jobs that is enough for a steady figure: the slow ones get fewer."""

    @property
    def version(self) -> str:
        return self.requirements[0].partition("==")[2]


class Peer:
    """Another queue, driven by its program in `bench.peers`."""

    def __init__(self, about: About, ground: Ground) -> None:
        self.about = about
        self._ground = ground
        self._environment = Environment(about.name, about.requirements)
        self._template = ground.make(f"template_{about.name}")
        self._run("install", self._template, {})
        self._chosen: dict[str, Settings] = {}
        self._cells: dict[str, Callable[[Settings, int], Figures]] = {
            "process": self._process,
            "add_bulk": partial(self._add, "add_bulk"),
            "add": partial(self._add, "add"),
            "latency": self._latency,
        }

    @property
    def name(self) -> str:
        return f"{self.about.name} {self.about.version}"

    def settings(self, cell: str) -> str:
        return ", ".join(f"{name} {value}" for name, value in self._chosen[cell].items())

    def calibrate(self, cell: str, jobs: int, passes: int) -> None:
        """Find the settings that are best for a cell, each tried in turn."""
        candidates = self.about.candidates[cell]
        best = [0.0] * len(candidates)
        for _ in range(passes if len(candidates) > 1 else 0):
            for index, settings in enumerate(candidates):
                figure = self._measure(cell, settings, jobs)[0]
                goodness = 1 / figure if cell == "latency" else figure
                best[index] = max(best[index], goodness)
        self._chosen[cell] = candidates[best.index(max(best))]

    def measure(self, cell: str, jobs: int) -> Figures:
        return self._measure(cell, self._chosen[cell], jobs)

    def _measure(self, cell: str, settings: Settings, jobs: int) -> Figures:
        scaled = int(jobs * self.about.share.get(cell, 1))
        return self._cells[cell](settings, scaled)

    def _process(self, settings: Settings, jobs: int) -> Figures:
        database = self._ground.fresh(self._template)
        self._run("fill", database, settings, jobs=jobs)
        self._ground.analyze(database)
        took = self._run("process", database, settings, jobs=jobs)
        check(self._ground.count(database, self.about.finished), jobs)
        return [jobs / took]

    def _add(self, what: str, settings: Settings, jobs: int) -> Figures:
        if what == "add_bulk":
            jobs = max(1, jobs // LIST) * LIST
        database = self._ground.fresh(self._template)
        took = self._run(what, database, settings, jobs=jobs, size=LIST)
        check(self._ground.count(database, self.about.waiting), WARM_UP + jobs)
        return [jobs / took]

    def _latency(self, settings: Settings, jobs: int) -> Figures:
        database = self._ground.fresh(self._template)
        count = presence.WARM_UP + jobs
        worker = self._environment.start("work", self._ground.url(database), settings)
        try:
            assert worker.stdout is not None
            if worker.stdout.readline() != "ready\n":
                raise Unavailable("the worker process did not start")
            self._run("add_slowly", database, settings, jobs=count, pace=presence.PACE)
            time.sleep(presence.SETTLING)
            output, _ = worker.communicate(timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            raise Unavailable("the worker process did not end") from None
        finally:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
        delays = [delay / 1e6 for delay in answer(output)]
        check(len(delays), count)
        check(self._ground.count(database, self.about.finished), count)
        return presence.percentiles(delays[presence.WARM_UP :])

    def _run(self, what: str, database: str, settings: Settings, **options: Any) -> Any:
        return self._environment.run(what, self._ground.url(database), {**settings, **options})


PEERS = (
    About(
        name="procrastinate",
        requirements=("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8"),
        note="async worker, psycopg pool of concurrency + 1 in autocommit, LISTEN/NOTIFY on; "
        "delete_jobs at its default, so done jobs are kept; it fetches one job at a time",
        waiting="select count(*) from procrastinate_jobs where status = 'todo'",
        finished="select count(*) from procrastinate_jobs where status = 'succeeded'",
        candidates={
            "process": [{"concurrency": number} for number in (1, 5, 10, 30)],
            "add_bulk": [{}],
            "add": [{}],
            "latency": [{"concurrency": 1}, {"concurrency": 10}],
        },
        share={"process": 0.02, "add_bulk": 0.25},
    ),
    About(
        name="pgqueuer",
        requirements=("pgqueuer[asyncpg,psycopg]==1.6.0", "psycopg[binary]==3.3.8"),
        note="one queue manager, or as many as said, on uvloop as its own command line runs it; "
        "durability at its default (all tables logged); done jobs go to its log table",
        waiting="select count(*) from pgqueuer where status = 'queued'",
        finished="select count(distinct job_id) from pgqueuer_log where status = 'successful'",
        candidates={
            "process": [
                {"driver": "asyncpg", "batch": 100},
                {"driver": "asyncpg", "batch": 300},
                {"driver": "asyncpg", "batch": 1_000},
                {"driver": "asyncpg", "batch": 300, "managers": 2},
                {"driver": "asyncpg pool", "batch": 300},
                {"driver": "psycopg", "batch": 300},
            ],
            "add_bulk": [{"driver": "asyncpg"}, {"driver": "psycopg"}],
            "add": [{"driver": "asyncpg"}, {"driver": "psycopg"}],
            "latency": [{"driver": "asyncpg", "batch": 10}, {"driver": "psycopg", "batch": 10}],
        },
        share={"process": 0.5},
    ),
    About(
        name="bullmq",
        requirements=("bullmq[postgres]==3.4.4",),
        note="its Python port with backend postgres, one connection for queries as it is built; "
        "done jobs are kept, its default",
        waiting="select count(*) from bullmq.job where state = 'waiting'",
        finished="select count(*) from bullmq.job where state = 'completed'",
        candidates={
            "process": [{"concurrency": number} for number in (1, 10, 50)],
            "add_bulk": [{}],
            "add": [{}],
            "latency": [{"concurrency": 1}, {"concurrency": 10}],
        },
        share={"process": 0.03, "add_bulk": 0.5},
    ),
)
