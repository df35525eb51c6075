"""Taking jobs: promote what is due, choose the next in line, hold them with a fresh token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from ..engine.contract import Step
from ..engine.plan import Request
from ..states import CLAIM, PROMOTE, State
from ..traits import SCHEDULED
from .expiring import MOST_EXPIRED, expire_due
from .moving import ANY_NAME, as_json, back_in_line, swap_all
from .scheduling import advance
from .transaction import Operation, Transaction

MOST_PROMOTED = 1_000
"""Due jobs moved to the line in one go; the rest follow in the next transactions."""

MOST_SORTED = 1_000
"""Jobs put into the lane of their name in one go."""

UNSORTED = ""
"""The lane of jobs in queues whose workers do not choose by name."""


@dataclass(slots=True)
class Claim(Request):
    """A worker asks for up to `want` jobs, of these names or of any."""

    queue: int
    worker: int
    names: tuple[str, ...] | None
    want: int
    begin: int
    """How many of them begin at once; the others are fetched ahead."""
    lock_duration: int
    token: int
    """Made by the claiming process, never used before."""
    durable = False


class JobRow(NamedTuple):
    """What a worker is told of a job it now holds, and the beginning of what others read of it."""

    id: int
    name: str
    custom_id: str | None
    priority: int
    attempts: int
    attempts_made: int
    attempts_started: int
    stalled_count: int
    created_at: int
    deferred_failure: str | None
    opts: str | None
    rank: int
    seq: int
    traits: int
    """What else belongs to it: see traits.py."""
    data: str


_TRAITS = JobRow._fields.index("traits")


class Claimed(NamedTuple):
    """The answer to a claim."""

    rows: Sequence[Any]
    """In order; each has JobRow's fields."""
    begun: int
    """How many of them count as begun already; the beginning of the rest is told with their end."""
    token: int
    claimed_at: int
    drained: bool
    """There was nothing more that this worker could take."""
    next_due: int | None
    """When drained: the time at which the next delayed job of the queue is due."""
    paused: bool = False
    """The queue hands out nothing: what was fetched ahead must not begin either."""
    unknown: bool = False
    """The worker is not on the register any more: others gave up on it."""


class _Gates(NamedTuple):
    """What a claim must know of its queue."""

    by_name: int
    paused: int
    next_due: int | None
    next_expiry: int | None
    unknown: bool = False


_SHUT = _Gates(0, 1, None, None, unknown=True)
"""To a worker that is not on the register, nothing is handed out."""


def claim(tx: Transaction, requests: Sequence[Claim]) -> Operation[list[Claimed]]:
    answers: list[Claimed] = []
    for request in requests:
        answers.append((yield from _claim_one(tx, request)))
    return answers


def _claim_one(tx: Transaction, request: Claim) -> Operation[Claimed]:
    gates = yield from _gates(request)
    promoted = expired = 0
    if gates.next_due is not None and gates.next_due <= tx.now:
        promoted = yield from promote_due(tx, request.queue)
        gates = yield from _gates(request)
    if gates.next_expiry is not None and gates.next_expiry <= tx.now:
        expired = yield from expire_due(tx, request.queue)
    # Behind as many as one go can fail there may be more, which must not begin.
    shut = gates.paused or expired >= MOST_EXPIRED
    lanes = () if shut else (yield from _lanes(request, gates))
    rows = (yield from _next_in_line(request, lanes)) if lanes else ()
    more = False
    if rows:
        yield from _hold(tx, request, rows)
        scheduled = [row[0] for row in rows if row[_TRAITS] & SCHEDULED]
        if scheduled:
            more = yield from advance(tx, request.queue, scheduled)
    looked_everywhere = bool(lanes) or bool(gates.paused)
    drained = looked_everywhere and len(rows) < request.want and promoted < MOST_PROMOTED
    drained = drained and not more
    next_due = gates.next_due if drained else None
    begun = min(request.begin, len(rows))
    paused = bool(gates.paused)
    return Claimed(rows, begun, request.token, tx.now, drained, next_due, paused, gates.unknown)


