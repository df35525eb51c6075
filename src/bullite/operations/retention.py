"""Retention: delete finished jobs, removed jobs, events and keys that are past their limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..core.codec import as_json
from ..core.job_flags import UPSTREAM
from ..core.retention import Retention
from ..core.states import State
from .dependencies import Link
from .queues import Settings, may_sweep, read_settings
from .rate_limits import read_limits
from .rate_limits_by_key import delete_idle_limit_keys
from .request import ALONE, Request
from .transaction import Operation, Transaction, read_counts
from .transitions import delete_jobs, load_for_update

MAX_PRUNED = 500
"""Rows that one maintenance transaction deletes, so that it holds its locks only shortly."""


def apply_retention(
    tx: Transaction, queue: int, state: State, ended: Iterable[tuple[int, int, Retention | None]]
) -> Operation[None]:
    """Apply the retention of jobs that just ended in `state`: delete these jobs, or older ones.

    `ended` has the pk, the flags and the retention of each job.
    """
    with_limits = [(job, flags, keep) for job, flags, keep in ended if keep is not None]
    if not with_limits:
        return
    at_once = {job: flags for job, flags, keep in with_limits if keep.nothing}
    if at_once:
        yield from delete_finished(tx, queue, state, at_once)
    policies: dict[Retention, int] = {}
    for _, _, keep in with_limits:
        if not keep.nothing:
            policies[keep] = policies.get(keep, 0) + 1
    for keep, jobs in policies.items():
        yield from prune_finished(tx, queue, state, keep, keep.limit * jobs)


def prune_finished(
    tx: Transaction, queue: int, state: State, keep: Retention, limit: int
) -> Operation[int]:
    """Delete finished jobs of a queue that are too old or too many, at most `limit` by each."""
    deleted = 0
    if keep.age is not None:
        deleted += yield from _delete_oldest(tx, queue, state, tx.now - keep.age, limit)
    if keep.count is not None:
        stored = yield from read_counts(queue)
        there = stored[state.value] + tx.counted(queue, state.value)
        excess = min(there - keep.count, limit)
        if excess > 0:
            deleted += yield from _delete_oldest(tx, queue, state, tx.now, excess)
    return deleted


def _delete_oldest(
    tx: Transaction, queue: int, state: State, before: int, most: int
) -> Operation[int]:
    old = yield f"take_oldest:{state}", {"queue": queue, "before": before, "most": most}
    if old.rows:
        yield from delete_finished(tx, queue, state, dict(old.rows))
    return len(old.rows)


def delete_finished(
    tx: Transaction, queue: int, state: State, jobs: Mapping[int, int]
) -> Operation[None]:
    yield from delete_jobs(tx, state, jobs)
    tx.count(queue, state.value, -len(jobs))


class PruneQueue(Request):
    """Delete rows of a queue that are past their keep limits. Reply with their number.

    One request deletes a small number. It deletes nothing while another process prunes the queue.
    """

    queue: int
    apart = ALONE


def prune_queues(tx: Transaction, requests: Sequence[PruneQueue]) -> Operation[list[int]]:
    replies: list[int] = []
    for request in requests:
        swept = 0
        if (yield from may_sweep(request.queue)):
            settings = yield from read_settings(request.queue)
            # One of the three per transaction: trimming events locks the row of the queue to count
            # them. So that lock is short, and no other row is locked before it.
            swept = yield from _prune_log(request.queue, settings)
            swept = swept or (yield from _prune_jobs(tx, request.queue, settings))
            swept = swept or (yield from _prune_limit_keys(tx, request.queue))
        replies.append(swept)
    return replies


def _prune_log(queue: int, settings: Settings) -> Operation[int]:
    params = {"queue": queue, "keep": settings.max_events, "most": MAX_PRUNED}
    trimmed = yield "trim_events", params
    return trimmed.changed


def _prune_jobs(tx: Transaction, queue: int, settings: Settings) -> Operation[int]:
    swept = 0
    for state, count, age in (
        (State.COMPLETED, settings.keep_completed_count, settings.keep_completed_age),
        (State.FAILED, settings.keep_failed_count, settings.keep_failed_age),
    ):
        # The age of a Retention is inclusive; a setting keeps a job for the whole of its age.
        keep = Retention(count, None if age is None else age + 1)
        swept += yield from prune_finished(tx, queue, state, keep, MAX_PRUNED)
    before = tx.now - settings.trash_age
    trash = yield "trash_to_delete", {"queue": queue, "before": before, "most": MAX_PRUNED}
    if trash.rows:
        yield from delete_jobs(tx, State.REMOVED, dict(trash.rows))
        swept += len(trash.rows)
    over = yield "prune_dedup_keys", {"queue": queue, "now": tx.now, "most": MAX_PRUNED}
    swept += over.changed
    return swept


def _prune_limit_keys(tx: Transaction, queue: int) -> Operation[int]:
    if not (yield from read_limits(queue)).by_key:
        return 0
    return (yield from delete_idle_limit_keys(tx, queue, MAX_PRUNED))


class Purge(Request):
    """Delete finished jobs of a queue, except those that other jobs wait for. Reply with a number.

    A job that has left the state meanwhile, such as by a retry, stays.
    """

    queue: int
    state: State
    jobs: Sequence[int]
    barrier = True

    def job_ids(self) -> Sequence[int]:
        return self.jobs


def purge(tx: Transaction, requests: Sequence[Purge]) -> Operation[list[int]]:
    replies: list[int] = []
    for request in requests:
        rows = (yield from load_for_update(request.jobs)).values()
        there = [p for p in rows if (p.queue, p.state) == (request.queue, request.state)]
        tied = [row.job for row in there if row.flags & UPSTREAM]
        awaited: set[int] = set()
        if tied:
            links = yield "links_from", {"jobs": as_json(tied)}
            awaited = {Link(*row).upstream for row in links.rows}
        going = {row.job: row.flags for row in there if row.job not in awaited}
        if going:
            yield from delete_finished(tx, request.queue, request.state, going)
        replies.append(len(going))
    return replies
