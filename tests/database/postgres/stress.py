"""A storm over the server: backends are terminated at random, and the server crashes, under load.

    python -m tests.database.postgres.stress --jobs 20000 --workers 4 --kills 300 --restarts 3

Processes that add write `ADDED` for what was acknowledged, workers write `START` and `DONE`, all
into a ledger that the queue never reads; at the end the ledger, the event log and the tables are
compared. Exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bullite import Job, Queue, Worker
from bullite.errors import StoreError
from tests.database.postgres.proxy import kind_of
from tests.support.processes import Child, as_summary, jobs_of, problems, say
from tests.support.server import Server

PAUSE = 0.2
"""Seconds between two kills, on average."""

LIMIT = 60.0
"""Seconds for what is left to do when the last kill is over."""

WOKEN_WITHIN = 5.0
"""Seconds after a fault in which wake-ups work again."""

STARTED_WITHIN = 1_000.0
"""Ms in which a job begins that is added to an idle queue; nobody polls as often as that."""

POLL_INTERVAL = 60_000
SCHEMA = "storm"
OURS = f"application_name = '{SCHEMA}'"


# --- processes -----------------------------------------------------------------------------------


class Ledger:
    """A file that many processes write lines to."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, *words: Any) -> None:
        os.write(self._file, (",".join(map(str, words)) + "\n").encode())


def log_into(ledger: str) -> None:
    """Have what this process logs kept beside the ledger."""
    logging.basicConfig(
        filename=f"{ledger}.log.{os.getpid()}",
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        level=logging.INFO,
    )


async def worker(location: str, ledger: str) -> None:
    """Run jobs that take a few ms each until killed."""
    log_into(ledger)
    book = Ledger(ledger)

    async def nap(job: Job) -> list[int]:
        book.note("START", job.pk, os.getpid(), job._run.token_number, time.time_ns())
        await asyncio.sleep(job.data[1])
        book.note("DONE", job.pk, os.getpid(), job._run.token_number, 0)
        return [os.getpid(), job._run.token_number]

    await Worker(
        Queue("work", location),
        nap,
        concurrency=20,
        max_stalled_count=1_000,
        lock_duration=3_000,
        stalled_interval=500,
        poll_interval=POLL_INTERVAL,
    ).run()


async def producer(location: str, ledger: str, who: int, jobs: int, seconds: float) -> None:
    """Add so many jobs in about so many seconds, and read now and then."""
    log_into(ledger)
    book = Ledger(ledger)
    dice = random.Random(who)
    added = 0
    async with Queue("work", location) as queue:
        say("ready")
        began = time.monotonic()
        while added < jobs:
            many = min(dice.randint(1, 20), jobs - added)
            data = [(f"{who}/{added + i}", dice.uniform(0.001, 0.01)) for i in range(many)]
            try:
                if dice.random() < 0.5:
                    made = await queue.add_bulk({"name": "nap", "data": one} for one in data)
                else:
                    made = await asyncio.gather(*(queue.add("nap", one) for one in data))
                for job, (key, _) in zip(made, data, strict=True):
                    book.note("ADDED", job.pk, os.getpid(), key, 0)
            except StoreError as error:
                book.note("REFUSED", many, os.getpid(), type(error).__name__, 0)
                logging.exception("an add was refused")
            if dice.random() < 0.1:
                try:
                    await queue.get_job_counts()
                except StoreError as error:
                    book.note("UNREAD", 1, os.getpid(), type(error).__name__, 0)
            added += many
            await asyncio.sleep(began + seconds * added / jobs - time.monotonic())


# --- the storm -----------------------------------------------------------------------------------


@dataclass
class Settings:
    jobs: int
    workers: int
    kills: int
    restarts: int
    producers: int
    seed: int
    folder: str


