"""Failing jobs that were not begun in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..codec import decode
from ..engine.plan import Request
from ..eventlog import Payload
from ..outcome import EXPIRED
from ..retention import Keep, keep_of
from ..states import EXPIRE, State
from ..traits import DEDUPLICATED, SCHEDULED, UPSTREAM
from . import linking
from .moving import count_in, count_out, swap_all
from .releasing import release
from .retaining import retain
from .scheduling import advance
from .transaction import Event, Operation, Transaction

MOST_EXPIRED = 1_000
"""Jobs failed in one go; the rest follow in the next transactions."""

REASON = "job expired before it was started"


@dataclass(slots=True)
class Expire(Request):
    """Fail the jobs of one queue that nobody began in time. Answers how many."""

    queue: int


def expire(tx: Transaction, requests: Sequence[Expire]) -> Operation[list[int]]:
    answers: list[int] = []
    for request in requests:
        answers.append((yield from expire_due(tx, request.queue)))
    return answers


def expire_due(tx: Transaction, queue: int) -> Operation[int]:
    """Move the jobs past their time to failed; none is retried or moved to another queue."""
    found = yield "expired", {"queue": queue, "now": tx.now, "most": MOST_EXPIRED}
    for source in EXPIRE.sources:
        rows = [row for row in found.rows if row[1] == source]
        if not rows:
            continue
        jobs = [row[0] for row in rows]
        yield from swap_all(tx, EXPIRE, source, jobs)
        yield "write_failures", [(job, REASON, EXPIRED) for job in jobs]
        priorities = [row[2] for row in rows]
        count_out(tx, queue, source, priorities)
        count_in(tx, queue, EXPIRE.target, priorities)
        tx.log(queue, EXPIRE.name, [_event(source, row) for row in rows])
    if found.rows:
        yield from _settle_rest(tx, queue, found.rows)
    return len(found.rows)


def _settle_rest(tx: Transaction, queue: int, rows: Sequence[Any]) -> Operation[None]:
    """What else belonged to jobs that expired, once all of them have: some may wait for others."""
    keyed = [row[0] for row in rows if row[5] & DEDUPLICATED]
    if keyed:
        yield from release(tx, keyed)
    scheduled = [row[0] for row in rows if row[5] & SCHEDULED]
    if scheduled:
        yield from advance(tx, queue, scheduled, runs=False)
    ended = [(row[0], row[5], _keep(row[4])) for row in rows]
    awaited = {job: REASON for job, traits, _ in ended if traits & UPSTREAM}
    needed: set[int] = set()
    if awaited:
        leaving = {job for job, _, keep in ended if keep is not None and keep.nothing}
        needed = yield from linking.failed(tx, awaited, leaving)
    yield from retain(tx, queue, State.FAILED, [e for e in ended if e[0] not in needed])


def _event(source: State, row: Sequence[Any]) -> Event:
    """As all that end: with its number, if the job is called otherwise."""
    job, _, _, custom_id, *_ = row
    told = [source.value, REASON]
    return (job, told) if custom_id is None else (custom_id, [*told, job])


def _keep(opts: str | None) -> Keep | None:
    options: Payload = {} if opts is None else decode(opts)
    return keep_of(options.get("remove_on_fail"))
