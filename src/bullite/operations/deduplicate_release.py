"""Deduplication keys of jobs that finish, are removed, are restored or are retried."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from ..core.codec import as_json, decode
from ..core.deduplication import KeyHolder, rule_of
from ..core.states import REMOVE, RESTORE, RETRY_FINISHED, RETRY_FINISHED_DELAYED, Move
from .add import NewJob, add_within
from .deduplicate import delete_keys, load_named, lock_keys
from .queues import read_settings
from .request import Request
from .transaction import Operation, Transaction
from .transitions import LockedJob


def release(tx: Transaction, jobs: Sequence[int]) -> Operation[None]:
    """Free the keys of finished jobs, except keys in a window; add the jobs that they kept."""
    freed = yield "free_keys", {"jobs": as_json(jobs), "windows": 0}
    yield from _add_kept(tx, freed.rows)


def moved_by_operator(tx: Transaction, move: Move, rows: Sequence[LockedJob]) -> Operation[None]:
    """Free or take again the keys of jobs that an operator moved.

    If a job is removed or deleted, its key is freed, even within its window; if it is removed, the
    job kept under the key is added. If a job is restored or retried, it takes its key again, unless
    another job holds it.
    """
    jobs = [row.job for row in rows]
    if move in (RETRY_FINISHED, RETRY_FINISHED_DELAYED, *RESTORE.values()):
        yield from _take_again(tx, jobs)
    elif move.target is None or move is REMOVE:
        freed = yield "free_keys", {"jobs": as_json(jobs), "windows": 1}
        yield from _add_kept(tx, freed.rows if move is REMOVE else ())


def _take_again(tx: Transaction, jobs: Sequence[int]) -> Operation[None]:
    found = yield "jobs_with_dedup_key", {"jobs": as_json(jobs)}
    back: dict[int, tuple[tuple[int, str], KeyHolder]] = {}
    for job, queue, custom_id, state, created_at, opts in found.rows:
        rule = rule_of(decode(opts))
        until = rule.window_from(min(created_at, tx.now))
        holder = KeyHolder(job, custom_id, until, None, state)
        if holder.holds_at(tx.now):
            back[job] = (queue, rule.id), holder
    if back:
        keys = yield from lock_keys(key for key, _ in back.values())
        for key, holder in back.values():
            keys.retake(tx.now, key, holder)
        yield from keys.save(tx)


def _add_kept(tx: Transaction, freed: Iterable[Sequence[Any]]) -> Operation[None]:
    """Add the jobs that were kept under keys that are free now."""
    kept: dict[int, list[NewJob]] = defaultdict(list)
    for queue, _, text in freed:
        if text is not None:
            kept[queue].append(load_named(NewJob, decode(text)))
    for queue, jobs in sorted(kept.items()):
        # The order of priorities may have been reversed since.
        low_first = (yield from read_settings(queue)).priority_order == "low"
        ranked = [j._replace(rank=j.priority if low_first else -j.priority) for j in jobs]
        yield from add_within(tx, queue, ranked)


class FreeKey(Request):
    """Free a key. Reply with True if a job held it."""

    queue: int
    key: str
    barrier = True


def free_key(tx: Transaction, requests: Sequence[FreeKey]) -> Operation[list[bool]]:
    """Free keys, and add the jobs that were kept under them."""
    replies: list[bool] = []
    for request in requests:
        params = {"queue": request.queue, "keys": as_json([request.key])}
        found = yield "key_holders", params
        replies.append(any(KeyHolder(*row).holds_at(tx.now) for _, *row in found.rows))
        kept = yield from delete_keys([(request.queue, request.key)])
        yield from _add_kept(tx, [(request.queue, None, text) for text in kept])
    return replies


class FreeKeyOf(Request):
    """Free the key of a job if the job holds it. Reply with True if it did."""

    job: int
    barrier = True

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def free_key_of(tx: Transaction, requests: Sequence[FreeKeyOf]) -> Operation[list[bool]]:
    replies: list[bool] = []
    for request in requests:
        freed = yield "free_keys", {"jobs": as_json([request.job]), "windows": 1}
        replies.append(any(until is None or tx.now < until for _, until, _ in freed.rows))
        yield from _add_kept(tx, freed.rows)
    return replies
