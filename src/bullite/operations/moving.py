"""The moves of jobs, as compare-and-swaps over sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..codec import encode_plain
from ..engine.contract import Conflict
from ..engine.plan import Request
from ..engine.statements import move_statement
from ..errors import BulliteError, IllegalMove, JobIdTaken, JobLocked, JobNotFound
from ..outcome import COMPLETED
from ..states import (
    DELETE,
    PROMOTE,
    REMOVE,
    RESCHEDULE,
    RESTORE,
    RESTORE_DELAYED,
    REVIVE,
    REVIVE_DELAYED,
    TEAR_AWAY,
    Move,
    State,
)
from ..traits import STEPPED
from .transaction import Event, Operation, Transaction


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
    custom_id: str | None
    original_queue: int | None
    ahead: int
    traits: int

    @property
    def public_id(self) -> int | str:
        return self.custom_id or self.job


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
    params["expected"] = len(asked)
    result = yield move_statement(move, source), params
    if result.changed != len(asked):
        raise Conflict(f"{move}: {result.changed} of {len(asked)} jobs were where they should be")


def take_numbers(count: int) -> Operation[Sequence[int]]:
    """Reserve `count` numbers, never handed out before, in rising order."""
    if not count:
        return ()
    result = yield "take_numbers", {"count": count}
    first, last = result.rows[0][0], result.rows[-1][-1]
    if last - first + 1 == count:
        return range(first, last + 1)
    return sorted(row[0] for row in result.rows)


@dataclass(slots=True)
class MoveByHand(Request):
    """Someone who does not hold the jobs asks for a move.

    Answers the jobs that moved; one that was not where the table allows is left out.
    """

    move: Move
    jobs: Sequence[int]
    delay: int = 0
    """Ms, for the moves that make a job wait for its time."""
    forget_attempts: bool = False
    """For the moves that let a finished job run again: as if it had never run."""
    barrier = True

    def keys(self) -> Sequence[int]:
        return self.jobs


def move_by_hand(tx: Transaction, requests: Sequence[MoveByHand]) -> Operation[list[list[int]]]:
    answers = []
    for request in requests:
        places = yield from where_they_are(request.jobs)
        wanted = [places[job] for job in dict.fromkeys(request.jobs) if job in places]
        moved: list[int] = []
        for source in request.move.sources:
            there = [p for p in wanted if p.state == source and _may(request.move, p)]
            there = yield from _with_free_ids(request.move, there)
            if there:
                yield from _move_from(tx, request, source, there)
                moved += [place.job for place in there]
        answers.append(moved)
    return answers


@dataclass(slots=True)
class MoveOne(Request):
    """The same for one job, whose caller wants to know why not. Answers None, or an error."""

    move: Move
    job: int
    id: str
    """As its users call it."""
    delay: int = 0
    forget_attempts: bool = False
    source: State | None = None
    """The only state it may be moved from, when the table allows several."""
    barrier = True

    def keys(self) -> Sequence[int]:
        return (self.job,)


def move_one(tx: Transaction, requests: Sequence[MoveOne]) -> Operation[list[BulliteError | None]]:
    answers: list[BulliteError | None] = []
    for request in requests:
        place = (yield from where_they_are([request.job])).get(request.job)
        moved: list[int] = []
        if place is not None and request.source in (None, place.state):
            by_hand = MoveByHand(
                request.move, (request.job,), request.delay, request.forget_attempts
            )
            [moved] = yield from move_by_hand(tx, [by_hand])
        answers.append(None if moved else _why_not(request, place))
    return answers


def _why_not(request: MoveOne, place: Place | None) -> BulliteError:
    id, move = request.id, request.move
    sources = move.sources if request.source is None else (request.source,)
    if place is None or (place.state == State.REMOVED and State.REMOVED not in sources):
        return JobNotFound(f"job {id} does not exist")
    if place.state in sources:
        return JobIdTaken(f"another job is called {id!r} by now: remove that one, or leave it be")
    if place.state == State.ACTIVE and move is REMOVE:
        return JobLocked(f"job {id} could not be removed: it is locked by the worker that runs it")
    wanted = " or ".join(sources)
    return IllegalMove(f"job {id} is not in the {wanted} state but {place.state}: {move} refused")


def _may(move: Move, place: Place) -> bool:
    """A removed job goes back to where it came from, and nowhere else."""
    if move in RESTORE.values():
        return place.removed_from == move.target
    return True


def _with_free_ids(move: Move, places: list[Place]) -> Operation[list[Place]]:
    """Those whose custom id, if they have one, nobody else has where they are to go."""
    free = []
    claimed: set[tuple[int, str]] = set()
    for place in places:
        target = place.queue if move in RESTORE.values() else None
        if move in (REVIVE, REVIVE_DELAYED):
            target = place.original_queue
        if target is not None and place.custom_id is not None:
            params = {"queue": target, "custom_ids": as_json([place.custom_id])}
            taken = yield "taken_custom_ids", params
            if taken.rows or (target, place.custom_id) in claimed:
                continue
            claimed.add((target, place.custom_id))
        free.append(place)
    return free


def _move_from(
    tx: Transaction, request: MoveByHand, source: State, places: list[Place]
) -> Operation[None]:
    move = request.move
    jobs = [place.job for place in places]
    if move in (REVIVE, REVIVE_DELAYED):
        places = yield from _prepare_to_run_again(tx, source, places)
        stepped = [place.job for place in places if place.traits & STEPPED]
        if request.forget_attempts and stepped:
            yield "delete_steps", {"jobs": as_json(stepped)}
            yield "delete_signals", {"jobs": as_json(stepped)}
    if move in (DELETE, TEAR_AWAY):
        yield from delete_jobs(tx, source, {p.job: p.traits for p in places}, move)
    elif move in (PROMOTE, REVIVE):
        line = [(p.job, p.lifo) for p in places]
        yield from back_in_line(tx, move, source, line, kept=int(not request.forget_attempts))
    elif move in (RESCHEDULE, REVIVE_DELAYED):
        asked = {job: [0, request.delay] for job in jobs}
        yield from swap_all(tx, move, source, asked, kept=int(not request.forget_attempts))
    else:
        yield from swap_all(tx, move, source, jobs)
    for queue in {place.queue for place in places}:
        here = [place for place in places if place.queue == queue]
        _enter_in_books(tx, queue, request, source, here)


def _enter_in_books(
    tx: Transaction, queue: int, request: MoveByHand, source: State, places: list[Place]
) -> None:
    move = request.move
    priorities = [place.priority for place in places]
    count_out(tx, queue, source, priorities)
    count_in(tx, queue, move.target, priorities)
    due = tx.now + request.delay
    if move.events:
        tx.log(queue, move.name, [_event(move, source, place, due) for place in places])
    if move in RESTORE.values() and move.target is State.DELAYED:
        due = min(place.due_at or tx.now for place in places)
    if move.target is State.DELAYED:
        tx.made_delayed(queue, due)


def _event(move: Move, source: State, place: Place, due: int) -> Event:
    if move in (REMOVE, REVIVE):
        return (place.public_id, source.value)
    if move is REVIVE_DELAYED:
        return (place.public_id, [source.value, due])
    if move is RESCHEDULE:
        return (place.public_id, due)
    if move is RESTORE_DELAYED:
        return (place.public_id, place.due_at)
    return place.public_id


def _prepare_to_run_again(
    tx: Transaction, source: State, places: list[Place]
) -> Operation[list[Place]]:
    """Forget how finished jobs ended, but for their history; back to the queue they came from.

    Where they are counted when that is done.
    """
    jobs = as_json([place.job for place in places])
    if source is State.COMPLETED:
        ended = [[place.job, COMPLETED, None, None] for place in places]
        yield "write_attempts", {"attempts": as_json(ended), "now": tx.now}
    yield "forget_results", {"jobs": jobs}
    strays = [place for place in places if place.original_queue is not None]
    for queue, home in {(place.queue, place.original_queue or 0) for place in strays}:
        some = [p for p in strays if (p.queue, p.original_queue) == (queue, home)]
        yield from change_queue(queue, home, [place.job for place in some], original_queue=None)
        priorities = [place.priority for place in some]
        count_out(tx, queue, source, priorities)
        count_in(tx, home, source, priorities)
    return [p if p.original_queue is None else p._replace(queue=p.original_queue) for p in places]


def change_queue(
    queue: int, target: int, jobs: Sequence[int], original_queue: int | None
) -> Operation[None]:
    """Put finished jobs into another queue, as they are; counts and log are the caller's."""
    here = yield "settings", {"queue": queue}
    there = yield "settings", {"queue": target}
    lanes = yield "terms", {"queue": target}
    yield (
        "move_to_queue",
        {
            "jobs": as_json(jobs),
            "queue": queue,
            "target": target,
            "original_queue": original_queue,
            "turn": 1 if here.rows[0][1] == there.rows[0][1] else -1,
            "by_name": lanes.rows[0][0],
        },
    )


