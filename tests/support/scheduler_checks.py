"""Many processes share schedulers: each tick is made once, and none is lost.

    python -m tests.support.scheduler_checks --processes 8 --ticks 10000 --store sqlite

Every process runs a worker. The schedulers tick every few ms, with `missed="all"`: what nobody
took in time is made up for, one after the other, so that every slot of every scheduler must have
had one job. Workers write down each tick that they run, in files of their own; at the end those are
compared with the slots. Exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bullite import Job, Queue, Worker
from tests.support.databases import DATABASES
from tests.support.processes import Child, as_summary, problems, say

EVERY = 20
"""Ms between two ticks of a scheduler."""

QUEUE = "ticks"


async def work(location: str, ledger: str) -> None:
    """Work until killed; a line for each job that was begun."""
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def run(job: Job) -> None:
        os.write(file, f"{job.id} {job.opts['repeat']['count']}\n".encode())

    worker = Worker(Queue(QUEUE, location), run, concurrency=10)
    await worker.wait_until_ready()
    say("ready")
    await worker.run()


@dataclass
class Report:
    """What a run showed."""

    processes: int
    schedulers: int
    ticks: int
    processes_that_ran_some: int
    made_twice: int
    lost: int
    pending_jobs: int
    seconds: float
    verify: str

    @property
    def ok(self) -> bool:
        broken = self.made_twice or self.lost or self.pending_jobs != self.schedulers
        return not broken and self.verify == "ok"


async def start_schedulers(location: str, number: int) -> None:
    """They begin together, a moment from now, when everybody is there."""
    async with Queue(QUEUE, location) as queue:
        await queue.configure(keep_completed="1d", max_events=1_000)
        start = int(time.time() * 1000) + 200
        for n in range(number):
            await queue.upsert_job_scheduler(
                f"s{n}",
                every=EVERY,
                start_date=start,
                missed="all",
                most_missed=1_000,
                template={"opts": {"remove_on_complete": True}},
            )


async def pause_schedulers(location: str, number: int) -> int:
    """Let no more ticks come; how many jobs were pending until then."""
    async with Queue(QUEUE, location) as queue:
        entries = await queue.get_job_schedulers()
        pending = sum(1 for entry in entries if entry.next_run_at is not None)
        for n in range(number):
            await queue.pause_job_scheduler(f"s{n}")
        ends = time.monotonic() + 30
        # Other processes ring no bell for this.
        while await queue.get_job_count_by_types("active", "waiting"):
            assert time.monotonic() < ends, "workers did not finish"
            await asyncio.sleep(0.02)
        return pending


def ran_in(ledgers: list[Path]) -> list[tuple[str, int]]:
    """(job, count) of everything that was begun, by whomever."""
    lines = [line for path in ledgers if path.exists() for line in path.read_text().splitlines()]
    return [(job, int(count)) for job, _, count in (line.partition(" ") for line in lines)]


def judge(ran: list[tuple[str, int]]) -> tuple[int, int]:
    """How many ticks were made twice, and how many between the first and the last are missing."""
    times = collections.Counter(job for job, _ in ran)
    twice = sum(number - 1 for number in times.values())
    ticks = collections.defaultdict(set)
    counts = collections.defaultdict(set)
    for job, count in ran:
        key, _, tick = job.removeprefix("repeat:").rpartition(":")
        ticks[key].add(int(tick))
        counts[key].add(count)
    lost = sum((max(some) - min(some)) // EVERY + 1 - len(some) for some in ticks.values())
    uncounted = sum(max(some) - min(some) + 1 - len(some) for some in counts.values())
    return twice, lost + uncounted


def run(location: str, folder: Path, processes: int, ticks: int, limit: float) -> Report:
    # As many as can be kept up with.
    schedulers = processes
    ledgers = [folder / f"ledger-{n}" for n in range(processes)]
    children = [Child(work, location, str(ledger)) for ledger in ledgers]
    began = time.monotonic()
    try:
        for child in children:
            child.said("ready")
        asyncio.run(start_schedulers(location, schedulers))
        began = time.monotonic()
        while len(ran_in(ledgers)) < ticks and time.monotonic() - began < limit:
            time.sleep(0.05)
        seconds = time.monotonic() - began
        pending = asyncio.run(pause_schedulers(location, schedulers))
    finally:
        for child in children:
            child.end()
    ran = ran_in(ledgers)
    twice, lost = judge(ran)
    found = problems(location)
    return Report(
        processes,
        schedulers,
        len(ran),
        sum(1 for ledger in ledgers if ledger.exists() and ledger.stat().st_size),
        twice,
        lost,
        pending,
        round(seconds, 1),
        "; ".join(found) or "ok",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--ticks", type=int, default=10_000)
    parser.add_argument("--store", choices=[*DATABASES, "both"], default="both")
    parser.add_argument("--location", help="a database to use instead of one of its own")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds")
    options = parser.parse_args()
    kinds = list(DATABASES) if options.store == "both" else [options.store]
    if options.location:
        kinds = ["as given"]
    ok = True
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix="bullite-ticks-") as folder:
            database = None if options.location else DATABASES[kind](Path(folder))
            location = options.location or database.location
            try:
                report = run(
                    location, Path(folder), options.processes, options.ticks, options.limit
                )
            finally:
                if database is not None:
                    database.close()
        say(f"store: {kind}")
        say(as_summary(report))
        ok = ok and report.ok and report.ticks >= options.ticks
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
