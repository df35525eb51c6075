"""Rate limits by key: jobs of a used-up key are parked, so that they do not block other jobs.

A claim that finds jobs of such a key moves them, and the next jobs of the key, to a lane of the
key. When the window of the key has ended, as many as may start move back to their old positions. So
a job is parked at most once per window, and a claim never reads past a million parked jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.codec import as_json, decode
from ..core.job_flags import LIMITED
from ..core.job_record import FLAGS, ID, OPTS
from .rate_limits import Rate, notify_limit_change
from .request import ALONE_BESIDE_OTHERS, Request
from .transaction import Operation, Transaction

MAX_PARKED = 1_000
"""Jobs of one lane that one statement parks or unparks."""

MAX_KEYS = 100
"""Keys whose jobs one claim unparks; the rest follow in the next."""

MAX_LOOKS = 10
"""How often a claim selects again because it had to park jobs."""

EVERY_KEY = ""
"""The key in the database for all keys without a limit of their own."""

PARKED_LANE = "\x1f"
"""First character of lanes of parked jobs; no name and no key has it."""

Lanes = Callable[[], Operation[Sequence[str]]]
"""Reads the lanes of a claim; none while jobs remain to be assigned to lanes."""

Look = Callable[[Sequence[str], int], Operation[Sequence[Any]]]
"""Reads the next jobs of these lanes, as rows of JobRow."""


class RateWindow(NamedTuple):
    """The limit and the window of a key."""

    key: str
    max: int | None = None
    """None for no limit."""
    duration: int | None = None
    until: int = 0
    used: int = 0
    unpark_at: int | None = None
    """When parked jobs may be unparked; None without parked jobs."""

    def remaining(self, now: int) -> int | None:
        """Return how many jobs may still be claimed; None for any number."""
        if self.max is None:
            return None
        return max(0, self.max - self.used) if self.until > now else self.max

    def end(self, now: int) -> int:
        """Return the end of the window that counts a claim at `now`."""
        return self.until if self.until > now else now + (self.duration or 0)

    def ttl(self, now: int, max_jobs: int | None) -> int:
        """Return the ms for which no job of the key may be claimed; 0 if one may."""
        most = self.max if max_jobs is None else max_jobs
        return max(0, self.until - now) if most is not None and self.used >= most else 0


class Claimable(NamedTuple):
    """The jobs that the limits allow a claim."""

    rows: Sequence[Any]
    everywhere: bool
    """The claim has seen every job that the worker can run."""
    again: int | None
    """When parked jobs may be unparked."""


# --- in a claim ----------------------------------------------------------------------------------


def next_allowed(
    tx: Transaction, queue: int, room: int, find_lanes: Lanes, look: Look
) -> Operation[Claimable]:
    """Select the next jobs whose keys allow them, and count them in the windows of their keys."""
    rows: Sequence[Any] = ()
    windows: dict[str, RateWindow] = {}
    everywhere = yield from _unpark_due(tx, queue)
    brought: set[str] = set()
    looks = 0
    while everywhere:
        lanes = yield from find_lanes()  # unparked jobs may have added a lane
        rows = yield from look(lanes, room)
        windows = yield from read_windows(queue, {key for row in rows if (key := _key_of(row))})
        rows, used_up = _split_by_limit(rows, windows, tx.now)
        # The parked jobs of a key come first: they may be older.
        behind = {key for row in rows if (key := _key_of(row)) and _has_parked(windows[key])}
        behind -= brought
        for key in behind:
            yield from _unpark(tx, queue, windows[key])
        if not behind and not used_up:
            everywhere = bool(lanes)
            break
        if not behind:
            taken = {row[ID] for row in rows}
            yield from _park(tx, queue, lanes, {key: windows[key] for key in used_up}, taken)
        brought |= behind
        looks += 1
        everywhere = looks < MAX_LOOKS
    yield from _count(tx, queue, rows, windows)
    [[next_unpark]] = (yield "next_unpark", {"queue": queue}).rows
    return Claimable(rows, everywhere, next_unpark)


def read_windows(queue: int, keys: Collection[str]) -> Operation[dict[str, RateWindow]]:
    """Return the windows of these keys, with their own limit or that of every key."""
    if not keys:
        return {}
    found = yield "key_windows", {"queue": queue, "keys": as_json(sorted(keys))}
    stored = _by_key(found.rows)
    return {key: _resolved(key, stored) for key in keys}


def window_of(key: str, rows: Sequence[Sequence[Any]]) -> RateWindow:
    """Return the window of a key from its stored rows."""
    return _resolved(key, _by_key(rows))


def _by_key(rows: Sequence[Sequence[Any]]) -> dict[str, RateWindow]:
    windows = (RateWindow(*row) for row in rows)
    return {window.key: window for window in windows}


def _resolved(key: str, stored: Mapping[str, RateWindow]) -> RateWindow:
    window = stored.get(key, RateWindow(key))
    every = stored.get(EVERY_KEY)
    if window.max is not None or every is None:
        return window
    return window._replace(max=every.max, duration=every.duration)


def _key_of(row: Sequence[Any]) -> str | None:
    if not row[FLAGS] & LIMITED:
        return None
    key: str = decode(row[OPTS])["limit_key"]
    return key


def _has_parked(window: RateWindow) -> bool:
    return window.unpark_at is not None


def _split_by_limit(
    rows: Sequence[Any], windows: Mapping[str, RateWindow], now: int
) -> tuple[list[Any], set[str]]:
    """Return the jobs that may start, and the keys of the others."""
    left = {key: window.remaining(now) for key, window in windows.items()}
    allowed: list[Any] = []
    used_up: set[str] = set()
    for row in rows:
        key = _key_of(row)
        most = None if key is None else left[key]
        if key is None or most is None:
            allowed.append(row)
        elif most:
            left[key] = most - 1
            allowed.append(row)
        else:
            used_up.add(key)
    return allowed, used_up


def _park(
    tx: Transaction,
    queue: int,
    lanes: Sequence[str],
    used_up: Mapping[str, RateWindow],
    taken: Collection[int],
) -> Operation[None]:
    """Park the jobs of used-up keys, except those that this claim takes."""
    jobs: dict[int, str] = {}
    for lane in lanes:
        found = yield "jobs_with_limit_key", {"queue": queue, "lane": lane, "most": MAX_PARKED}
        jobs |= {job: key for job, key in found.rows if key in used_up and job not in taken}
    yield "park_jobs", {"jobs": as_json(jobs)}
    back_at = {key: window.end(tx.now) for key, window in used_up.items()}
    yield "set_unpark_time", {"queue": queue, "keys": as_json(back_at)}


def _unpark_due(tx: Transaction, queue: int) -> Operation[bool]:
    """Unpark the jobs of keys whose window has ended. Return True if no key is left."""
    due = yield "keys_to_unpark", {"queue": queue, "now": tx.now, "most": MAX_KEYS}
    if not due.rows:
        return True
    windows = yield from read_windows(queue, list(_by_key(due.rows)))
    for window in windows.values():
        yield from _unpark(tx, queue, window)
    return len(due.rows) < MAX_KEYS


def _unpark(tx: Transaction, queue: int, window: RateWindow) -> Operation[None]:
    """Unpark as many jobs of a key as may start, oldest first."""
    left = window.remaining(tx.now)
    back_at: int | None = window.until
    if left != 0:
        most = MAX_PARKED if left is None else min(left, MAX_PARKED)
        for lane in (yield from _parked_lanes(queue, window.key)):
            home = lane.rpartition(PARKED_LANE)[2]
            yield "unpark_jobs", {"queue": queue, "lane": lane, "home": home, "most": most}
        # Read again: the statement skips jobs that other transactions have locked.
        are_left = bool((yield from _parked_lanes(queue, window.key)))
        # The first of these jobs to start opens a window; the next jobs are unparked when it ends.
        # If none of them starts, because they are removed, they are unparked after its duration.
        back_at = tx.now + (window.duration or 0) if are_left else None
    yield "set_unpark_time", {"queue": queue, "keys": as_json({window.key: back_at})}


def _parked_lanes(queue: int, key: str) -> Operation[list[str]]:
    first = f"{PARKED_LANE}{key}{PARKED_LANE}"
    last = f"{PARKED_LANE}{key} "
    found = yield "parked_lanes", {"queue": queue, "first_lane": first, "last_lane": last}
    return [lane for [lane] in found.rows]


def _count(
    tx: Transaction, queue: int, rows: Sequence[Any], windows: Mapping[str, RateWindow]
) -> Operation[None]:
    taken = Counter(key for row in rows if (key := _key_of(row)))
    used = {
        key: [windows[key].end(tx.now), number + _used(windows[key], tx.now)]
        for key, number in taken.items()
        if windows[key].max is not None
    }
    if used:
        yield "count_keys", {"queue": queue, "keys": as_json(used)}


def _used(window: RateWindow, now: int) -> int:
    return window.used if window.until > now else 0


# --- requests ------------------------------------------------------------------------------------


class SetKeyLimit(Request):
    """Set the limit of a key, or with EVERY_KEY that of all keys without a limit of their own.

    None removes the limit. Reply with the old limit.
    """

    queue: int
    key: str
    limiter: Rate | None
    barrier = True
    apart = ALONE_BESIDE_OTHERS


def set_key_limit(tx: Transaction, requests: Sequence[SetKeyLimit]) -> Operation[list[Rate | None]]:
    replies: list[Rate | None] = []
    for request in requests:
        queue, key = request.queue, request.key
        yield "lock_queue", {"queue": queue}
        old = yield "key_limit", {"queue": queue, "key": key}
        if request.limiter is None:
            yield "remove_key_limit", {"queue": queue, "key": key}
        else:
            yield "set_key_limit", {"queue": queue, "key": key, **request.limiter._asdict()}
        # The next claims park the jobs again that the new limit does not allow.
        yield "unpark_all", {"queue": queue, "now": tx.now}
        yield "set_by_key", {"queue": queue}
        yield from notify_limit_change(tx, queue)
        replies.append(Rate(*old.rows[0]) if old.rows else None)
    return replies


def delete_idle_limit_keys(tx: Transaction, queue: int, most: int) -> Operation[int]:
    """Delete keys whose windows have ended. Without keys, the queue has no limits by key."""
    yield "lock_queue", {"queue": queue}
    forgotten = yield "delete_idle_limit_keys", {"queue": queue, "now": tx.now, "most": most}
    yield "set_by_key", {"queue": queue}
    return forgotten.changed
