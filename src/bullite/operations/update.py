"""Updates of a job that do not move it: progress, data, priority, log lines and lease.

Changes by a processor need its claim token; those by other callers only need the job to exist. A
refused request gets its error as the reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..core.codec import as_json
from ..core.event_log import LOG_ADDED, MAX_COPIED_LENGTH, PROGRESS
from ..core.states import CLAIM, State
from ..database.driver import ANY_NAME
from ..errors import BulliteError, IllegalMove, JobNotFound, LostLock
from .queues import read_settings
from .request import Request
from .transaction import Operation, Transaction
from .transitions import LockedJob, allocate_ids, load_for_update


class Progress(Request):
    """Set the progress of a job. Reply with False if it does not exist or the token is stale."""

    queue: int
    job: int
    token: int | None
    """The claim token; None for a caller that does not run the job."""
    progress: str
    durable = False

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def record_progress(tx: Transaction, requests: Sequence[Progress]) -> Operation[list[bool]]:
    held = [request for request in requests if request.token is not None]
    stored: set[int] = set()
    custom_ids: dict[int, str | None] = {}
    asked = {request.job: [request.token, request.progress] for request in held}
    if asked:
        yield "write_progress", {"jobs": as_json(asked), "nonce": tx.nonce}
    rows = yield from load_for_update([request.job for request in requests])
    for request in requests:
        row = rows.get(request.job)
        if _lost_or_missing(tx, request.job, row, request.token) is not None:
            continue
        assert row is not None
        yield from _mark_started(tx, row, request.token)
        if request.token is None:
            yield "set_progress", {"job": request.job, "progress": request.progress}
        stored.add(request.job)
        custom_ids[request.job] = row.custom_id
    for request in requests:
        if request.job in stored:
            id = custom_ids[request.job] or request.job
            tx.log(request.queue, PROGRESS, [(id, msgspec.Raw(request.progress.encode()))])
    return [request.job in stored for request in requests]


def _mark_started(tx: Transaction, row: LockedJob, token: int | None) -> Operation[None]:
    """Record the start of a prefetched job, so that `active` is logged before this change."""
    if row.prefetched and token is not None:
        yield "mark_started", {"job": row.job}
        tx.log(row.queue, CLAIM.name, [row.public_id])


def _lost_or_missing(
    tx: Transaction, job: int, row: LockedJob | None, token: int | None
) -> BulliteError | None:
    """Return the error for a caller that may not change a job; None if it may.

    Without a token, the job only has to exist.
    """
    if row is None or row.state == State.REMOVED:
        id = job if row is None else row.public_id
        return JobNotFound(f"job {id} does not exist any more")
    if token is None:
        return None
    if row.state != State.ACTIVE or (row.token, row.nonce) != (token, tx.nonce):
        return LostLock(f"job {row.public_id} is no longer held by this run; nothing was changed")
    return None


class SetData(Request):
    """Replace the data of a job. Reply with None, or with an error."""

    job: int
    token: int | None
    data: str

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def set_data(tx: Transaction, requests: Sequence[SetData]) -> Operation[list[BulliteError | None]]:
    replies: list[BulliteError | None] = []
    rows = yield from load_for_update([request.job for request in requests])
    for request in requests:
        refusal = _lost_or_missing(tx, request.job, rows.get(request.job), request.token)
        if refusal is None:
            yield "set_data", {"job": request.job, "data": request.data}
        replies.append(refusal)
    return replies


class SetPriority(Request):
    """Change the priority of a job, and its position if it waits.

    Reply with the priority, or with an error.
    """

    job: int
    priority: int
    is_level: bool
    """`priority` is a level that means the same in both orders: higher numbers run first."""
    lifo: bool

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


_UNFINISHED = (State.WAITING, State.DELAYED, State.ACTIVE, State.WAITING_CHILDREN)


def set_priority(
    tx: Transaction, requests: Sequence[SetPriority]
) -> Operation[list[BulliteError | int]]:
    replies: list[BulliteError | int] = []
    rows = yield from load_for_update([request.job for request in requests])
    numbers = yield from allocate_ids(len(requests))
    for number, request in zip(numbers, requests, strict=True):
        row = rows.get(request.job)
        refusal = _lost_or_missing(tx, request.job, row, None)
        if row is not None and refusal is None and row.state not in _UNFINISHED:
            refusal = IllegalMove(f"job {row.public_id} is {row.state}: it waits for nothing")
        if row is None or refusal is not None:
            replies.append(refusal or JobNotFound(f"job {request.job} does not exist"))
            continue
        settings = yield from read_settings(row.queue)
        low_first = settings.priority_order == "low"
        priority = -request.priority if request.is_level and low_first else request.priority
        replies.append(priority)
        yield (
            "set_priority",
            {
                "job": request.job,
                "priority": priority,
                "rank": priority if low_first else -priority,
                "seq": -number if request.lifo else number,
                "now": tx.now,
            },
        )
        if row.state == State.WAITING:
            tx.count_waiting(row.queue, [row.priority], -1)
            tx.count_waiting(row.queue, [priority], +1)
            tx.notify_ready(row.queue, ANY_NAME)
    return replies


class ExtendLease(Request):
    """Extend the lease of a claimed job to `duration` ms from now. Reply with None, or an error."""

    job: int
    token: int
    duration: int
    durable = False

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def extend_leases(
    tx: Transaction, requests: Sequence[ExtendLease]
) -> Operation[list[BulliteError | None]]:
    replies: list[BulliteError | None] = []
    rows = yield from load_for_update([request.job for request in requests])
    for request in requests:
        refusal = _lost_or_missing(tx, request.job, rows.get(request.job), request.token)
        if refusal is None:
            yield (
                "set_lease",
                {
                    "job": request.job,
                    "token": request.token,
                    "nonce": tx.nonce,
                    "lease_until": tx.lease_now + request.duration,
                },
            )
        replies.append(refusal)
    return replies


# --- logs ----------------------------------------------------------------------------------------


class AddLog(Request):
    """Append a line to the log of a job. Reply with its number of lines, or with an error.

    Lines of one batch are written together, in the order of their arrival.
    """

    queue: int
    job: int
    token: int | None
    level: str
    message: str
    keep: int | None
    """Number of the newest lines to keep; None for all."""
    durable = False
    keeps_order = True

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def add_logs(tx: Transaction, requests: Sequence[AddLog]) -> Operation[list[BulliteError | int]]:
    jobs = list({request.job for request in requests})
    rows = yield from load_for_update(jobs)
    ranges = yield from _log_ranges(jobs)
    replies: list[BulliteError | int] = []
    lines: list[tuple[Any, ...]] = []
    for request in requests:
        row = rows.get(request.job)
        refusal = _lost_or_missing(tx, request.job, row, request.token)
        if refusal is not None:
            replies.append(refusal)
            continue
        assert row is not None
        yield from _mark_started(tx, row, request.token)
        if request.token is not None:
            rows[request.job] = row._replace(prefetched=0)
        first, last = ranges[request.job]
        last += 1
        lines.append((request.job, last, tx.now, request.level, request.message))
        if request.keep is not None:
            first = max(first, last - request.keep + 1)
        ranges[request.job] = first, last
        replies.append(last - first + 1)
        entry = {
            "timestamp": tx.now,
            "message": request.message[:MAX_COPIED_LENGTH],
            "level": request.level,
        }
        tx.log(request.queue, LOG_ADDED, [(row.public_id, entry)])
    if lines:
        yield "insert_logs", lines
    for job in {request.job for request in requests if request.keep is not None}:
        yield "trim_logs", {"job": job, "last": ranges[job][0] - 1}
    return replies


def _log_ranges(jobs: Sequence[int]) -> Operation[dict[int, tuple[int, int]]]:
    """Return the numbers of the first and the last line of each job; (1, 0) if it has none."""
    result = yield "last_logs", {"jobs": as_json(jobs)}
    return {job: (1 if first is None else first, last or 0) for job, first, last in result.rows}


class ClearLogs(Request):
    """Delete the log of a job, except its newest lines. Reply with None, or with an error."""

    job: int
    keep: int
    barrier = True


def clear_logs(
    tx: Transaction, requests: Sequence[ClearLogs]
) -> Operation[list[BulliteError | None]]:
    replies: list[BulliteError | None] = []
    jobs = [request.job for request in requests]
    rows = yield from load_for_update(jobs)
    ranges = yield from _log_ranges(jobs)
    for request in requests:
        refusal = _lost_or_missing(tx, request.job, rows.get(request.job), None)
        if refusal is None:
            yield "trim_logs", {"job": request.job, "last": ranges[request.job][1] - request.keep}
        replies.append(refusal)
    return replies
