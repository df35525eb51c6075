"""Limits under many processes: none is ever passed, and nobody is idle while work is allowed.

    python -m tests.support.limit_checks --processes 8

Workers of so many processes take from three queues, each with a limit of its own: so many jobs at a
time, so many in a time, so many of a key in a time. They look for jobs only when they are woken or
when their timers tell them to. What ran when is read from the database and judged. Runs on each
store, or on the one that is named. Exits with 1 if a limit was passed or work lay idle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bullite import Job, Queue, Store, Worker
from tests.support.databases import DATABASES
from tests.support.processes import Child, as_summary, problems, rows, say

AT_A_TIME = 5
"""Jobs of the first queue that may run at a time; each takes so many seconds."""
TAKES = 0.02

RATE, IN_TIME = 15, 1_000
"""Jobs of the second queue that may begin in so many ms."""

OF_A_KEY, KEYS, IN_TIME_OF_A_KEY = 3, 12, 400
"""Jobs of each key of the third queue that may begin in so many ms."""

LONGEST_IDLE = 5_000
"""Ms that work may lie about though it is allowed, on a machine that is busy with other things."""

LIMIT = 90.0


# --- a worker process ----------------------------------------------------------------------------


async def work(location: str) -> None:
    """Run the jobs of all queues until killed; each returns when it began and ended, in ms."""

    async def note(job: Job) -> list[float]:
        began = time.time() * 1000
        await asyncio.sleep(TAKES if job.queue_name == "at a time" else 0)
        return [began, time.time() * 1000]

    store = Store(location)
    workers = [
        Worker(Queue(name, store), note, concurrency=10, poll_interval=600_000)
        for name in ("at a time", "in a time", "of a key")
    ]
    for worker in workers:
        await worker.wait_until_ready()
    say("ready")
    await asyncio.gather(*(worker.run() for worker in workers))


# --- what they were given, and what came of it ---------------------------------------------------


@dataclass
class Report:
    """What was found; `verify` last."""

    store: str
    processes: int
    jobs: int
    most_at_a_time: int
    ms_below_that_at_most: float
    most_in_a_window: int
    windows_that_were_not_full: int
    ms_between_windows_at_most: float
    most_of_a_key_in_a_window: int
    ms_between_windows_of_a_key_at_most: float
    seconds: float
    verify: str

    @property
    def promises_kept(self) -> bool:
        return (
            self.most_at_a_time == AT_A_TIME
            and self.most_in_a_window == RATE
            and self.windows_that_were_not_full == 0
            and self.most_of_a_key_in_a_window == OF_A_KEY
            and max(
                self.ms_below_that_at_most,
                self.ms_between_windows_at_most,
                self.ms_between_windows_of_a_key_at_most,
            )
            < LONGEST_IDLE
            and self.verify == "ok"
        )


def run(store: str, location: str, processes: int, jobs: int) -> Report:
    began = time.monotonic()
    asyncio.run(prepare(location))
    children = [Child(work, location) for _ in range(processes)]
    try:
        for child in children:
            child.said("ready")
        asyncio.run(add_and_wait(location, jobs))
    finally:
        for child in children:
            child.end()
    return judge(store, location, processes, time.monotonic() - began)


async def prepare(location: str) -> None:
    with closing(Store(location)) as store:
        await Queue("at a time", store).set_global_concurrency(AT_A_TIME)
        await Queue("in a time", store).set_global_rate_limit(RATE, IN_TIME)
        await Queue("of a key", store).set_rate_limit(None, OF_A_KEY, IN_TIME_OF_A_KEY)


async def add_and_wait(location: str, jobs: int) -> None:
    with closing(Store(location)) as store:
        for name in ("at a time", "in a time"):
            number = jobs if name == "at a time" else max(RATE, jobs // 3 // RATE * RATE)
            await Queue(name, store).add_bulk([{"name": "a"}] * number)
        # All of one key, then all of the next: each stands in front of the others.
        of_each = max(1, jobs // 3 // KEYS)
        keys = [f"key {n}" for n in range(KEYS) for _ in range(of_each)]
        await Queue("of a key", store).add_bulk(
            [{"name": "a", "opts": {"limit_key": key}} for key in keys]
        )
        ends = time.monotonic() + LIMIT
        queues = [Queue(name, store) for name in ("at a time", "in a time", "of a key")]
        while [await queue.get_job_count_by_types("waiting", "active") for queue in queues] != [
            *(0, 0, 0)
        ]:
            assert time.monotonic() < ends, "they are stuck"
            await asyncio.sleep(0.05)


def judge(store: str, location: str, processes: int, seconds: float) -> Report:
    done = rows(
        location,
        "select q.name, j.processed_at, r.return_value, p.opts from bullite_jobs j "
        "join bullite_queues q on q.id = j.queue join bullite_results r on r.job = j.id "
        "join bullite_payloads p on p.job = j.id where j.state = 'completed' order by j.id",
    )
    runs = [json.loads(value) for name, _, value, _ in done if name == "at a time"]
    taken = sorted(at for name, at, _, _ in done if name == "in a time")
    of_keys: dict[str, list[int]] = defaultdict(list)
    for name, at, _, opts in done:
        if name == "of a key":
            of_keys[json.loads(opts)["limit_key"]].append(at)
    windows = windows_of(taken, IN_TIME)
    of_key = [windows_of(sorted(times), IN_TIME_OF_A_KEY) for times in of_keys.values()]
    broken = problems(location)
    return Report(
        store=store,
        processes=processes,
        jobs=len(done),
        most_at_a_time=most_at_a_time(runs),
        ms_below_that_at_most=round(longest_below(runs, AT_A_TIME), 1),
        most_in_a_window=max(map(len, windows)),
        windows_that_were_not_full=sum(len(window) < RATE for window in windows),
        ms_between_windows_at_most=longest_between(windows, IN_TIME),
        most_of_a_key_in_a_window=max(len(window) for some in of_key for window in some),
        ms_between_windows_of_a_key_at_most=max(
            longest_between(some, IN_TIME_OF_A_KEY) for some in of_key
        ),
        seconds=round(seconds, 1),
        verify="; ".join(broken) or "ok",
    )


def most_at_a_time(runs: list[list[float]]) -> int:
    most = running = 0
    for _, change in changes(runs):
        running += change
        most = max(most, running)
    return most


def longest_below(runs: list[list[float]], limit: int) -> float:
    """Ms for which fewer ran than might, while there were jobs that had not begun."""
    longest, running = 0.0, 0
    has_begun, full_until = False, 0.0
    last_begin = max(began for began, _ in runs)
    for at, change in changes(runs):
        if has_begun and running < limit and at <= last_begin:
            longest = max(longest, at - full_until)
        if running == limit:
            full_until = at
        running += change
        has_begun = has_begun or running == limit
    return longest


def changes(runs: list[list[float]]) -> list[tuple[float, int]]:
    return sorted([(began, 1) for began, _ in runs] + [(ended, -1) for _, ended in runs])


def windows_of(times: list[int], duration: int) -> list[list[int]]:
    """The times in fixed windows, each of which begins with the first that the last left out."""
    windows: list[list[int]] = []
    for at in times:
        if not windows or at >= windows[-1][0] + duration:
            windows.append([])
        windows[-1].append(at)
    return windows


def longest_between(windows: list[list[int]], duration: int) -> int:
    """Ms from the end of a window to the beginning of the next."""
    pairs = pairwise(windows)
    return max([after[0] - before[0] - duration for before, after in pairs], default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--store", choices=list(DATABASES), help="by default each")
    parser.add_argument("--location", default="", help="an empty store; by default a new one")
    given = parser.parse_args()
    kept = True
    for kind in [given.store] if given.store else DATABASES:
        with (
            tempfile.TemporaryDirectory(prefix="bullite-limited-") as folder,
            closing(DATABASES[kind](Path(folder))) as database,
        ):
            place = given.location or database.location
            report = run(kind, place, given.processes, given.jobs)
        sys.stdout.write(f"{as_summary(report)}\n\n")
        kept = kept and report.promises_kept
    sys.exit(not kept)


if __name__ == "__main__":
    main()
