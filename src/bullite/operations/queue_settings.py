"""What is decided for a whole queue: its settings, whether it is paused, its event log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..core.codec import encode_plain
from ..core.event_log import CLEANED, CUSTOM, PAUSED, RESUMED
from ..database.driver import ANY_NAME
from .request import ALONE_BESIDE_OTHERS, Request
from .transaction import Operation, Transaction

MAX_TRIMMED = 1_000
"""Rows of the event log deleted in one go."""


class Settings(NamedTuple):
    """What is stored about a queue beside its jobs; ages in ms, None keeps for ever."""

    name: str
    priority_order: str
    paused: int
    version: int
    default_job_options: str | None
    dead_letter: str | None
    keep_completed_age: int | None
    keep_completed_count: int | None
    keep_failed_age: int | None
    keep_failed_count: int | None
    trash_age: int
    max_events: int
    max_waiting: int | None
    max_payload_bytes: int | None
    max_rate_count: int | None
    max_rate_duration: int | None
    concurrency: int | None
    rate_max: int | None
    rate_duration: int | None
    on_failure: str | None
    """The job that is added when one fails for good, as JSON."""
    retry_failed_after: int | None
    """Ms after which failed jobs are tried again by themselves."""
    retry_failed_times: int


AS_NEW: dict[str, Any] = {
    "default_job_options": None,
    "dead_letter": None,
    "keep_completed_age": 7 * 24 * 3600 * 1000,
    "keep_completed_count": None,
    "keep_failed_age": None,
    "keep_failed_count": None,
    "trash_age": 24 * 3600 * 1000,
    "max_events": 10_000,
    "max_waiting": None,
    "max_payload_bytes": None,
    "max_rate_count": None,
    "max_rate_duration": None,
    "on_failure": None,
    "retry_failed_after": None,
    "retry_failed_times": 1,
}
"""What a queue is made with."""


def read_settings(queue: int) -> Operation[Settings]:
    result = yield "settings", {"queue": queue}
    return Settings(*result.rows[0])


class Configure(Request):
    """Change some of a queue's settings, for every producer and worker. Answers the settings."""

    queue: int
    changes: Mapping[str, Any]
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def configure(tx: Transaction, requests: Sequence[Configure]) -> Operation[list[Settings]]:
    answers: list[Settings] = []
    for request in requests:
        yield "lock_queue", {"queue": request.queue}
        old = yield from read_settings(request.queue)
        new = old._replace(**request.changes)
        if new != old:
            yield "configure", {**new._asdict(), "queue": request.queue}
            if new.priority_order != old.priority_order:
                yield "reverse_priority_order", {"queue": request.queue}
            if new[-2:] != old[-2:]:
                yield from _reschedule_auto_retries(request.queue, new)
        answers.append((yield from read_settings(request.queue)))
    return answers


def _reschedule_auto_retries(queue: int, settings: Settings) -> Operation[None]:
    """Say anew when failed jobs are tried again: those in the queue, and its dead letters."""
    origins = yield "source_queues_of_failed", {"queue": queue}
    groups: list[tuple[int, int | None]] = [(queue, row[0]) for row in origins.rows]
    if settings.dead_letter not in (None, settings.name):
        found = yield "queue_named", {"name": settings.dead_letter}
        groups += [(row[0], queue) for row in found.rows]
    for place, origin in groups:
        there = yield from read_settings(place)
        if origin is not None:
            there = retries_of_dead_letters((yield from read_settings(origin)), there)
        after, times = there.retry_failed_after, there.retry_failed_times
        params = {"queue": place, "origin": origin, "after": after, "times": times}
        yield "reschedule_auto_retries", params


def retries_of_dead_letters(own: Settings, there: Settings) -> Settings:
    """Whose word holds on trying dead letters again: that of the queue in which they failed, if it
    has one, else that of the queue where they lie."""
    return there if own.retry_failed_after is None else own


