"""Events of a worker: what its listeners are called with, and what is logged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ..client.job.job import Job
from ..client.queue.base import pk_of
from ..client.queue.queue import Queue
from ..client.runtime import bridge
from ..client.runtime.emitter import EventEmitter
from ..core.decide_outcome import Raised, Returned, RunOutcome
from ..core.states import CANCELLED, COMPLETE, FAIL, STALL, STALL_DELAYED, State
from ..engine.engine import Engine
from ..errors import JobCancelled, LostLock
from ..operations.finish import FinishResult
from ..operations.transaction import LoggedEntries
from .event_loop import WorkerLoop
from .outcome_batch import EndedRun, OutcomeBatch

log = logging.getLogger("bullite.worker")

RecordedHook = Callable[[OutcomeBatch, FinishResult], None]
"""Called with outcomes after they were recorded, in any thread."""


class Notifications:
    """Emits the events of one worker in the thread of its event loop, from any thread."""

    def __init__(self, worker: EventEmitter, queue: Queue, name: str, loop: WorkerLoop) -> None:
        self._worker = worker
        self._queue = queue
        self._name = name
        self._loop = loop
        self.recorded_hooks: list[RecordedHook] = []
        self.has_end_listeners = False
        """The worker has listeners of `completed` or `failed`; kept here for speed."""

    def listeners_changed(self) -> None:
        """Look up again whether the worker has listeners of `completed` or `failed`."""
        self.has_end_listeners = self._worker.hears("completed", "failed")

    # --- runs ---

    def started(self, job: Job) -> None:
        """Emit `active`."""
        self._emit("active", job, State.WAITING.value)

    def progress(self, job: Job, progress: Any) -> None:
        """Emit `progress`, of the worker and of the queue."""
        if self._worker.hears("progress") or self._queue.hears("progress"):
            self._emit("progress", job, progress)
            self._loop.call(self._queue.emit, "progress", job.id, progress)

    def stuck(self, job: Job) -> None:
        """Report a run that goes on after its timeout."""
        log.error("job %s runs on although its timeout is over: it is stuck", job.id)
        self._emit("stuck", job)

    def late_error(self, job: Job, error: Exception) -> None:
        """Report an error of a run whose job was moved or lost before."""
        log.warning("job %s was moved or lost before its run ended: %s", job.id, error)
        self._emit("error", error)

    def recorded(self, batch: OutcomeBatch, result: FinishResult) -> None:
        """Report outcomes that are recorded, and those that are not because the job was lost."""
        for hook in self.recorded_hooks:
            hook(batch, result)
        if batch.runs is not None or result.lost:
            self._loop.call(self._report, batch, result)

    def _report(self, batch: OutcomeBatch, result: FinishResult) -> None:
        lost = set(result.lost)
        for job in lost:
            message = f"job {job} was no longer held when its run ended; nothing was recorded"
            log.warning("%s", message)
            self._emit("error", LostLock(message))
        for outcome, run in zip(batch.outcomes, batch.runs or (), strict=False):
            if outcome.job not in lost:
                self._report_end(run, outcome, result)

    def _report_end(self, run: EndedRun, outcome: RunOutcome, result: FinishResult) -> None:
        """Emit `completed` or `failed` for a run with its recorded outcome."""
        active = State.ACTIVE.value
        if (problem := result.overridden.get(outcome.job)) is not None:
            kind = CANCELLED if isinstance(problem, JobCancelled) else outcome.outcome
            failed = outcome._replace(move=FAIL, reason=str(problem), outcome=kind, delay=0)
            run.job._apply_outcome(failed, result.at)
            self._emit("failed", run.job, problem, active)
            return
        run.job._apply_outcome(outcome, result.at)
        match run.result:
            case Returned(value) if outcome.move is COMPLETE:
                self._emit("completed", run.job, value, active)
            case Raised(error):
                self._emit("failed", run.job, error, active)
            case _ if outcome.reason is not None:
                self._emit("failed", run.job, RuntimeError(outcome.reason), active)

    # --- locks ---

    def locks_lost(self, jobs: Sequence[Job]) -> None:
        """Report running jobs that another process recovered, and set their abort signals."""
        ids = [job.id for job in jobs]
        log.warning("worker %s runs jobs that were taken away: %s", self._name, ", ".join(ids))
        self._emit("lock-renewal-failed", ids)
        for job in jobs:
            job._run.abort(LostLock(f"job {job.id} was taken away from its worker"))

    def has_renewal_listeners(self) -> bool:
        """Return True if the worker has listeners of `locks-renewed`."""
        return self._worker.hears("locks-renewed")

    def locks_renewed(self, jobs: Sequence[Job]) -> None:
        """Emit `locks-renewed` for the running jobs."""
        if jobs:
            ids = [job.id for job in jobs]
            self._emit("locks-renewed", {"count": len(ids), "job_ids": ids})

    def follow_stalls(self, engine: Engine) -> None:
        """Emit `stalled` for each job of the queue that this process recovers."""
        kinds = frozenset((STALL.name, STALL_DELAYED.name))
        engine.followers.follow(pk_of(self._queue), self._stalled, bridge.reply_target(), kinds)

    def unfollow_stalls(self, engine: Engine) -> None:
        """Emit `stalled` no more."""
        engine.followers.unfollow(self._stalled)

    def _stalled(self, logged: Sequence[LoggedEntries] | BaseException) -> None:
        if isinstance(logged, BaseException):
            return
        for entry in logged:
            for event in entry.events:
                job_id, _ = event if isinstance(event, tuple) else (event, None)
                self._worker.emit("stalled", str(job_id), State.ACTIVE.value)

    # --- the queue and the database ---

    def has_drained_listeners(self) -> bool:
        """Return True if the worker or its queue has listeners of `drained`."""
        return self._worker.hears("drained") or self._queue.events.hears("drained")

    def drained(self) -> None:
        """Emit `drained`, of the worker and of the queue; in the thread of the event loop."""
        self._worker.emit("drained")
        self._queue.events.emit("drained", self._queue.name, self._name)

    def store_failed(self, error: Exception) -> None:
        """Emit `error`, of the worker and of the queue, for a failed request that is repeated."""
        self._emit("error", error)
        if self._queue.events.hears("error"):
            self._loop.call(self._queue.events.emit, "error", self._queue.name, self._name, error)

    def _emit(self, event: str, *arguments: Any) -> None:
        if self._worker.hears(event):
            self._loop.call(self._worker.emit, event, *arguments)
