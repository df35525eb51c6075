"""Ending jobs that were not run: failed without a try, and all that belongs to them settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..core.codec import decode
from ..core.event_log import Payload
from ..core.job_flags import DEDUPLICATED, SCHEDULED, UPSTREAM
from ..core.retention import Retention, retention_of
from ..core.states import Move, State
from . import dependencies
from .deduplicate_release import release
from .retention import apply_retention
from .scheduler_ticks import create_successor
from .transaction import Event, Operation, Transaction
from .transitions import count_in, count_out, transition


class UnstartedJob(NamedTuple):
    """A job of a queue that is to end where it waits."""

    job: int
    state: str
    priority: int
    custom_id: str | None
    opts: str | None
    flags: int


def end_unstarted(
    tx: Transaction,
    queue: int,
    move: Move,
    outcome: str,
    jobs: Sequence[UnstartedJob],
    reasons: Mapping[int, str],
) -> Operation[None]:
    """Make `move` for jobs of one queue; none is retried, none becomes a dead letter."""
    for source in move.sources:
        some = [one for one in jobs if one.state == source]
        if not some:
            continue
        numbers = [one.job for one in some]
        yield from transition(tx, move, source, numbers)
        yield "write_failures", [(job, reasons[job], outcome) for job in numbers]
        priorities = [one.priority for one in some]
        count_out(tx, queue, source, priorities)
        count_in(tx, queue, move.target, priorities)
        tx.log(queue, move.name, [_event(source, one, reasons[one.job]) for one in some])
    if jobs:
        yield from _finish_rest(tx, queue, jobs, reasons)


def _finish_rest(
    tx: Transaction, queue: int, jobs: Sequence[UnstartedJob], reasons: Mapping[int, str]
) -> Operation[None]:
    """What else belonged to them, once all of them have ended: some may wait for others."""
    keyed = [one.job for one in jobs if one.flags & DEDUPLICATED]
    if keyed:
        yield from release(tx, keyed)
    scheduled = [one.job for one in jobs if one.flags & SCHEDULED]
    if scheduled:
        yield from create_successor(tx, queue, scheduled, runs=False)
    ended = [(one.job, one.flags, retention_of_failed(one.opts)) for one in jobs]
    awaited = {job: reasons[job] for job, traits, _ in ended if traits & UPSTREAM}
    needed: set[int] = set()
    if awaited:
        leaving = {job for job, _, keep in ended if keep is not None and keep.nothing}
        needed = yield from dependencies.on_failed(tx, awaited, leaving)
    yield from apply_retention(tx, queue, State.FAILED, [e for e in ended if e[0] not in needed])


def _event(source: State, one: UnstartedJob, reason: str) -> Event:
    """As all that end: with its number, if the job is called otherwise."""
    told = [source.value, reason]
    return (one.job, told) if one.custom_id is None else (one.custom_id, [*told, one.job])


def retention_of_failed(opts: str | None) -> Retention | None:
    """What may stay of a job with these options that has failed, as far as they say."""
    options: Payload = {} if opts is None else decode(opts)
    return retention_of(options.get("remove_on_fail"))
