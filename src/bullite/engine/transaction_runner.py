"""Run one transaction: requests and claims, counts and events, commit, sync, replies."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from ..core.log_throttle import ThrottledLog
from ..database.driver import Driver, OutOfOrder, Params, Result, Step
from ..operations import add
from ..operations.registry import OPERATIONS
from ..operations.transaction import Operation, Transaction
from .batching import group
from .dispatcher import Claims, Dispatcher
from .followers import Followers
from .lock_order import NO_FIRST_LOCKS, FirstLocks, LockOrder, first_locks
from .metrics import MetricsBuffer
from .replies import PendingRequest, deliver
from .result_waiters import ResultWaiters

log = logging.getLogger("bullite.engine")

T = TypeVar("T")

SLOW_LOCK, SLOW_STATEMENT = 0.2, 0.1
"""Seconds worth a warning."""


class TransactionRunner:
    """Runs transactions of one engine, on its thread."""

    def __init__(
        self,
        driver: Driver,
        dispatcher: Dispatcher,
        followers: Followers,
        result_waiters: ResultWaiters,
        metrics: MetricsBuffer,
    ) -> None:
        self._driver = driver
        self._dispatcher = dispatcher
        self._followers = followers
        self._result_waiters = result_waiters
        self._metrics = metrics
        self._order: LockOrder | None = None
        self._slow_log = ThrottledLog(log, every=1)

    def run(
        self,
        batch: Sequence[PendingRequest],
        verify_first: bool = False,
        claims_jobs: bool = True,
        locks: FirstLocks = NO_FIRST_LOCKS,
    ) -> None:
        """Run one transaction, then deliver the replies.

        It executes `batch` and the claims of workers with capacity, and writes counters and event
        log rows.
        """
        requests = [pending.request for pending in batch]
        groups = group(requests)
        answers: list[Any] = [None] * len(batch)
        if requests and self._driver.has_other_writers:
            locks = first_locks(requests, groups, locks)
        first = () if any(locks) else self._first_statements(requests, groups)
        waited = self._begin(any(r.durable for r in requests), first)
        try:
            if self._driver.has_other_writers:
                self._order = LockOrder(self._timed, locks)
            tx = Transaction(
                self._driver.clock.now(),
                self._driver.clock.lease_now(),
                self._driver.nonce,
                verify_first,
            )
            for indexes in groups:
                if self._order is not None:
                    self._order.begin_group()
                members = [requests[index] for index in indexes]
                operation = OPERATIONS[type(members[0])](tx, members)
                for index, answer in zip(indexes, self._drive(operation), strict=True):
                    answers[index] = answer
            if self._order is not None:
                self._order.begin_group(claims=True)
            claims = (
                self._dispatcher.claim_for_subscribers(tx, self._drive)
                if claims_jobs and not verify_first
                else ()
            )
            self._drive(tx.write_counts_and_events())
            self._dispatcher.notify_others(tx, claims)
            self._dispatcher.notify_cancelled(tx)
            sync_due = self._driver.commit()
        except BaseException:
            self._driver.rollback()
            raise
        self._driver.send_notifications()
        self._measure(tx, claims, waited)
        entries = self._followers.entries(tx) if self._followers else ()
        jobs = self._dispatcher.after_commit(tx, claims)
        if sync_due:
            if jobs and not entries and not any(r.reply_before_claims for r in requests):
                deliver(jobs)  # a claim need not be on the disk
                jobs = []
            self._driver.sync()
        results = self._result_waiters.finished(requests, answers)
        # Deliver replies before claims: `add()` must return before the job's processor starts.
        deliver([*entries, *zip(batch, answers, strict=True), *jobs, *results])

    def _begin(self, durable: bool, first: Sequence[Step]) -> float:
        """Begin the transaction. Return how many seconds that took: the wait for the write lock."""
        started = time.perf_counter()
        self._driver.begin(durable, first)
        waited = time.perf_counter() - started
        if waited > SLOW_LOCK:
            self._slow_log.warning("waited %d ms for the write lock", waited * 1e3)
        return waited

    def _first_statements(self, requests: list[Any], groups: list[list[int]]) -> Sequence[Step]:
        """Return the statements that the first operation executes first, if they are known."""
        if not requests:
            return self._dispatcher.first_statements()
        first = [requests[index] for index in groups[0]]
        return add.first_statements(first) if type(first[0]) is add.AddJobs else ()

    def _drive(self, operation: Operation[T]) -> T:
        execute = self._timed if self._order is None else self._order.execute
        try:
            step = next(operation)
            while True:
                try:
                    result = execute(*step)
                except OutOfOrder as error:
                    step = operation.throw(error)
                else:
                    step = operation.send(result)
        except StopIteration as stop:
            outcome: T = stop.value
            return outcome

    def _timed(self, statement: str, params: Params) -> Result:
        began = time.perf_counter()
        result = self._driver.execute(statement, params)
        took = time.perf_counter() - began
        if took > SLOW_STATEMENT:
            self._slow_log.warning("the statement %s took %d ms", statement, took * 1e3)
        return result

    def _measure(self, tx: Transaction, claims: Claims, waited: float) -> None:
        ended = sum(completed + failed for completed, failed in tx.ended.values())
        # With several concurrent writers there is no write lock: it was the way to the server.
        self._metrics.transacted(ended, 0 if self._driver.has_other_writers else waited)
        for queue, (completed, failed) in tx.ended.items():
            self._metrics.ended(queue, tx.now, completed, failed)
        for subscription, claimed in claims:
            if (ms := claimed.typical_wait()) is not None:
                jobs = len(claimed.rows)
                self._metrics.waited(subscription.queue, claimed.claimed_at, ms, jobs)
