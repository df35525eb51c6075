"""Why a job is where it is: one sentence that names what keeps it there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from . import loop
from .codec import encode_plain
from .operations.keying import window_of
from .operations.limiting import Limits
from .operations.stepping import EVENT, SLEEP
from .options import LATEST
from .states import PRIORITIZED, State
from .traits import STEPPED

if TYPE_CHECKING:
    from .getters import Getters
    from .job import Job

MOST_COUNTED = 1_000
"""Jobs in front of another that are counted; there may be a million."""


async def reason_of(queue: Getters, job: Job) -> str:
    """Why a job that waits for no other job is where it is."""
    if job.state in (State.WAITING, PRIORITIZED):
        return f"job {job.id} waits: {'; '.join(await _what_it_waits_for(queue, job))}"
    if job.state == State.DELAYED:
        return f"job {job.id} {await _until_when(queue, job)}"
    if job.state == State.ACTIVE:
        return f"job {job.id} is run by {job.locked_by}"
    if job.state == State.FAILED:
        return f"job {job.id} failed: {job.failed_reason}"
    return f"job {job.id} is {job.state}"


# --- waiting for its turn ------------------------------------------------------------------------


async def _what_it_waits_for(queue: Getters, job: Job) -> list[str]:
    reasons = [
        *(["the queue is paused"] if await queue.is_paused() else []),
        *await _limits(queue),
        *await _limit_of_key(queue, job),
        *await _workers(queue, job),
    ]
    return [*reasons, await _place_in_line(queue, job)]


async def _limits(queue: Getters) -> list[str]:
    rows = await loop.read(queue.store, "limits", {"queue": queue.key})
    limits, now = Limits(*rows[0]), queue.store.open().clock.now()
    reasons = []
    if limits.concurrency is not None:
        [[running]] = await loop.read(queue.store, "count_active", {"queue": queue.key})
        if running >= limits.concurrency:
            reasons.append(f"no more than {limits.concurrency} may run at a time")
    if limits.left(None, now) == 0:
        reasons.append(f"a rate limit lets nothing begin before {_shown(limits.until)}")
    elif limits.max is None and limits.until > now:
        reasons.append(
            f"workers with a limiter have begun {limits.used} in a window that ends at "
            f"{_shown(limits.until)}"
        )
    return reasons


async def _limit_of_key(queue: Getters, job: Job) -> list[str]:
    if job.limit_key is None:
        return []
    params = {"queue": queue.key, "keys": encode_plain([job.limit_key]).decode()}
    window = window_of(job.limit_key, await loop.read(queue.store, "key_windows", params))
    if not window.ttl(queue.store.open().clock.now(), None):
        return []
    return [f"the limit of key {job.limit_key!r} lets it not begin before {_shown(window.until)}"]


async def _workers(queue: Getters, job: Job) -> list[str]:
    workers = await queue.get_workers()
    if any(worker.names is None or job.name in worker.names for worker in workers):
        return []
    return [f"no worker takes jobs named {job.name!r}" if workers else "no worker serves the queue"]


async def _place_in_line(queue: Getters, job: Job) -> str:
    params = {"job": job.pk, "most": MOST_COUNTED}
    [[number]] = await loop.read(queue.store, "stand_before", params)
    if not number:
        return "it is the next in its line"
    more = " or more" if number >= MOST_COUNTED else ""
    return f"{number}{more} {'stand' if number > 1 else 'stands'} in front of it"


# --- waiting for a time, or for an event ---------------------------------------------------------


async def _until_when(queue: Getters, job: Job) -> str:
    due = 0 if job.process_at is None else round(job.process_at.timestamp() * 1000)
    steps: Sequence[Any] = ()
    if job.traits & STEPPED:
        steps = await loop.read(queue.store, "steps", {"job": job.pk})
    for kind, name, _, _, due_at, _, ended_at in steps:
        if ended_at is None and due_at == due and kind in (SLEEP, EVENT):
            does = "sleeps" if kind == SLEEP else f"waits for the event {name!r}"
            return does if due == LATEST else f"{does} until {_shown(due)}"
    return f"is delayed until {_shown(due)}"


def _shown(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
