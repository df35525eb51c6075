"""Claims: promote due jobs, select the next jobs, claim them with a new token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from ..core.codec import as_json
from ..core.job_flags import SCHEDULED
from ..core.job_record import (
    ATTEMPTS_MADE,
    ATTEMPTS_STARTED,
    CREATED_AT,
    CUSTOM_ID,
    FLAGS,
    ID,
    PRIORITY,
    SEQ,
)
from ..core.states import CLAIM, PROMOTE, State
from ..database.driver import ANY_NAME, OutOfOrder, Step
from .cancel_and_expire import MAX_EXPIRED, expire_due
from .queues import may_keep_house
from .rate_limits import MAX_BLOCK, NO_LIMITS, QueueLimits, Rate, available_slots, consume_window
from .rate_limits_by_key import next_allowed
from .request import ALONE, Request
from .scheduler_ticks import create_successor
from .transaction import Operation, Transaction
from .transitions import UNSORTED, transition, transition_to_queue_end

MAX_PROMOTED = 1_000
"""Due jobs that one transaction promotes; the rest follow in the next ones."""

MAX_SORTED = 1_000
"""Jobs that one transaction moves to the lanes of their names."""


class Claim(Request):
    """A worker claims up to `demand` jobs, of these names or of any. Reply with a Claimed."""

    queue: int
    worker: int
    names: tuple[str, ...] | None
    demand: int
    start_now: int
    """How many of them start immediately; the others are prefetched."""
    lock_duration: int
    token: int
    """The claim token: new, made by the claiming process."""
    limiter: Rate | None = None
    max_block: int = MAX_BLOCK
    """Ms after which the worker polls again, while a limit lets no job start."""
    durable = False


_id, _priority, _attempts_made, _flags = map(itemgetter, (ID, PRIORITY, ATTEMPTS_MADE, FLAGS))


class Claimed(NamedTuple):
    """The reply to a claim."""

    rows: Sequence[Any]
    """The claimed jobs in order, with the columns of JobRow."""
    started: int
    """How many of them count as started; the start of the others is recorded with their end."""
    token: int
    claimed_at: int
    exhausted: bool
    """The queue has no more jobs that this worker can claim now."""
    next_due: int | None
    """When exhausted: the time at which the next delayed job of the queue is due, or a limit allows
    more."""
    paused: bool = False
    """The queue is paused; prefetched jobs must not start either."""
    unregistered: bool = False
    """The worker is no longer registered: another process recovered its jobs."""
    limited: bool = False
    """Limits apply to the queue or the worker: no job must be prefetched."""
    limited_out: bool = False
    """A limit kept the worker from claiming more jobs."""
    fair_share: int = 0
    """Waiting jobs divided by the workers of the queue."""
    held_off: bool = False
    """The claim read nothing: another transaction has locked the row of the queue, and this one
    must not wait for it, because it has locked other rows before."""
    failed_reasons: Mapping[int, str] = {}
    """The error of the last failed attempt, by job, of jobs that are retried."""

    def typical_wait(self) -> int | None:
        """Return the ms that the job in the middle waited; None if it was delayed or runs again.

        A job that entered the queue later than it was added, or again, has a `seq` that differs
        from its id.
        """
        if not self.rows:
            return None
        row = self.rows[len(self.rows) // 2]
        is_first_start = row[ATTEMPTS_STARTED] <= 1 and abs(row[SEQ]) == row[ID]
        return self.claimed_at - row[CREATED_AT] if is_first_start else None


class ClaimInfo(NamedTuple):
    """Columns of a queue that a claim reads: those of the statement `claim_info`."""

    by_name: int
    paused: int
    next_due: int | None
    next_expiry: int | None
    fair_share: int
    limits: QueueLimits = NO_LIMITS
    unregistered: bool = False


NOT_REGISTERED = ClaimInfo(0, 1, None, None, 0, unregistered=True)
"""Replaces the row of the queue if the worker is not registered: it claims nothing."""


def claim(tx: Transaction, requests: Sequence[Claim]) -> Operation[list[Claimed]]:
    replies: list[Claimed] = []
    for request in requests:
        replies.append((yield from _claim_one(tx, request)))
    return replies


def _claim_one(tx: Transaction, request: Claim) -> Operation[Claimed]:
    slots = allowed = request.demand
    try:
        info = yield from _load_claim_info(request)
        limited = info.limits.applies(request.limiter, tx.now)
        if limited:
            slots = allowed = min(request.demand, request.start_now)
        if limited and not info.paused:
            info, allowed = yield from _recheck_under_lock(tx, request, info, slots)
    except OutOfOrder:
        return Claimed((), 0, request.token, tx.now, False, None, held_off=True)
    promoted = expired = 0
    if info.next_due is not None and info.next_due <= tx.now:
        promoted = yield from promote_due(tx, request.queue)
        info = yield from _load_claim_info(request)
    if info.next_expiry is not None and info.next_expiry <= tx.now:
        expired = yield from expire_due(tx, request.queue)
    # If a transaction expired its maximum, more jobs may have expired, which must not start.
    shut = info.paused or expired >= MAX_EXPIRED
    if shut:
        found = Selection((), bool(info.paused))
    elif limited:
        found = yield from _select_within_limits(tx, request, info, slots, allowed)
    else:
        lanes = yield from _lanes(request, info)
        found = Selection((yield from _select_next(request, lanes, slots)), bool(lanes))
    rows = found.rows
    more = False
    failed_reasons: Mapping[int, str] = {}
    if rows:
        if any(map(_attempts_made, rows)):
            retried = [row[ID] for row in rows if row[ATTEMPTS_MADE]]
            failed_reasons = yield from _failed_reasons(retried)
        yield from _mark_claimed(tx, request, rows)
        scheduled = []
        if any(map(_flags, rows)):
            scheduled = [row[ID] for row in rows if row[FLAGS] & SCHEDULED]
        if scheduled:
            more = yield from create_successor(tx, request.queue, scheduled)
    exhausted = found.everywhere and len(rows) < slots and promoted < MAX_PROMOTED
    exhausted = exhausted and not more
    next_due = _sooner(info.next_due, found.again) if exhausted else None
    started = min(request.start_now, len(rows))
    return Claimed(
        rows,
        started,
        request.token,
        tx.now,
        exhausted,
        next_due,
        bool(info.paused),
        info.unregistered,
        limited,
        found.limited_out,
        info.fair_share,
        failed_reasons=failed_reasons,
    )


def _failed_reasons(jobs: Sequence[int]) -> Operation[Mapping[int, str]]:
    found = yield "failed_reasons", {"jobs": as_json(jobs)}
    return dict(found.rows)


class Selection(NamedTuple):
    """The jobs that a claim takes."""

    rows: Sequence[Any]
    everywhere: bool
    """The claim has seen every job that the worker can run."""
    again: int | None = None
    """When a limit allows the next job."""
    limited_out: bool = False


def _recheck_under_lock(
    tx: Transaction, request: Claim, info: ClaimInfo, slots: int
) -> Operation[tuple[ClaimInfo, int]]:
    """Return the queue and the number of jobs that may start, read under the lock of its limits."""
    queue, limiter = request.queue, request.limiter
    allowed = yield from available_slots(tx, queue, info.limits, limiter, slots)
    if not allowed:
        return info, 0  # a notification or a timer wakes the engine when more may start
    yield from tx.lock_limits(queue)
    info = yield from _load_claim_info(request)
    return info, (yield from available_slots(tx, queue, info.limits, limiter, slots))


def _select_within_limits(
    tx: Transaction, request: Claim, info: ClaimInfo, slots: int, allowed: int
) -> Operation[Selection]:
    """Select the next jobs that the limits of queue, worker and keys allow, and count them."""
    queue, limits, limiter = request.queue, info.limits, request.limiter
    rows: Sequence[Any] = ()
    everywhere, again = True, None
    if allowed and limits.by_key:
        lanes, look = partial(_lanes, request, info), partial(_select_next, request)
        rows, everywhere, again = yield from next_allowed(tx, queue, allowed, lanes, look)
    elif allowed:
        lanes_now = yield from _lanes(request, info)
        rows = yield from _select_next(request, lanes_now, allowed)
        everywhere = bool(lanes_now)
    held_back = again is not None or len(rows) == allowed < slots
    window_ends = yield from consume_window(tx, queue, limits, limiter, len(rows))
    again = _sooner(again, window_ends)
    if again is not None:
        again = min(again, tx.now + request.max_block)
    return Selection(rows, everywhere, again, held_back)


def _sooner(one: int | None, other: int | None) -> int | None:
    return min((time for time in (one, other) if time is not None), default=None)


def first_statements(request: Claim, limited: bool = False) -> list[Step]:
    """Return the first statements of `claim` in the common case.

    If the queue is `limited`, return only those before the claim waits for the lock of its limits:
    a later one would lock rows that other claims need.
    """
    steps: list[Step] = [("claim_info", {"queue": request.queue, "worker": request.worker})]
    if request.names is None and not limited:
        steps.append(
            ("next_in_lane", {"queue": request.queue, "lane": UNSORTED, "want": request.demand})
        )
    return steps


def _load_claim_info(request: Claim) -> Operation[ClaimInfo]:
    result = yield "claim_info", {"queue": request.queue, "worker": request.worker}
    if not result.rows:
        return NOT_REGISTERED
    by_name, paused, next_due, next_expiry, share, *limits = result.rows[0]
    return ClaimInfo(by_name, paused, next_due, next_expiry, share, QueueLimits(*limits))


def promote_due(tx: Transaction, queue: int) -> Operation[int]:
    """Move due jobs to the end of the queue, in the order of their due times."""
    due = yield "due", {"queue": queue, "now": tx.now, "most": MAX_PROMOTED}
    if due.rows:
        jobs = [(job, lifo) for job, lifo, _, _ in due.rows]
        yield from transition_to_queue_end(tx, PROMOTE, State.DELAYED, jobs)
        tx.count(queue, "delayed", -len(jobs))
        tx.count_waiting(queue, [priority for _, _, priority, _ in due.rows], +1)
        tx.log(queue, PROMOTE.name, [custom_id or job for job, _, _, custom_id in due.rows])
        tx.notify_ready(queue, ANY_NAME, len(jobs))
    return len(due.rows)


def _mark_claimed(tx: Transaction, request: Claim, rows: Sequence[Any]) -> Operation[None]:
    jobs = list(map(_id, rows))
    started, prefetched = jobs[: request.start_now], jobs[request.start_now :]
    for some, is_prefetched in ((started, 0), (prefetched, 1)):
        if some:
            yield from transition(
                tx,
                CLAIM,
                State.WAITING,
                some,
                token=request.token,
                worker=request.worker,
                lease_until=tx.lease_now + request.lock_duration,
                ahead=is_prefetched,
            )
    prioritized = len(rows) - list(map(_priority, rows)).count(0)
    tx.count(request.queue, "waiting", prioritized - len(rows))
    tx.count(request.queue, "prioritized", -prioritized)
    tx.count(request.queue, "active", len(rows))
    if started:
        tx.log(
            request.queue, CLAIM.name, [row[CUSTOM_ID] or row[ID] for row in rows[: len(started)]]
        )


def _select_next(request: Claim, lanes: Sequence[str], want: int) -> Operation[Sequence[Any]]:
    if len(lanes) == 1:
        lane = {"queue": request.queue, "lane": lanes[0], "want": want}
        result = yield "next_in_lane", lane
        return result.rows
    heads: list[list[tuple[int, int, int]]] = []
    for name in lanes:
        result = yield "lane_heads", {"queue": request.queue, "lane": name, "want": want}
        heads.append([(rank, seq, job) for rank, seq, job in result.rows])
    chosen = [job for _, _, job in islice(merge(*heads), want)]
    if not chosen:
        return []
    result = yield "claimable_jobs", {"jobs": as_json(chosen)}
    return result.rows


def _lanes(request: Claim, info: ClaimInfo) -> Operation[Sequence[str]]:
    """Return the lanes of this worker; none while jobs remain to be assigned to lanes.

    Most queues have one lane. A worker that chooses by name must not read past a million jobs of
    other names, so in its queue every name has a lane. Jobs that were not assigned to lanes yet are
    assigned first: otherwise new jobs would overtake old ones.
    """
    if request.names is not None:
        params = {"queue": request.queue, "most": MAX_SORTED}
        sorted_now = yield "assign_lanes", params
        return request.names if sorted_now.changed < MAX_SORTED else ()
    if not info.by_name:
        return (UNSORTED,)
    result = yield "lanes", {"queue": request.queue}
    return [lane for [lane] in result.rows] or (UNSORTED,)


class Promote(Request):
    """Promote the due jobs of a queue if no claim does. Reply with their number."""

    queue: int
    apart = ALONE


def promote(tx: Transaction, requests: Sequence[Promote]) -> Operation[list[int]]:
    replies: list[int] = []
    for request in requests:
        done = 0
        if (yield from may_keep_house(request.queue, "promote")):
            done = yield from promote_due(tx, request.queue)
        replies.append(done)
    return replies
