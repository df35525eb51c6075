"""Failing jobs that were not begun in time."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.states import EXPIRE, EXPIRED
from .end_unstarted import UnstartedJob, end_unstarted
from .queues import may_keep_house
from .request import ALONE, Request
from .transaction import Operation, Transaction

MAX_EXPIRED = 1_000
"""Jobs failed in one go; the rest follow in the next transactions."""

REASON = "job expired before it was started"


class Expire(Request):
    """Fail the jobs of one queue that nobody began in time. Answers how many."""

    queue: int
    apart = ALONE


def expire(tx: Transaction, requests: Sequence[Expire]) -> Operation[list[int]]:
    answers: list[int] = []
    for request in requests:
        done = 0
        if (yield from may_keep_house(request.queue, "expire")):
            done = yield from expire_due(tx, request.queue)
        answers.append(done)
    return answers


def expire_due(tx: Transaction, queue: int) -> Operation[int]:
    """Move the jobs past their time to failed."""
    found = yield "expired", {"queue": queue, "now": tx.now, "most": MAX_EXPIRED}
    jobs = [UnstartedJob(*row) for row in found.rows]
    yield from end_unstarted(tx, queue, EXPIRE, EXPIRED, jobs, {one.job: REASON for one in jobs})
    return len(jobs)
