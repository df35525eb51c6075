"""Requests on job schedulers: make, change, remove, pause, resume, and run one now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.codec import as_json, decode
from ..core.recurrence import Recurrence, first_tick, following_tick
from ..core.states import State
from ..errors import (
    BulliteError,
    InvalidOption,
    QueueFull,
    SchedulerNotFound,
    SchedulerSlotsTaken,
)
from .add import NO_RARE_FIELDS, Added, AddJobs, NewJob, StaleSettings, add, add_within, quota_error
from .queues import read_settings
from .request import ALONE_BESIDE_OTHERS, Request
from .scheduler_ticks import (
    CANNOT_GO_ON,
    NextTick,
    Scheduler,
    SchedulerSpec,
    delete_pending,
    find,
    job_at,
    next_free_tick,
    pending_of,
    reschedule,
    spec_of,
    store,
    tick_after_missed,
)
from .transaction import Operation, Transaction
from .transitions import LockedJob


class UpsertSchedulers(Request):
    """Add jobs, and make or change schedulers: all or none.

    Reply with SchedulersUpserted, StaleSettings or an error. The job of a scheduler in the reply is
    its pending one. If a scheduler is given twice, the last definition is used.
    """

    queue: int
    wanted: Sequence[NewJob | SchedulerSpec]
    version: int = 1
    """Version of the settings with which the options of the jobs were resolved."""
    barrier = True
    apart = ALONE_BESIDE_OTHERS


class SchedulersUpserted(NamedTuple):
    """The reply to an UpsertSchedulers, or to a RunScheduler."""

    added: Added
    jobs: Sequence[NewJob]
    """The jobs as they were added, in the order of the request."""


class _Upsert(NamedTuple):
    plan: SchedulerSpec
    after: NextTick
    pending: LockedJob | None
    """The pending job that is replaced."""


def upsert_schedulers(
    tx: Transaction, requests: Sequence[UpsertSchedulers]
) -> Operation[list[SchedulersUpserted | StaleSettings | BulliteError]]:
    replies: list[SchedulersUpserted | StaleSettings | BulliteError] = []
    for request in requests:
        try:
            replies.append((yield from _upsert_schedulers(tx, request)))
        except (*CANNOT_GO_ON, QueueFull) as error:
            replies.append(error)
    return replies


def _upsert_schedulers(
    tx: Transaction, request: UpsertSchedulers
) -> Operation[SchedulersUpserted | StaleSettings]:
    """Check everything that may be refused, then write."""
    queue = request.queue
    yield "lock_queue", {"queue": queue}
    settings = yield from read_settings(queue)
    if settings.version != request.version:
        return StaleSettings()
    plans = {plan.key: plan for plan in request.wanted if isinstance(plan, SchedulerSpec)}
    upserts: dict[str, _Upsert] = {}
    for key, plan in plans.items():
        upserts[key] = yield from _upsert(tx, queue, plan, settings.priority_order)
    jobs = [upserts[w.key].after.job if isinstance(w, SchedulerSpec) else w for w in request.wanted]
    # A scheduler has one pending job, so quotas on numbers do not count it.
    made = {upsert.after.job.custom_id or "" for upsert in upserts.values()}
    adding = AddJobs(queue, jobs, request.version, skip_quotas=made)
    refusal = yield from quota_error(tx, adding)
    if refusal is not None:
        raise refusal
    for upsert in upserts.values():
        if upsert.pending is not None:
            yield from delete_pending(tx, upsert.pending)
    [added] = yield from add(tx, [adding])
    assert isinstance(added, Added)
    numbers = dict(zip([job.custom_id for job in jobs], added.ids, strict=True))
    for plan, after, _ in upserts.values():
        yield from _put(tx, queue, plan, after, numbers[after.job.custom_id])
    return SchedulersUpserted(added, jobs)


def _put(
    tx: Transaction, queue: int, plan: SchedulerSpec, after: NextTick, job: int
) -> Operation[None]:
    yield (
        "upsert_scheduler",
        {
            "queue": queue,
            "key": plan.key,
            "recurrence": plan.recurrence.to_json(),
            "missed": plan.recurrence.missed,
            "name": plan.job.name,
            "data": plan.job.data,
            "opts": _options_of(plan),
            "next_at": after.tick,
            "job": job,
            "iterations": after.iteration,
            "now": tx.now,
        },
    )


def _upsert(tx: Transaction, queue: int, plan: SchedulerSpec, order: str) -> Operation[_Upsert]:
    """Return the next tick of a scheduler with a new definition. Raise an error if it has none.

    The scheduler continues to count its ticks; one that has ended starts again with 1.
    """
    old = yield from find(queue, plan.key)
    pending = None if old is None else (yield from pending_of(old))
    iteration, was_taken = 1, False
    if old is not None and old.next_at is not None:
        was_taken = bool(old.enabled) and pending is None
        iteration = old.iterations + was_taken
    limit = plan.recurrence.limit
    if limit is not None and iteration > limit:
        raise InvalidOption(
            f"limit must be more than the {iteration - 1} ticks that {plan.key!r} has had, "
            f"not {limit}; raise it, or remove the scheduler first"
        )
    tick = _first(tx, plan.recurrence, old, was_taken)
    mine = None if pending is None else pending.custom_id
    tick = yield from next_free_tick(tx, queue, plan, tick, mine)
    if tick is None:
        raise InvalidOption(
            f"end_date must leave room for a tick: the job scheduler {plan.key!r} would have none"
        )
    return _Upsert(
        plan, NextTick(tick, iteration, job_at(tx, plan, tick, iteration, order)), pending
    )


def _first(
    tx: Transaction, recurrence: Recurrence, old: Scheduler | None, was_taken: bool
) -> int | None:
    """Return the first tick of a scheduler with a new definition.

    If pattern or interval do not change, the scheduler keeps its next tick.
    """
    if old is not None and old.next_at is not None:
        before = Recurrence.from_json(old.recurrence)
        is_started = old.next_at >= (recurrence.start_date or 0)
        if _ticks_of(before) == _ticks_of(recurrence) and is_started:
            if was_taken:
                return following_tick(recurrence, old.next_at, tx.now)
            return tick_after_missed(recurrence, old.key, old.next_at, tx.now)
    return first_tick(recurrence, tx.now)


def _ticks_of(recurrence: Recurrence) -> tuple[object, ...]:
    return recurrence.pattern, recurrence.tz, recurrence.every, recurrence.offset


def _options_of(plan: SchedulerSpec) -> str:
    job = plan.job
    return as_json(
        {
            "priority": job.priority,
            "lifo": job.lifo,
            "attempts": job.attempts,
            "stored": {} if job.opts is None else decode(job.opts),
            "given": list(plan.given),
        }
    )


class RemoveScheduler(Request):
    """Delete a scheduler, and its pending job if that is delayed. Reply with True if it existed."""

    queue: int
    key: str
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def remove_scheduler(tx: Transaction, requests: Sequence[RemoveScheduler]) -> Operation[list[bool]]:
    replies: list[bool] = []
    for request in requests:
        yield "lock_queue", {"queue": request.queue}
        scheduler = yield from find(request.queue, request.key)
        if scheduler is not None:
            pending = yield from pending_of(scheduler)
            if pending is not None and pending.state == State.DELAYED:
                yield from delete_pending(tx, pending)
            yield "delete_scheduler", {"queue": request.queue, "key": request.key}
        replies.append(scheduler is not None)
    return replies


class DeleteSchedulers(Request):
    """Delete all schedulers of a queue whose jobs are being deleted. Reply with None."""

    queue: int
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def delete_schedulers(
    tx: Transaction, requests: Sequence[DeleteSchedulers]
) -> Operation[list[None]]:
    for request in requests:
        yield "lock_queue", {"queue": request.queue}
        yield "delete_schedulers", {"queue": request.queue}
    return [None] * len(requests)


# --- pausing, resuming, running now --------------------------------------------------------------


class EnableScheduler(Request):
    """Resume or pause a scheduler. Reply with True if that changed it, or with an error."""

    queue: int
    key: str
    enabled: bool
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def enable_scheduler(
    tx: Transaction, requests: Sequence[EnableScheduler]
) -> Operation[list[bool | BulliteError]]:
    replies: list[bool | BulliteError] = []
    for request in requests:
        yield "lock_queue", {"queue": request.queue}
        scheduler = yield from find(request.queue, request.key)
        if scheduler is None:
            replies.append(_not_found(request.key))
        elif scheduler.enabled == request.enabled or scheduler.next_at is None:
            replies.append(False)
        elif request.enabled:
            replies.append((yield from _resume(tx, scheduler)))
        else:
            pending = yield from pending_of(scheduler)
            if pending is not None:
                yield from delete_pending(tx, pending)
            paused = scheduler._replace(job=None, enabled=0)
            yield from store(tx, request.queue, [paused], {})
            replies.append(True)
    return replies


def _resume(tx: Transaction, scheduler: Scheduler) -> Operation[bool | BulliteError]:
    """Continue with the next tick of a paused scheduler, or the one that replaces a missed one."""
    plan, pending = spec_of(scheduler), scheduler.next_at
    assert pending is not None
    try:
        tick = tick_after_missed(plan.recurrence, plan.key, pending, tx.now)
        tick = yield from next_free_tick(tx, scheduler.queue, plan, tick)
    except CANNOT_GO_ON as error:
        return error
    yield from reschedule(tx, scheduler, plan, tick)
    return True


class RunScheduler(Request):
    """Add one job of a scheduler now, outside its schedule.

    Reply with SchedulersUpserted or an error.
    """

    queue: int
    key: str
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def run_scheduler(
    tx: Transaction, requests: Sequence[RunScheduler]
) -> Operation[list[SchedulersUpserted | BulliteError]]:
    replies: list[SchedulersUpserted | BulliteError] = []
    for request in requests:
        yield "lock_queue", {"queue": request.queue}
        scheduler = yield from find(request.queue, request.key)
        if scheduler is None:
            replies.append(_not_found(request.key))
            continue
        plan = spec_of(scheduler)
        # An interval of 1 ms finds an id for now that is not the id of another job.
        at_once = plan._replace(recurrence=Recurrence(every=1))
        try:
            free = yield from next_free_tick(tx, request.queue, at_once, tx.now)
        except SchedulerSlotsTaken as error:
            replies.append(error)
            continue
        order = (yield from read_settings(request.queue)).priority_order
        now = job_at(tx, plan, free or tx.now, None, order)
        job = now._replace(
            delay=0, rare_fields=(now.rare_fields or NO_RARE_FIELDS)._replace(run_at=None)
        )
        added = yield from add_within(tx, request.queue, [job])
        replies.append(SchedulersUpserted(added, [job]))
    return replies


def _not_found(key: str) -> SchedulerNotFound:
    return SchedulerNotFound(f"there is no job scheduler {key!r} in this queue")
