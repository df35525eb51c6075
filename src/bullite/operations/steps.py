"""Durable steps: steps, sleeps and awaited events that a later run of a job does not repeat.

Only the worker that holds a job may record steps and suspend it; every caller may send it an event.
A refused request gets its error as the reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.checks import MAX_TIME
from ..core.codec import as_json
from ..core.decide_outcome import RunOutcome
from ..core.job_flags import STEPPED
from ..core.states import DELAY, PROMOTE, State
from ..errors import BulliteError, IllegalMove
from .finish import FinishRuns, finish_runs
from .move import MoveJobs, move_jobs
from .request import Request
from .transaction import Operation, Transaction
from .transitions import LockedJob, allocate_ids, load_for_update
from .update import _lost_or_missing, _mark_started

STEP, SLEEP, EVENT = "step", "sleep", "event"
"""The kinds of records."""


class RecordStep(Request):
    """Record a finished step. Reply with None or the error."""

    job: int
    token: int
    name: str
    place: int
    value: str

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def record_steps(
    tx: Transaction, requests: Sequence[RecordStep]
) -> Operation[list[BulliteError | None]]:
    replies: list[BulliteError | None] = []
    steps: list[tuple[object, ...]] = []
    rows = yield from load_for_update([request.job for request in requests])
    for r in requests:
        row = rows.get(r.job)
        replies.append(_lost_or_missing(tx, r.job, row, r.token))
        if row is not None and replies[-1] is None:
            yield from _mark_started(tx, row, r.token)
            yield from _set_steps_flag(row)
            steps.append((r.job, STEP, r.name, 1, r.place, r.value, tx.now, tx.now))
    if steps:
        yield "insert_steps", steps
    return replies


def _set_steps_flag(row: LockedJob) -> Operation[None]:
    """Set the flag for rows of steps."""
    if not row.flags & STEPPED:
        yield "set_steps_flag", {"jobs": as_json([row.job]), "trait": STEPPED}


# --- runs that sleep or wait ---------------------------------------------------------------------


class Suspend(Request):
    """Suspend a job for a sleep, or until an event.

    Reply with StepDone if the sleep is over or the event was sent, with Suspended if the run has
    ended for it, or with an error.
    """

    queue: int
    job: int
    token: int
    kind: str
    name: str
    number: int
    """The number of the sleep or wait among those with this name in the run."""
    place: int
    duration: int | None
    """Ms until the sleep or wait ends; None for no end."""
    ahead: bool = False
    custom_id: str | None = None

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


class StepDone(NamedTuple):
    """The run goes on."""

    value: str | None
    """The payload of the event as JSON; None for a sleep, or without an event in time."""


class Suspended(NamedTuple):
    """The run has ended; the job continues later."""

    until: int
    at: int


def suspend(
    tx: Transaction, requests: Sequence[Suspend]
) -> Operation[list[BulliteError | StepDone | Suspended]]:
    replies: list[BulliteError | StepDone | Suspended] = []
    rows = yield from load_for_update([request.job for request in requests])
    for request in requests:
        row = rows.get(request.job)
        refusal = _lost_or_missing(tx, request.job, row, request.token)
        if row is None or refusal is not None:
            assert refusal is not None
            replies.append(refusal)
        else:
            replies.append((yield from _suspend_one(tx, request, row)))
    return replies


def _suspend_one(
    tx: Transaction, request: Suspend, row: LockedJob
) -> Operation[StepDone | Suspended]:
    r = request
    this = {"job": r.job, "kind": r.kind, "name": r.name, "number": r.number}
    due = _due(tx, r.duration)
    for value, known_due, ended_at in (yield "find_suspension", this).rows:
        if ended_at is not None:
            return StepDone(value)
        due = known_due
    params = {**this, "place": r.place, "due_at": due, "now": tx.now}
    value = (yield from _take_signal(r)) if r.kind == EVENT else None
    yield from _set_steps_flag(row)
    if value is not None or due <= tx.now:
        yield "finish_suspension", {**params, "value": value}
        return StepDone(value)
    outcome = RunOutcome(
        r.job,
        r.token,
        DELAY,
        due - tx.now,
        prefetched=r.ahead,
        custom_id=r.custom_id,
        flags=row.flags | STEPPED,
    )
    yield from finish_runs(tx, [FinishRuns(r.queue, [outcome])])
    yield "insert_suspension", params
    return Suspended(due, tx.now)


def _due(tx: Transaction, duration: int | None) -> int:
    return MAX_TIME if duration is None else min(tx.now + duration, MAX_TIME)


def _take_signal(request: Suspend) -> Operation[str | None]:
    """Delete the oldest event of the name that was sent to the job, and return its payload."""
    this = {"job": request.job, "name": request.name}
    for number, payload in (yield "next_signal", this).rows:
        yield "delete_signal", {**this, "number": number}
        return str(payload)
    return None


# --- events --------------------------------------------------------------------------------------


class SendEvent(Request):
    """Send an event to a job. Reply with True if the job waited for it, or with an error.

    Otherwise the event is stored until the job waits for it.
    """

    job: int
    name: str
    payload: str

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def send_events(
    tx: Transaction, requests: Sequence[SendEvent]
) -> Operation[list[BulliteError | bool]]:
    replies: list[BulliteError | bool] = []
    rows = yield from load_for_update([request.job for request in requests])
    for request in requests:
        row = rows.get(request.job)
        refusal = _lost_or_missing(tx, request.job, row, None)
        if row is not None and row.state in (State.COMPLETED, State.FAILED):
            refusal = IllegalMove(
                f"job {row.public_id} is {row.state}: it will not wait for {request.name!r}"
            )
        if row is None or refusal is not None:
            assert refusal is not None
            replies.append(refusal)
        else:
            replies.append((yield from _send_one(tx, request, row)))
    return replies


def _send_one(tx: Transaction, request: SendEvent, row: LockedJob) -> Operation[bool]:
    this = {"job": request.job, "name": request.name}
    [number] = yield from allocate_ids(1)
    payload = {"number": number, "payload": request.payload, "now": tx.now}
    yield "insert_signal", {**this, **payload}
    yield from _set_steps_flag(row)
    if row.state != State.DELAYED or not (yield "is_waiting_for_event", this).rows:
        return False
    yield from move_jobs(tx, [MoveJobs(PROMOTE, (request.job,))])
    return True
