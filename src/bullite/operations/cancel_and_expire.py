"""Cancelled and expired jobs: jobs that end without a run, running jobs that are to stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..core.codec import as_json, decode
from ..core.event_log import Payload
from ..core.job_flags import CANCELLED as CANCELLED_FLAG
from ..core.job_flags import DEDUPLICATED, SCHEDULED, UPSTREAM
from ..core.retention import Retention, retention_of
from ..core.states import CANCEL, CANCELLED, EXPIRE, EXPIRED, Move, State
from ..errors import BulliteError, IllegalMove, JobNotFound
from . import dependencies
from .deduplicate_release import release
from .queues import may_keep_house
from .request import ALONE, Request
from .retention import apply_retention
from .scheduler_ticks import create_successor
from .transaction import Event, Operation, Transaction
from .transitions import LockedJob, count_in, count_out, load_for_update, transition

MAX_EXPIRED = 1_000
"""Jobs that one transaction expires; the rest follow in the next ones."""

EXPIRED_REASON = "job expired before it was started"


class UnstartedJob(NamedTuple):
    """A job that fails without a run; the columns of the statement `expired`."""

    job: int
    state: str
    priority: int
    custom_id: str | None
    opts: str | None
    flags: int


def end_unstarted(
    tx: Transaction,
    queue: int,
    move: Move,
    outcome: str,
    jobs: Sequence[UnstartedJob],
    reasons: Mapping[int, str],
) -> Operation[None]:
    """Make `move` for jobs of one queue, without retries or a dead-letter queue."""
    for source in move.sources:
        some = [one for one in jobs if one.state == source]
        if not some:
            continue
        numbers = [one.job for one in some]
        yield from transition(tx, move, source, numbers)
        yield "write_failures", [(job, reasons[job], outcome) for job in numbers]
        priorities = [one.priority for one in some]
        count_out(tx, queue, source, priorities)
        count_in(tx, queue, move.target, priorities)
        tx.log(queue, move.name, [_event(source, one, reasons[one.job]) for one in some])
    if jobs:
        yield from _finish_rest(tx, queue, jobs, reasons)


def _finish_rest(
    tx: Transaction, queue: int, jobs: Sequence[UnstartedJob], reasons: Mapping[int, str]
) -> Operation[None]:
    """Handle keys, schedulers and dependents once all jobs have ended: one may wait for another."""
    keyed = [one.job for one in jobs if one.flags & DEDUPLICATED]
    if keyed:
        yield from release(tx, keyed)
    scheduled = [one.job for one in jobs if one.flags & SCHEDULED]
    if scheduled:
        yield from create_successor(tx, queue, scheduled, runs=False)
    ended = [(one.job, one.flags, retention_of_failed(one.opts)) for one in jobs]
    awaited = {job: reasons[job] for job, flags, _ in ended if flags & UPSTREAM}
    needed: set[int] = set()
    if awaited:
        leaving = {job for job, _, keep in ended if keep is not None and keep.nothing}
        needed = yield from dependencies.on_failed(tx, awaited, leaving)
    removable = [(job, flags, keep) for job, flags, keep in ended if job not in needed]
    yield from apply_retention(tx, queue, State.FAILED, removable)


def _event(source: State, one: UnstartedJob, reason: str) -> Event:
    """Return the log entry; besides a custom id it has the pk, like all entries of ended jobs."""
    payload = [source.value, reason]
    return (one.job, payload) if one.custom_id is None else (one.custom_id, [*payload, one.job])


def retention_of_failed(opts: str | None) -> Retention | None:
    """Return the retention in the stored options of a failed job; None if they have none."""
    options: Payload = {} if opts is None else decode(opts)
    return retention_of(options.get("remove_on_fail"))


class Expire(Request):
    """Fail the jobs of a queue that did not start in time. Reply with their number."""

    queue: int
    apart = ALONE


def expire(tx: Transaction, requests: Sequence[Expire]) -> Operation[list[int]]:
    replies: list[int] = []
    for request in requests:
        done = 0
        if (yield from may_keep_house(request.queue, "expire")):
            done = yield from expire_due(tx, request.queue)
        replies.append(done)
    return replies


def expire_due(tx: Transaction, queue: int) -> Operation[int]:
    """Fail the jobs whose `expires` has passed. Return their number."""
    found = yield "expired", {"queue": queue, "now": tx.now, "most": MAX_EXPIRED}
    jobs = [UnstartedJob(*row) for row in found.rows]
    yield from end_unstarted(
        tx, queue, EXPIRE, EXPIRED, jobs, {one.job: EXPIRED_REASON for one in jobs}
    )
    return len(jobs)


class Cancel(Request):
    """Cancel a job. Reply whether it has ended, or with an error.

    A running job is flagged, and its worker is notified. The job ends with its run. Its outcome is
    `cancelled` unless the run completes.
    """

    job: int
    id: str
    """The public id."""
    reason: str
    barrier = True

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def cancel(tx: Transaction, requests: Sequence[Cancel]) -> Operation[list[bool | BulliteError]]:
    replies: list[bool | BulliteError] = []
    for request in requests:
        row = (yield from load_for_update([request.job])).get(request.job)
        if row is None or row.state == State.REMOVED:
            replies.append(JobNotFound(f"job {request.id} does not exist"))
        elif row.state == State.ACTIVE:
            yield from _mark_cancelled(tx, row, request.reason)
            replies.append(False)
        elif row.state in CANCEL.sources:
            yield from _end(tx, [row._replace(deferred_failure=request.reason)])
            replies.append(True)
        else:
            replies.append(
                IllegalMove(f"job {request.id} is {row.state} already: nothing to cancel")
            )
    return replies


def _mark_cancelled(tx: Transaction, row: LockedJob, reason: str) -> Operation[None]:
    yield "set_deferred_failures", {"reasons": as_json({row.job: reason})}
    yield "add_flags", {"jobs": as_json([row.job]), "traits": CANCELLED_FLAG}
    assert row.nonce is not None
    tx.notify_cancelled(row.queue, row.nonce)


def end_cancelled(tx: Transaction, jobs: Sequence[int]) -> Operation[None]:
    """Fail the jobs of these that were cancelled while they ran and are no longer running."""
    rows = yield from load_for_update(jobs)
    marked = [p for p in rows.values() if p.flags & CANCELLED_FLAG and p.state in CANCEL.sources]
    if marked:
        yield from _end(tx, marked)


def _end(tx: Transaction, rows: Sequence[LockedJob]) -> Operation[None]:
    opts = yield "job_options", {"jobs": as_json([row.job for row in rows])}
    options = dict(opts.rows)
    reasons = {row.job: row.deferred_failure or CANCELLED for row in rows}
    for queue in sorted({row.queue for row in rows}):
        jobs = [
            UnstartedJob(p.job, p.state, p.priority, p.custom_id, options.get(p.job), p.flags)
            for p in rows
            if p.queue == queue
        ]
        yield from end_unstarted(tx, queue, CANCEL, CANCELLED, jobs, reasons)