def foreseen(request: Claim) -> list[Step]:
    """What `claim` will ask first, from a queue that is like most."""
    steps: list[Step] = [("gates", {"queue": request.queue, "worker": request.worker})]
    if request.names is None:
        steps.append(("ready", {"queue": request.queue, "lane": UNSORTED, "want": request.want}))
    return steps


def _gates(request: Claim) -> Operation[_Gates]:
    result = yield "gates", {"queue": request.queue, "worker": request.worker}
    return _Gates(*result.rows[0]) if result.rows else _SHUT


def promote_due(tx: Transaction, queue: int) -> Operation[int]:
    """Move the jobs whose time has come to the end of the line, in the order of their time."""
    due = yield "due", {"queue": queue, "now": tx.now, "most": MOST_PROMOTED}
    if due.rows:
        jobs = [(row[0], row[1]) for row in due.rows]
        yield from back_in_line(tx, PROMOTE, State.DELAYED, jobs)
        tx.count(queue, "delayed", -len(jobs))
        tx.count_waiting(queue, [row[2] for row in due.rows], +1)
        tx.log(queue, PROMOTE.name, [row[3] or row[0] for row in due.rows])
        tx.made_ready(queue, ANY_NAME, len(jobs))
    return len(due.rows)


def _hold(tx: Transaction, request: Claim, rows: Sequence[Any]) -> Operation[None]:
    jobs = [row[0] for row in rows]
    begun, ahead = jobs[: request.begin], jobs[request.begin :]
    for some, is_ahead in ((begun, 0), (ahead, 1)):
        if some:
            yield from swap_all(
                tx,
                CLAIM,
                State.WAITING,
                some,
                token=request.token,
                worker=request.worker,
                lease_until=tx.lease_now + request.lock_duration,
                ahead=is_ahead,
            )
    prioritized = sum(1 for row in rows if row[3])
    tx.count(request.queue, "waiting", prioritized - len(rows))
    tx.count(request.queue, "prioritized", -prioritized)
    tx.count(request.queue, "active", len(rows))
    if begun:
        tx.log(request.queue, CLAIM.name, [row[2] or row[0] for row in rows[: len(begun)]])


def _next_in_line(request: Claim, lanes: Sequence[str]) -> Operation[Sequence[Any]]:
    if len(lanes) == 1:
        lane = {"queue": request.queue, "lane": lanes[0], "want": request.want}
        result = yield "ready", lane
        return result.rows
    heads: list[list[list[int]]] = []
    for name in lanes:
        result = yield "heads", {"queue": request.queue, "lane": name, "want": request.want}
        heads.append([list(row) for row in result.rows])
    chosen = [row[2] for row in islice(merge(*heads), request.want)]
    if not chosen:
        return []
    result = yield "ready_among", {"jobs": as_json(chosen)}
    return result.rows


def _lanes(request: Claim, gates: _Gates) -> Operation[Sequence[str]]:
    """The lanes this worker takes from; none while there is more to sort than one go can.

    Most queues have one lane. A worker that chooses by name must not walk past a million jobs of
    other names, so in its queue every name has a lane. What is not sorted yet is sorted first:
    taking from the lanes before that would let new jobs overtake old ones.
    """
    if request.names is not None:
        params = {"queue": request.queue, "most": MOST_SORTED}
        sorted_now = yield "sort_into_lanes", params
        return request.names if sorted_now.changed < MOST_SORTED else ()
    if not gates.by_name:
        return (UNSORTED,)
    result = yield "lanes", {"queue": request.queue}
    return [row[0] for row in result.rows] or (UNSORTED,)


@dataclass(slots=True)
class Promote(Request):
    """Move the due jobs of one queue to its line, when no worker's claim does."""

    queue: int


def promote(tx: Transaction, requests: Sequence[Promote]) -> Operation[list[int]]:
    answers: list[int] = []
    for request in requests:
        answers.append((yield from promote_due(tx, request.queue)))
    return answers
