"""The engine: a writer thread that batches requests into transactions (group commit).

A turn takes all requests from the inbox. It executes them in one transaction, with the claims of
workers that have capacity, and replies after the commit. The engine contains no SQL.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..database.driver import Driver
from ..errors import ENDING, StoreError
from .batch_runner import BatchRunner
from .calls import EngineCall, call
from .dispatcher import WRITING, Dispatcher
from .failures import Failures
from .followers import Followers
from .held_locks import HeldLocks
from .inbox import Inbox
from .maintenance_runner import MaintenanceRunner
from .metrics import MetricsBuffer
from .polling import PollTimer
from .read_thread import ReadThread
from .replies import (
    SAME_THREAD,
    Answered,
    PendingRequest,
    Reply,
    ReplyTarget,
    RequestMerger,
    deliver,
    ignore_reply,
    log_failure,
)
from .result_waiters import ResultWaiters
from .state import EngineState
from .subscriptions import Subscriptions
from .threads import Spawn, start_thread
from .transaction_runner import TransactionRunner

log = logging.getLogger("bullite.engine")


class Engine:
    """One writer for one database."""

    def __init__(
        self,
        driver: Driver,
        spawn: Spawn = start_thread,
        read_thread: ReadThread | None = None,
    ) -> None:
        self.driver = driver
        self.clock = driver.clock
        self._spawn = spawn
        self._inbox = Inbox()
        self._state = EngineState()
        self._is_running = self._exiting = False
        self._stopped = threading.Event()
        self.read_thread = read_thread or ReadThread(driver.reader, spawn, self._end)
        self.metrics = MetricsBuffer()
        self.held_locks = HeldLocks(driver, self.submit_all)
        self.followers = Followers(self.submit_all)
        self._dispatcher = Dispatcher(driver)
        self._failures = Failures(self._dispatcher, self._state)
        self.result_waiters = ResultWaiters(
            driver, self.read_thread, self.submit_all, self._check_now
        )
        self._poll_timer = PollTimer(driver, self._dispatcher, self.result_waiters)
        self.subscriptions = Subscriptions(
            driver,
            self._dispatcher,
            self._failures,
            self.submit_all,
            self._apply_intervals,
            self._write_metrics,
        )
        transactions = TransactionRunner(
            driver, self._dispatcher, self.followers, self.result_waiters, self.metrics
        )
        self._batches = BatchRunner(
            transactions, self._dispatcher, self._failures, self._state, driver.has_other_writers
        )
        self._maintenance = MaintenanceRunner(
            driver, self._dispatcher, transactions, self._batches, self._failures
        )

    # --- from any thread -------------------------------------------------------------------------

    def submit(self, request: Any, reply: Reply, target: ReplyTarget = SAME_THREAD) -> None:
        """Submit a request; `reply` gets its answer, or the exception, after the commit."""
        self.submit_all([PendingRequest(request, reply, target)])

    def submit_all(self, requests: Sequence[PendingRequest]) -> None:
        """Submit requests that are executed in one transaction."""
        if self._state.is_stopping:
            error = self._state.refusal()
            deliver([(pending, error) for pending in requests])
        else:
            self._inbox.put(requests)
            self._refuse_if_closed()

    def submit_merged(self, merger: RequestMerger, fragment: Any, urgent: bool = True) -> None:
        """Submit the request that `merger` makes of this fragment and others of the same time."""
        if self._state.is_stopping:
            self.submit_all(merger.merge([fragment]))
        else:
            # A caller of `result()` may wait for the job that this fragment finishes.
            self._inbox.put_fragment(merger, fragment, urgent or bool(self.result_waiters))
            self._refuse_if_closed()

    def has_room(self) -> bool:
        """Return True if a producer may submit jobs without waiting."""
        return self._inbox.has_room()

    def when_room(self, reply: Reply, target: ReplyTarget) -> None:
        """Call `reply` once the inbox has drained enough."""
        self._inbox.when_room(reply, target)
        self._refuse_if_closed()

    def change_maintenance_users(self, more: int) -> None:
        """Run maintenance even without workers: each user adds 1, and subtracts it when done."""
        self.submit_all(call(partial(self._change_maintenance_users, more)))

    def poll_now(self) -> None:
        """Make the engine poll now, as if another process had committed."""
        self.submit_all(call(self._poll, log_failure))

    @property
    def is_stopping(self) -> bool:
        return self._state.is_stopping

    def _refuse_if_closed(self) -> None:
        """If the engine has left, reply to what was submitted since."""
        if self._inbox.is_closed:
            error = self._state.refusal()
            deliver([(pending, error) for pending in self._inbox.drain()])
            deliver(self._inbox.waiters_to_release())

    # --- the thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the database and start the thread. Raise what opening raises."""
        try:
            self.driver.open()
        except BaseException:
            self._inbox.close()
            self._inbox.release()
            raise
        self._is_running = True
        self._spawn(self.run, "bullite-engine")

    def run(self) -> None:
        """Take turns until the engine is closed and all accepted requests are done."""
        try:
            while not self._state.is_stopping or (self._inbox and self._state.error is None):
                self._sleep()
                self.turn()
        except BaseException as error:
            log.exception("the engine failed")
            self._state.error = StoreError(f"the engine failed: {error!r}; reopen the store")
        finally:
            self._leave()

    def close(self, timeout: float | None = None, exiting: bool = False) -> None:
        """Finish what was accepted, then stop; wait for that.

        Workers that still run jobs are marked as leaving: when this process ends, these jobs have
        not stalled. `exiting`: it is about to end.
        """
        self._exiting = exiting
        if self._is_running:
            leave = EngineCall(self.subscriptions.leave_all)
            self._inbox.put([PendingRequest(leave, ignore_reply)])
        self._state.is_stopping = True
        if self._is_running:
            self._inbox.put(call(lambda pending: self._write_metrics(), log_failure))
            self._refuse_if_closed()
            self._stopped.wait(timeout)
        elif not self._stopped.is_set():
            self._leave()

    def _leave(self) -> None:
        self._state.is_stopping = True
        error = self._state.refusal()
        self.held_locks.forget_all()
        deliver([(pending, error) for pending in self.result_waiters.everyone()])
        self._inbox.close()
        self._refuse_if_closed()
        self.driver.close(self.subscriptions.leaving.still_run(), self._exiting)
        self._inbox.release()
        self._stopped.set()

    def _end(self, error: StoreError) -> None:
        """End the engine: a reader found that the store must be opened again. On its thread."""
        self.submit_all(call(lambda pending: self._failures.fail([], error)))

    def _sleep(self) -> None:
        """Wait for a request, a notification or the time of the next thing to do."""
        if self._inbox.has_urgent() or self._state.is_stopping:
            return
        if self._dispatcher.may_have_cancelled or self._dispatcher.wants_to_claim():
            return
        if self._inbox.sleep(self.driver.notification_fds(), self._timeout()):
            self._dispatcher.take_notifications(self.driver.read_notifications())
        if self._poll_timer.is_due():
            self._poll()

    def _timeout(self) -> float | None:
        """Seconds until there is something to do; None if nothing will be."""
        if self._maintenance.has_backlog():
            return 0
        lease_now = self.clock.lease_now()
        lease_times = [
            self._maintenance.next_at(),
            self._poll_timer.next_at(),
            self.held_locks.next_at(),
        ]
        times = [at - lease_now for at in lease_times if at is not None]
        if (next_claim := self._dispatcher.next_in()) is not None:
            times.append(next_claim)
        return max(0, min(times)) / 1000 if times else None

    # --- a turn ----------------------------------------------------------------------------------

    def turn(self) -> None:
        """Run one batch: all requests that are there. Then run one maintenance request."""
        leaving = self.subscriptions.leaving
        if leaving:
            leaving.redirect_replies()
        batch = self._run_calls(self._inbox.take(only_urgent=self._can_wait_for_more()))
        self._deliver_results(self.result_waiters.check_noted)
        batch += self.subscriptions.registrations()
        if self._maintenance.is_due():
            self._maintenance.enqueue(self._due_maintenance())
        batch += self.held_locks.due(self.clock.lease_now())
        if leaving:
            batch += leaving.due()
        self._dispatcher.mark_due_ready()
        self._dispatcher.return_stuck_prefetched()
        self._cancel_running_jobs()
        self._failures.report_failed_read()
        if batch or self._dispatcher.wants_to_claim():
            self._batches.run(batch)
            # Apart from the transaction: what it reads holds even if that failed.
            self._deliver_results(self.result_waiters.check_noted)
            self._dispatcher.poll_newly_idle()
        if self._state.error is None:
            self._maintenance.run_next()
        deliver(self._inbox.waiters_to_release())
        if self._state.error is None:
            self._checkpoint_if_due()

    def _can_wait_for_more(self) -> bool:
        """Return True if fragments that are not urgent may wait for more of their kind."""
        return not self._state.is_stopping and self._dispatcher.all_prefetchers_progressing()

    def _run_calls(self, batch: list[PendingRequest]) -> list[PendingRequest]:
        """Run the calls of a batch. Return the requests, which need a transaction."""
        requests: list[PendingRequest] = []
        for pending in batch:
            if not isinstance(pending.request, EngineCall):
                requests.append(pending)
                continue
            try:
                requests += pending.request.function(pending) or ()
            except StoreError as error:
                self._failures.fail([pending], error)
        return requests

    def _due_maintenance(self) -> list[PendingRequest]:
        dead = self.subscriptions.remove_dead_loops()
        if dead:
            self.followers.remove_dead_loops()
        return self._maintenance.due() + dead + self._due_metrics()

    def _due_metrics(self) -> list[PendingRequest]:
        return self._write_metrics() if self._maintenance.metrics_are_due() else []

    def _cancel_running_jobs(self) -> None:
        if not self._dispatcher.holds_jobs():
            self._dispatcher.may_have_cancelled = False
            return
        if self._dispatcher.may_have_cancelled or self._maintenance.schedule.cancellations_are_due(
            self.clock.lease_now()
        ):
            self._dispatcher.may_have_cancelled = False
            deliver(self._dispatcher.cancel_running_jobs())

    def _poll(self, pending: PendingRequest | None = None) -> None:
        self._dispatcher.poll_queues()
        self._deliver_results(self.result_waiters.check)

    def _deliver_results(self, find: Callable[[], list[Answered]]) -> None:
        """Read the jobs that callers of `watch` wait for, and deliver their replies."""
        try:
            results = find()
        except ENDING as error:
            self._failures.fail([], error)
        else:
            deliver(results)

    def _checkpoint_if_due(self) -> None:
        try:
            self.driver.checkpoint_if_due()
        except StoreError as error:
            self._failures.report(WRITING, "housekeeping failed", error)

    # --- what its parts need of each other -------------------------------------------------------

    def _check_now(self) -> None:
        self._poll_timer.check_now()

    def _change_maintenance_users(self, more: int, pending: PendingRequest) -> None:
        self._maintenance.change_users(more)
        self._apply_intervals()

    def _apply_intervals(self) -> None:
        """Do things as often as the strictest worker wants."""
        if self._dispatcher:
            intervals = self._dispatcher.strictest_intervals()
            self._poll_timer.poll_interval = intervals.poll_interval
            self._maintenance.use_intervals(intervals)

    def _write_metrics(self) -> list[PendingRequest]:
        """Return the request that writes what was measured; none if nothing is new."""
        metrics = self.metrics.record(self._dispatcher.all(), self.clock.now())
        return [] if metrics is None else [PendingRequest(metrics, log_failure)]
