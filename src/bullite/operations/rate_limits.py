"""Limits of a queue: global concurrency, rate limits, and `rate_limit()` of an operator.

A window is fixed: it starts with the first claimed job, counts claimed jobs, and ends after its
duration. Claims under limits are serialized, so each one sees the counts of the one before. The
number of running jobs is counted from their rows at each claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..database.driver import ANY_NAME
from .request import ALONE_BESIDE_OTHERS, Request
from .transaction import Operation, Transaction, read_counts

WINDOW_USED_UP = 2**53
"""The count of a window that an operator has blocked: more than any limit allows."""

MAX_BLOCK = 30_000
"""Default ms after which a limited worker polls again."""


class Rate(NamedTuple):
    """At most `max` jobs in each `duration` ms."""

    max: int
    duration: int


class QueueLimits(NamedTuple):
    """The limits of a queue: the columns of the statement `limits`."""

    concurrency: int | None = None
    max: int | None = None
    duration: int | None = None
    until: int = 0
    """The end of the current window."""
    used: int = 0
    """Jobs that were claimed in the window."""
    by_key: int = 0

    def applies(self, limiter: Rate | None, now: int) -> bool:
        """Return True if a limit applies to a claim by a worker with this limiter."""
        return bool(
            self.concurrency is not None
            or self.max is not None
            or limiter is not None
            or self.by_key
            or self.is_blocked(now)
        )

    def is_blocked(self, now: int) -> bool:
        """Return True if an operator blocked the window."""
        return self.until > now and self.used >= WINDOW_USED_UP

    def remaining(self, limiter: Rate | None, now: int) -> int | None:
        """Return how many jobs may still be claimed in the window; None for any number.

        The maximum of the queue overrides that of a worker.
        """
        most = limiter.max if self.max is None and limiter is not None else self.max
        if most is None:
            return 0 if self.is_blocked(now) else None
        return max(0, most - self.used) if self.until > now else most

    def blocked_for_ms(self, now: int, max_jobs: int | None) -> int:
        """Return the ms for which the window allows no claim; 0 if it allows one."""
        most = self.max if max_jobs is None else max_jobs
        is_used_up = most is None or self.used >= most
        return max(0, self.until - now) if is_used_up else 0


NO_LIMITS = QueueLimits()


# --- in a claim ----------------------------------------------------------------------------------


def available_slots(
    tx: Transaction, queue: int, limits: QueueLimits, limiter: Rate | None, slots: int
) -> Operation[int]:
    """Return how many of `slots` jobs may start."""
    if limits.concurrency is not None:
        [[running]] = (yield "count_active", {"queue": queue}).rows
        slots = min(slots, max(0, limits.concurrency - running))
    left = limits.remaining(limiter, tx.now)
    return slots if left is None else min(slots, left)


def consume_window(
    tx: Transaction, queue: int, limits: QueueLimits, limiter: Rate | None, taken: int
) -> Operation[int | None]:
    """Count jobs in the window of their queue. Return its end if it allows no more jobs.

    A window that starts now has the duration of the worker's limiter, else that of the queue.
    """
    left = limits.remaining(limiter, tx.now)
    if left is None:
        return None
    until, used = limits.until, limits.used
    if taken:
        if until <= tx.now:
            duration = limits.duration if limiter is None else limiter.duration
            until, used = tx.now + (duration or 0), 0
        yield "set_window", {"queue": queue, "until": until, "used": used + taken}
    return until if taken >= left else None


# --- requests ------------------------------------------------------------------------------------


class SetConcurrency(Request):
    """Set how many jobs of a queue run at a time, over all workers. Reply with the old limit."""

    queue: int
    concurrency: int | None
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def set_concurrency(
    tx: Transaction, requests: Sequence[SetConcurrency]
) -> Operation[list[int | None]]:
    replies: list[int | None] = []
    for request in requests:
        old = yield from _change(tx, request.queue, concurrency=request.concurrency)
        replies.append(old.concurrency)
    return replies


class SetRate(Request):
    """Set the rate limit of a queue, over all workers. Reply with the old limit."""

    queue: int
    limiter: Rate | None
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def set_rate(tx: Transaction, requests: Sequence[SetRate]) -> Operation[list[Rate | None]]:
    replies: list[Rate | None] = []
    for request in requests:
        most, duration = request.limiter or (None, None)
        old = yield from _change(tx, request.queue, max=most, duration=duration)
        replies.append(None if old.max is None else Rate(old.max, old.duration or 0))
    return replies


class BlockQueue(Request):
    """Let no job of a queue start for `duration` ms; None ends its window now.

    Reply with True if a window was open.
    """

    queue: int
    duration: int | None
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def block_queue(tx: Transaction, requests: Sequence[BlockQueue]) -> Operation[list[bool]]:
    replies: list[bool] = []
    for request in requests:
        old = yield from _locked(request.queue)
        until, used = 0, 0
        if request.duration is not None:
            until, used = tx.now + request.duration, WINDOW_USED_UP
        yield "set_window", {"queue": request.queue, "until": until, "used": used}
        yield from notify_limit_change(tx, request.queue)
        replies.append(old.until > tx.now)
    return replies


def read_limits(queue: int) -> Operation[QueueLimits]:
    found = yield "limits", {"queue": queue}
    return QueueLimits(*found.rows[0])


def notify_limit_change(tx: Transaction, queue: int) -> Operation[None]:
    """Notify all workers of a changed limit: they return prefetched jobs and claim again."""
    counts = yield from read_counts(queue)
    tx.limited.add(queue)
    tx.notify_ready(queue, ANY_NAME, max(1, counts["waiting"] + counts["prioritized"]))


def _locked(queue: int) -> Operation[QueueLimits]:
    yield "lock_queue", {"queue": queue}
    return (yield from read_limits(queue))


def _change(tx: Transaction, queue: int, **changes: Any) -> Operation[QueueLimits]:
    old = yield from _locked(queue)
    new = old._replace(**changes)
    params = {"concurrency": new.concurrency, "rate_max": new.max, "rate_duration": new.duration}
    yield "set_limits", {**params, "queue": queue}
    yield from notify_limit_change(tx, queue)
    return old
