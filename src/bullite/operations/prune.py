"""Deleting what is past keeping."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.codec import as_json
from ..core.job_flags import UPSTREAM
from ..core.retention import Retention
from ..core.states import State
from .queue_settings import Settings, may_sweep, read_settings
from .rate_limits import read_limits
from .rate_limits_by_key import delete_idle_limit_keys
from .request import ALONE, Request
from .retention import delete_finished, prune_finished
from .transaction import Operation, Transaction
from .transitions import delete_jobs, load_for_update

MAX_PRUNED = 500
"""Rows deleted in one transaction, so that a sweep never holds the lock for long."""


class PruneQueue(Request):
    """Delete what is past keeping in one queue, a small piece at a time. Answers how much.

    That is nothing while another process sweeps the queue.
    """

    queue: int
    apart = ALONE


def prune_queues(tx: Transaction, requests: Sequence[PruneQueue]) -> Operation[list[int]]:
    answers: list[int] = []
    for request in requests:
        swept = 0
        if (yield from may_sweep(request.queue)):
            settings = yield from read_settings(request.queue)
            # Only one of the three in a transaction. Trimming events locks the row of the queue, to
            # count them: so the lock is short, and no other row was locked before it.
            swept = yield from _sweep_log(request.queue, settings)
            swept = swept or (yield from _sweep_jobs(tx, request.queue, settings))
            swept = swept or (yield from _sweep_limits(tx, request.queue))
        answers.append(swept)
    return answers


def _sweep_log(queue: int, settings: Settings) -> Operation[int]:
    params = {"queue": queue, "keep": settings.max_events, "most": MAX_PRUNED}
    trimmed = yield "trim_events", params
    return trimmed.changed


def _sweep_jobs(tx: Transaction, queue: int, settings: Settings) -> Operation[int]:
    swept = 0
    for state, count, age in (
        (State.COMPLETED, settings.keep_completed_count, settings.keep_completed_age),
        (State.FAILED, settings.keep_failed_count, settings.keep_failed_age),
    ):
        # An age of a policy is inclusive; here a job is kept for the whole of it.
        keep = Retention(count, None if age is None else age + 1)
        swept += yield from prune_finished(tx, queue, state, keep, MAX_PRUNED)
    before = tx.now - settings.trash_age
    trash = yield "trash_to_delete", {"queue": queue, "before": before, "most": MAX_PRUNED}
    if trash.rows:
        yield from delete_jobs(tx, State.REMOVED, {row[0]: row[1] for row in trash.rows})
        swept += len(trash.rows)
    over = yield "prune_dedup_keys", {"queue": queue, "now": tx.now, "most": MAX_PRUNED}
    swept += over.changed
    return swept


def _sweep_limits(tx: Transaction, queue: int) -> Operation[int]:
    if not (yield from read_limits(queue)).by_key:
        return 0
    return (yield from delete_idle_limit_keys(tx, queue, MAX_PRUNED))


class Purge(Request):
    """Delete finished jobs of a queue for good, but those that others wait for. Answers how many.

    One that is not there any more, in that state, is left alone: somebody may have retried it.
    """

    queue: int
    state: State
    jobs: Sequence[int]
    barrier = True

    def job_ids(self) -> Sequence[int]:
        return self.jobs


def purge(tx: Transaction, requests: Sequence[Purge]) -> Operation[list[int]]:
    answers: list[int] = []
    for request in requests:
        places = (yield from load_for_update(request.jobs)).values()
        there = [p for p in places if (p.queue, p.state) == (request.queue, request.state)]
        tied = [place.job for place in there if place.flags & UPSTREAM]
        awaited: set[int] = set()
        if tied:
            awaited = {row[0] for row in (yield "links_from", {"jobs": as_json(tied)}).rows}
        going = {place.job: place.flags for place in there if place.job not in awaited}
        if going:
            yield from delete_finished(tx, request.queue, request.state, going)
        answers.append(len(going))
    return answers
