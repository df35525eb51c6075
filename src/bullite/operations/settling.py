"""Ending runs: the moves that only the holder of a job may make, and what they leave behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from ..engine.contract import Conflict
from ..engine.plan import Request
from ..errors import BulliteError
from ..eventlog import LONGEST_COPIED
from ..outcome import CANCELLED, ERROR, Verdict
from ..states import (
    BACK_OFF,
    CLAIM,
    COMPLETE,
    DELAY,
    FAIL,
    GIVE_BACK,
    RELEASE,
    RETRY,
    Move,
    State,
)
from ..traits import DEDUPLICATED, DOWNSTREAM, UPSTREAM
from . import linking
from .burying import bury
from .claiming import promote_due
from .limiting import read_limits
from .moving import ANY_NAME, as_json, swap_all, take_numbers, where_they_are
from .releasing import release
from .retaining import retain
from .transaction import Event, Operation, Transaction


@dataclass(slots=True)
class Settle(Request):
    """A worker tells how its runs of jobs of one queue ended. Answers a Settled."""

    queue: int
    verdicts: Sequence[Verdict]
    awaited = False

    def keys(self) -> Sequence[int]:
        return [verdict.job for verdict in self.verdicts]


class Settled(NamedTuple):
    """What became of the verdicts."""

    lost: Sequence[int]
    """The jobs that were not held any more: their verdicts were refused and changed nothing."""
    at: int
    spoilt: Mapping[int, BulliteError] = {}
    """The jobs that could not be completed, and why: ended by hand they still run, else failed."""
    ttl: int = 0
    """Of jobs that were released: ms for which a rate limit lets none of their queue begin."""


_NOBODY: tuple[int, ...] = ()

# Looked at for every job that ends: by place, which is much quicker than by name.
_JOB_AND_TOKEN = itemgetter(Verdict._fields.index("job"), Verdict._fields.index("token"))
_JOB, _MOVE, _VALUE, _AGAIN, _AHEAD, _CUSTOM_ID, _KEEP, _TRAITS = (
    itemgetter(Verdict._fields.index(field))
    for field in ("job", "move", "value", "again", "ahead", "custom_id", "keep", "traits")
)


def settle(tx: Transaction, requests: Sequence[Settle]) -> Operation[list[Settled]]:
    lost: set[tuple[int, int]] = set()
    spoilt: dict[int, BulliteError] = {}
    ttls: dict[int, int] = {}
    for (queue, move), verdicts in _group_by_queue_and_move(requests).items():
        if tx.careful or any(map(_AGAIN, verdicts)):
            verdicts = yield from _those_held(tx, verdicts, lost)
        for traits, alike in _group_by_traits(verdicts).items():
            if move is COMPLETE and traits & DOWNSTREAM:
                alike, refused = yield from _those_done(tx, alike, spoilt)
                if refused:
                    yield from _settle_group(tx, queue, FAIL, traits, refused)
            if alike:
                yield from _settle_group(tx, queue, move, traits, alike)
        if move is RELEASE:
            ttls[queue] = (yield from read_limits(queue)).ttl(tx.now, None)
    if not lost and not spoilt and not ttls:
        return [Settled(_NOBODY, tx.now)] * len(requests)
    return [
        Settled(
            [v.job for v in request.verdicts if (v.job, v.token) in lost],
            tx.now,
            {v.job: spoilt[v.job] for v in request.verdicts if v.job in spoilt},
            ttls.get(request.queue, 0),
        )
        for request in requests
    ]


def _group_by_queue_and_move(
    requests: Sequence[Settle],
) -> dict[tuple[int, Move], list[Verdict]]:
    queues: dict[int, dict[Move, list[Verdict]]] = {}
    for request in requests:
        moves = queues.setdefault(request.queue, defaultdict(list))
        if len(set(map(_MOVE, request.verdicts))) == 1:
            moves[request.verdicts[0].move] += request.verdicts
            continue
        for verdict in request.verdicts:
            moves[verdict.move].append(verdict)
    return {(queue, move): v for queue, moves in queues.items() for move, v in moves.items()}


def _group_by_traits(verdicts: list[Verdict]) -> dict[int, list[Verdict]]:
    kinds = set(map(_TRAITS, verdicts))
    if len(kinds) == 1:
        return {kinds.pop(): verdicts}
    groups: dict[int, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        groups[verdict.traits].append(verdict)
    return groups


def _those_held(
    tx: Transaction, verdicts: list[Verdict], lost: set[tuple[int, int]]
) -> Operation[list[Verdict]]:
    """The verdicts that can be carried out; `lost` gets the tokens of those that must be refused.

    A verdict whose earlier sending was carried out, and only its answer got lost, is neither: the
    finished row still carries its token. What was tied to a job while it ran is known from here on.
    """
    places = yield from where_they_are([verdict.job for verdict in verdicts])
    held: dict[int, Verdict] = {}
    for verdict in verdicts:
        place = places.get(verdict.job)
        if place is None or (place.token, place.nonce) != (verdict.token, tx.nonce):
            lost.add((verdict.job, verdict.token))
        elif place.state == State.ACTIVE:
            held.setdefault(verdict.job, verdict._replace(traits=place.traits))
        elif not (verdict.again and place.state == verdict.move.target):
            lost.add((verdict.job, verdict.token))
    return list(held.values())


def _those_done(
    tx: Transaction, verdicts: list[Verdict], spoilt: dict[int, BulliteError]
) -> Operation[tuple[list[Verdict], list[Verdict]]]:
    """Of runs that completed: those whose children let them, and those that fail instead.

    One that somebody ended by hand is neither: its holder is told, and holds it still.
    """
    errors = yield from linking.obstacles(tx, [verdict.job for verdict in verdicts])
    spoilt |= errors
    done = [verdict for verdict in verdicts if verdict.job not in errors]
    refused = [
        verdict._replace(
            move=FAIL, value=None, reason=str(errors[verdict.job]), keep=None, outcome=ERROR
        )
        for verdict in verdicts
        if verdict.job in errors and not verdict.by_hand
    ]
    return done, refused


def _settle_group(
    tx: Transaction, queue: int, move: Move, traits: int, verdicts: list[Verdict]
) -> Operation[None]:
    """Make one kind of move for many jobs of the same traits, in one swap.

    All are expected to be held, and to have the traits their worker knows. When one has not, the
    swap falls short and the transaction is tried again with care, so the common case never has to
    look first.
    """
    if move is RETRY:
        # Those whose time has come while this one ran were there before it.
        yield from promote_due(tx, queue)
    asked = yield from _asked(move, verdicts)
    if len(asked) != len(verdicts):
        raise Conflict("two verdicts for one job")
    yield from swap_all(tx, move, State.ACTIVE, asked, traits=traits)
    tx.runs_ended(queue, len(verdicts))
    if any(map(_AHEAD, verdicts)):
        tx.log(queue, CLAIM.name, [v.custom_id or v.job for v in verdicts if v.ahead])
    yield from _arrive(tx, queue, move, verdicts)
    if move.events:
        tx.log(queue, move.name, _events(tx, move, verdicts))
    if traits & UPSTREAM and move in (COMPLETE, FAIL):
        verdicts = yield from _tell_those_waiting(tx, move, verdicts)
    if traits & DEDUPLICATED and move in (COMPLETE, FAIL):
        yield from release(tx, [verdict.job for verdict in verdicts])
    yield from _leave_behind(tx, queue, move, verdicts)


def _tell_those_waiting(
    tx: Transaction, move: Move, verdicts: list[Verdict]
) -> Operation[list[Verdict]]:
    """Others waited for these jobs. What is still depended on may not be deleted."""
    if move is COMPLETE:
        yield from linking.completed(tx, {v.job: v.value for v in verdicts})
        return verdicts
    leaving = {v.job for v in verdicts if v.keep is not None and v.keep.nothing}
    needed = yield from linking.failed(tx, {v.job: v.reason for v in verdicts}, leaving)
    return [v._replace(keep=None) if v.job in needed else v for v in verdicts]


def _asked(move: Move, verdicts: list[Verdict]) -> Operation[dict[int, Any]]:
    if move in (BACK_OFF, DELAY):
        return {v.job: [v.token, v.delay] for v in verdicts}
    if move is RETRY:
        numbers = yield from take_numbers(len(verdicts))
        return {v.job: [v.token, number] for number, v in zip(numbers, verdicts, strict=True)}
    return dict(map(_JOB_AND_TOKEN, verdicts))


def _arrive(tx: Transaction, queue: int, move: Move, verdicts: list[Verdict]) -> Operation[None]:
    if move in (RETRY, RELEASE, GIVE_BACK):
        places = yield from where_they_are([verdict.job for verdict in verdicts])
        tx.count_waiting(queue, [place.priority for place in places.values()], +1)
        tx.made_ready(queue, ANY_NAME, len(places))
        return
    assert move.target is not None
    tx.count(queue, move.target.value, len(verdicts))
    if move.target is State.DELAYED:
        tx.made_delayed(queue, tx.now + min(verdict.delay for verdict in verdicts))


def _events(tx: Transaction, move: Move, verdicts: list[Verdict]) -> list[Event]:
    if move is COMPLETE:
        if not (any(map(_VALUE, verdicts)) or any(map(_CUSTOM_ID, verdicts))):
            return list(map(_JOB, verdicts))
        return [
            v.job if v.value is None and v.custom_id is None else _completed(v) for v in verdicts
        ]
    if move is FAIL:
        return [_failed(v) for v in verdicts]
    if move in (BACK_OFF, RETRY):
        return [(v.public_id, [v.reason, v.attempts_made, tx.now + v.delay]) for v in verdicts]
    if move is DELAY:
        return [(v.public_id, tx.now + v.delay) for v in verdicts]
    return [v.public_id for v in verdicts]


def _completed(verdict: Verdict) -> Any:
    """One with a result, or with an id of its own.

    A third member says whether there is a result to fetch, because it is too long to be copied; a
    fourth is the number of a job that is called otherwise.
    """
    value = verdict.value
    too_long = value is not None and len(value) > LONGEST_COPIED
    copied = None if value is None or too_long else msgspec.Raw(value.encode())
    if verdict.custom_id is not None:
        return (verdict.custom_id, copied, int(too_long), verdict.job)
    return (verdict.job, copied, 1) if too_long else (verdict.job, copied)


def _failed(verdict: Verdict) -> Event:
    told = [verdict.reason, verdict.attempts_made, verdict.outcome]
    if verdict.custom_id is None:
        return (verdict.job, told)
    return (verdict.custom_id, [*told, verdict.job])


def _leave_behind(
    tx: Transaction, queue: int, move: Move, verdicts: list[Verdict]
) -> Operation[None]:
    """Write results and history; then what may not stay goes."""
    if move is COMPLETE:
        if any(map(_VALUE, verdicts)):
            yield "write_values", [(v.job, v.value) for v in verdicts if v.value is not None]
        if any(map(_KEEP, verdicts)):
            ended = [(v.job, v.traits, v.keep) for v in verdicts]
            yield from retain(tx, queue, State.COMPLETED, ended)
    elif move in (FAIL, BACK_OFF, RETRY):
        yield "write_failures", [(v.job, v.reason, v.outcome) for v in verdicts]
        yield from _write_history(tx, verdicts)
        if move is FAIL:
            deserving = [v for v in verdicts if v.outcome != CANCELLED]
            buried = yield from bury(tx, queue, deserving)
            kept = [(v.job, v.traits, v.keep) for v in verdicts if v.job not in buried]
            yield from retain(tx, queue, State.FAILED, kept)


def _write_history(tx: Transaction, verdicts: list[Verdict]) -> Operation[None]:
    ended = [[v.job, v.outcome, v.reason, v.stack] for v in verdicts]
    yield "write_attempts", {"attempts": as_json(ended), "now": tx.now}
    for verdict in verdicts:
        if verdict.stack_limit is not None:
            yield "forget_stacks", {"job": verdict.job, "keep": verdict.stack_limit}
