"""Worker processes that live in the process of a test, and can be killed at the worst moment."""

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
"""Where a worker process can be killed: it has the job; it ran it; it wrote what came of it, in a
transaction that is not committed; it committed that, and nobody was told."""


class Killed(BaseException):
    """The process does not exist any more: nothing that it would have done is done."""


@dataclass(slots=True)
class KillRule:
    """The next process that comes to a point with such a job dies."""

    point: str
    job: str | None = None
    name: str | None = None
    times: int = 1
    killed: int = 0
    """How many have died of it."""

    def __post_init__(self) -> None:
        if self.point not in POINTS:
            raise InvalidOption(f"kill_at must be one of {', '.join(POINTS)}, not {self.point!r}")
        check_int("times", self.times, 1, 2**31 - 1)
        for whom in ("job", "name"):
            if getattr(self, whom) is not None:
                check_name(f"the {whom} of kill_at", getattr(self, whom))

    def awaits(self, job: Job) -> bool:
        if self.killed >= self.times or (self.name is not None and self.name != job.name):
            return False
        return self.job is None or self.job == job.id

    def __str__(self) -> str:
        whom = {"job": self.job, "name": self.name}
        given = [f"{key}={value!r}" for key, value in whom.items() if value is not None]
        return f"kill_at({', '.join([repr(self.point), *given])})"


class KillableDriver(SQLiteDriver):
    """A driver whose process may die as it commits."""

    kill_point: str | None = None

    def commit(self) -> bool:
        if self.kill_point == BEFORE_COMMIT:
            raise Killed
        sync_due = super().commit()
        if self.kill_point == AFTER_COMMIT:
            raise Killed
        return sync_due


class Process:
    """One worker process."""

    def __init__(self, number: int, path: Path, clock: Clock, dice: random.Random) -> None:
        self.number = number
        # Its name is not among what repeats: commands of other tests would be taken for its own.
        self.driver = KillableDriver(path, clock, random.SystemRandom().getrandbits, durable=False)
        self.store = InlineStore(self.driver)
        self.workers: dict[str, StepWorker] = {}
        self._dice = dice

    async def worker(
        self, queue: str, handlers: Mapping[str, Handler], options: Mapping[str, Any]
    ) -> StepWorker:
        """Its worker for a queue; another one once there are other processors."""
        worker = self.workers.get(queue)
        if worker is None:
            own = Queue(queue, self.store, random=self._dice.random)
            worker = StepWorker(own, handlers, f"process {self.number}", options)
            await worker.start()
            self.workers[queue] = worker
        return worker

    def dismiss(self, queue: str) -> None:
        """Have the worker of a queue leave, since there are other processors now."""
        worker = self.workers.pop(queue, None)
        if worker is not None:
            worker.stop()

    async def run(
        self, worker: StepWorker, job: Job, doom: str | None
    ) -> tuple[Result | None, bool]:
        """What a run came to, and whether that could be recorded; Killed if it is to die."""
        if doom == AFTER_CLAIM:
            raise Killed
        result = await worker.run_job(job)
        if doom == AFTER_RUN or (doom is not None and result is None):
            raise Killed
        self.driver.kill_point = doom
        return result, result is None or worker.settle(job, result)

    def die(self) -> None:
        """Gone, with its workers still on the register and its jobs in its hands."""
        self.store.close()

    def leave(self) -> None:
        """End as a process should."""
        for queue in list(self.workers):
            self.dismiss(queue)
        self.store.close()
