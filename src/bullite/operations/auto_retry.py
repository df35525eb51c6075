"""Failed jobs that are tried again by themselves, a while after they failed."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.codec import as_json
from ..core.states import RETRY_FINISHED
from .move import MoveJobs, move_jobs
from .queue_settings import Settings, may_keep_house
from .request import ALONE, Request
from .transaction import Operation, Transaction

MAX_RETRIED = 500
"""Jobs in one transaction; the rest follow in the next."""


class RetryFailedDue(Request):
    """Try the failed jobs of one queue again whose time has come. Answers how many."""

    queue: int
    apart = ALONE


def retry_failed_due(tx: Transaction, requests: Sequence[RetryFailedDue]) -> Operation[list[int]]:
    answers: list[int] = []
    for request in requests:
        if not (yield from may_keep_house(request.queue, "revive")):
            answers.append(0)
            continue
        found = yield "auto_retry_due", {"queue": request.queue, "now": tx.now, "most": MAX_RETRIED}
        jobs = [row[0] for row in found.rows]
        if jobs:
            [moved] = yield from move_jobs(
                tx, [MoveJobs(RETRY_FINISHED, jobs, forget_attempts=True)]
            )
            yield "count_auto_retries", {"jobs": as_json(moved)}
            left = sorted(set(jobs).difference(moved))
            if left:  # their ids are taken where they came from: they stay
                params = {"queue": request.queue, "jobs": as_json(left)}
                yield "schedule_auto_retry", {**params, "after": None, "times": 0}
        answers.append(len(jobs))
    return answers


def schedule_auto_retry(queue: int, settings: Settings, jobs: Sequence[int]) -> Operation[None]:
    """These jobs of a queue have failed: say when they are tried again, if they are."""
    if settings.retry_failed_after is not None and jobs:
        yield (
            "schedule_auto_retry",
            {
                "queue": queue,
                "jobs": as_json(jobs),
                "after": settings.retry_failed_after,
                "times": settings.retry_failed_times,
            },
        )