@dataclass
class Storm:
    """Has jobs added and run, breaks connections and the server meanwhile, waits until all is done.

    The last restart comes when the queue is idle: who sleeps must be woken after it, too.
    """

    settings: Settings
    server: Server
    folder: Path
    killed: collections.Counter[str] = field(default_factory=collections.Counter)
    restarts: int = 0
    woken: dict[str, float] = field(default_factory=dict)
    probes: int = 0

    def __post_init__(self) -> None:
        self.location = self.server.url(schema=SCHEMA, application_name=SCHEMA)
        self.ledger = self.folder / "ledger"
        self.random = random.Random(self.settings.seed)
        self.children: list[Child] = []

    def rage(self) -> None:
        asyncio.run(self._prepare())
        try:
            for _ in range(self.settings.workers):
                self._start(worker, self.location, self.ledger)
            self._until(lambda: self._listeners() == self.settings.workers)
            self._break_things_while_jobs_are_added()
            self._until(self._all_added_and_done)
            self._restart()
            self._see_who_wakes("the restart")
            self._terminate_all()
            self._see_who_wakes("the kill of all")
            self._until(self._all_added_and_done)
        finally:
            for child in self.children:
                child.end()

    async def _prepare(self) -> None:
        async with Queue("work", self.location) as queue:
            await queue.configure(max_events=10_000_000)

    def _start(self, function: Callable[..., Any], *args: Any) -> Child:
        self.children.append(Child(function, *args))
        return self.children[-1]

    def _break_things_while_jobs_are_added(self) -> None:
        settings = self.settings
        seconds = settings.kills * PAUSE
        for number in range(settings.producers):
            share = len(range(number, settings.jobs, settings.producers))
            who = settings.seed * 100 + number
            self._start(producer, self.location, self.ledger, who, share, seconds).said("ready")
        restarts = set(self.random.sample(range(settings.kills), settings.restarts - 1))
        for number in range(settings.kills):
            time.sleep(self.random.uniform(0, 2 * PAUSE))
            self._until(self._terminate_one)
            if number in restarts:
                self._restart()

    def _restart(self) -> None:
        self.server.restart()
        self.restarts += 1

    def _terminate_one(self) -> bool:
        backends = self._rows(
            f"select pid, query from pg_stat_activity where {OURS} order by backend_start, pid"
        )
        if not backends:
            return False
        pid, query = self.random.choice(backends)
        [(was_there,)] = self._rows(f"select pg_terminate_backend({pid})")
        self.killed[kind_of(query)] += was_there
        return bool(was_there)

    def _terminate_all(self) -> None:
        self._rows(f"select pg_terminate_backend(pid) from pg_stat_activity where {OURS}")

    def _see_who_wakes(self, fault: str) -> None:
        """Ms from the acknowledgement of a job, added to the idle queue, to its start."""
        at = time.monotonic()
        self._until(lambda: self._listeners() == self.settings.workers, WOKEN_WITHIN)
        time.sleep(max(0, at + WOKEN_WITHIN - 1 - time.monotonic()))
        job, added_at = asyncio.run(self._probe())
        self._until(lambda: any(line[1] == job for line in self._lines("START")), 90)
        [started_at, *_] = [int(line[4]) for line in self._lines("START") if line[1] == job]
        self.woken[fault] = (started_at - added_at) / 1e6

    async def _probe(self) -> tuple[str, int]:
        async with Queue("work", self.location) as queue:
            before = time.time_ns()
            job = await queue.add("nap", ("probe", 0.001))
        Ledger(str(self.ledger)).note("ADDED", job.pk, os.getpid(), f"probe/{self.probes}", 0)
        self.probes += 1
        return str(job.pk), before

    def _listeners(self) -> int:
        rows = self._rows(f"select query from pg_stat_activity where {OURS}")
        return sum(1 for (query,) in rows if kind_of(query) == "listener")

    def _all_added_and_done(self) -> bool:
        if len(self._lines("ADDED", "REFUSED")) < self.settings.jobs + self.probes:
            return False
        [(left,)] = self._rows(
            f"select count(*) from {SCHEMA}.bullite_jobs where state <> 'completed'"
        )
        return left == 0

    def _lines(self, *kinds: str) -> list[list[str]]:
        if not self.ledger.exists():
            return []
        text = self.ledger.read_text()
        return [line.split(",") for line in text.splitlines() if line.split(",")[0] in kinds]

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()

    def _until(self, condition: Callable[[], Any], limit: float = LIMIT) -> None:
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                states = self._rows(
                    f"select state, count(*) from {SCHEMA}.bullite_jobs group by state"
                )
                raise SystemExit(f"stuck after {limit:.0f} s; jobs by state: {dict(states)}")
            time.sleep(0.05)


# --- the judgement -------------------------------------------------------------------------------


