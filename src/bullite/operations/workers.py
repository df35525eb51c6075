"""Workers coming and going, and the jobs of those that died."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from ..core.backoff import delay_after
from ..core.codec import as_json, decode
from ..core.decide_outcome import STALLED_TOO_OFTEN
from ..core.job_flags import CANCELLED, SCHEDULED
from ..core.states import RELEASE, RETURN_UNSTARTED, STALL, STALL_DELAYED, STALLED, State
from ..database.driver import ANY_NAME, WorkerRow
from .cancel_and_expire import end_cancelled
from .rate_limits import MAX_BLOCK, Rate
from .request import ALONE, ALONE_BESIDE_OTHERS, Request
from .scheduler_ticks import with_live_scheduler
from .transaction import Event, Operation, Transaction
from .transitions import allocate_ids, transition

MAX_RECOVERED = 1_000
"""Jobs of one dead worker taken back in one transaction."""

NEVER_EXPIRES = 2**62

NAMES_KEPT = 10_000
"""Workers that have left whose names are still known to the jobs they ran."""


class RegisterWorker(Request):
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
    renews: bool = True
    """Whether its lease is renewed; if not, what it holds is its own only for so long."""
    number: int = 0
    """Which worker of its process it belongs to."""
    concurrency: int = 1
    stalled_backoff: bool = False
    """Whether its jobs go through their back-off when it is lost."""
    limiter: Rate | None = None
    longest_rest: int = MAX_BLOCK
    """Ms after which it looks again, while a limit lets nothing begin."""
    apart = ALONE_BESIDE_OTHERS


def register_worker(tx: Transaction, requests: Sequence[RegisterWorker]) -> Operation[list[int]]:
    answers = []
    for r in requests:
        if r.names is not None:
            yield "enable_name_lanes", {"queue": r.queue}
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
                "renews": int(r.renews),
                "number": r.number,
                "concurrency": r.concurrency,
                "stalled_backoff": int(r.stalled_backoff),
                "now": tx.now,
            },
        )
        worker: int = made.rows[0][0]
        yield "insert_worker_name", {"worker": worker, "name": r.name}
        yield "delete_old_worker_names", {"oldest": worker - NAMES_KEPT}
        answers.append(worker)
    return answers


GIVEN_UP, LEAVING = 0, 2
"""What a worker can be that takes no more jobs: one of which nobody knows whether its jobs still
run, or one that was told to stop and whose jobs do."""


class DeregisterWorker(Request):
    """A worker takes no more jobs. Answers whether it holds none, and so is off the register.

    What it still holds is left to its lease. If it is `leaving`, its lease is renewed until it
    holds nothing; if its process ends before, its jobs have not stalled.
    """

    worker: int
    leaving: bool = False
    durable = False
    apart = ALONE_BESIDE_OTHERS


def deregister_worker(
    tx: Transaction, requests: Sequence[DeregisterWorker]
) -> Operation[list[bool]]:
    answers: list[bool] = []
    for request in requests:
        registered = LEAVING if request.leaving else GIVEN_UP
        known = yield (
            "deregister_worker",
            {"worker": request.worker, "registered": registered},
        )
        deleted = yield (
            "delete_idle_worker",
            {"worker": request.worker, "expired_before": NEVER_EXPIRES, "dead": 0},
        )
        answers.append(deleted.changed > 0 or not known.changed)
    return answers


class SetWorkerConcurrency(Request):
    """A worker runs more or fewer jobs at a time from now on."""

    worker: int
    concurrency: int
    durable = False
    apart = ALONE_BESIDE_OTHERS


def set_worker_concurrency(
    tx: Transaction, requests: Sequence[SetWorkerConcurrency]
) -> Operation[list[None]]:
    for request in requests:
        params = {"worker": request.worker, "concurrency": request.concurrency}
        yield "set_concurrency", params
    return [None] * len(requests)


class RenewLeases(Request):
    """The workers of this process live on. Answers the ids of those still registered."""

    durable = False
    reply_before_claims = False
    apart = ALONE


def renew_leases(tx: Transaction, requests: Sequence[RenewLeases]) -> Operation[list[set[int]]]:
    params = {"lease_now": tx.lease_now, "now": tx.now, "nonce": tx.nonce}
    yield "renew_workers", params
    result = yield "workers_of_process", {"nonce": tx.nonce}
    return [{row[0] for row in result.rows}] * len(requests)


class RecoverStalled(Request):
    """Take back the jobs of a worker that died, or whose lease ran out. Answers a Recovered.

    A job that it had only fetched ahead goes back to its old place, unharmed. So does one that ran
    when its worker had been told to stop: a shutdown costs nothing.
    """

    worker: WorkerRow
    dead: bool
    apart = ALONE


class Recovered(NamedTuple):
    """What a recovery did; nothing, if another process was quicker."""

    jobs: int
    """How many jobs were taken back."""
    has_ended_worker: bool
    """Whether the worker was removed; one process removes it."""

    def __bool__(self) -> bool:
        return self.jobs > 0 or self.has_ended_worker


def recover_stalled(
    tx: Transaction, requests: Sequence[RecoverStalled]
) -> Operation[list[Recovered]]:
    answers: list[Recovered] = []
    for request in requests:
        answers.append((yield from _recover_one(tx, request)))
    return answers


def _recover_one(tx: Transaction, request: RecoverStalled) -> Operation[Recovered]:
    worker = request.worker
    expired_before = NEVER_EXPIRES if request.dead else tx.lease_now
    held = yield (
        "held_by_worker",
        {
            "queue": worker.queue,
            "worker": worker.id,
            "expired_before": expired_before,
            "most": MAX_RECOVERED,
        },
    )
    begun = [row for row in held.rows if not row[3]]
    ahead = [row for row in held.rows if row[3]]
    if begun and begun[0][6]:
        yield from _release(tx, worker, begun)
    elif begun:
        yield from _stall(tx, worker, begun)
    if ahead:
        asked = {job: token for job, token, *_ in ahead}
        yield from transition(tx, RETURN_UNSTARTED, State.ACTIVE, asked, nonce=worker.nonce)
        _count_back(tx, worker.queue, ahead)
    if held.rows:
        yield "forget_tokens", {"jobs": as_json([row[0] for row in held.rows])}
    cancelled = [row[0] for row in held.rows if row[5] & CANCELLED]
    if cancelled:
        yield from end_cancelled(tx, cancelled)
    deleted = yield (
        "delete_idle_worker",
        {"worker": worker.id, "expired_before": expired_before, "dead": int(request.dead)},
    )
    return Recovered(len(held.rows), deleted.changed > 0)


def _release(tx: Transaction, worker: WorkerRow, begun: Sequence[Sequence[Any]]) -> Operation[None]:
    """The worker was told to stop, and its process ended before these had."""
    asked = {job: token for job, token, *_ in begun}
    yield from transition(tx, RELEASE, State.ACTIVE, asked, nonce=worker.nonce)
    _count_back(tx, worker.queue, begun)
    tx.log(worker.queue, RELEASE.name, [row[4] or row[0] for row in begun])


def _stall(tx: Transaction, worker: WorkerRow, begun: Sequence[Sequence[Any]]) -> Operation[None]:
    """The worker died under these."""
    ended = [[job, STALLED, None, None] for job, *_ in begun]
    yield "write_attempts", {"attempts": as_json(ended), "now": tx.now}
    delays: dict[int, int] = {}
    if worker.stalled_backoff:
        delays = yield from _backoffs(worker, [row[0] for row in begun])
    to_front = [row for row in begun if row[0] not in delays]
    if to_front:
        yield from _stall_to_front(tx, worker, to_front)
    if delays:
        yield from _stall_for_later(tx, worker, [row for row in begun if row[0] in delays], delays)


def _backoffs(worker: WorkerRow, jobs: Sequence[int]) -> Operation[dict[int, int]]:
    """How long those that may stall once more, and have a back-off, are to wait."""
    found = yield "backoffs", {"jobs": as_json(jobs)}
    delays: dict[int, int] = {}
    for job, stalled_count, opts in found.rows:
        if stalled_count < worker.max_stalled_count:
            # Spread without dice: neighbours lie far apart, and a job always waits the same.
            spread = job * 0.618034 % 1
            backoff = decode(opts).get("backoff")
            delay = delay_after(backoff, stalled_count + 1, None, partial(float, spread))
            if delay:
                delays[job] = delay
    return delays


def _stall_for_later(
    tx: Transaction, worker: WorkerRow, rows: Sequence[Sequence[Any]], delays: dict[int, int]
) -> Operation[None]:
    asked = {job: [token, delays[job]] for job, token, *_ in rows}
    yield from transition(tx, STALL_DELAYED, State.ACTIVE, asked, nonce=worker.nonce)
    tx.count(worker.queue, "active", -len(rows))
    tx.count(worker.queue, State.DELAYED.value, len(rows))
    events: list[Event] = [(row[4] or row[0], tx.now + delays[row[0]]) for row in rows]
    tx.log(worker.queue, STALL_DELAYED.name, events)
    tx.notify_due(worker.queue, tx.now + min(delays.values()))
    tx.notify_ready(worker.queue, ANY_NAME, len(rows))  # there may be a limit to how many run


def _stall_to_front(
    tx: Transaction, worker: WorkerRow, begun: Sequence[Sequence[Any]]
) -> Operation[None]:
    """To the front of the line; who was first there stays first.

    Jobs of a scheduler may stall as often as they like, as long as it exists.
    """
    numbers = yield from allocate_ids(len(begun))
    asked = {job: [token, -number] for number, (job, token, *_) in zip(numbers, begun, strict=True)}
    spared = yield from with_live_scheduler(
        worker.queue, {row[0]: row[4] for row in begun if row[5] & SCHEDULED}
    )
    for some, limit in (
        ({job: a for job, a in asked.items() if job not in spared}, worker.max_stalled_count),
        ({job: asked[job] for job in spared}, NEVER_EXPIRES),
    ):
        if some:
            yield from transition(
                tx,
                STALL,
                State.ACTIVE,
                some,
                nonce=worker.nonce,
                max_stalled_count=limit,
                reason=STALLED_TOO_OFTEN,
            )
    _count_back(tx, worker.queue, begun)
    tx.log(worker.queue, STALL.name, [row[4] or row[0] for row in begun])


def _count_back(tx: Transaction, queue: int, rows: Sequence[Sequence[Any]]) -> None:
    tx.count(queue, "active", -len(rows))
    tx.count_waiting(queue, [row[2] for row in rows], +1)
    tx.notify_ready(queue, ANY_NAME, len(rows))
