"""Queues: their rows, their settings, whether they are paused, and their event logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..core.codec import encode_plain
from ..core.event_log import CLEANED, CUSTOM, PAUSED, RESUMED
from ..database.driver import ANY_NAME
from .request import ALONE_BESIDE_OTHERS, Request
from .transaction import Operation, Transaction, read_counts

DEFAULT_PRIORITY_ORDER = "low"
MAX_TRIMMED = 1_000
"""Rows of the event log that one transaction deletes."""


class OpenQueue(Request):
    """Find or make a queue. Reply with an OpenedQueue."""

    name: str
    priority_order: str | None
    apart = ALONE_BESIDE_OTHERS


class OpenedQueue(NamedTuple):
    """Columns of a queue that a producer needs: those of the statement `queue_named`."""

    id: int
    priority_order: str
    version: int
    """Version of the settings; it grows with every change."""
    default_job_options: str | None


def open_queue(tx: Transaction, requests: Sequence[OpenQueue]) -> Operation[list[OpenedQueue]]:
    replies: list[OpenedQueue] = []
    for request in requests:
        found = yield "queue_named", {"name": request.name}
        if found.rows:
            replies.append(OpenedQueue(*found.rows[0]))
        else:
            order = request.priority_order or DEFAULT_PRIORITY_ORDER
            id = yield from _make(tx, request.name, order)
            replies.append(OpenedQueue(id, order, 1, None))
    return replies


def find_or_make(tx: Transaction, name: str) -> Operation[int]:
    """Return the pk of the queue of this name; make the queue if there is none."""
    found = yield "queue_named", {"name": name}
    if found.rows:
        return OpenedQueue(*found.rows[0]).id
    return (yield from _make(tx, name, DEFAULT_PRIORITY_ORDER))


def _make(tx: Transaction, name: str, order: str) -> Operation[int]:
    made = yield "insert_queue", {"name": name, "priority_order": order, "now": tx.now}
    [[id]] = made.rows
    return int(id)


class QueueAddInfo(NamedTuple):
    """Columns of a queue that an insert reads: those of the statement `add_info`."""

    by_name: int
    """Its jobs are in the lanes of their names."""
    version: int
    """Version of the settings."""
    by_key: int
    """Keys have rate limits, so jobs may be in parked lanes."""
    has_quotas: int


def load_add_info(queue: int) -> Operation[QueueAddInfo]:
    result = yield "add_info", {"queue": queue}
    return QueueAddInfo(*result.rows[0])


class Settings(NamedTuple):
    """Settings of a queue: the columns of the statement `settings`. Ages are in ms, None keeps."""

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
    """The job that is added when a job fails permanently, as JSON."""
    retry_failed_after: int | None
    """Ms after which failed jobs are retried automatically; None retries none."""
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
"""Settings of a new queue."""


def read_settings(queue: int) -> Operation[Settings]:
    result = yield "settings", {"queue": queue}
    return Settings(*result.rows[0])


class Configure(Request):
    """Change settings of a queue, for every producer and worker. Reply with all settings."""

    queue: int
    changes: Mapping[str, Any]
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def configure(tx: Transaction, requests: Sequence[Configure]) -> Operation[list[Settings]]:
    replies: list[Settings] = []
    for request in requests:
        yield "lock_queue", {"queue": request.queue}
        old = yield from read_settings(request.queue)
        new = old._replace(**request.changes)
        if new != old:
            yield "configure", {**new._asdict(), "queue": request.queue}
            if new.priority_order != old.priority_order:
                yield "reverse_priority_order", {"queue": request.queue}
            if _auto_retry(new) != _auto_retry(old):
                yield from _reschedule_auto_retries(request.queue, new)
        replies.append((yield from read_settings(request.queue)))
    return replies


def _auto_retry(settings: Settings) -> tuple[int | None, int]:
    return settings.retry_failed_after, settings.retry_failed_times


def _reschedule_auto_retries(queue: int, settings: Settings) -> Operation[None]:
    """Reschedule the automatic retry of failed jobs of the queue and of its dead letters."""
    origins = yield "source_queues_of_failed", {"queue": queue}
    groups: list[tuple[int, int | None]] = [(queue, origin) for [origin] in origins.rows]
    if settings.dead_letter not in (None, settings.name):
        found = yield "queue_named", {"name": settings.dead_letter}
        groups += [(OpenedQueue(*row).id, queue) for row in found.rows]
    for target, origin in groups:
        there = yield from read_settings(target)
        if origin is not None:
            there = retries_of_dead_letters((yield from read_settings(origin)), there)
        after, times = _auto_retry(there)
        params = {"queue": target, "origin": origin, "after": after, "times": times}
        yield "reschedule_auto_retries", params


def retries_of_dead_letters(own: Settings, there: Settings) -> Settings:
    """Return the settings for the automatic retry of dead letters.

    Those are the settings of the queue in which the jobs failed (`own`), if they retry failed
    jobs, else the settings of the dead-letter queue (`there`).
    """
    return there if own.retry_failed_after is None else own


class SetPaused(Request):
    """Pause or resume a queue. Reply with True if that changed the queue."""

    queue: int
    paused: bool
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def set_paused(tx: Transaction, requests: Sequence[SetPaused]) -> Operation[list[bool]]:
    replies = []
    for request in requests:
        params = {"queue": request.queue, "paused": int(request.paused)}
        yield "lock_queue", {"queue": request.queue}
        changed = yield "set_paused", params
        if changed.changed:
            if request.paused:
                tx.limited.add(request.queue)
            tx.log(request.queue, PAUSED if request.paused else RESUMED, [(None, None)])
            counts = yield from read_counts(request.queue)
            # Workers poll either way: to claim jobs, or to return those they have prefetched.
            ready = 0 if request.paused else counts["waiting"] + counts["prioritized"]
            tx.notify_ready(request.queue, ANY_NAME, ready)
        replies.append(bool(changed.changed))
    return replies


class PublishEvent(Request):
    """Add a custom event to the log; trim the log to `keep` events if given. Reply with None.

    This request does not trim a log that another process trims at the same time.
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
    """Log how many jobs a clean has deleted. Reply with None."""

    queue: int
    count: int


