"""The history of a job: its attempts, and the job as it was when one of them failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ...core.clock import moment_of
from ...core.codec import encode_plain
from ...core.event_log import Failure
from ...core.states import COMPLETED, State
from ..runtime import bridge

if TYPE_CHECKING:
    from .base import JobBase


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job, from its history."""

    number: int
    started_at: datetime | None
    ended_at: datetime | None
    """None while it runs."""
    worker: str | None
    outcome: str | None
    """`completed`, `error`, `timed-out`, `stalled`, `cancelled`; None while it runs."""
    error: str | None
    stack: str | None


class _AttemptRow(NamedTuple):
    """A row of the history: a run that ended without completing the job."""

    number: int
    started_at: int | None
    ended_at: int
    worker: str | None
    outcome: str
    error: str | None
    stack: str | None


async def _read_rows(job: JobBase) -> list[_AttemptRow]:
    rows = await bridge.query(job._store, "attempts", {"job": job.pk})
    return [_AttemptRow(*row) for row in rows]


async def read_attempts(job: JobBase) -> list[Attempt]:
    """Return the runs of a job, oldest first; the last may be under way."""
    history = [
        Attempt(
            row.number,
            _moment(row.started_at),
            _moment(row.ended_at),
            row.worker,
            row.outcome,
            row.error,
            row.stack,
        )
        for row in await _read_rows(job)
    ]
    if job.state in (State.ACTIVE, State.COMPLETED):
        history.append(
            Attempt(
                len(history) + 1,
                job.processed_at,
                job.finished_at,
                job.processed_by,
                COMPLETED if job.state == State.COMPLETED else None,
                None,
                None,
            )
        )
    return history


async def show_failure(job: JobBase, failure: Failure, at: int) -> None:
    """Let the attributes of a job show how it was when a run of it failed at `at`."""
    status = job._status
    if status.state == failure.state and status.updated_at == at:
        return  # nothing has happened to it since
    rows = await _read_rows(job)
    numbers = [row.number for row in rows if row.ended_at == at and row.error == failure.reason]
    if numbers:
        _forget_runs_after(job, numbers[0], rows)
    if failure.attempts_made is not None:
        job._change_columns(attempts_made=failure.attempts_made)
    job._status = job._status._replace(
        state=failure.state,
        failed_reason=failure.reason,
        outcome=failure.outcome,
        due_at=failure.due,
        delay=0 if failure.due is None else failure.due - at,
        finished_at=at if failure.state == State.FAILED else None,
        updated_at=at,
        return_value=None,
        lease=None,
        worker_lease=None,
    )


def _forget_runs_after(job: JobBase, number: int, rows: Sequence[_AttemptRow]) -> None:
    """Let the attributes show only the runs up to this one."""
    known = [row for row in rows if row.number <= number]
    # A run that is under way, or that completed the job, has no row.
    has_row = job._status.state not in (State.ACTIVE, State.COMPLETED)
    later = len(rows) - len(known) + (not has_row)
    job._change_columns(attempts_started=job.attempts_started - later)
    stacks = [row.stack for row in known if row.stack is not None]
    job._status = job._status._replace(
        processed_at=known[-1].started_at,
        processed_by=known[-1].worker,
        stacks=encode_plain(stacks).decode(),
    )


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else moment_of(ms)