def back_in_line(
    tx: Transaction, move: Move, source: State, jobs: Sequence[tuple[int, int]], **more: Any
) -> Operation[None]:
    """Make `move`, which takes a place in line: at the end, or in front for those that are lifo."""
    numbers = yield from take_numbers(len(jobs))
    asked = {
        job: [0, -number if lifo else number]
        for number, (job, lifo) in zip(numbers, jobs, strict=True)
    }
    yield from swap_all(tx, move, source, asked, **more)


def delete_jobs(
    tx: Transaction, source: State, jobs: Mapping[int, int], move: Move = DELETE
) -> Operation[None]:
    """Delete jobs for good, each given with its traits, and all that belongs to them."""
    params = {"jobs": as_json(list(jobs))}
    result = yield move_statement(move, source), params
    if result.changed != len(jobs):
        raise Conflict(
            f"delete: {result.changed} of {len(jobs)} jobs were where they had been seen"
        )
    for statement in ("delete_payloads", "delete_results", "delete_attempts", "delete_logs"):
        yield statement, params
    for trait, statement in _BELONGINGS:
        owners = [job for job, traits in jobs.items() if traits & trait]
        if owners:
            yield statement, {"jobs": as_json(owners)}


_BELONGINGS: tuple[tuple[int, str], ...] = (
    (STEPPED, "delete_steps"),
    (STEPPED, "delete_signals"),
)
"""What goes with a job of each trait: the statement that deletes it."""


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
