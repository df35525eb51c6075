"""Polling: when to read the database for commits of other processes.

Notifications may get lost, and some drivers have none.
"""

from __future__ import annotations

from ..database.driver import Driver
from .dispatcher import Dispatcher
from .result_waiters import ResultWaiters

CHECK_EVERY = 250
"""Ms between checks for commits of other processes while workers or callers wait."""

CHECK_SOON = 5
"""The same, at the beginning of a wait for which no notification is sent."""

POLL_INTERVAL = 1_000
"""Ms after which a worker with capacity polls, even if no change was noticed."""


class PollTimer:
    """Says when a poll is due. A check for changes is cheaper than a poll, and made more often."""

    def __init__(
        self, driver: Driver, dispatcher: Dispatcher, result_waiters: ResultWaiters
    ) -> None:
        self.poll_interval = POLL_INTERVAL
        self._driver = driver
        self._dispatcher = dispatcher
        self._result_waiters = result_waiters
        self._check_at = self._check_from = self._poll_at = 0

    def is_needed(self) -> bool:
        """Return True if a worker has capacity, or a caller waits for a result."""
        return bool(self._result_waiters) or self._dispatcher.has_capacity()

    def next_at(self) -> int | None:
        """The lease time of the next check; None if none is needed."""
        return self._check_at if self.is_needed() else None

    def check_now(self) -> None:
        """Make the next check due: a caller has begun to wait."""
        self._check_at = self._check_from = 0

    def is_due(self) -> bool:
        """Check if it is time, and return True if the database must be polled."""
        lease_now = self._driver.clock.lease_now()
        if lease_now < self._check_from or not self.is_needed():
            return False
        interval = self._interval(lease_now)
        self._check_at = lease_now + interval
        # Early rather than late: an idle engine then wakes up once for this and for maintenance.
        self._check_from = lease_now + interval // 2
        if self._driver.changed() or lease_now >= self._poll_at:
            self._poll_at = lease_now + self.poll_interval
            return True
        return False

    def _interval(self, lease_now: int) -> int:
        if not self._result_waiters and self._driver.notification_fds():
            cheap = self._driver.notices_changes
            return min(CHECK_EVERY, self.poll_interval) if cheap else self.poll_interval
        # Results have no notifications, nor have jobs on some drivers: check sooner.
        waited = lease_now - self._result_waiters.since
        return min(CHECK_EVERY, max(CHECK_SOON, waited // 20))
