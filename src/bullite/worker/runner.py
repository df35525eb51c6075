"""What the runners have in common: jobs that have not started, and checks before and after a run.

A runner is given claimed jobs and reports the outcomes of their runs. It uses no database.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Protocol

from ..client.job.job import Job
from ..core.decide_outcome import STARTED_TOO_OFTEN, Raised, Result
from ..errors import LostLock
from .context import WorkerContext
from .control_errors import is_control
from .prefetch import PrefetchBuffer, PrefetchSizer
from .processors import ANY, Handler

STUCK_AFTER = 1.0
"""Seconds between the abort signal of a timed-out run and the report that it is stuck."""


class ResultReceiver(Protocol):
    """Receives the results of runs, such as a completer."""

    def returned(self, job: Job, value: Any) -> None:
        """A run on the event loop returned: the same as `ended` with Returned, for speed."""

    def ended(self, job: Job, result: Result | None) -> None:
        """A run ended; None if its job was moved by its own processor, or is lost."""

    def ended_in_thread(self, job: Job, result: Result, is_urgent: bool) -> None:
        """A run in a thread ended. Unless it is urgent, its outcome may be sent with later ones."""


class BaseRunner(ABC):
    """Runs jobs, at most `concurrency` of them at a time."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        concurrency: int,
        worker: WorkerContext,
        results: ResultReceiver,
    ) -> None:
        self._handlers = handlers
        self._fallback = handlers.get(ANY)
        self._only = (
            self._fallback.call if self._fallback is not None and len(handlers) == 1 else None
        )
        self._concurrency = concurrency
        self._results = results
        self._notifications = worker.notifications
        self._retry_delay = worker.options.strategies.retry_delay
        self._max_started_attempts = worker.options.max_started_attempts
        self._buffer = PrefetchBuffer()
        self.sizer = PrefetchSizer(concurrency)
        self.reports_starts = False
        """The worker has listeners of `active`."""

    @abstractmethod
    def take(self, jobs: Sequence[Job]) -> None:
        """Run these jobs as soon as their turn comes. Never block."""

    @abstractmethod
    def running(self) -> list[Job]:
        """Return the jobs that have started and not ended."""

    @abstractmethod
    def busy(self) -> int:
        """Return how many jobs were taken and have not ended."""

    @abstractmethod
    def cancel(self, job: Job) -> None:
        """Cancel the coroutine of a run, or set the abort signal of its function."""

    @abstractmethod
    def change_concurrency(self, concurrency: int) -> None:
        """Run so many jobs at a time from now on. Running jobs go on."""

    @abstractmethod
    def stop(self, interrupt: bool) -> list[Job]:
        """Start no more jobs and return the unstarted ones; `interrupt` the running ones, too."""

    @abstractmethod
    def end(self, job: Job, result: Result | None) -> None:
        """Report the result of a run, or of a job that ends without one."""

    def unstarted(self) -> list[Job]:
        """Return the jobs that were taken and have not started."""
        return self._buffer.jobs()

    def return_unstarted(self) -> list[Job]:
        """Remove the jobs that have not started and return them. From any thread."""
        self.sizer.stuck()
        return self._buffer.clear()

    def return_prefetched(self) -> list[Job]:
        """Remove the prefetched jobs that have not started and return them. From any thread."""
        self.sizer.stuck()
        return self._buffer.remove_prefetched()

    def remove(self, pks: Container[int]) -> list[Job]:
        """Remove those of these jobs that have not started and return them. From any thread."""
        return self._buffer.remove(pks)

    def _call_of(self, job: Job) -> Callable[[Job], Any]:
        if self._only is not None:
            return self._only
        handler = self._handlers.get(job.name) or self._fallback
        assert handler is not None, f"this worker claims no jobs called {job.name!r}"
        return handler.call

    def _skip_reason(self, job: Job) -> str | None:
        """Return why a job must not run, or None."""
        if job.deferred_failure is not None:
            return job.deferred_failure
        most = self._max_started_attempts
        if most is not None and job.attempts_started > most:
            return STARTED_TOO_OFTEN
        return None

    def _after_moving(self, job: Job, result: Result, problem: Exception | None) -> Result | None:
        """Return what to record for a run that moved its job; None if nothing.

        `problem` is the error of the move: LostLock if the job is not this worker's any more,
        another if the database failed, which fails the run.
        """
        if problem is not None and not isinstance(problem, LostLock):
            return Raised(problem)
        error: Exception | None = problem
        if isinstance(result, Raised) and not (
            isinstance(result.error, LostLock) or is_control(result.error)
        ):
            error = result.error if isinstance(result.error, Exception) else problem
        if error is not None:
            self._notifications.late_error(job, error)
        return None
