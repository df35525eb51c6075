"""Run maintenance requests between batches: one at a time, in transactions of their own.

Results and claims are not rolled back with them, and wait for one at most.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..core.log_throttle import ThrottledLog
from ..database.driver import Driver, TransactionAborted
from ..errors import ENDING, StoreBusy, StoreError
from ..operations.workers import RecoverStalled, RenewLeases
from .batch_runner import BatchRunner
from .dispatcher import READING, WRITING, Dispatcher
from .failures import Failures
from .maintenance import Maintenance, MaintenanceRequest
from .replies import PendingRequest, deliver
from .subscription import WorkerIntervals
from .transaction_runner import TransactionRunner

log = logging.getLogger("bullite.engine")

MAX_POSTPONED = 5
"""How often a request that the database aborts is run; one that is due is soon due again."""


class MaintenanceRunner:
    """Maintenance of one engine, on its thread."""

    def __init__(
        self,
        driver: Driver,
        dispatcher: Dispatcher,
        transactions: TransactionRunner,
        batches: BatchRunner,
        failures: Failures,
    ) -> None:
        self.schedule = Maintenance(driver)
        self._clock = driver.clock
        self._dispatcher = dispatcher
        self._transactions = transactions
        self._batches = batches
        self._failures = failures
        self._users = 0
        self._backlog: deque[_Task] = deque()
        self._throttled_log = ThrottledLog(log)

    # --- what is due ---

    def is_needed(self) -> bool:
        """Return True if this process has workers, or other users of maintenance."""
        return bool(self._dispatcher) or self._users > 0

    def change_users(self, more: int) -> None:
        self._users += more
        self.schedule.recovers = True

    def use_intervals(self, intervals: WorkerIntervals) -> None:
        """Do things as often as the strictest worker wants."""
        self.schedule.renew_within(intervals.renew_every, self._clock.lease_now())
        self.schedule.recovers = intervals.checks_stalled or self._users > 0
        self.schedule.maintenance_interval = min(
            intervals.maintenance_interval, intervals.stalled_interval
        )

    def next_at(self) -> int | None:
        """The lease time at which something is due; None without users."""
        return self.schedule.next_at() if self.is_needed() else None

    def is_due(self) -> bool:
        return self.is_needed() and self.schedule.are_due(self._clock.lease_now())

    def metrics_are_due(self) -> bool:
        """Return True if it is time to write what was measured of the workers."""
        return bool(self._dispatcher) and self.schedule.metrics_are_due(self._clock.lease_now())

    def due(self) -> list[PendingRequest]:
        """Return the requests that are due; report it to the workers if a read fails."""
        requests = self.schedule.due(self._clock.lease_now())
        if self.schedule.trouble is None:
            self._dispatcher.works(READING)
        else:
            what = "the scheduler could not look into the database"
            self._failures.report(READING, what, self.schedule.trouble)
        for request in requests:
            if isinstance(request, RecoverStalled):
                request.worker = self._dispatcher.apply_stall_limit(request.worker)
        return [PendingRequest(request, partial(self._done, request)) for request in requests]

    def _done(self, request: MaintenanceRequest, answer: Any) -> None:
        if isinstance(answer, BaseException):
            self._throttled_log.warning("%s failed: %s", type(request).__name__.lower(), answer)
            if isinstance(request, RenewLeases) or isinstance(answer, StoreError):
                deliver(self._dispatcher.troubled(WRITING, answer))
        elif isinstance(request, RenewLeases):
            self._dispatcher.check_registered(answer)
            deliver(self._dispatcher.lost_jobs())
        elif self.schedule.again(request, answer):
            self._backlog.append(_Task(PendingRequest(request, partial(self._done, request))))

    # --- running it ---

    def has_backlog(self) -> bool:
        return bool(self._backlog)

    def enqueue(self, due: Sequence[PendingRequest]) -> None:
        """Put what is due before what is left of earlier maintenance, unless it is that."""
        waiting = [task.pending.request for task in self._backlog]
        new = [_Task(pending) for pending in due if pending.request not in waiting]
        self._backlog.extendleft(reversed(new))

    def run_next(self) -> None:
        """Run one request of the backlog."""
        if not self._backlog:
            return
        task = self._backlog.popleft()
        try:
            self._transactions.run([task.pending], claims_jobs=False)
        except TransactionAborted as error:
            task.tries += 1
            if task.tries < MAX_POSTPONED:
                log.debug("maintenance is postponed: %s", error)
                self._backlog.append(task)
            else:
                busy = StoreBusy(f"undone {task.tries} times ({error})")
                deliver([(task.pending, busy)])
        except ENDING as error:
            self._failures.fail([task.pending], error)
        except StoreError as error:
            deliver([(task.pending, error)])
        except Exception as error:
            log.debug("maintenance is run again, with verification: %s", error)
            self._batches.run_single(task.pending)


class _Task:
    """A maintenance request, and how often it was aborted."""

    __slots__ = ("pending", "tries")

    def __init__(self, pending: PendingRequest) -> None:
        self.pending = pending
        self.tries = 0
