"""The dispatcher: claims jobs for the workers of this process as they have capacity."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from ..core.codec import as_json
from ..core.log_throttle import ThrottledLog
from ..database.driver import ANY_NAME, Driver, Notifications, Step, WorkerRow
from ..errors import StoreError
from ..operations.claim import Claim, Claimed, claim, first_statements
from ..operations.transaction import Operation, Transaction
from .replies import Answered, PendingRequest
from .subscription import MAX_BACKOFF, MIN_BACKOFF, CancelRunning, Subscription, WorkerIntervals

log = logging.getLogger("bullite.engine")

Drive = Callable[[Operation[Any]], Any]
Claims = Sequence[tuple[Subscription, Claimed]]
"""The claims of one transaction."""

MAX_CLAIMED = 1_000
"""Jobs one worker may claim in one transaction."""

READING, WRITING = "reading", "writing"
"""What fails if the database does."""

_ANYTHING = {ANY_NAME: 1}


class Dispatcher:
    """The subscriptions of this process, and what is known of their queues."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._clock = driver.clock
        self._subscriptions: list[Subscription] = []
        self._due: dict[int, int] = {}
        self._last_token = 0
        self._paused_until = 0
        self._pause = MIN_BACKOFF
        self._throttled_log = ThrottledLog(log)
        self._to_poll: set[int] = set()
        self._failing: set[str] = set()
        """Of reading and writing, what failed last time."""
        self.trouble: StoreError | None = None
        """The error of a failed read that was not reported to any worker yet."""
        self.may_have_cancelled = False
        """Running jobs of this process may have been cancelled."""

    # --- subscriptions ---

    def __bool__(self) -> bool:
        return bool(self._subscriptions)

    def add(self, subscription: Subscription) -> None:
        self._subscriptions.append(subscription)

    def remove(self, subscription: Subscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        if not any(a.queue == subscription.queue for a in self._subscriptions):
            self._due.pop(subscription.queue, None)

    def strictest_intervals(self) -> WorkerIntervals:
        """The shortest intervals that any worker asks for."""
        all = [subscription.intervals for subscription in self._subscriptions]
        return WorkerIntervals(
            renew_every=min(h.renew_every for h in all),
            poll_interval=min(h.poll_interval for h in all),
            maintenance_interval=min(h.maintenance_interval for h in all),
            stalled_interval=min(h.stalled_interval for h in all),
            checks_stalled=any(h.checks_stalled for h in all),
        )

    def unregistered(self) -> list[Subscription]:
        """Workers that the database does not know (any more)."""
        if self._is_paused():
            return []
        return [a for a in self._subscriptions if not (a.worker or a.leaving)]

    def with_dead_loop(self) -> list[Subscription]:
        """Workers whose event loop is gone: they can finish nothing."""
        return [a for a in self._subscriptions if not (a.leaving or a.target.alive())]

    def check_registered(self, registered: set[int]) -> None:
        """Re-register the workers whose lease ended before it could be renewed."""
        for subscription in self._subscriptions:
            if subscription.worker:
                subscription.intervals.renewed(subscription.worker in registered)
            if (
                subscription.worker
                and subscription.worker not in registered
                and not subscription.leaving
            ):
                self._register_anew(subscription)

    def _register_anew(self, subscription: Subscription) -> None:
        log.error(
            "worker %d lost its registration; its jobs were given to others", subscription.worker
        )
        subscription.worker = 0
        subscription.advertised_idle = False

    # --- what may be ready for them ---

    def has_capacity(self) -> bool:
        return any(subscription.has_capacity for subscription in self._subscriptions)

    def wants_to_claim(self) -> bool:
        """Return whether a worker with free slots has not polled since its queue last changed."""
        return not self._is_paused() and any(
            subscription.needs_poll and subscription.has_capacity
            for subscription in self._subscriptions
        )

    def are_held_off(self) -> bool:
        """Return True if a claim was skipped, and may be made in a transaction of its own."""
        return any(not subscription.is_in_turn for subscription in self._subscriptions)

    def mark_ready(self, queue: int, names: Mapping[str, int] = _ANYTHING) -> None:
        """Note that jobs of this queue became ready, or will: a claim reads both."""
        for subscription in self._subscriptions:
            if subscription.queue == queue and subscription.accepts(names):
                subscription.needs_poll = True

    def take_notifications(self, received: Notifications) -> None:
        """Note what other processes notified this one of."""
        for queue in received.ready:
            self.mark_ready(queue)
        self.may_have_cancelled = received.is_alerted

    def arm_timer(self, queue: int, due: int) -> None:
        """Claim at `due`, when a delayed job becomes ready, if a worker of its queue lives here."""
        if any(subscription.queue == queue for subscription in self._subscriptions):
            self._due[queue] = min(due, self._due.get(queue, due))

    def poll_queues(self) -> None:
        """Poll for jobs: another process has committed."""
        for queue in {a.queue for a in self._subscriptions if a.has_capacity and not a.needs_poll}:
            self.poll_queue(queue)

    def poll_queue(self, queue: int) -> None:
        """Read, without the write lock, whether a queue has ready or delayed jobs."""
        try:
            [[ready, due]] = self._driver.execute("has_ready_or_due", {"queue": queue}).rows
        except StoreError as error:
            self._throttled_log.warning("could not look for jobs: %s", error)
            self.trouble = error
            return
        if ready:
            self.mark_ready(queue)
        if due is not None:
            self.arm_timer(queue, due)

    def poll_newly_idle(self) -> None:
        """Poll the queues whose workers have just been advertised as idle.

        A process that committed beside our claim did not see them as idle and sent no notification.
        """
        while self._to_poll:
            self.poll_queue(self._to_poll.pop())

    def all(self) -> Sequence[Subscription]:
        return self._subscriptions

    def holds_jobs(self) -> bool:
        """Return True if a worker of this process may run a job."""
        return any(subscription.held or subscription.manual for subscription in self._subscriptions)

    def cancel_running_jobs(self) -> list[Answered]:
        """Return the calls that tell the workers of this process which jobs are cancelled."""
        try:
            rows = self._driver.execute(
                "cancelled_running_jobs", {"nonce": self._driver.nonce}
            ).rows
        except StoreError as error:
            self._throttled_log.warning("could not look for jobs that are cancelled: %s", error)
            self.trouble = error
            return []
        stops: dict[int, list[CancelRunning]] = {}
        for job, worker, token, reason in rows:
            stops.setdefault(worker, []).append(CancelRunning(job, token, reason))
        return [
            (
                PendingRequest(None, subscription.stop, subscription.target),
                stops[subscription.worker],
            )
            for subscription in self._subscriptions
            if subscription.worker in stops
        ]

    def lost_jobs(self) -> list[Answered]:
        """Return the calls that tell the workers of this process which jobs they have lost."""
        # Before the read: what is claimed or recorded meanwhile does not appear lost.
        held = [(subscription, subscription.holds()) for subscription in self._subscriptions]
        jobs = sorted({job for _, holds in held for job, _ in holds})
        if not jobs:
            return []
        params = {"jobs": as_json(jobs), "nonce": self._driver.nonce}
        try:
            rows = self._driver.execute("tokens_here", params).rows
        except StoreError as error:
            self._throttled_log.warning("could not look for jobs that were taken away: %s", error)
            self.trouble = error
            return []
        here = {(job, token) for job, token in rows}
        return [
            (PendingRequest(None, subscription.report_lost, subscription.target), holds - here)
            for subscription, holds in held
            if not holds <= here
        ]

    def mark_due_ready(self) -> None:
        """Note the queues whose delayed jobs are due."""
        if self._due:
            now = self._clock.now()
            for queue in [queue for queue, due in self._due.items() if due <= now]:
                del self._due[queue]
                self.mark_ready(queue)

    def all_prefetchers_progressing(self) -> bool:
        """Return whether workers hold prefetched jobs and each has made progress in time."""
        lease_now = self._clock.lease_now()
        times = [
            ms for a in self._subscriptions if (ms := a.prefetch_timeout_in(lease_now)) is not None
        ]
        return min(times, default=0) > 0

    def return_stuck_prefetched(self) -> None:
        """Have jobs returned that were prefetched behind a long run: other workers can run them."""
        lease_now = self._clock.lease_now()
        for subscription in self._subscriptions:
            if subscription.prefetch_timed_out(lease_now):
                subscription.last_progress_at = lease_now
                subscription.return_prefetched()

    def next_in(self) -> int | None:
        """Ms until a delayed job is due, a pause ends or prefetched jobs should be returned."""
        lease_now = self._clock.lease_now()
        times = [
            ms for a in self._subscriptions if (ms := a.prefetch_timeout_in(lease_now)) is not None
        ]
        if self._due:
            times.append(min(self._due.values()) - self._clock.now())
        if self._is_paused():
            times.append(self._paused_until - lease_now)
        return min(times, default=None)

    # --- claiming, inside a transaction ---

    def claim_manually(self, subscription: Subscription) -> Claim:
        """Return the claim of one job for a caller of `get_next_job`."""
        self._last_token += 1
        return replace(subscription.claim(self._last_token, 1), demand=1, start_now=1)

    def first_statements(self) -> list[Step]:
        """Return what a transaction without requests executes first."""
        for subscription in self._subscriptions:
            if subscription.needs_poll and subscription.has_capacity:
                return first_statements(subscription.claim(0, MAX_CLAIMED), subscription.limited)
        return []

    def claim_for_subscribers(self, tx: Transaction, drive: Drive) -> Claims:
        """Claim for every worker that has free slots, and whose queue may have jobs."""
        claims: list[tuple[Subscription, Claimed]] = []
        if self._is_paused():
            return claims
        if self._driver.may_have_lost_commits():
            for subscription in self._subscriptions:
                subscription.advertised_idle = False
                subscription.needs_poll = True
        # Queue after queue: claims under limits wait for each other. Only the first may wait, so
        # claims that were skipped the last time come first.
        for subscription in sorted(self._subscriptions, key=attrgetter("is_in_turn", "queue")):
            names = tx.ready.get(subscription.queue)
            if names and subscription.accepts(names):
                subscription.needs_poll = True
            if subscription.needs_poll and subscription.has_capacity:
                self._last_token += 1
                [claimed] = drive(claim(tx, [subscription.claim(self._last_token, MAX_CLAIMED)]))
                subscription.is_in_turn = not claimed.held_off
                if claimed.held_off:
                    continue
                claims.append((subscription, claimed))
                subscription.limited, subscription.fair_share = claimed.limited, claimed.fair_share
                idle = claimed.exhausted and subscription.demand > len(claimed.rows)
                if idle != subscription.advertised_idle:
                    self._driver.set_idle(subscription.worker, idle)
        return claims

    def notify_others(self, tx: Transaction, claims: Claims) -> None:
        """Notify as many idle workers of other processes as there are jobs left for them."""
        left = {queue: (sum(names.values()), names) for queue, names in tx.ready.items()}
        for subscription, claimed in claims:
            number, names = left.get(subscription.queue, (0, {}))
            number -= len(claimed.rows)
            if not claimed.exhausted and subscription.advertised_idle:
                # This worker was notified and did not empty the queue: notify one more.
                number, names = max(1, number), _ANYTHING
            left[subscription.queue] = number, names
        for queue in tx.delayed:
            left.setdefault(queue, (1, _ANYTHING))
        for queue, (number, names) in left.items():
            if number > 0:
                self._driver.queue_notification(queue, names, number)

    def notify_cancelled(self, tx: Transaction) -> None:
        """Notify the processes that run jobs which the transaction cancels."""
        for queue, nonce in tx.stopping:
            if nonce == self._driver.nonce:
                self.may_have_cancelled = True
            else:
                self._driver.queue_cancel_notification(queue, nonce)

    # --- after a transaction ---

    def after_commit(self, tx: Transaction, claims: Claims) -> list[Answered]:
        """Update subscriptions and timers after a commit; return the jobs to deliver."""
        self._pause = MIN_BACKOFF
        if self._failing:
            self.works(WRITING)
        for queue, names in tx.ready.items():
            self.mark_ready(queue, names)
        for queue, due in tx.delayed.items():
            self.arm_timer(queue, due)
        for subscription, claimed in claims:
            subscription.add_held(len(claimed.rows), tx.lease_now)
            was_idle, subscription.advertised_idle = (
                subscription.advertised_idle,
                claimed.exhausted and subscription.demand > 0,
            )
            # Not advertised as idle, so no process notifies it: poll when it next has capacity.
            subscription.needs_poll = not subscription.advertised_idle
            if subscription.advertised_idle and not was_idle and self._driver.has_other_writers:
                self._to_poll.add(subscription.queue)
            if claimed.next_due is not None:
                self.arm_timer(subscription.queue, claimed.next_due)
            if claimed.paused or (claimed.limited and subscription.held > subscription.concurrency):
                self._return_prefetched(subscription)
            if claimed.unregistered:
                self._register_anew(subscription)
        for queue in tx.limited:
            self._return_all_prefetched(queue)
        if len(self._subscriptions) > 1 and claims:
            # The first to claim in this transaction is the last in the next.
            self._subscriptions.append(self._subscriptions.pop(0))
        return [
            (PendingRequest(None, a.reply, a.target), claimed)
            for a, claimed in claims
            if claimed.rows or claimed.exhausted
        ]

    def _return_all_prefetched(self, queue: int) -> None:
        for subscription in self._subscriptions:
            if subscription.queue == queue:
                self._return_prefetched(subscription)

    def _return_prefetched(self, subscription: Subscription) -> None:
        """Have a worker return what it prefetched in all claims up to now."""
        if subscription.returned_until < self._last_token:  # else it was called for all of them
            subscription.returned_until = self._last_token
            subscription.return_prefetched()

    def after_failure(self, error: Exception) -> list[Answered]:
        """Pause after a failed transaction. Return the error for the workers that have capacity."""
        idle = [a for a in self._subscriptions if (a.needs_poll and a.has_capacity) or not a.worker]
        if not idle or self._is_paused():
            return []
        asked_for = [p for a in idle if (p := a.intervals.pause_after_error) is not None]
        self._paused_until = self._clock.lease_now() + min(asked_for, default=self._pause)
        self._pause = min(2 * self._pause, MAX_BACKOFF)
        self._failing.add(WRITING)
        return self._report(idle, error)

    def troubled(self, what: str, error: BaseException) -> list[Answered]:
        """Note a failed read or write. Return the error for the workers whose report is due."""
        self._failing.add(what)
        lease_now = self._clock.lease_now()
        return self._report(
            [a for a in self._subscriptions if a.next_report_at <= lease_now], error
        )

    def works(self, what: str) -> None:
        """Note a read or write that worked. If both work again, the next error is reported anew."""
        self._failing.discard(what)
        if not self._failing:
            for subscription in self._subscriptions:
                subscription.reset_reports()

    def apply_stall_limit(self, lost: WorkerRow) -> WorkerRow:
        """Return a lost worker's row with the lowest stall limit of its queue's workers here."""
        limits = [
            subscription.registration.max_stalled_count
            for subscription in self._subscriptions
            if subscription.queue == lost.queue
        ]
        return lost._replace(max_stalled_count=min(limits, default=lost.max_stalled_count))

    def report_to_all(self, error: BaseException) -> list[Answered]:
        """Return an error that concerns every worker, for each of them."""
        return self._report(self._subscriptions, error)

    def _report(
        self, subscriptions: Sequence[Subscription], error: BaseException
    ) -> list[Answered]:
        lease_now = self._clock.lease_now()
        for subscription in subscriptions:
            subscription.note_report(lease_now)
        return [
            (PendingRequest(None, subscription.reply, subscription.target), error)
            for subscription in subscriptions
        ]

    def _is_paused(self) -> bool:
        return self._paused_until > 0 and self._paused_until > self._clock.lease_now()
