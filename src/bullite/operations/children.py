"""Requests about the parent and the children of a job: wait for children, detach, remove."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.codec import as_json, decode
from ..core.job_flags import CANCELLED, DOWNSTREAM
from ..core.states import CLAIM, REMOVE, WAIT_FOR_CHILDREN, State
from ..errors import BulliteError, ChildFailed, IllegalMove, JobNotFound, LostLock, NotAChild
from . import dependencies
from .cancel_and_expire import end_cancelled
from .move import MoveJobs, move_jobs
from .request import Request
from .transaction import Operation, Transaction
from .transitions import LockedJob, load_for_update, transition

_REMOVABLE = (State.WAITING, State.DELAYED, State.WAITING_CHILDREN)


class AwaitChildren(Request):
    """Move a running job to `waiting-children`. Reply True, or False if no child is pending.

    Reply with an error if the run does not hold the job, or if a child failed.
    """

    job: int
    token: int
    child: str | None = None
    """The key of the only child to wait for; None for all children."""

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def await_children(
    tx: Transaction, requests: Sequence[AwaitChildren]
) -> Operation[list[BulliteError | bool]]:
    replies: list[BulliteError | bool] = []
    for request in requests:
        row = (yield from load_for_update([request.job])).get(request.job)
        refusal = _refusal(tx, request, row)
        if row is None or refusal is not None:
            replies.append(refusal or JobNotFound(f"job {request.job} does not exist any more"))
            continue
        replies.append((yield from _await(tx, request, row)))
    return replies


def _refusal(tx: Transaction, request: AwaitChildren, row: LockedJob | None) -> BulliteError | None:
    if row is None or row.state == State.REMOVED:
        return JobNotFound(f"job {request.job} does not exist any more")
    if (row.token, row.nonce) != (request.token, tx.nonce):
        return LostLock(f"job {row.public_id} is no longer held by this run")
    if row.state != State.ACTIVE:
        return LostLock(f"job {row.public_id} is not held any more: it is {row.state}")
    return None


def _await(
    tx: Transaction, request: AwaitChildren, row: LockedJob
) -> Operation[BulliteError | bool]:
    if not row.flags & DOWNSTREAM:
        return False
    blockers = yield "completion_blockers", {"jobs": as_json([row.job])}
    [(_, failed_child, is_pending, _)] = blockers.rows
    if failed_child is not None:
        return ChildFailed(f"child {failed_child} failed")
    if is_pending and request.child is not None:
        found = yield "link_with_key", {"job": row.job, "key": request.child}
        is_pending = bool(found.rows)
    if not is_pending:
        return False
    yield from transition(tx, WAIT_FOR_CHILDREN, State.ACTIVE, {row.job: request.token})
    tx.count_runs_ended(row.queue, 1)
    tx.count(row.queue, "waiting_children", 1)
    if row.prefetched:
        tx.log(row.queue, CLAIM.name, [row.public_id])
    tx.log(row.queue, WAIT_FOR_CHILDREN.name, [row.public_id])
    if row.flags & CANCELLED:
        yield from end_cancelled(tx, [row.job])
    return True


class DetachFromParent(Request):
    """Detach a job from its parent. Reply with True, or with an error if it has no parent."""

    job: int
    barrier = True

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def detach_from_parent(
    tx: Transaction, requests: Sequence[DetachFromParent]
) -> Operation[list[bool | BulliteError]]:
    replies: list[bool | BulliteError] = []
    for request in requests:
        replies.append((yield from _detach(tx, request.job)))
    return replies


def _detach(tx: Transaction, job: int) -> Operation[bool | BulliteError]:
    row = (yield from load_for_update([job])).get(job)
    if row is None or row.state == State.REMOVED:
        return JobNotFound(f"job {job} does not exist any more")
    payload = yield "job_options", {"jobs": as_json([job])}
    opts = next((opts for _, opts in payload.rows), None)
    options = {} if opts is None else decode(opts)
    parent = options.pop("parent", None)
    if not (yield from dependencies.detach_child(tx, job)):
        if parent is None:
            return NotAChild(f"job {row.public_id} has no parent")
        return NotAChild(
            f"job {row.public_id} is no child of job {parent['id']} of queue "
            f"{parent['queue']!r} any more: that job has let go of it, or is gone"
        )
    if parent is not None:
        yield "set_opts", {"job": job, "opts": as_json(options) if options else None}
    return True


class RemoveUnprocessedChildren(Request):
    """Remove the descendants of a job that have not started. Reply with their number."""

    job: int
    barrier = True

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def remove_unprocessed_children(
    tx: Transaction, requests: Sequence[RemoveUnprocessedChildren]
) -> Operation[list[int | BulliteError]]:
    replies: list[int | BulliteError] = []
    for request in requests:
        row = (yield from load_for_update([request.job])).get(request.job)
        if row is None or row.state == State.REMOVED:
            replies.append(IllegalMove(f"job {request.job} does not exist any more"))
            continue
        found = yield "descendants", {"jobs": as_json([request.job])}
        busy = _ancestors_of_running(found.rows)
        jobs = [
            job for job, _, link, state in found.rows
            if link == dependencies.PENDING and state in _REMOVABLE and job not in busy
        ]  # fmt: skip
        [removed] = yield from move_jobs(tx, [MoveJobs(REMOVE, jobs)])
        replies.append(len(removed))
    return replies


def _ancestors_of_running(rows: Sequence[Sequence[object]]) -> set[object]:
    """Return the jobs of a tree that have a running descendant."""
    parent = {job: above for job, above, *_ in rows}
    busy: set[object] = set()
    for job, _, _, state in rows:
        above = parent.get(job) if state == State.ACTIVE else None
        while above is not None and above not in busy:
            busy.add(above)
            above = parent.get(above)
    return busy
