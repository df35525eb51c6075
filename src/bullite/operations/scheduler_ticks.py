"""Job schedulers: each has one pending job, and the claim of that job inserts the next.

A transaction that changes a scheduler holds the lock of its queue, so that no claim of that queue
runs beside it. A claim must not wait for that lock: it changes only the schedulers whose pending
job it claims.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.codec import as_json, decode
from ..core.event_log import DUPLICATED
from ..core.job_flags import SCHEDULED, flags_of
from ..core.log_throttle import ThrottledLog
from ..core.recurrence import GRACE, Recurrence, following_tick, is_over, next_tick, tick_in_time
from ..core.states import REMOVE, State
from ..errors import InvalidOption, SchedulerSlotsTaken
from .add import NO_RARE_FIELDS, NewJob, RareFields, add_within
from .queues import may_keep_house, read_settings
from .request import ALONE, Request
from .transaction import Event, Operation, Transaction
from .transitions import LockedJob, count_out, delete_jobs, load_for_update

log = logging.getLogger("bullite.scheduler")
_throttled = ThrottledLog(log)

MAX_SLOTS = 32
"""Ticks that are skipped because their ids are taken, before a scheduler raises an error."""

MAX_CAUGHT_UP = 1_000
"""Maximum number of late schedulers that one round of maintenance catches up."""

PREFIX = "repeat:"
_PENDING = (State.WAITING, State.DELAYED)
CANNOT_GO_ON = (InvalidOption, SchedulerSlotsTaken)
"""Errors of a scheduler: its zone is unknown on this machine, or the ids of its ticks are taken."""


class SchedulerSpec(NamedTuple):
    """The definition of a scheduler, as a caller gives it."""

    key: str
    recurrence: Recurrence
    job: NewJob
    """The template of its jobs."""
    given: Sequence[str] = ()
    """The options of its jobs that the caller gave; the others are defaults of the queue."""


class Scheduler(NamedTuple):
    """A stored scheduler: the columns of the statement `scheduler_named`."""

    id: int
    queue: int
    key: str
    recurrence: str
    name: str
    data: str
    opts: str
    next_at: int | None
    job: int | None
    iterations: int
    last_at: int | None
    last_job: str | None
    enabled: int
    created_at: int
    updated_at: int


def id_of(key: str, tick: int) -> str:
    """Return the id of the job of a tick."""
    return f"{PREFIX}{key}:{tick}"


def key_in(job_id: str) -> str:
    """Return the key of the scheduler that made the job with this id."""
    return job_id.removeprefix(PREFIX).rpartition(":")[0]


# --- making jobs ---------------------------------------------------------------------------------


class NextTick(NamedTuple):
    """The next tick of a scheduler, and its job."""

    tick: int
    iteration: int
    job: NewJob


def job_at(
    tx: Transaction, plan: SchedulerSpec, tick: int, iteration: int | None, priority_order: str
) -> NewJob:
    """Return the job of a tick. The time of its option `expires` starts when it is due."""
    template, recurrence = plan.job, plan.recurrence
    delay = max(0, tick - tx.now)
    repeat: dict[str, Any] = {"key": plan.key}
    if recurrence.pattern is not None:
        repeat |= {"pattern": recurrence.pattern, "tz": recurrence.tz, "offset": 0}
    else:
        repeat |= {"every": recurrence.every, "offset": offset_of(recurrence, tick)}
    for name in ("limit", "start_date", "end_date"):
        if getattr(recurrence, name) is not None:
            repeat[name] = getattr(recurrence, name)
    if iteration is None:
        del repeat["offset"]  # the job is added outside the schedule
    else:
        repeat["count"] = iteration
    options = {} if template.opts is None else decode(template.opts)
    expires = (template.rare_fields or NO_RARE_FIELDS).expires
    return template._replace(
        custom_id=id_of(plan.key, tick),
        rank=template.priority if priority_order == "low" else -template.priority,
        delay=delay,
        opts=as_json({**options, "delay": delay, "repeat": repeat}),
        rare_fields=RareFields(
            run_at=tick,
            expires=None if expires is None else delay + expires,
            flags=SCHEDULED | flags_of(options),
        ),
    )


def offset_of(recurrence: Recurrence, tick: int | None) -> int:
    """Return the ms by which ticks are later than multiples of the interval; 0 for a pattern."""
    if recurrence.offset is not None:
        return recurrence.offset
    return 0 if recurrence.every is None or tick is None else tick % recurrence.every


def spec_of(scheduler: Scheduler) -> SchedulerSpec:
    """Return the definition of a stored scheduler."""
    options = decode(scheduler.opts)
    stored = options["stored"]
    template = NewJob(
        name=scheduler.name,
        custom_id=None,
        rank=0,
        priority=options["priority"],
        lifo=options["lifo"],
        delay=0,
        attempts=options["attempts"],
        data=scheduler.data,
        opts=as_json(stored) if stored else None,
        rare_fields=RareFields(expires=stored.get("expires")),
    )
    recurrence = Recurrence.from_json(scheduler.recurrence)
    return SchedulerSpec(scheduler.key, recurrence, template, options["given"])


def next_free_tick(
    tx: Transaction, queue: int, plan: SchedulerSpec, tick: int | None, mine: str | None = None
) -> Operation[int | None]:
    """Return the first tick from `tick` on whose id no job has; None if the scheduler ends before.

    Jobs of a deleted scheduler with the same key may still have such ids. `mine` is the id of the
    pending job, which will be deleted. Raise SchedulerSlotsTaken if MAX_SLOTS more ticks are taken.
    """
    passed_over: list[Event] = []
    for _ in range(1 + MAX_SLOTS):
        wanted = "" if tick is None else id_of(plan.key, tick)
        params = {"queue": queue, "custom_ids": as_json([wanted])}
        if tick is None or wanted == mine or not (yield "taken_custom_ids", params).rows:
            if passed_over and plan.recurrence.pattern is not None:
                tx.log(queue, DUPLICATED, passed_over)
            return tick
        passed_over.append(wanted)
        tick = next_tick(plan.recurrence, tick, tick)
    raise SchedulerSlotsTaken(
        f"the job scheduler {plan.key!r} cannot go on: the current and next time slots already "
        f"have jobs, {1 + MAX_SLOTS} of them; remove those, or choose another id or interval"
    )


# --- after the claim of a pending job ------------------------------------------------------------


def create_successor(
    tx: Transaction, queue: int, jobs: Sequence[int], *, runs: bool = True
) -> Operation[bool]:
    """Insert the next jobs of schedulers whose pending jobs were claimed, or ended without a run.

    A job that is not the pending one of a scheduler, because it was claimed before or was run by
    an operator, has no successor. Return True if a new job can be claimed immediately.
    """
    found = yield "schedulers_of_jobs", {"jobs": as_json(jobs)}
    if not found.rows:
        return False
    order = (yield from read_settings(queue)).priority_order
    changes: list[Scheduler] = []
    following: dict[str, NewJob] = {}
    for scheduler in [Scheduler(*row) for row in found.rows]:
        assert scheduler.next_at is not None
        if runs:
            ran = id_of(scheduler.key, scheduler.next_at)
            scheduler = scheduler._replace(last_at=tx.now, last_job=ran)
        try:
            after = yield from _after(tx, scheduler, order)
        except CANNOT_GO_ON as error:
            # The claimed job runs nevertheless; maintenance of a process continues the scheduler.
            _throttled.warning("the job scheduler %r could not go on: %s", scheduler.key, error)
            changes.append(scheduler._replace(job=None))
            continue
        if after is None:
            changes.append(_ended(scheduler))
        else:
            following[scheduler.key] = after.job
            changes.append(_planned(scheduler, after))
    yield from store(tx, queue, changes, following)
    return not all(job.delay for job in following.values())


def _after(tx: Transaction, scheduler: Scheduler, order: str) -> Operation[NextTick | None]:
    """Return the tick after the pending job of a scheduler; None if that was the last."""
    plan = spec_of(scheduler)
    recurrence, taken = plan.recurrence, scheduler.next_at
    assert taken is not None
    if is_over(recurrence, scheduler.iterations, taken):
        return None
    tick = following_tick(recurrence, taken, tx.now)
    if recurrence.missed == "all" and tick is not None:
        _warn_of_skipped(scheduler.key, next_tick(recurrence, taken, taken), tick)
    tick = yield from next_free_tick(tx, scheduler.queue, plan, tick)
    if is_over(recurrence, scheduler.iterations, tick):
        return None
    assert tick is not None
    iteration = scheduler.iterations + 1
    return NextTick(tick, iteration, job_at(tx, plan, tick, iteration, order))


def _planned(scheduler: Scheduler, after: NextTick) -> Scheduler:
    """Return the scheduler with the next tick; the pk of its job is not known yet."""
    return scheduler._replace(next_at=after.tick, iterations=after.iteration, enabled=1)


def _ended(scheduler: Scheduler) -> Scheduler:
    return scheduler._replace(next_at=None, job=None, enabled=0)


def store(
    tx: Transaction, queue: int, changes: Sequence[Scheduler], new: Mapping[str, NewJob]
) -> Operation[None]:
    """Add the new jobs, by the key of their scheduler, and update the schedulers."""
    if new:
        added = yield from add_within(tx, queue, list(new.values()))
        numbers = dict(zip(new, added.ids, strict=True))
        changes = [s._replace(job=numbers[s.key]) if s.key in numbers else s for s in changes]
    rows = [
        [s.id, s.next_at, s.job, s.iterations, s.last_at, s.last_job, s.enabled] for s in changes
    ]
    yield "update_schedulers", {"schedulers": as_json(rows), "now": tx.now}


def _warn_of_skipped(key: str, first: int | None, kept: int | None) -> None:
    if first is not None and first != kept:
        who = repr(key).replace("%", "%%")  # throttled by text, so for each scheduler by itself
        _throttled.warning(
            f"the job scheduler {who} missed too many ticks to make up for: "
            "those from %d on are left out, up to %s",
            *(first, kept),
        )


# --- pending jobs --------------------------------------------------------------------------------


def find(queue: int, key: str) -> Operation[Scheduler | None]:
    """Return the scheduler with this key; None if there is none."""
    found = yield "scheduler_named", {"queue": queue, "key": key}
    return Scheduler(*found.rows[0]) if found.rows else None


def pending_of(scheduler: Scheduler) -> Operation[LockedJob | None]:
    """Return the pending job of a scheduler; None if it has none, or the job was claimed."""
    if scheduler.job is None:
        return None
    row = (yield from load_for_update([scheduler.job])).get(scheduler.job)
    return row if row is not None and row.state in _PENDING else None


def delete_pending(tx: Transaction, row: LockedJob) -> Operation[None]:
    """Delete a pending job: it cannot be restored."""
    state = State(row.state)
    yield from delete_jobs(tx, state, {row.job: row.flags})
    count_out(tx, row.queue, state, [row.priority])
    tx.log(row.queue, REMOVE.name, [(row.public_id, state.value)])


def tick_after_missed(recurrence: Recurrence, key: str, pending: int, now: int) -> int | None:
    """Return the tick that replaces a missed one, or `pending` if it was not missed.

    Return None if `pending` was the last.
    """
    if is_over(recurrence, 0, pending):
        return None
    tick = tick_in_time(recurrence, pending, now)
    if recurrence.missed == "all":
        _warn_of_skipped(key, pending, tick)
    return tick


def reschedule(
    tx: Transaction, scheduler: Scheduler, plan: SchedulerSpec, tick: int | None
) -> Operation[None]:
    """Replace the next tick of a scheduler; without a tick, the scheduler ends."""
    after = None
    if tick is not None:
        order = (yield from read_settings(scheduler.queue)).priority_order
        iteration = scheduler.iterations
        after = NextTick(tick, iteration, job_at(tx, plan, tick, iteration, order))
    yield from _wait_for(tx, scheduler, after)


def _wait_for(tx: Transaction, scheduler: Scheduler, after: NextTick | None) -> Operation[None]:
    """Store the next tick and add its job; without a tick, the scheduler ends."""
    if after is None:
        yield from store(tx, scheduler.queue, [_ended(scheduler)], {})
    else:
        new = {scheduler.key: after.job}
        yield from store(tx, scheduler.queue, [_planned(scheduler, after)], new)


# --- maintenance ---------------------------------------------------------------------------------


class CatchUpScheduler(Request):
    """Continue a scheduler that seems to be late. Reply with 1 if it was, else with 0."""

    queue: int
    key: str
    apart = ALONE


def late_params(now: int) -> dict[str, int]:
    """Return the parameters of the statement that finds schedulers that seem to be late."""
    return {"now": now, "late": now - GRACE, "most": MAX_CAUGHT_UP}


def catch_up(tx: Transaction, requests: Sequence[CatchUpScheduler]) -> Operation[list[int]]:
    replies: list[int] = []
    for request in requests:
        done = False
        if not (yield from may_keep_house(request.queue, "catch up")):
            replies.append(0)
            continue
        yield "lock_queue", {"queue": request.queue}
        scheduler = yield from find(request.queue, request.key)
        if scheduler is not None and scheduler.enabled and scheduler.next_at is not None:
            try:
                done = yield from _catch_up(tx, scheduler)
            except CANNOT_GO_ON as error:
                # Another process may know its zone; other schedulers must not wait for that.
                _throttled.warning("the job scheduler %r could not go on: %s", request.key, error)
        replies.append(int(done))
    return replies


def _catch_up(tx: Transaction, scheduler: Scheduler) -> Operation[bool]:
    pending = yield from pending_of(scheduler)
    plan, due = spec_of(scheduler), scheduler.next_at
    assert due is not None
    if pending is None:
        # The process that claimed it could not compute the next tick.
        order = (yield from read_settings(scheduler.queue)).priority_order
        yield from _wait_for(tx, scheduler, (yield from _after(tx, scheduler, order)))
        return True
    tick = tick_after_missed(plan.recurrence, plan.key, due, tx.now)
    if tick == due:
        return False
    tick = yield from next_free_tick(tx, scheduler.queue, plan, tick)
    yield from delete_pending(tx, pending)
    yield from reschedule(tx, scheduler, plan, tick)
    return True


# --- jobs of schedulers --------------------------------------------------------------------------


def with_live_scheduler(queue: int, jobs: Mapping[int, str | None]) -> Operation[set[int]]:
    """Return the jobs whose scheduler still exists; `jobs` has the custom id of each job."""
    keys = {job: key_in(id) for job, id in _named(jobs)}
    if not keys:
        return set()
    found = yield "existing_schedulers", {"queue": queue, "keys": as_json(sorted(keys.values()))}
    known = {key for [key] in found.rows}
    return {job for job, key in keys.items() if key in known}


def _named(jobs: Mapping[int, str | None]) -> Iterator[tuple[int, str]]:
    return ((job, id) for job, id in jobs.items() if id is not None)