def log_cleaned(tx: Transaction, requests: Sequence[LogCleaned]) -> Operation[list[None]]:
    for request in requests:
        tx.log(request.queue, CLEANED, [(None, request.count)])
    yield from ()  # an operation is a generator, even if it executes no statement
    return [None] * len(requests)


class TrimEvents(Request):
    """Keep only the newest events of a queue. Reply with the number of deleted rows.

    One request deletes at most MAX_TRIMMED rows, so another one may be needed.
    """

    queue: int
    keep: int
    recount: bool = True
    """Count the log first; a caller that repeats the request needs that only once."""
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def trim_events(tx: Transaction, requests: Sequence[TrimEvents]) -> Operation[list[int]]:
    replies: list[int] = []
    for request in requests:
        yield "lock_sweep", {"queue": request.queue}
        if request.recount:
            yield "recount_log", {"queue": request.queue}
        replies.append((yield from _trim(request.queue, request.keep)))
    return replies


def may_sweep(queue: int) -> Operation[bool]:
    """Return True if no other process prunes a queue or trims its log, until this commits."""
    return (yield from may_keep_house(queue, "sweep"))


def may_keep_house(queue: int, chore: str) -> Operation[bool]:
    """Return True if no other process does this chore for a queue, until this commits."""
    taken = yield "try_housekeeping", {"queue": queue, "chore": chore}
    [[is_taken, *_]] = taken.rows
    return bool(is_taken)


def _trim(queue: int, keep: int) -> Operation[int]:
    params = {"queue": queue, "keep": keep, "most": MAX_TRIMMED}
    trimmed = yield "trim_events", params
    yield "clear_newest_event", params
    return trimmed.changed


class ResetQueue(Request):
    """Reset a queue whose jobs were all deleted to the state of a new one. Reply with None."""

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
    """Return options in the form in which they are stored."""
    return encode_plain(options).decode() if options else None
