"""Explain the state of a job in one sentence, and find problems that need an operator."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...core.checks import MAX_TIME
from ...core.clock import moment_of
from ...core.codec import encode_plain
from ...core.job_flags import STEPPED
from ...core.states import PRIORITIZED, State
from ...operations.rate_limits import QueueLimits
from ...operations.rate_limits_by_key import window_of
from ...operations.steps import EVENT, SLEEP
from ..job.version_skew import NEWER, is_postponed, postponed_names
from ..runtime import bridge

if TYPE_CHECKING:
    from ..job.job import Job
    from .reads import QueueReads
    from .workers import WorkerInfo

MAX_NAMED = 3
"""Active jobs that are named."""

MAX_COUNTED = 1_000
"""Jobs in front of another that are counted at most."""


MAX_SHOWN = 100
"""Jobs that are named in one answer."""


async def why(queue: QueueReads, job: Job) -> str:
    """Explain the state of a job in one sentence."""
    if job.state == State.WAITING_CHILDREN:
        params = {"job": job.pk, "most": MAX_SHOWN}
        pending = await bridge.query(queue.store, "pending_links", params)
        keys = ", ".join(key for [key] in pending)
        return "; ".join([f"job {job.id} waits for {keys}", *await _blocked(queue, job.pk)])
    if job.state in (State.WAITING, PRIORITIZED):
        return f"job {job.id} waits: {'; '.join(await _waits_for(queue, job))}"
    if job.state == State.DELAYED:
        return f"job {job.id} {await _delayed_by(queue, job)}"
    if job.state == State.ACTIVE:
        return f"job {job.id} {await _run_by(queue, job)}"
    if job.state == State.FAILED:
        return f"job {job.id} failed: {job.failed_reason}"
    return f"job {job.id} is {job.state}"


async def problems_of(queue: QueueReads) -> list[str]:
    """Return what will not go on in a queue without an operator, one sentence each."""
    return [*await _blocked(queue, None), *await _unserved(queue), *await _postponed(queue)]


async def _blocked(queue: QueueReads, job: int | None) -> list[str]:
    """Jobs, or one job, that wait for a job which failed or is gone."""
    params = {"queue": queue._pk, "job": job, "most": MAX_SHOWN}
    return [
        f"job {waits} waits for {key}, {_end_of(state, reason)}: retry that, remove it from "
        "what is waited for, or remove the job that waits"
        for waits, key, state, reason in await bridge.query(queue.store, "blocked_forever", params)
    ]


def _end_of(state: str | None, reason: str | None) -> str:
    if state == State.FAILED:
        return f"which failed ({reason})" if reason else "which failed"
    return "which was removed" if state == State.REMOVED else "which is gone"


async def _unserved(queue: QueueReads) -> list[str]:
    taken = [worker.names for worker in await queue.get_workers() if not worker.is_lost]
    if not taken or None in taken:
        return []  # a queue without workers is no problem: none has been started
    names = sorted({name for some in taken for name in some or ()})
    params = {"queue": queue._pk, "names": encode_plain(names).decode(), "most": MAX_SHOWN}
    return [
        f"{number} {'job waits' if number == 1 else 'jobs wait'} with the name {name!r}, which "
        "no worker takes: start one that does, or remove what is not wanted any more"
        for name, number in await bridge.query(queue.store, "unserved_names", params)
    ]


async def _postponed(queue: QueueReads) -> list[str]:
    return [
        f"{number} {'job' if number == 1 else 'jobs'} of {name!r} came from a newer version of "
        "the task than its workers have: start newer ones"
        for name, number in (await postponed_names(queue)).items()
    ]


async def _run_by(queue: QueueReads, job: Job) -> str:
    until = job.lock_expires_at
    now = moment_of(queue.store.open().clock.now())
    workers = await queue.get_workers()
    known = [worker for worker in workers if worker.name == job.locked_by]
    are_lost = bool(known) and all(worker.is_lost for worker in known)
    if until is not None and until >= now and not are_lost:
        return f"is run by {job.locked_by}"
    # Of several workers with this name, the one whose last heartbeat is the oldest ran it.
    holder = min(known, key=lambda worker: worker.seen_at, default=None)
    next_one = _no_worker_for(job, workers, lost=holder) or "it is about to be given to another"
    return f"was run by {job.locked_by}, which is lost: {next_one}"


# --- waiting jobs --------------------------------------------------------------------------------


async def _waits_for(queue: QueueReads, job: Job) -> list[str]:
    reasons = [
        *(["the queue is paused"] if await queue.is_paused() else []),
        *await _limits(queue),
        *await _limit_of_key(queue, job),
        *await _workers(queue, job),
    ]
    return [*reasons, await _position(queue, job)]


async def _limits(queue: QueueReads) -> list[str]:
    rows = await bridge.query(queue.store, "limits", {"queue": queue._pk})
    limits, now = QueueLimits(*rows[0]), queue.store.open().clock.now()
    reasons = []
    if limits.concurrency is not None:
        [[running]] = await bridge.query(queue.store, "count_active", {"queue": queue._pk})
        if running >= limits.concurrency:
            active = await queue.get_active(0, MAX_NAMED - 1)
            holders = ", ".join(f"{one.id} ({one.name})" for one in active)
            more = " and others" if running > len(active) else ""
            reasons.append(
                f"no more than {limits.concurrency} may run at a time, and their slots are held "
                f"by {holders}{more}"
            )
    if limits.remaining(None, now) == 0:
        reasons.append(f"a rate limit lets nothing begin before {_shown(limits.until)}")
    elif limits.max is None and limits.until > now:
        reasons.append(
            f"workers with a limiter have begun {limits.used} in a window that ends at "
            f"{_shown(limits.until)}"
        )
    return reasons


async def _limit_of_key(queue: QueueReads, job: Job) -> list[str]:
    if job.limit_key is None:
        return []
    params = {"queue": queue._pk, "keys": encode_plain([job.limit_key]).decode()}
    window = window_of(job.limit_key, await bridge.query(queue.store, "key_windows", params))
    if not window.ttl(queue.store.open().clock.now(), None):
        return []
    return [f"the limit of key {job.limit_key!r} lets it not begin before {_shown(window.until)}"]


async def _workers(queue: QueueReads, job: Job) -> list[str]:
    missing = _no_worker_for(job, await queue.get_workers())
    return [] if missing is None else [missing]


def _no_worker_for(
    job: Job, workers: Sequence[WorkerInfo], lost: WorkerInfo | None = None
) -> str | None:
    """Say that no worker claims a job, if so; `lost` is one that is known to be lost."""
    there = [worker for worker in workers if not worker.is_lost and worker is not lost]
    if any(worker.names is None or job.name in worker.names for worker in there):
        return None
    if there:
        return f"no worker takes jobs named {job.name!r}"
    if not workers:
        return "no worker serves the queue"
    last = max(worker.seen_at for worker in workers)
    return f"no worker serves the queue, the last was heard of at {_iso(last)}"


async def _position(queue: QueueReads, job: Job) -> str:
    params = {"job": job.pk, "most": MAX_COUNTED}
    [[number]] = await bridge.query(queue.store, "count_ahead_in_lane", params)
    if not number:
        return "it is the next in its line"
    more = " or more" if number >= MAX_COUNTED else ""
    return f"{number}{more} {'stand' if number > 1 else 'stands'} in front of it"


# --- delayed jobs --------------------------------------------------------------------------------


async def _delayed_by(queue: QueueReads, job: Job) -> str:
    due = 0 if job.process_at is None else round(job.process_at.timestamp() * 1000)
    if due <= queue.store.open().clock.now():
        reasons = await _workers(queue, job) or ["it is about to join its line"]
        if job.attempts_made:
            reasons.append(_last_failure(job))
        return f"was due at {_shown(due)}: {'; '.join(reasons)}"
    steps: Sequence[Any] = ()
    if job._flags & STEPPED:
        steps = await bridge.query(queue.store, "steps", {"job": job.pk})
    for kind, name, _, _, due_at, _, ended_at in steps:
        if ended_at is None and due_at == due and kind in (SLEEP, EVENT):
            does = "sleeps" if kind == SLEEP else f"waits for the event {name!r}"
            return does if due == MAX_TIME else f"{does} until {_shown(due)}"
    if job.attempts_made:
        return f"is retried at {_shown(due)}: {_last_failure(job)}"
    if job.attempts_started and await is_postponed(job):
        return f"is parked until {_shown(due)}: {NEWER}"
    return f"is delayed until {_shown(due)}"


def _last_failure(job: Job) -> str:
    return f"attempt {job.attempts_made} of {job.attempts} failed ({job.failed_reason})"


def _shown(ms: int) -> str:
    return _iso(moment_of(ms))


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
