"""Deleting what is past keeping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..engine.plan import Request
from ..retention import Keep
from ..states import State
from .governing import Settings, read_settings
from .keying import forget_idle_keys
from .limiting import read_limits
from .moving import delete_jobs
from .retaining import retire
from .transaction import Operation, Transaction

MOST_SWEPT = 500
"""Rows deleted in one transaction, so that a sweep never holds the lock for long."""


@dataclass(slots=True)
class Sweep(Request):
    """Delete what is past keeping in one queue, a small piece at a time. Answers how much."""

    queue: int


def sweep(tx: Transaction, requests: Sequence[Sweep]) -> Operation[list[int]]:
    answers: list[int] = []
    for request in requests:
        settings = yield from read_settings(request.queue)
        answers.append((yield from _sweep_one(tx, request.queue, settings)))
    return answers


def _sweep_one(tx: Transaction, queue: int, settings: Settings) -> Operation[int]:
    swept = 0
    for state, count, age in (
        (State.COMPLETED, settings.keep_completed_count, settings.keep_completed_age),
        (State.FAILED, settings.keep_failed_count, settings.keep_failed_age),
    ):
        # An age of a policy is inclusive; here a job is kept for the whole of it.
        keep = Keep(count, None if age is None else age + 1)
        swept += yield from retire(tx, queue, state, keep, MOST_SWEPT)
    before = tx.now - settings.trash_age
    trash = yield "old_removed", {"queue": queue, "before": before, "most": MOST_SWEPT}
    if trash.rows:
        yield from delete_jobs(tx, State.REMOVED, {row[0]: row[1] for row in trash.rows})
        swept += len(trash.rows)
    over = yield "sweep_keys", {"queue": queue, "now": tx.now, "most": MOST_SWEPT}
    swept += over.changed
    if (yield from read_limits(queue)).by_key:
        swept += yield from forget_idle_keys(tx, queue, MOST_SWEPT)
    params = {"queue": queue, "keep": settings.max_events, "most": MOST_SWEPT}
    trimmed = yield "trim_events", params
    return swept + trimmed.changed
