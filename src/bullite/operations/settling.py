"""Ending runs: the moves that only the holder of a job may make, and what they leave behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ..engine.contract import Conflict
from ..engine.plan import Request
from ..outcome import Verdict
from ..states import BACK_OFF, CLAIM, COMPLETE, FAIL, GIVE_BACK, RETRY, Move, State
from .moving import ANY_NAME, Place, as_json, swap_all, take_numbers, where_they_are
from .transaction import Event, Operation, Transaction

LONGEST_COPIED_RESULT = 4 * 1024
"""Longer results are not copied into the event log; readers fetch them from the job."""


@dataclass(slots=True)
class Settle(Request):
    """A worker tells how its runs of jobs of one queue ended.

    Answers the jobs it had lost: their verdicts were refused and changed nothing.
    """

    queue: int
    verdicts: Sequence[Verdict]

    def keys(self) -> Sequence[int]:
        return [verdict.job for verdict in self.verdicts]


def settle(tx: Transaction, requests: Sequence[Settle]) -> Operation[list[list[int]]]:
    groups = _group_by_queue_and_move(requests)
    lost: set[tuple[int, int]] = set()
    results: list[tuple[int, str | None, str | None, str | None]] = []
    for (queue, move), verdicts in groups.items():
        if tx.careful or any(verdict.again for verdict in verdicts):
            verdicts = yield from _those_held(tx, verdicts, lost)
        if verdicts:
            yield from _settle_group(tx, queue, move, verdicts)
            results += [(v.job, v.value, v.reason, v.stack) for v in verdicts if v.has_result]
    if results:
        yield "write_results", results
    if not lost:
        return [[] for _ in requests]
    return [[v.job for v in request.verdicts if (v.job, v.token) in lost] for request in requests]


def _group_by_queue_and_move(
    requests: Sequence[Settle],
) -> dict[tuple[int, Move], list[Verdict]]:
    queues: dict[int, dict[Move, list[Verdict]]] = {}
    for request in requests:
        moves = queues.setdefault(request.queue, defaultdict(list))
        for verdict in request.verdicts:
            moves[verdict.move].append(verdict)
    return {(queue, move): v for queue, moves in queues.items() for move, v in moves.items()}


def _those_held(
    tx: Transaction, verdicts: list[Verdict], lost: set[tuple[int, int]]
) -> Operation[list[Verdict]]:
    """The verdicts that can be carried out; `lost` gets the tokens of those that must be refused.

    A verdict whose earlier sending was carried out, and only its answer got lost, is neither: the
    finished row still carries its token.
    """
    places = yield from where_they_are([verdict.job for verdict in verdicts])
    held: dict[int, Verdict] = {}
    for verdict in verdicts:
        place = places.get(verdict.job)
        if place is None or (place.token, place.nonce) != (verdict.token, tx.nonce):
            lost.add((verdict.job, verdict.token))
        elif place.state == State.ACTIVE:
            held.setdefault(verdict.job, verdict)
        elif not (verdict.again and place.state == verdict.move.target):
            lost.add((verdict.job, verdict.token))
    return list(held.values())


def _settle_group(
    tx: Transaction, queue: int, move: Move, verdicts: list[Verdict]
) -> Operation[None]:
    """Make one kind of move for many jobs, in one swap.

    All are expected to be held. When one is not, the swap falls short and the transaction is tried
    again with care, so the common case never has to look first.
    """
    asked = yield from _asked(move, verdicts)
    if len(asked) != len(verdicts):
        raise Conflict("two verdicts for one job")
    yield from swap_all(tx, move, State.ACTIVE, asked)
    tx.count(queue, "active", -len(verdicts))
    begun = [verdict.job for verdict in verdicts if verdict.ahead]
    if begun:
        tx.log(queue, CLAIM.name, list(begun))
    yield from _arrive(tx, queue, move, verdicts)
    tx.log(queue, move.name, _events(tx, move, verdicts))


def _asked(move: Move, verdicts: list[Verdict]) -> Operation[dict[int, Any]]:
    if move is BACK_OFF:
        return {v.job: [v.token, v.delay] for v in verdicts}
    if move is RETRY:
        first = yield from take_numbers(len(verdicts))
        return {v.job: [v.token, number] for number, v in enumerate(verdicts, start=first)}
    return {v.job: v.token for v in verdicts}


def _arrive(tx: Transaction, queue: int, move: Move, verdicts: list[Verdict]) -> Operation[None]:
    if move in (RETRY, GIVE_BACK):
        places = yield from where_they_are([verdict.job for verdict in verdicts])
        tx.count_waiting(queue, [place.priority for place in places.values()], +1)
        tx.made_ready(queue, ANY_NAME, len(places))
    else:
        tx.count(
            queue, {COMPLETE: "completed", FAIL: "failed", BACK_OFF: "delayed"}[move], len(verdicts)
        )
    if move is BACK_OFF:
        tx.made_delayed(queue, tx.now + min(verdict.delay for verdict in verdicts))


def _events(tx: Transaction, move: Move, verdicts: list[Verdict]) -> list[Event]:
    if move is COMPLETE:
        return [v.job if v.value is None else (v.job, _copied(v.value)) for v in verdicts]
    if move is BACK_OFF:
        return [(v.job, [v.reason, tx.now + v.delay]) for v in verdicts]
    return [v.job if v.reason is None else (v.job, [v.reason]) for v in verdicts]


def _copied(value: str) -> msgspec.Raw | None:
    return msgspec.Raw(value.encode()) if len(value) <= LONGEST_COPIED_RESULT else None


@dataclass(slots=True)
class Progress(Request):
    """The holder of a job says how far it is. Answers False if it no longer holds the job."""

    queue: int
    job: int
    token: int
    progress: str
    durable = False

    def keys(self) -> Sequence[int]:
        return (self.job,)


def record_progress(tx: Transaction, requests: Sequence[Progress]) -> Operation[list[bool]]:
    asked = {request.job: [request.token, request.progress] for request in requests}
    result = yield "write_progress", {"jobs": as_json(asked), "nonce": tx.nonce}
    held = set(asked)
    if result.changed != len(asked):
        places = yield from where_they_are(list(asked))
        held = {r.job for r in requests if _is_held(tx, r, places.get(r.job))}
    for request in requests:
        if request.job in held:
            event = (request.job, msgspec.Raw(request.progress.encode()))
            tx.log(request.queue, "progress", [event])
    return [request.job in held for request in requests]


def _is_held(tx: Transaction, request: Progress, place: Place | None) -> bool:
    return (
        place is not None
        and place.state == State.ACTIVE
        and (place.token, place.nonce) == (request.token, tx.nonce)
    )
