"""Workers: registration, leases, and recovery of the jobs of dead workers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

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
"""Maximum number of jobs of one worker that one transaction recovers."""

NEVER_EXPIRES = 2**62

NAMES_KEPT = 10_000
"""Number of the newest workers whose names are stored, so that jobs can show who ran them."""


class RegisterWorker(Request):
    """Register a worker. Reply with its id."""

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
    """The engine renews its lease; otherwise its jobs stall when the lease expires."""
    number: int = 0
    """The number of the worker in its process; several registrations may have the same."""
    concurrency: int = 1
    stalled_backoff: bool = False
    """Its jobs wait for their back-off when they stall."""
    limiter: Rate | None = None
    longest_rest: int = MAX_BLOCK
    """Ms after which the worker polls again, while a limit lets no job start."""
    apart = ALONE_BESIDE_OTHERS


def register_worker(tx: Transaction, requests: Sequence[RegisterWorker]) -> Operation[list[int]]:
    replies = []
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
        [[worker]] = made.rows
        yield "insert_worker_name", {"worker": worker, "name": r.name}
        yield "delete_old_worker_names", {"oldest": worker - NAMES_KEPT}
        replies.append(worker)
    return replies


GIVEN_UP, LEAVING = 0, 2
"""States of a deregistered worker: one whose jobs may or may not still run, and one that was asked
to stop and whose jobs still run."""


class DeregisterWorker(Request):
    """Deregister a worker: it claims no more jobs. Reply with True if it holds none.

    A worker that holds jobs keeps them until its lease expires. If it is `leaving`, its lease is
    renewed until it holds no job; if its process ends earlier, its jobs do not count as stalled.
    """

    worker: int
    leaving: bool = False
    durable = False
    apart = ALONE_BESIDE_OTHERS


def deregister_worker(
    tx: Transaction, requests: Sequence[DeregisterWorker]
) -> Operation[list[bool]]:
    replies: list[bool] = []
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
        replies.append(deleted.changed > 0 or not known.changed)
    return replies


class SetWorkerConcurrency(Request):
    """Set how many jobs a worker runs at a time. Reply with None."""

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
    """Renew the leases of the workers of this process. Reply with the ids of registered ones."""

    durable = False
    reply_before_claims = False
    apart = ALONE


def renew_leases(tx: Transaction, requests: Sequence[RenewLeases]) -> Operation[list[set[int]]]:
    params = {"lease_now": tx.lease_now, "now": tx.now, "nonce": tx.nonce}
    yield "renew_workers", params
    result = yield "workers_of_process", {"nonce": tx.nonce}
    return [{worker for [worker] in result.rows}] * len(requests)


class RecoverStalled(Request):
    """Recover the jobs of a worker that died, or whose lease expired. Reply with a Recovered.

    A prefetched job returns to its old position; that does not count as a stall. The same is true
    of a job that ran while its worker was leaving.
    """

    worker: WorkerRow
    dead: bool
    apart = ALONE


class HeldJob(NamedTuple):
    """A job that a worker holds: the columns of the statement `held_by_worker`."""

    job: int
    token: int
    priority: int
    prefetched: int
    custom_id: str | None
    flags: int
    leaving: int
    """The worker was asked to stop, and has stored that."""

    @property
    def public_id(self) -> str | int:
        return self.custom_id or self.job


class Recovered(NamedTuple):
    """The reply to a RecoverStalled; empty if another process was faster."""

    jobs: int
    """Number of recovered jobs."""
    has_ended_worker: bool
    """This recovery deleted the row of the worker; only one process does."""

    def __bool__(self) -> bool:
        return self.jobs > 0 or self.has_ended_worker


def recover_stalled(
    tx: Transaction, requests: Sequence[RecoverStalled]
) -> Operation[list[Recovered]]:
    replies: list[Recovered] = []
    for request in requests:
        replies.append((yield from _recover_one(tx, request)))
    return replies


def _recover_one(tx: Transaction, request: RecoverStalled) -> Operation[Recovered]:
    worker = request.worker
    expired_before = NEVER_EXPIRES if request.dead else tx.lease_now
    found = yield (
        "held_by_worker",
        {
            "queue": worker.queue,
            "worker": worker.id,
            "expired_before": expired_before,
            "most": MAX_RECOVERED,
        },
    )
    held = [HeldJob(*row) for row in found.rows]
    started = [one for one in held if not one.prefetched]
    prefetched = [one for one in held if one.prefetched]
    if any(one.leaving for one in started):
        yield from _release(tx, worker, started)
    elif started:
        yield from _stall(tx, worker, started)
    if prefetched:
        tokens = {one.job: one.token for one in prefetched}
        yield from transition(tx, RETURN_UNSTARTED, State.ACTIVE, tokens, nonce=worker.nonce)
        _count_back(tx, worker.queue, prefetched)
    if held:
        yield "forget_tokens", {"jobs": as_json([one.job for one in held])}
    cancelled = [one.job for one in held if one.flags & CANCELLED]
    if cancelled:
        yield from end_cancelled(tx, cancelled)
    deleted = yield (
        "delete_idle_worker",
        {"worker": worker.id, "expired_before": expired_before, "dead": int(request.dead)},
    )
    return Recovered(len(held), deleted.changed > 0)


def _release(tx: Transaction, worker: WorkerRow, jobs: Sequence[HeldJob]) -> Operation[None]:
    """Release running jobs of a worker that was asked to stop and whose process ended first."""
    tokens = {one.job: one.token for one in jobs}
    yield from transition(tx, RELEASE, State.ACTIVE, tokens, nonce=worker.nonce)
    _count_back(tx, worker.queue, jobs)
    tx.log(worker.queue, RELEASE.name, [one.public_id for one in jobs])


def _stall(tx: Transaction, worker: WorkerRow, jobs: Sequence[HeldJob]) -> Operation[None]:
    """Recover running jobs whose worker died."""
    ended = [[one.job, STALLED, None, None] for one in jobs]
    yield "write_attempts", {"attempts": as_json(ended), "now": tx.now}
    delays: dict[int, int] = {}
    if worker.stalled_backoff:
        delays = yield from _backoffs(worker, [one.job for one in jobs])
    to_front = [one for one in jobs if one.job not in delays]
    if to_front:
        yield from _stall_to_front(tx, worker, to_front)
    if delays:
        yield from _stall_for_later(tx, worker, [one for one in jobs if one.job in delays], delays)


def _backoffs(worker: WorkerRow, jobs: Sequence[int]) -> Operation[dict[int, int]]:
    """Return the delay in ms of each job that has a back-off and may stall again."""
    found = yield "backoffs", {"jobs": as_json(jobs)}
    delays: dict[int, int] = {}
    for job, stalled_count, opts in found.rows:
        if stalled_count < worker.max_stalled_count:
            # Deterministic jitter: multiples of the golden ratio spread neighbouring pks evenly.
            spread = job * 0.618034 % 1
            backoff = decode(opts).get("backoff")
            delay = delay_after(backoff, stalled_count + 1, None, partial(float, spread))
            if delay:
                delays[job] = delay
    return delays


def _stall_for_later(
    tx: Transaction, worker: WorkerRow, jobs: Sequence[HeldJob], delays: dict[int, int]
) -> Operation[None]:
    asked = {one.job: [one.token, delays[one.job]] for one in jobs}
    yield from transition(tx, STALL_DELAYED, State.ACTIVE, asked, nonce=worker.nonce)
    tx.count(worker.queue, "active", -len(jobs))
    tx.count(worker.queue, State.DELAYED.value, len(jobs))
    events: list[Event] = [(one.public_id, tx.now + delays[one.job]) for one in jobs]
    tx.log(worker.queue, STALL_DELAYED.name, events)
    tx.notify_due(worker.queue, tx.now + min(delays.values()))
    tx.notify_ready(worker.queue, ANY_NAME, len(jobs))  # a limit may let other jobs run now


def _stall_to_front(tx: Transaction, worker: WorkerRow, jobs: Sequence[HeldJob]) -> Operation[None]:
    """Move the jobs to the front of the queue, in their order.

    The job of a scheduler may stall any number of times, as long as the scheduler exists.
    """
    numbers = yield from allocate_ids(len(jobs))
    asked = {one.job: [one.token, -number] for number, one in zip(numbers, jobs, strict=True)}
    unlimited = yield from with_live_scheduler(
        worker.queue, {one.job: one.custom_id for one in jobs if one.flags & SCHEDULED}
    )
    for some, limit in (
        ({job: a for job, a in asked.items() if job not in unlimited}, worker.max_stalled_count),
        ({job: asked[job] for job in unlimited}, NEVER_EXPIRES),
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
    _count_back(tx, worker.queue, jobs)
    tx.log(worker.queue, STALL.name, [one.public_id for one in jobs])


def _count_back(tx: Transaction, queue: int, jobs: Sequence[HeldJob]) -> None:
    tx.count(queue, "active", -len(jobs))
    tx.count_waiting(queue, [one.priority for one in jobs], +1)
    tx.notify_ready(queue, ANY_NAME, len(jobs))
