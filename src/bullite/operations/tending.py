"""Workers coming and going, and the jobs of those that died."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..engine.contract import Worker
from ..engine.plan import Request
from ..outcome import STALLED_TOO_OFTEN
from ..states import GIVE_BACK, STALL, Move, State
from .moving import ANY_NAME, as_json, swap_all, take_numbers
from .transaction import Operation, Transaction

MOST_RECOVERED = 1_000
"""Jobs of one dead worker taken back in one transaction."""

FOR_EVER = 2**62


@dataclass(slots=True)
class Register(Request):
    """A worker begins. Answers its id."""

    queue: int
    name: str
    names: tuple[str, ...] | None
    lock_duration: int
    max_stalled_count: int
    pid: int
    host: str
    boot: str
    address: str | None
    durable = False


def register(tx: Transaction, requests: Sequence[Register]) -> Operation[list[int]]:
    answers = []
    for r in requests:
        if r.names is not None:
            yield "take_by_name", {"queue": r.queue}
        made = yield (
            "insert_worker",
            {
                "queue": r.queue,
                "name": r.name,
                "names": None if r.names is None else as_json(r.names),
                "nonce": tx.nonce,
                "pid": r.pid,
                "host": r.host,
                "boot": r.boot,
                "lock_duration": r.lock_duration,
                "lease_until": tx.lease_now + r.lock_duration,
                "max_stalled_count": r.max_stalled_count,
                "address": r.address,
                "now": tx.now,
            },
        )
        answers.append(made.rows[0][0])
    return answers


@dataclass(slots=True)
class Deregister(Request):
    """A worker ends. What it still holds is left to its lease."""

    worker: int
    durable = False


def deregister(tx: Transaction, requests: Sequence[Deregister]) -> Operation[list[None]]:
    for request in requests:
        yield "deregister_worker", {"worker": request.worker}
        yield "delete_idle_worker", {"worker": request.worker, "expired_before": FOR_EVER}
    return [None] * len(requests)


@dataclass(slots=True)
class Renew(Request):
    """The workers of this process live on. Answers the ids of those still registered."""

    durable = False


def renew(tx: Transaction, requests: Sequence[Renew]) -> Operation[list[set[int]]]:
    yield "renew_workers", {"lease_now": tx.lease_now, "nonce": tx.nonce}
    result = yield "workers_of_process", {"nonce": tx.nonce}
    return [{row[0] for row in result.rows}] * len(requests)


@dataclass(slots=True)
class Recover(Request):
    """Take back the jobs of a worker that died, or whose lease ran out. Answers how many.

    A job that it had only fetched ahead goes back to its old place, unharmed.
    """

    worker: Worker
    dead: bool


def recover(tx: Transaction, requests: Sequence[Recover]) -> Operation[list[int]]:
    answers: list[int] = []
    for request in requests:
        answers.append((yield from _recover_one(tx, request)))
    return answers


def _recover_one(tx: Transaction, request: Recover) -> Operation[int]:
    worker = request.worker
    expired_before = FOR_EVER if request.dead else tx.lease_now
    held = yield (
        "held_by_worker",
        {
            "queue": worker.queue,
            "worker": worker.id,
            "expired_before": expired_before,
            "most": MOST_RECOVERED,
        },
    )
    begun = [row for row in held.rows if not row[3]]
    ahead = [row for row in held.rows if row[3]]
    if begun:
        yield from _stall(tx, worker, begun)
    if ahead:
        asked = {job: token for job, token, *_ in ahead}
        yield from swap_all(tx, GIVE_BACK, State.ACTIVE, asked, nonce=worker.nonce)
        _count_back(tx, worker.queue, GIVE_BACK, ahead)
    yield "delete_idle_worker", {"worker": worker.id, "expired_before": expired_before}
    return len(held.rows)


def _stall(tx: Transaction, worker: Worker, begun: Sequence[Sequence[int]]) -> Operation[None]:
    """The worker died under these: to the front of the line; who was first there stays first."""
    first = yield from take_numbers(len(begun))
    asked = {job: [token, -number] for number, (job, token, *_) in enumerate(begun, start=first)}
    yield from swap_all(
        tx,
        STALL,
        State.ACTIVE,
        asked,
        nonce=worker.nonce,
        max_stalled_count=worker.max_stalled_count,
        reason=STALLED_TOO_OFTEN,
    )
    _count_back(tx, worker.queue, STALL, begun)


def _count_back(tx: Transaction, queue: int, move: Move, rows: Sequence[Sequence[int]]) -> None:
    tx.count(queue, "active", -len(rows))
    tx.count_waiting(queue, [row[2] for row in rows], +1)
    tx.log(queue, move.name, [row[0] for row in rows])
    tx.made_ready(queue, ANY_NAME, len(rows))
