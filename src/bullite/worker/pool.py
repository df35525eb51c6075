"""A pool runs the jobs of one subscription: it receives claimed jobs, cancels and returns them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Set

from ..client.job.job import Job, claimed_jobs
from ..client.runtime import bridge
from ..core.decide_outcome import Raised
from ..engine.engine import Engine
from ..engine.replies import SAME_THREAD
from ..engine.subscription import CancelRunning, Subscription
from ..errors import JobCancelled
from ..operations.claim import Claimed
from .completer import Completer
from .context import WorkerContext
from .loop_runner import LoopRunner
from .processors import ANY, HandlerGroup
from .runner import BaseRunner
from .thread_runner import ThreadRunner

log = logging.getLogger("bullite.worker")


class Pool:
    """A subscription of a worker with the runners of its jobs."""

    def __init__(
        self, worker: WorkerContext, engine: Engine, group: HandlerGroup, concurrency: int
    ) -> None:
        self._queue = worker.queue
        self._name = worker.options.name
        self._notifications, self._activity = worker.notifications, worker.activity
        self._job_owner = worker.job_owner()
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        handlers = group.handlers
        self._in_loop = {name: handler.in_loop for name, handler in handlers.items()}
        self._fallback_in_loop = self._in_loop.get(ANY, False)
        self._all_in_loop = all(self._in_loop.values())
        self._threads_only = not any(self._in_loop.values())
        self._closing = False
        self._lost: Set[tuple[int, int]] = frozenset()
        """The lost jobs of the last report, with their tokens."""
        self.subscription = Subscription(
            worker.registration(group.names, concurrency),
            concurrency,
            self._on_claimed,
            SAME_THREAD if self._threads_only else bridge.reply_target(),
            self._return_prefetched,
            worker.intervals,
            self._cancel_requested,
            runs=self._unrecorded,
            holds=self._claimed_pks,
            report_lost=self._on_lost,
        )
        self._completer = Completer(worker, engine, self.subscription, self._update_prefetch)
        self._loop_runner = LoopRunner(handlers, concurrency, worker, self._completer)
        self._thread_runner = ThreadRunner(
            handlers, concurrency, worker, self._completer, f"bullite-{self._queue.name}"
        )
        self._runners: tuple[BaseRunner, ...] = self._loop_runner, self._thread_runner
        self.subscription.timings = [runner.sizer.timings for runner in self._runners]

    # --- claimed jobs ---

    def _on_claimed(self, claimed: Claimed | BaseException) -> None:
        """Receive claimed jobs: on the loop, or on the engine's thread if only threads run them."""
        if isinstance(claimed, BaseException):
            if isinstance(claimed, Exception):
                log.error("worker %s: the store failed: %s", self._name, claimed)
                self._notifications.store_failed(claimed)
            return
        if claimed.rows:
            self._start(claimed)
        if claimed.exhausted and not claimed.limited_out:
            self._activity.queue_empty()

    def _start(self, claimed: Claimed) -> None:
        jobs = claimed_jobs(self._queue, claimed, self._job_owner)
        self._activity.claimed()
        if claimed.token <= self.subscription.returned_until:
            # A limit or a pause followed the claim while its jobs were on their way to this pool.
            self._completer.return_jobs(jobs[claimed.started :])
            jobs = jobs[: claimed.started]
        if self._closing:
            self._completer.return_jobs(jobs)
        elif self._threads_only:
            self._thread_runner.take(jobs)
        elif self._all_in_loop:
            self._loop_runner.take(jobs)
        else:
            for job in jobs:
                self._runner_of(job).take((job,))

    def _runner_of(self, job: Job) -> BaseRunner:
        if self._all_in_loop or self._in_loop.get(job.name, self._fallback_in_loop):
            return self._loop_runner
        return self._thread_runner

    def _update_prefetch(self) -> None:
        """Runs have ended: set how many jobs the engine may claim beyond those that run."""
        if self._all_in_loop:
            self.subscription.prefetched = self._loop_runner.sizer.prefetch()
        elif self._threads_only:
            self.subscription.prefetched = self._thread_runner.sizer.prefetch()

    def running(self) -> list[Job]:
        """Return the jobs that have started and not ended."""
        return [job for runner in self._runners for job in runner.running()]

    def unstarted(self) -> list[Job]:
        """Return the claimed jobs that have not started."""
        return [job for runner in self._runners for job in runner.unstarted()]

    def _claimed(self) -> list[Job]:
        # Unstarted jobs first: a job that starts meanwhile is found among the running ones.
        return self.unstarted() + self.running()

    def busy(self) -> int:
        """Return the number of claimed jobs whose outcomes are not known to be recorded."""
        return sum(runner.busy() for runner in self._runners) + self._completer.pending()

    def _unrecorded(self) -> int:
        """Return the same for the engine. Coroutines whose loop is closed never go on."""
        if self._loop.is_closed():
            return self._thread_runner.busy() + self._completer.unconfirmed()
        return self.busy()

    # --- returning jobs ---

    def _return_prefetched(self) -> None:
        """Return prefetched jobs that wait too long, for other workers. On the engine's thread.

        A job that was claimed for a free slot is about to start, and stays.
        """
        self.subscription.prefetched = 0
        for runner in self._runners:
            self._completer.return_jobs(runner.return_prefetched())

    def return_unstarted(self) -> None:
        """Return the jobs that have not started."""
        for runner in self._runners:
            self._completer.return_jobs(runner.return_unstarted())

    # --- cancelled and lost jobs ---

    def cancel_matching(self, matches: Callable[[Job], bool], reason: str) -> int:
        """Cancel the claimed jobs that match. Return their number."""
        return self._cancel({job: reason for job in self._claimed() if matches(job)})

    def _cancel_requested(self, requests: Sequence[CancelRunning]) -> None:
        """Cancel jobs of this worker for the engine."""
        reasons = {(request.job, request.token): request.reason for request in requests}
        self._cancel({
            job: reasons[job.pk, job._run.token_number]
            for job in self._claimed()
            if (job.pk, job._run.token_number) in reasons
        })  # fmt: skip

    def _cancel(self, reasons: Mapping[Job, str]) -> int:
        """Cancel jobs, each with its reason. Return the number of those that have not ended.

        Unstarted jobs first: a job that starts meanwhile is found among the running ones.
        """
        by_pk = {job.pk: reason for job, reason in reasons.items()}
        ended = 0
        for runner in self._runners:
            for job in runner.remove(by_pk):
                runner.end(job, Raised(JobCancelled(by_pk[job.pk])))
                ended += 1
        running = [job for job in self.running() if job in reasons]
        for job in running:
            if job._run.cancellation is None:  # else it was cancelled before, and is about to end
                job._run.cancellation = JobCancelled(reasons[job])
                self._runner_of(job).cancel(job)
        return ended + len(running)

    def _claimed_pks(self) -> Set[tuple[int, int]]:
        """Return its claimed jobs with their tokens, without those that their own run moved."""
        return {
            (job.pk, job._run.token_number) for job in self._claimed() if job._run.moving is None
        }

    def _on_lost(self, lost: Set[tuple[int, int]]) -> None:
        """Other processes recovered jobs: start them not here, and report running ones once."""
        pks = {job for job, _ in lost}
        for runner in self._runners:
            for job in runner.remove(pks):
                if (job.pk, job._run.token_number) in lost:
                    self._completer.ended(job, None)
                else:
                    self._completer.return_jobs([job])  # this worker has claimed it again meanwhile
        new = lost - self._lost
        self._lost = lost
        running = [job for job in self.running() if (job.pk, job._run.token_number) in new]
        if running:
            self._notifications.locks_lost(running)

    # --- changing and ending ---

    def change_concurrency(self, concurrency: int) -> None:
        """Run so many jobs at a time from now on."""
        for runner in self._runners:
            runner.change_concurrency(concurrency)
        if concurrency < self.subscription.concurrency:
            self.return_unstarted()
        self._engine.subscriptions.change_concurrency(self.subscription, concurrency)

    def report_starts(self, reports: bool) -> None:
        """Report each start of a run from now on, or none."""
        for runner in self._runners:
            runner.reports_starts = reports

    def stop(self, interrupt: bool) -> None:
        """Start no more jobs; `interrupt` the running ones."""
        self._closing = True
        for runner in self._runners:
            self._completer.return_jobs(runner.stop(interrupt))
