"""A storm of kill -9: workers die at random moments while they hold jobs, and others take over.

    python -m tests.crash.stress --workers 4 --jobs 3000 --kills 60 --seed 1

Workers write `job,process,token,START|DONE` into a ledger that the queue never reads; the ledger,
the event log and the tables are compared at the end. Exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bullite import Job, Queue, Worker
from bullite.core.decide_outcome import STALLED_TOO_OFTEN
from tests.support.databases import database_at
from tests.support.processes import Child, as_summary, jobs_of, problems, rows

PAUSE = 0.1
"""Seconds between two kills, on average."""

LIMIT = 55.0
"""Seconds after which the storm counts as stuck."""


# --- a worker process ----------------------------------------------------------------------------


async def worker(location: str, ledger: str, kind: str, max_stalled_count: int) -> None:
    """Run jobs that take a few ms each, in the loop or in threads, until killed."""
    book = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(job: Job, what: str) -> None:
        os.write(book, f"{job.pk},{os.getpid()},{job._run.token_number},{what}\n".encode())

    async def in_loop(job: Job) -> list[int]:
        note(job, "START")
        await asyncio.sleep(job.data)
        note(job, "DONE")
        return [os.getpid(), job._run.token_number]

    def in_thread(job: Job) -> list[int]:
        note(job, "START")
        time.sleep(job.data)
        note(job, "DONE")
        return [os.getpid(), job._run.token_number]

    await Worker(
        Queue("work", location),
        in_loop if kind == "async" else in_thread,
        concurrency=10,
        max_stalled_count=max_stalled_count,
        **database_at(location).short_lease,
    ).run()


# --- the storm -----------------------------------------------------------------------------------


@dataclass
class Settings:
    workers: int
    jobs: int
    kills: int
    seed: int
    max_stalled_count: int
    location: str


@dataclass
class Kill:
    """One kill: when it was, and which jobs the process held."""

    at: float
    begun: list[int]
    ahead: set[int]
    """Fetched and not begun; that they go back is no event."""
    worker: int | None
    came_back: list[float] = field(default_factory=list)
    """For those ahead, ms until they were back in the queue, or had moved on from there."""


@dataclass
class Storm:
    """Adds jobs, kills workers while they hold some, replaces them, waits until all is done."""

    settings: Settings
    folder: Path
    kills: list[Kill] = field(default_factory=list)
    events: list[tuple[str, int, int]] = field(default_factory=list)
    _seen_events: set[int] = field(default_factory=set)
    _made: int = 0

    def __post_init__(self) -> None:
        self.location = self.settings.location or str(self.folder / "jobs.db")
        self.ledger = self.folder / "ledger"
        self.random = random.Random(self.settings.seed)
        self.deadline = time.monotonic() + LIMIT
        self.children: dict[int, Child] = {}

    async def rage(self) -> None:
        try:
            async with Queue("work", self.location) as queue:
                for _ in range(self.settings.workers):
                    self._start_worker()
                await self._kill_while_adding(queue)
                await self._until(lambda: self._unfinished() == 0)
        finally:
            for child in self.children.values():
                child.end()
        self._read_events()

    async def _kill_while_adding(self, queue: Queue) -> None:
        left, kills = self.settings.jobs, self.settings.kills
        for round_ in range(kills):
            portion = left // (kills - round_)
            left -= portion
            # Somebody must be there to notice: an interpreter takes longer to start than to kill.
            await self._until(lambda: len(self._up()) >= self.settings.workers - 1)
            await queue.add_bulk(
                {"name": "nap", "data": self.random.uniform(0.002, 0.008)} for _ in range(portion)
            )
            await asyncio.sleep(self.random.uniform(0, 0.008))
            self._kill(await self._until(self._a_holder))
            self._read_events()
            await asyncio.sleep(self.random.uniform(0, 2 * PAUSE))

    def _start_worker(self) -> None:
        kind = "async" if self._made % 2 else "threads"
        self._made += 1
        child = Child(worker, self.location, self.ledger, kind, self.settings.max_stalled_count)
        self.children[child.pid] = child

    def _up(self) -> set[int]:
        """The processes that have started to work."""
        registered = {pid for (pid,) in rows(self.location, "select pid from bullite_workers")}
        return registered & self.children.keys()

    def _a_holder(self) -> Child | None:
        """A process that runs jobs at this moment; if they were too quick for us, any."""
        holders = self._held_by()
        alive = [pid for pid in sorted(holders) if pid in self.children]
        if not alive and self._unfinished() == 0:
            alive = sorted(self._up())
        return self.children[self.random.choice(alive)] if alive else None

    def _held_by(self) -> dict[int, list[tuple[int, int, int]]]:
        """(job, whether it was fetched ahead, worker) by process."""
        held = collections.defaultdict(list)
        for pid, *job in rows(
            self.location,
            "select pid, bullite_jobs.id, ahead, worker from bullite_jobs join bullite_workers "
            "on bullite_workers.id = worker where state = 'active'",
        ):
            held[pid].append(tuple(job))
        return held

    def _kill(self, killed_worker: Child) -> None:
        at = killed_worker.kill()
        # Nothing but recovery can move these any more.
        held = self._held_by()[killed_worker.pid]
        begun = [job for job, ahead, _ in held if not ahead]
        waiting = {job for job, ahead, _ in held if ahead}
        self.kills.append(Kill(at, begun, waiting, held[0][2] if held else None))
        del self.children[killed_worker.pid]
        killed_worker.end()
        self._start_worker()

    def _unfinished(self) -> int:
        [(number,)] = rows(
            self.location,
            "select count(*) from bullite_jobs where state not in ('completed', 'failed')",
        )
        return number

    def _read_events(self) -> None:
        """As it happens: the log keeps only the last 10,000.

        Where writers work side by side, a row may appear behind one that was read already.
        """
        self._see_who_came_back()
        newest = "select id, kind, jobs, at from bullite_events order by id desc limit 2000"
        for number, kind, jobs, at in reversed(rows(self.location, newest)):
            if number not in self._seen_events:
                self._seen_events.add(number)
                self.events += [(kind, job, at) for job in jobs_of(jobs)]

    def _see_who_came_back(self) -> None:
        for kill in self.kills:
            if kill.ahead:
                places = ",".join(map(str, kill.ahead))
                for job, at in rows(
                    self.location,
                    "select id, updated_at from bullite_jobs "
                    f"where id in ({places}) and (state <> 'active' or worker <> ?)",
                    kill.worker,
                ):
                    kill.ahead.discard(job)
                    kill.came_back.append(at - kill.at)

    async def _until(self, condition: Any) -> Any:
        while not (answer := condition()):
            self._see_who_came_back()
            if time.monotonic() > self.deadline:
                return self._give_up()
            await asyncio.sleep(0.002)
        return answer

    def _give_up(self) -> None:
        raise SystemExit(f"stuck after {LIMIT:.0f} s with {self._unfinished()} unfinished jobs")


# --- the judgement -------------------------------------------------------------------------------


@dataclass
class Report:
    """What came of it."""

    jobs: int
    kills: int
    kills_that_hit_jobs: int
    stalled: int
    runs: int
    completed: int
    failed: int
    failed_without_reason: int
    lost: int
    recorded_twice: int
    wrong_results: int
    started_twice_under_one_claim: int
    never_came_back: int
    back_in_queue_p99_ms: float
    back_in_queue_max_ms: float
    back_in_queue_limit_ms: int
    verify: str
    seconds: float

    @property
    def promises_kept(self) -> bool:
        broken = (
            self.lost,
            self.recorded_twice,
            self.wrong_results,
            self.started_twice_under_one_claim,
            self.failed_without_reason,
            self.never_came_back,
        )
        in_time = self.back_in_queue_max_ms < self.back_in_queue_limit_ms
        return not any(broken) and in_time and self.verify == "ok"

    def __str__(self) -> str:
        return as_summary(self)


def judge(storm: Storm, seconds: float) -> Report:
    jobs = rows(storm.location, "select id, state, stalled_count from bullite_jobs")
    results = rows(storm.location, "select job, return_value, failed_reason from bullite_results")
    values = {job: value for job, value, _ in results}
    reasons = {job: reason for job, _, reason in results}
    completed = [job for job, state, _ in jobs if state == "completed"]
    failed = [(job, stalls) for job, state, stalls in jobs if state == "failed"]
    lines = [line.split(",") for line in storm.ledger.read_text().splitlines()]
    starts = collections.Counter(
        (job, process, token) for job, process, token, what in lines if what == "START"
    )
    done = {(int(job), int(run), int(token)) for job, run, token, what in lines if what == "DONE"}
    completions = collections.Counter(job for kind, job, _ in storm.events if kind == "complete")
    came_back = sorted(round(time, 1) for time in times_to_come_back(storm))
    broken = problems(storm.location)
    return Report(
        jobs=storm.settings.jobs,
        kills=len(storm.kills),
        kills_that_hit_jobs=sum(1 for kill in storm.kills if kill.worker is not None),
        stalled=sum(1 for kind, _, _ in storm.events if kind == "stall"),
        runs=sum(starts.values()),
        completed=len(completed),
        failed=len(failed),
        failed_without_reason=sum(
            1
            for job, stalls in failed
            if reasons.get(job) != STALLED_TOO_OFTEN or stalls <= storm.settings.max_stalled_count
        ),
        lost=storm.settings.jobs - len(completed) - len(failed),
        recorded_twice=sum(1 for number in completions.values() if number > 1),
        wrong_results=sum(1 for job in completed if not is_of_a_run(job, values.get(job), done))
        + sum(1 for job in completed if completions[job] == 0),
        started_twice_under_one_claim=sum(1 for number in starts.values() if number > 1),
        never_came_back=sum(1 for time in came_back if time == float("inf")),
        back_in_queue_p99_ms=came_back[int(len(came_back) * 0.99)],
        back_in_queue_max_ms=came_back[-1],
        back_in_queue_limit_ms=database_at(storm.location).recovery_time,
        verify="; ".join(broken) or "ok",
        seconds=round(seconds, 1),
    )


def is_of_a_run(job: int, value: str | None, done: set[tuple[int, int, int]]) -> bool:
    """Whether a recorded result is what one finished run of that job returned."""
    return value is not None and (job, *json.loads(value)) in done


def times_to_come_back(storm: Storm) -> list[float]:
    """For each job that a killed process held: ms until it was back in the queue.

    Those that it had begun have stalled; those that it had only fetched ahead are given back. On a
    server its last commit may still arrive after its death: those it ended itself.
    """
    completed = "select id, worker from bullite_jobs where state = 'completed'"
    ended_by = dict(rows(storm.location, completed))
    returns = collections.defaultdict(list)
    for kind, job, at in storm.events:
        if kind == "stall":
            returns[job].append(at)
    times = [
        min((at - kill.at for at in returns[job] if at >= int(kill.at)), default=float("inf"))
        for kill in storm.kills
        for job in kill.begun
        if ended_by.get(job) != kill.worker
    ]
    for kill in storm.kills:
        times += [*kill.came_back, *(float("inf") for _ in kill.ahead)]
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--max-stalled-count", type=int, default=1000)
    parser.add_argument("--location", default="", help="an empty store; by default a new file")
    settings = Settings(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory(prefix="bullite-storm-") as folder:
        storm = Storm(settings, Path(folder))
        began = time.monotonic()
        asyncio.run(storm.rage())
        report = judge(storm, time.monotonic() - began)
    sys.stdout.write(f"{'seed:':32} {settings.seed}\n{report}\n")
    sys.exit(not report.promises_kept)


if __name__ == "__main__":
    main()
