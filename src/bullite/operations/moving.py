"""The moves of jobs, as compare-and-swaps over sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..codec import encode_plain
from ..engine.contract import Conflict
from ..engine.plan import Request
from ..engine.statements import move_statement
from ..states import DELETE, PROMOTE, RESTORE, REVIVE, Move, State
from .transaction import Operation, Transaction


class Place(NamedTuple):
    """Where a job is, and who may move it."""

    job: int
    queue: int
    state: str
    priority: int
    lifo: int
    due_at: int | None
    token: int | None
    nonce: int | None
    removed_from: str | None


def where_they_are(jobs: Sequence[int]) -> Operation[dict[int, Place]]:
    """The places of those jobs that exist."""
    result = yield "where_they_are", {"jobs": as_json(jobs)}
    return {row[0]: Place(*row) for row in result.rows}


def as_json(value: Any) -> str:
    return encode_plain(value).decode()


def swap_all(
    tx: Transaction,
    move: Move,
    source: State,
    asked: Mapping[int, Any] | Sequence[int],
    **more: Any,
) -> Operation[None]:
    """Make `move` for every asked job; Conflict if one is not where the table and its token say.

    A move that is held needs the token of each job; one that takes something, [token, that]; any
    other, only the jobs.
    """
    params = {"jobs": as_json(asked), "now": tx.now, "nonce": tx.nonce, **more}
    result = yield move_statement(move, source), params
    if result.changed != len(asked):
        raise Conflict(f"{move}: {result.changed} of {len(asked)} jobs were where they should be")


def take_numbers(count: int) -> Operation[int]:
    """Reserve `count` numbers, never handed out before; the first of them."""
    result = yield "take_numbers", {"count": count}
    last: int = result.rows[0][0]
    return last - count + 1


@dataclass(slots=True)
class MoveByHand(Request):
    """Someone who does not hold the jobs asks for a move: remove, restore, promote, revive, delete.

    Answers the jobs that moved; one that was not where the table allows is left out.
    """

    move: Move
    jobs: Sequence[int]
    barrier = True

    def keys(self) -> Sequence[int]:
        return self.jobs


def move_by_hand(tx: Transaction, requests: Sequence[MoveByHand]) -> Operation[list[list[int]]]:
    answers = []
    for request in requests:
        places = yield from where_they_are(request.jobs)
        moved: list[int] = []
        for source in request.move.sources:
            there = [p for p in places.values() if p.state == source and _may(request.move, p)]
            yield from _move_from(tx, request.move, source, there)
            moved += [place.job for place in there]
        answers.append(moved)
    return answers


def _may(move: Move, place: Place) -> bool:
    """A removed job goes back to where it came from, and nowhere else."""
    if move in RESTORE.values():
        return place.removed_from == move.target
    return True


def _move_from(tx: Transaction, move: Move, source: State, places: list[Place]) -> Operation[None]:
    if not places:
        return
    jobs = [place.job for place in places]
    if move is DELETE:
        yield from delete_jobs(tx, source, jobs)
    elif move in (PROMOTE, REVIVE):
        yield from back_in_line(tx, move, source, [(p.job, p.lifo) for p in places])
    else:
        yield from swap_all(tx, move, source, jobs)
    if move is REVIVE:
        yield "forget_results", {"jobs": as_json(jobs)}
    for queue in {place.queue for place in places}:
        here = [place for place in places if place.queue == queue]
        count_out(tx, queue, source, [place.priority for place in here])
        count_in(tx, queue, move.target, [place.priority for place in here])
        tx.log(queue, move.name, [place.job for place in here])
        if move.target is State.DELAYED:
            tx.made_delayed(queue, min(place.due_at or tx.now for place in here))


def back_in_line(
    tx: Transaction, move: Move, source: State, jobs: Sequence[tuple[int, int]]
) -> Operation[None]:
    """Make `move`, which takes a place in line: at the end, or in front for those that are lifo."""
    first = yield from take_numbers(len(jobs))
    asked = {
        job: [0, -number if lifo else number]
        for number, (job, lifo) in enumerate(jobs, start=first)
    }
    yield from swap_all(tx, move, source, asked)


def delete_jobs(tx: Transaction, source: State, jobs: Sequence[int]) -> Operation[None]:
    """Delete finished or removed jobs for good, with all that belongs to them."""
    params = {"jobs": as_json(jobs)}
    result = yield move_statement(DELETE, source), params
    if result.changed != len(jobs):
        raise Conflict(
            f"delete: {result.changed} of {len(jobs)} jobs were where they had been seen"
        )
    yield "delete_payloads", params
    yield "delete_results", params


def count_out(tx: Transaction, queue: int, state: State, priorities: Sequence[int]) -> None:
    _count(tx, queue, state, priorities, -1)


def count_in(tx: Transaction, queue: int, state: State | None, priorities: Sequence[int]) -> None:
    _count(tx, queue, state, priorities, +1)
    if state is State.WAITING:
        tx.made_ready(queue, ANY_NAME, len(priorities))


ANY_NAME = ""
"""Stands for jobs whose names were not looked up: every worker of the queue may try."""


def _count(
    tx: Transaction, queue: int, state: State | None, priorities: Sequence[int], sign: int
) -> None:
    if state is State.WAITING:
        tx.count_waiting(queue, priorities, sign)
    elif state is not None and state is not State.REMOVED:
        tx.count(queue, state.replace("-", "_"), sign * len(priorities))
