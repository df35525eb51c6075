"""Deleting what is past keeping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..engine.plan import Request
from ..states import State
from .moving import delete_jobs
from .transaction import Operation, Transaction

MOST_SWEPT = 500
"""Rows deleted in one transaction, so that a sweep never holds the lock for long."""


@dataclass(slots=True)
class Sweep(Request):
    """Delete what is past keeping in one queue, a small piece at a time. Answers how much."""

    queue: int
    keep_completed: int
    keep_removed: int
    keep_events: int


def sweep(tx: Transaction, requests: Sequence[Sweep]) -> Operation[list[int]]:
    answers: list[int] = []
    for request in requests:
        answers.append((yield from _sweep_one(tx, request)))
    return answers


def _sweep_one(tx: Transaction, request: Sweep) -> Operation[int]:
    swept = 0
    for state, statement, keep in (
        (State.COMPLETED, "old_completed", request.keep_completed),
        (State.REMOVED, "old_removed", request.keep_removed),
    ):
        params = {"queue": request.queue, "before": tx.now - keep, "most": MOST_SWEPT}
        old = yield statement, params
        if old.rows:
            yield from delete_jobs(tx, state, [row[0] for row in old.rows])
            swept += len(old.rows)
            if state is State.COMPLETED:
                tx.count(request.queue, "completed", -len(old.rows))
    trimmed = yield (
        "trim_events",
        {"queue": request.queue, "keep": request.keep_events, "most": MOST_SWEPT},
    )
    return swept + trimmed.changed
