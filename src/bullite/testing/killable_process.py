"""Simulated worker processes inside the test's process, which can be killed at defined points."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..client.job.job import Job
from ..client.queue.queue import Queue
from ..core.checks import check_int
from ..core.clock import Clock
from ..core.decide_outcome import Result
from ..core.names import check_name
from ..database.sqlite.driver import SQLiteDriver
from ..errors import InvalidOption
from ..worker.processors import Handler
from .inline_engine import InlineStore
from .manual_worker import StepWorker

AFTER_CLAIM, AFTER_RUN = "after_claim", "after_run"
BEFORE_COMMIT, AFTER_COMMIT = "before_commit", "after_commit"
POINTS = (AFTER_CLAIM, AFTER_RUN, BEFORE_COMMIT, AFTER_COMMIT)
"""Points at which a worker process can be killed: after it claimed the job; after it ran it; before
the transaction with the outcome commits; after the commit, before the reply."""


class Killed(BaseException):
    """Raised at a kill point: the simulated process does nothing more."""


@dataclass(slots=True)
class KillRule:
    """Kills the process that reaches a point with such a job, `times` times."""

    point: str
    job: str | None = None
    name: str | None = None
    times: int = 1
    killed: int = 0
    """The number of processes killed so far."""

    def __post_init__(self) -> None:
        if self.point not in POINTS:
            raise InvalidOption(f"kill_at must be one of {', '.join(POINTS)}, not {self.point!r}")
        check_int("times", self.times, 1, 2**31 - 1)
        for option in ("job", "name"):
            if getattr(self, option) is not None:
                check_name(f"the {option} of kill_at", getattr(self, option))

    def applies_to(self, job: Job) -> bool:
        """Return whether a process is to be killed with this job."""
        if self.killed >= self.times or (self.name is not None and self.name != job.name):
            return False
        return self.job is None or self.job == job.id

    def __str__(self) -> str:
        options = {"job": self.job, "name": self.name}
        given = [f"{key}={value!r}" for key, value in options.items() if value is not None]
        return f"kill_at({', '.join([repr(self.point), *given])})"


class KillableDriver(SQLiteDriver):
    """A driver that can raise `Killed` before or after a commit."""

    kill_point: str | None = None

    def commit(self) -> bool:
        if self.kill_point == BEFORE_COMMIT:
            raise Killed
        sync_due = super().commit()
        if self.kill_point == AFTER_COMMIT:
            raise Killed
        return sync_due


class Process:
    """One simulated worker process."""

    def __init__(self, number: int, path: Path, clock: Clock, rng: random.Random) -> None:
        self.number = number
        # A real random nonce, also with a seed: run markers of parallel tests must differ.
        self.driver = KillableDriver(path, clock, random.SystemRandom().getrandbits, durable=False)
        self.store = InlineStore(self.driver)
        self.workers: dict[str, StepWorker] = {}
        self._random = rng

    async def worker(
        self, queue: str, handlers: Mapping[str, Handler], options: Mapping[str, Any]
    ) -> StepWorker:
        """Return the worker for a queue, started if there is none."""
        worker = self.workers.get(queue)
        if worker is None:
            own = Queue(queue, self.store, random=self._random.random)
            worker = StepWorker(own, handlers, f"process {self.number}", options)
            await worker.start()
            self.workers[queue] = worker
        return worker

    def stop_worker(self, queue: str) -> None:
        """Stop the worker of a queue; the next one is made with the processors of that time."""
        worker = self.workers.pop(queue, None)
        if worker is not None:
            worker.stop()

    async def run(
        self, worker: StepWorker, job: Job, kill_point: str | None
    ) -> tuple[Result | None, bool]:
        """Run a job. Return its result and if it was recorded. Raise Killed at a kill point."""
        if kill_point == AFTER_CLAIM:
            raise Killed
        result = await worker.run_job(job)
        if kill_point == AFTER_RUN or (kill_point is not None and result is None):
            raise Killed
        self.driver.kill_point = kill_point
        return result, result is None or worker.settle(job, result)

    def kill(self) -> None:
        """End without deregistering the workers and without releasing their jobs."""
        self.store.close()

    def close(self) -> None:
        """Stop the workers and close the store."""
        for queue in list(self.workers):
            self.stop_worker(queue)
        self.store.close()
