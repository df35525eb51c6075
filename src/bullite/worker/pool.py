"""A subscription of a worker with the runner of its jobs: jobs in, outcomes out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Any, Protocol

from ..client.job.job import Job, Wait, claimed_jobs
from ..client.queue.queue import Queue
from ..core.decide_outcome import (
    Raised,
    Result,
    RetentionDefaults,
    Returned,
    RunOutcome,
    Unstarted,
    decide,
    decide_returned,
)
from ..engine.engine import Engine
from ..engine.replies import SAME_THREAD, ReplyTarget
from ..engine.subscription import CancelRunning, Subscription, WorkerIntervals
from ..errors import JobCancelled
from ..operations.claim import Claimed
from ..operations.finish import FinishResult
from ..operations.workers import RegisterWorker
from .completer import Completer, EndedRun, OutcomeBatch
from .processors import ANY, HandlerGroup
from .runner import LoopRunner, Runner, ThreadRunner

log = logging.getLogger("bullite.worker")


class PoolOwner(Protocol):
    """The worker that a pool belongs to."""

    queue: Queue
    name: str
    rules: RetentionDefaults
    _has_listeners: bool
    """Whether anybody listens to how runs end."""

    def _on_started(self, job: Job) -> None: ...
    def _on_late_error(self, job: Job, error: Exception) -> None: ...
    def _on_stuck(self, job: Job) -> None: ...
    def _on_progress(self, job: Job, progress: Any) -> None: ...
    def strategy(self, job: Job, error: BaseException) -> Awaitable[Wait] | Wait: ...
    def call_later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]: ...
    def _on_recorded(self, batch: OutcomeBatch, settled: FinishResult) -> None: ...
    def _on_store_error(self, error: Exception) -> None: ...
    def _check_drained(self) -> None: ...
    def taken_away(self, jobs: Sequence[Job]) -> None: ...
    def _on_claimed(self) -> None: ...
    def _on_empty(self) -> None: ...


class Pool:
    """Takes jobs of some names, or of all, and has so many of them run at a time."""

    def __init__(
        self,
        owner: PoolOwner,
        assignment: HandlerGroup,
        concurrency: int,
        engine: Engine,
        registration: RegisterWorker,
        habits: WorkerIntervals,
        mailbox: ReplyTarget,
        most_started: int | None,
    ) -> None:
        self._owner = owner
        self._queue = owner.queue
        self._random, self._rules = owner.queue.random, owner.rules
        self._loop = asyncio.get_running_loop()
        handlers = assignment.handlers
        self._in_loop = {name: handler.in_loop for name, handler in handlers.items()}
        self._rest_in_loop = self._in_loop.get(ANY, False)
        self._all_in_loop = all(self._in_loop.values())
        self._threads_only = not any(self._in_loop.values())
        self._closing = False
        self._lost: Set[tuple[int, int]] = frozenset()
        """The jobs that were last found to be taken away, with their tokens."""
        self._outcomes: list[RunOutcome] = []
        self._runs: list[EndedRun] = []
        name = f"bullite-{self._queue.name}"
        self._loop_runner = LoopRunner(handlers, concurrency, self, most_started)
        self._thread_runner = ThreadRunner(handlers, concurrency, self, most_started, name)
        self.subscription = Subscription(
            registration,
            concurrency,
            self._on_claimed,
            SAME_THREAD if self._threads_only else mailbox,
            self._return_prefetched,
            habits,
            self._stop,
            [runner.pace.timings for runner in self.runners()],
            runs=self._runs_now,
            holds=self._holds,
            report_lost=self._lose,
        )
        self._engine = engine
        self._completer = Completer(
            engine,
            self.subscription,
            owner._check_drained,
            owner._on_recorded,
            owner._on_store_error,
            self._update_prefetch,
        )

    # --- jobs in ---

    def _on_claimed(self, claimed: Claimed | BaseException) -> None:
        """Jobs to run; on the loop, or on the engine's thread when only threads run them."""
        if isinstance(claimed, BaseException):
            if isinstance(claimed, Exception):
                log.error("worker %s: the store failed: %s", self._owner.name, claimed)
                self._owner._on_store_error(claimed)
            return
        if claimed.rows:
            self._start(claimed)
        if claimed.exhausted and not claimed.limited_out:
            self._owner._on_empty()

    def _start(self, claimed: Claimed) -> None:
        owner = self._owner
        jobs = claimed_jobs(self._queue, claimed, owner, owner.name)
        owner._on_claimed()
        if claimed.token <= self.subscription.returned_until:
            # A limit or a pause came behind the claim, while this was on its way here.
            self.return_jobs(jobs[claimed.started :])
            jobs = jobs[: claimed.started]
        if self._closing:
            self.return_jobs(jobs)
        elif self._threads_only:
            self._thread_runner.take(jobs)
        elif self._all_in_loop:
            self._loop_runner.take(jobs)
        else:
            for job in jobs:
                (self._loop_runner if self._is_in_loop(job) else self._thread_runner).take((job,))

    def _is_in_loop(self, job: Job) -> bool:
        return self._all_in_loop or self._in_loop.get(job.name, self._rest_in_loop)

    def _return_prefetched(self) -> None:
        """What was fetched ahead waits too long: let others have it. On the engine's thread.

        What was handed over to begin has a slot, and is about to.
        """
        self.subscription.prefetched = 0
        for runner in self.runners():
            self.return_jobs(runner.return_prefetched())

    def _stop(self, stops: Sequence[CancelRunning]) -> None:
        """Jobs of this worker are cancelled: those that have not begun never do."""
        reasons = {(stop.job, stop.token): stop.reason for stop in stops}
        self._cancel({
            job: reasons[job.pk, job.token_number]
            for job in self._held()
            if (job.pk, job.token_number) in reasons
        })  # fmt: skip

    def cancel_those(self, wanted: Callable[[Job], bool], reason: str) -> int:
        """Cancel what this worker runs, or is about to; how many of them."""
        return self._cancel({job: reason for job in self._held() if wanted(job)})

    def _held(self) -> list[Job]:
        return [job for runner in self.runners() for job in runner.waiting()] + self.running()

    def _cancel(self, jobs: Mapping[Job, str]) -> int:
        """Cancel jobs, each with its reason; how many of them are still here.

        First those that wait: what begins meanwhile is found among those that run.
        """
        reasons = {job.pk: reason for job, reason in jobs.items()}
        taken = [job for runner in self.runners() for job in runner.remove(reasons)]
        for job in taken:
            self.ended(job, Raised(JobCancelled(reasons[job.pk])))
        begun = [job for job in self.running() if job in jobs]
        for job in begun:
            self.cancel(job, jobs[job])
        return len(taken) + len(begun)

    def cancel(self, job: Job, reason: str) -> None:
        """End the run of a job that is cancelled."""
        if job.cancellation is not None:
            return  # it is about to end
        job.cancellation = JobCancelled(reason)
        (self._loop_runner if self._is_in_loop(job) else self._thread_runner).cancel(job)

    def _holds(self) -> Set[tuple[int, int]]:
        """What it runs, or is about to, with its tokens; what moved itself may be anybody's."""
        return {(job.pk, job.token_number) for job in self._held() if job.moving is None}

    def _lose(self, lost: Set[tuple[int, int]]) -> None:
        """These were taken away: what has not begun never does, what runs is reported once."""
        numbers = {job for job, _ in lost}
        for runner in self.runners():
            for job in runner.remove(numbers):
                if (job.pk, job.token_number) in lost:
                    self.ended(job, None)
                else:
                    self.return_jobs([job])  # taken again meanwhile
        new = lost - self._lost
        self._lost = lost
        running = [job for job in self.running() if (job.pk, job.token_number) in new]
        if running:
            self._owner.taken_away(running)

    def return_unstarted(self) -> None:
        """Give back what has not begun."""
        for runner in self.runners():
            self.return_jobs(runner.return_unstarted())

    def return_jobs(self, jobs: list[Job]) -> None:
        if jobs:
            never_begun = Unstarted()
            self._completer.send([decide(job, never_begun, self._random) for job in jobs])

    # --- verdicts out ---

    def _on_started(self, job: Job) -> None:
        self._owner._on_started(job)

    def _on_late_error(self, job: Job, error: Exception) -> None:
        self._owner._on_late_error(job, error)

    def _on_stuck(self, job: Job) -> None:
        self._owner._on_stuck(job)

    def strategy(self, job: Job, error: BaseException) -> Awaitable[Wait] | Wait:
        return self._owner.strategy(job, error)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        return self._owner.call_later(seconds, call)

    def _check_drained(self) -> None:
        self._owner._check_drained()

    def ended(self, job: Job, result: Result | None) -> None:
        """A run ended, on the loop or in a thread."""
        if result is None:
            self._engine.subscriptions.runs_ended(self.subscription, 1)
            self._owner._check_drained()
            return
        if type(result) is Returned:  # what most runs come to, without asking what else it might be
            verdict = decide_returned(job, result.value, self._random, self._rules)
        else:
            if job.cancellation is not None:
                result = Raised(job.cancellation)
            verdict = decide(job, result, self._random, self._rules)
        if self._threads_only or not self._is_in_loop(job):
            self._finish_from_thread(job, result, verdict)
            return
        self._buffer_outcome(job, verdict, result)

    def returned(self, job: Job, value: Any) -> None:
        verdict = decide_returned(job, value, self._random, self._rules)
        if self._owner._has_listeners or not self._outcomes:
            self._buffer_outcome(job, verdict, Returned(value))
        else:
            self._outcomes.append(verdict)

    def _buffer_outcome(self, job: Job, verdict: RunOutcome, result: Result) -> None:
        """Everything that ends in this turn of the loop goes to the engine together."""
        if not self._outcomes:
            self._loop.call_soon(self._send_outcomes)
        self._outcomes.append(verdict)
        if self._owner._has_listeners:
            self._runs.append(EndedRun(job, result))

    def _finish_from_thread(self, job: Job, result: Result, verdict: RunOutcome) -> None:
        run = EndedRun(job, result) if self._owner._has_listeners else None
        part = (verdict, run, job.command_end)
        self._completer.send_merged(part, hurry=self._thread_runner.needs_more_work())

    def _update_prefetch(self) -> None:
        """Runs have ended: so many jobs may be held beyond those that run."""
        if self._all_in_loop:
            self.subscription.prefetched = self._loop_runner.pace.prefetch()
        elif self._threads_only:
            self.subscription.prefetched = self._thread_runner.pace.prefetch()

    def _send_outcomes(self) -> None:
        verdicts, self._outcomes = self._outcomes, []
        runs, self._runs = self._runs, []
        self._update_prefetch()
        if runs and len(runs) != len(verdicts):
            # Somebody began to listen in the middle of this turn: they hear of the rest.
            first = len(verdicts) - len(runs)
            self._completer.send(verdicts[:first])
            verdicts = verdicts[first:]
        self._completer.send(verdicts, runs or None)

    # --- changing and ending ---

    def change_concurrency(self, concurrency: int) -> None:
        for runner in self.runners():
            runner.change_concurrency(concurrency)
        if concurrency < self.subscription.concurrency:
            self.return_unstarted()
        self._engine.subscriptions.change_concurrency(self.subscription, concurrency)

    def tell_begin(self, tell: bool) -> None:
        for runner in self.runners():
            runner.tells_begin = tell

    def stop(self, interrupt: bool) -> None:
        """Begin nothing more; `interrupt` what runs."""
        self._closing = True
        for runner in self.runners():
            self.return_jobs(runner.stop(interrupt))

    def busy(self) -> int:
        running = sum(runner.busy() for runner in self.runners())
        return running + len(self._outcomes) + self._completer.unconfirmed

    def _runs_now(self) -> int:
        """How many jobs are not done with; a coroutine whose loop is closed never goes on."""
        if self._loop.is_closed():
            return self._thread_runner.busy() + self._completer.unconfirmed
        return self.busy()

    def running(self) -> list[Job]:
        return [job for runner in self.runners() for job in runner.running()]

    def runners(self) -> tuple[Runner, Runner]:
        return self._loop_runner, self._thread_runner
