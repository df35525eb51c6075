"""Keeping only so many finished jobs, for only so long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..core.retention import Retention
from ..core.states import State
from .transaction import COUNTED, Operation, Transaction
from .transitions import delete_jobs


def apply_retention(
    tx: Transaction, queue: int, state: State, ended: Iterable[tuple[int, int, Retention | None]]
) -> Operation[None]:
    """What the jobs that just ended in `state` ask to be deleted: themselves, or older ones.

    Of each its number, its traits, and what it asks for.
    """
    asking = [(job, traits, keep) for job, traits, keep in ended if keep is not None]
    if not asking:
        return
    at_once = {job: traits for job, traits, keep in asking if keep.nothing}
    if at_once:
        yield from delete_finished(tx, queue, state, at_once)
    policies: dict[Retention, int] = {}
    for _, _, keep in asking:
        if not keep.nothing:
            policies[keep] = policies.get(keep, 0) + 1
    for keep, jobs in policies.items():
        yield from prune_finished(tx, queue, state, keep, keep.limit * jobs)


def prune_finished(
    tx: Transaction, queue: int, state: State, keep: Retention, limit: int
) -> Operation[int]:
    """Delete those of a queue's finished jobs that are too old or too many, `limit` at a time."""
    deleted = 0
    if keep.age is not None:
        deleted += yield from _delete_oldest(tx, queue, state, tx.now - keep.age, limit)
    if keep.count is not None:
        stored = yield "counts", {"queue": queue}
        there: int = stored.rows[0][COUNTED.index(state.value)] + tx.counted(queue, state.value)
        excess = min(there - keep.count, limit)
        if excess > 0:
            deleted += yield from _delete_oldest(tx, queue, state, tx.now, excess)
    return deleted


def _delete_oldest(
    tx: Transaction, queue: int, state: State, before: int, most: int
) -> Operation[int]:
    old = yield f"take_oldest:{state}", {"queue": queue, "before": before, "most": most}
    if old.rows:
        yield from delete_finished(tx, queue, state, {row[0]: row[1] for row in old.rows})
    return len(old.rows)


def delete_finished(
    tx: Transaction, queue: int, state: State, jobs: Mapping[int, int]
) -> Operation[None]:
    yield from delete_jobs(tx, state, jobs)
    tx.count(queue, state.value, -len(jobs))