@dataclass
class Report:
    """What came of it."""

    jobs: int
    killed_writers: int
    killed_readers: int
    killed_listeners: int
    restarts: int
    acknowledged: int
    adds_refused: int
    reads_refused: int
    runs: int
    stalled: int
    completed: int
    lost: int
    added_twice: int
    recorded_twice: int
    wrong_results: int
    started_twice_under_one_claim: int
    ms_to_wake_after_the_restart: float
    ms_to_wake_after_the_kill_of_all: float
    most_warnings_of_a_process: int
    errors_logged: int
    verify: str
    seconds: float

    @property
    def promises_kept(self) -> bool:
        broken = (
            self.lost,
            self.added_twice,
            self.recorded_twice,
            self.wrong_results,
            self.started_twice_under_one_claim,
            self.adds_refused,
        )
        woken = max(self.ms_to_wake_after_the_restart, self.ms_to_wake_after_the_kill_of_all)
        return not any(broken) and woken < STARTED_WITHIN and self.verify == "ok"

    def __str__(self) -> str:
        return as_summary(self)


def judge(storm: Storm, seconds: float) -> Report:
    states = dict(storm._rows(f"select id, state from {SCHEMA}.bullite_jobs"))
    values = dict(storm._rows(f"select job, return_value from {SCHEMA}.bullite_results"))
    keys = collections.Counter(
        json.loads(data)[0]
        for (data,) in storm._rows(f"select data from {SCHEMA}.bullite_payloads")
        if json.loads(data)[0] != "probe"
    )
    logged = storm._rows(
        f"select kind, jobs from {SCHEMA}.bullite_events where kind in ('complete', 'stall')"
    )
    events = collections.Counter((kind, job) for kind, jobs in logged for job in jobs_of(jobs))
    acknowledged = [int(line[1]) for line in storm._lines("ADDED")]
    starts = collections.Counter(tuple(line[1:4]) for line in storm._lines("START"))
    done = {tuple(map(int, line[1:4])) for line in storm._lines("DONE")}
    completed = {job for job, state in states.items() if state == "completed"}
    logs = [path.read_text() for path in storm.folder.glob("ledger.log.*")]
    return Report(
        jobs=storm.settings.jobs + storm.probes,
        killed_writers=storm.killed["writer"],
        killed_readers=storm.killed["reader"],
        killed_listeners=storm.killed["listener"],
        restarts=storm.restarts,
        acknowledged=len(acknowledged),
        adds_refused=sum(int(line[1]) for line in storm._lines("REFUSED")),
        reads_refused=len(storm._lines("UNREAD")),
        runs=sum(starts.values()),
        stalled=sum(number for (kind, _), number in events.items() if kind == "stall"),
        completed=len(completed),
        lost=len(set(acknowledged) - completed) + len(states.keys() - completed),
        added_twice=sum(1 for number in keys.values() if number > 1)
        + len(states.keys() - set(acknowledged)),
        recorded_twice=sum(
            1 for (kind, _), number in events.items() if kind == "complete" and number > 1
        ),
        wrong_results=sum(1 for job in completed if events["complete", job] == 0)
        + sum(1 for job in completed if not is_of_a_run(job, values.get(job), done)),
        started_twice_under_one_claim=sum(1 for number in starts.values() if number > 1),
        ms_to_wake_after_the_restart=round(storm.woken["the restart"], 1),
        ms_to_wake_after_the_kill_of_all=round(storm.woken["the kill of all"], 1),
        most_warnings_of_a_process=max(text.count(" WARNING ") for text in logs),
        errors_logged=sum(text.count(" ERROR ") for text in logs),
        verify="; ".join(problems(storm.location)) or "ok",
        seconds=round(seconds, 1),
    )


def is_of_a_run(job: int, value: str | None, done: set[tuple[int, ...]]) -> bool:
    """Whether a recorded result is what one finished run of that job returned."""
    return value is not None and (job, *json.loads(value)) in done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--restarts", type=int, default=1)
    parser.add_argument("--producers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(16))
    parser.add_argument("--folder", default="", help="an empty one, for the ledger and the logs")
    settings = Settings(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory(prefix="bullite-storm-") as folder:
        storm = Storm(settings, Server(), Path(settings.folder or folder))
        began = time.monotonic()
        storm.rage()
        report = judge(storm, time.monotonic() - began)
    sys.stdout.write(f"{'seed:':34} {settings.seed}\n{report}\n")
    sys.exit(not report.promises_kept)


if __name__ == "__main__":
    main()
