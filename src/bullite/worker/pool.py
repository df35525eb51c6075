"""One standing order of a worker with those who carry it out: jobs in, verdicts out."""

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
from .completer import Batch, Run, Settler
from .processors import ANY, Assignment
from .runner import LoopRunner, Runner, ThreadRunner

log = logging.getLogger("bullite.worker")


class Owner(Protocol):
    """The worker that a pool belongs to."""

    queue: Queue
    name: str
    rules: RetentionDefaults
    wants_reports: bool
    """Whether anybody listens to how runs end."""

    def begun(self, job: Job) -> None: ...
    def strayed(self, job: Job, error: Exception) -> None: ...
    def stuck(self, job: Job) -> None: ...
    def progressed(self, job: Job, progress: Any) -> None: ...
    def strategy(self, job: Job, error: BaseException) -> Awaitable[Wait] | Wait: ...
    def call_later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]: ...
    def report(self, batch: Batch, settled: FinishResult) -> None: ...
    def trouble(self, error: Exception) -> None: ...
    def check_idle(self) -> None: ...
    def taken_away(self, jobs: Sequence[Job]) -> None: ...
    def took_some(self) -> None: ...
    def found_nothing(self) -> None: ...


class Pool:
    """Takes jobs of some names, or of all, and has so many of them run at a time."""

    def __init__(
        self,
        owner: Owner,
        assignment: Assignment,
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
        self._fed_directly = not any(self._in_loop.values())
        self._closing = False
        self._lost: Set[tuple[int, int]] = frozenset()
        """The jobs that were last found to be taken away, with their tokens."""
        self._verdicts: list[RunOutcome] = []
        self._runs: list[Run] = []
        name = f"bullite-{self._queue.name}"
        self._loop_runner = LoopRunner(handlers, concurrency, self, most_started)
        self._thread_runner = ThreadRunner(handlers, concurrency, self, most_started, name)
        self.subscription = Subscription(
            registration,
            concurrency,
            self._receive,
            SAME_THREAD if self._fed_directly else mailbox,
            self._unload,
            habits,
            self._stop,
            [runner.pace.readings for runner in self.runners()],
            runs=self._runs_now,
            holds=self._holds,
            report_lost=self._lose,
        )
        self._engine = engine
        self._settler = Settler(
            engine,
            self.subscription,
            owner.check_idle,
            owner.report,
            owner.trouble,
            self._look_ahead,
        )

    # --- jobs in ---

    def _receive(self, claimed: Claimed | BaseException) -> None:
        """Jobs to run; on the loop, or on the engine's thread when only threads run them."""
        if isinstance(claimed, BaseException):
            if isinstance(claimed, Exception):
                log.error("worker %s: the store failed: %s", self._owner.name, claimed)
                self._owner.trouble(claimed)
            return
        if claimed.rows:
            self._take(claimed)
        if claimed.exhausted and not claimed.limited_out:
            self._owner.found_nothing()

    def _take(self, claimed: Claimed) -> None:
        owner = self._owner
        jobs = claimed_jobs(self._queue, claimed, owner, owner.name)
        owner.took_some()
        if claimed.token <= self.subscription.returned_until:
            # A limit or a pause came behind the claim, while this was on its way here.
            self.give_back(jobs[claimed.started :])
            jobs = jobs[: claimed.started]
        if self._closing:
            self.give_back(jobs)
        elif self._fed_directly:
            self._thread_runner.take(jobs)
        elif self._all_in_loop:
            self._loop_runner.take(jobs)
        else:
            for job in jobs:
                (self._loop_runner if self._is_in_loop(job) else self._thread_runner).take((job,))

    def _is_in_loop(self, job: Job) -> bool:
        return self._all_in_loop or self._in_loop.get(job.name, self._rest_in_loop)

    def _unload(self) -> None:
        """What was fetched ahead waits too long: let others have it. On the engine's thread.

        What was handed over to begin has a slot, and is about to.
        """
        self.subscription.prefetched = 0
        for runner in self.runners():
            self.give_back(runner.unload_ahead())

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
        taken = [job for runner in self.runners() for job in runner.take_out(reasons)]
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
            for job in runner.take_out(numbers):
                if (job.pk, job.token_number) in lost:
                    self.ended(job, None)
                else:
                    self.give_back([job])  # taken again meanwhile
        new = lost - self._lost
        self._lost = lost
        running = [job for job in self.running() if (job.pk, job.token_number) in new]
        if running:
            self._owner.taken_away(running)

    def unload(self) -> None:
        """Give back what has not begun."""
        for runner in self.runners():
            self.give_back(runner.unload())

    def give_back(self, jobs: list[Job]) -> None:
        if jobs:
            never_begun = Unstarted()
            self._settler.send([decide(job, never_begun, self._random) for job in jobs])

    # --- verdicts out ---

    def begun(self, job: Job) -> None:
        self._owner.begun(job)

    def strayed(self, job: Job, error: Exception) -> None:
        self._owner.strayed(job, error)

    def stuck(self, job: Job) -> None:
        self._owner.stuck(job)

    def strategy(self, job: Job, error: BaseException) -> Awaitable[Wait] | Wait:
        return self._owner.strategy(job, error)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        return self._owner.call_later(seconds, call)

    def check_idle(self) -> None:
        self._owner.check_idle()

    def ended(self, job: Job, result: Result | None) -> None:
        """A run ended, on the loop or in a thread."""
        if result is None:
            self._engine.ended(self.subscription, 1)
            self._owner.check_idle()
            return
        if type(result) is Returned:  # what most runs come to, without asking what else it might be
            verdict = decide_returned(job, result.value, self._random, self._rules)
        else:
            if job.cancellation is not None:
                result = Raised(job.cancellation)
            verdict = decide(job, result, self._random, self._rules)
        if self._fed_directly or not self._is_in_loop(job):
            self._settle_from_thread(job, result, verdict)
            return
        self._collect(job, verdict, result)

    def returned(self, job: Job, value: Any) -> None:
        verdict = decide_returned(job, value, self._random, self._rules)
        if self._owner.wants_reports or not self._verdicts:
            self._collect(job, verdict, Returned(value))
        else:
            self._verdicts.append(verdict)

    def _collect(self, job: Job, verdict: RunOutcome, result: Result) -> None:
        """Everything that ends in this turn of the loop goes to the engine together."""
        if not self._verdicts:
            self._loop.call_soon(self._flush)
        self._verdicts.append(verdict)
        if self._owner.wants_reports:
            self._runs.append(Run(job, result))

    def _settle_from_thread(self, job: Job, result: Result, verdict: RunOutcome) -> None:
        run = Run(job, result) if self._owner.wants_reports else None
        part = (verdict, run, job.command_end)
        self._settler.send_soon(part, hurry=self._thread_runner.calls_for_more())

    def _look_ahead(self) -> None:
        """Runs have ended: so many jobs may be held beyond those that run."""
        if self._all_in_loop:
            self.subscription.prefetched = self._loop_runner.pace.ahead()
        elif self._fed_directly:
            self.subscription.prefetched = self._thread_runner.pace.ahead()

    def _flush(self) -> None:
        verdicts, self._verdicts = self._verdicts, []
        runs, self._runs = self._runs, []
        self._look_ahead()
        if runs and len(runs) != len(verdicts):
            # Somebody began to listen in the middle of this turn: they hear of the rest.
            first = len(verdicts) - len(runs)
            self._settler.send(verdicts[:first])
            verdicts = verdicts[first:]
        self._settler.send(verdicts, runs or None)

    # --- changing and ending ---

    def change_concurrency(self, concurrency: int) -> None:
        for runner in self.runners():
            runner.change_concurrency(concurrency)
        if concurrency < self.subscription.concurrency:
            self.unload()
        self._engine.change_concurrency(self.subscription, concurrency)

    def tell_begin(self, tell: bool) -> None:
        for runner in self.runners():
            runner.tells_begin = tell

    def stop(self, interrupt: bool) -> None:
        """Begin nothing more; `interrupt` what runs."""
        self._closing = True
        for runner in self.runners():
            self.give_back(runner.stop(interrupt))

    def busy(self) -> int:
        running = sum(runner.busy() for runner in self.runners())
        return running + len(self._verdicts) + self._settler.unsettled

    def _runs_now(self) -> int:
        """How many jobs are not done with; a coroutine whose loop is closed never goes on."""
        if self._loop.is_closed():
            return self._thread_runner.busy() + self._settler.unsettled
        return self.busy()

    def running(self) -> list[Job]:
        return [job for runner in self.runners() for job in runner.running()]

    def runners(self) -> tuple[Runner, Runner]:
        return self._loop_runner, self._thread_runner