class SetPaused(Request):
    """Let a queue hand out no jobs, or let it go on. Answers whether that changed anything."""

    queue: int
    paused: bool
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def set_paused(tx: Transaction, requests: Sequence[SetPaused]) -> Operation[list[bool]]:
    answers = []
    for request in requests:
        params = {"queue": request.queue, "paused": int(request.paused)}
        yield "lock_queue", {"queue": request.queue}
        changed = yield "set_paused", params
        if changed.changed:
            if request.paused:
                tx.limited.add(request.queue)
            tx.log(request.queue, PAUSED if request.paused else RESUMED, [(None, None)])
            counts = yield "counts", {"queue": request.queue}
            waiting, prioritized, *_ = counts.rows[0]
            # Workers are to look either way: for jobs, or to learn that there are none for them.
            ready = 0 if request.paused else waiting + prioritized
            tx.notify_ready(request.queue, ANY_NAME, ready)
        answers.append(bool(changed.changed))
    return answers


class PublishEvent(Request):
    """Put an event of the user's own into the log, keeping so many. Answers nothing.

    While another process trims the log, this leaves it to that one.
    """

    queue: int
    event: str
    payload: Mapping[str, Any]
    keep: int | None = None


def publish_event(tx: Transaction, requests: Sequence[PublishEvent]) -> Operation[list[None]]:
    for request in requests:
        tx.log(request.queue, CUSTOM, [(None, [request.event, request.payload])])
        if request.keep is not None and (yield from may_sweep(request.queue)):
            yield from _trim(request.queue, request.keep)
    return [None] * len(requests)


class LogCleaned(Request):
    """Put into the log how many jobs a cleaning removed. Answers nothing."""

    queue: int
    count: int


def log_cleaned(tx: Transaction, requests: Sequence[LogCleaned]) -> Operation[list[None]]:
    for request in requests:
        tx.log(request.queue, CLEANED, [(None, request.count)])
    yield from ()  # an operation is a generator, even when it has nothing to ask
    return [None] * len(requests)


class TrimEvents(Request):
    """Keep only the newest events of a queue. Answers how many rows of the log went.

    Those are at most MOST_TRIMMED: there may be more to do.
    """

    queue: int
    keep: int
    recount: bool = True
    """Whether to count the log before. Once is enough for those who ask again for the rest."""
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def trim_events(tx: Transaction, requests: Sequence[TrimEvents]) -> Operation[list[int]]:
    answers: list[int] = []
    for request in requests:
        yield "lock_sweep", {"queue": request.queue}
        if request.recount:
            yield "recount_log", {"queue": request.queue}
        answers.append((yield from _trim(request.queue, request.keep)))
    return answers


def may_sweep(queue: int) -> Operation[bool]:
    """Whether no other process sweeps a queue or trims its log; none will until this commits."""
    return (yield from may_keep_house(queue, "sweep"))


def may_keep_house(queue: int, chore: str) -> Operation[bool]:
    """Whether no other process does this for a queue; none will until this commits."""
    taken = yield "try_housekeeping", {"queue": queue, "chore": chore}
    return bool(taken.rows[0][0])


def _trim(queue: int, keep: int) -> Operation[int]:
    params = {"queue": queue, "keep": keep, "most": MAX_TRIMMED}
    trimmed = yield "trim_events", params
    yield "clear_newest_event", params
    return trimmed.changed


class ResetQueue(Request):
    """Make a queue, all of whose jobs were deleted, as it was when it was new. Answers nothing."""

    queue: int
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def reset_queue(tx: Transaction, requests: Sequence[ResetQueue]) -> Operation[list[None]]:
    for request in requests:
        yield "lock_sweep", {"queue": request.queue}
        yield "lock_queue", {"queue": request.queue}
        old = yield from read_settings(request.queue)
        yield "configure", {**old._asdict(), **AS_NEW, "queue": request.queue}
        yield "set_paused", {"queue": request.queue, "paused": 0}
        yield "forget_keys", {"queue": request.queue}
        yield from _forget_limits(request.queue)
        while (yield from _trim(request.queue, 0)) >= MAX_TRIMMED:
            pass
    return [None] * len(requests)


def _forget_limits(queue: int) -> Operation[None]:
    none = dict.fromkeys(("concurrency", "rate_max", "rate_duration"))
    yield "set_limits", {**none, "queue": queue}
    yield "set_window", {"queue": queue, "until": 0, "used": 0}
    yield "count_adds", {"queue": queue, "until": 0, "used": 0}
    yield "forget_limits", {"queue": queue}
    yield "set_by_key", {"queue": queue}


def as_text(options: Mapping[str, Any] | None) -> str | None:
    """Options as they are stored."""
    return encode_plain(options).decode() if options else None
