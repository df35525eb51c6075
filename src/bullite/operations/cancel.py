"""Cancel jobs: waiting jobs fail immediately, the workers of running jobs are told to stop them."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.codec import as_json
from ..core.job_flags import CANCELLED as MARK
from ..core.states import CANCEL, CANCELLED, State
from ..errors import BulliteError, IllegalMove, JobNotFound
from .end_unstarted import UnstartedJob, end_unstarted
from .request import Request
from .transaction import Operation, Transaction
from .transitions import LockedJob, load_for_update


class Cancel(Request):
    """Cancel a job. Reply whether it has ended, or with an error.

    A running job is flagged, and its worker is notified. The job ends with its run. Its outcome is
    `cancelled` unless the run completes.
    """

    job: int
    id: str
    """As its users call it."""
    reason: str
    barrier = True

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def cancel(tx: Transaction, requests: Sequence[Cancel]) -> Operation[list[bool | BulliteError]]:
    answers: list[bool | BulliteError] = []
    for request in requests:
        place = (yield from load_for_update([request.job])).get(request.job)
        if place is None or place.state == State.REMOVED:
            answers.append(JobNotFound(f"job {request.id} does not exist"))
        elif place.state == State.ACTIVE:
            yield from _mark_cancelled(tx, place, request.reason)
            answers.append(False)
        elif place.state in CANCEL.sources:
            yield from _end(tx, [place._replace(deferred_failure=request.reason)])
            answers.append(True)
        else:
            answers.append(
                IllegalMove(f"job {request.id} is {place.state} already: nothing to cancel")
            )
    return answers


def _mark_cancelled(tx: Transaction, place: LockedJob, reason: str) -> Operation[None]:
    yield "set_deferred_failures", {"reasons": as_json({place.job: reason})}
    yield "add_flags", {"jobs": as_json([place.job]), "traits": MARK}
    assert place.nonce is not None
    tx.notify_cancelled(place.queue, place.nonce)


def end_cancelled(tx: Transaction, jobs: Sequence[int]) -> Operation[None]:
    """End those of these jobs that were cancelled while they ran, and wait again now."""
    places = yield from load_for_update(jobs)
    marked = [p for p in places.values() if p.flags & MARK and p.state in CANCEL.sources]
    if marked:
        yield from _end(tx, marked)


def _end(tx: Transaction, places: Sequence[LockedJob]) -> Operation[None]:
    opts = yield "job_options", {"jobs": as_json([place.job for place in places])}
    options = {row[0]: row[1] for row in opts.rows}
    reasons = {place.job: place.deferred_failure or CANCELLED for place in places}
    for queue in sorted({place.queue for place in places}):
        jobs = [
            UnstartedJob(p.job, p.state, p.priority, p.custom_id, options.get(p.job), p.flags)
            for p in places
            if p.queue == queue
        ]
        yield from end_unstarted(tx, queue, CANCEL, CANCELLED, jobs, reasons)
