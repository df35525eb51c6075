"""The event log: from the kind of a row to the events that listeners get.

A row has all changes of one kind by one transaction, usually a move. Its kind is the name of the
move. It lists the jobs, each with a detail if the move alone does not determine the event. This
module is pure: it uses no database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from .states import CANCELLED, EXPIRED, MOVES, State

PROGRESS, LOG_ADDED, DUPLICATED = "progress", "log_added", "duplicated"
PAUSED, RESUMED, DRAINED, CLEANED = "paused", "resumed", "drained", "cleaned"
DEAD_LETTERED, CUSTOM = "dead_lettered", "custom"
DEDUPLICATED = "deduplicated"

MAX_COPIED_LENGTH = 4 * 1024
"""Longer results and messages are not copied into the log; readers fetch them."""

UNCOUNTED = {"counted": 0, "seen": "{}"}
"""Parameters of `events_after` for readers that do not count events from page to page."""

Payload = dict[str, Any]
_Payloads = list[tuple[str, Payload]]

_EVENTS_OF_MOVES = {move.name: move.events for move in MOVES}
_PREVIOUS = {move.name: move.sources[0].value for move in MOVES if len(move.sources) == 1}


class Event(NamedTuple):
    """One event, as a listener gets it."""

    id: str
    """`<row>-<index>`: a reader can continue after this event."""
    queue: int
    name: str
    payload: Payload
    truncated: bool = False
    """The result was too long for the log: the reader fetches it."""
    is_custom: bool = False
    """Published by a user: its payload may have any form."""


class Failure(NamedTuple):
    """A failed job, as the log describes it."""

    state: str
    reason: str | None
    attempts_made: int | None
    """None if the job ended without a run."""
    outcome: str | None
    due: int | None
    """The due time of the next attempt, if the job is delayed."""


def failure_of(kind: str, entry: Any) -> Failure | None:
    """Return the failure in an entry of a row of this kind; None if no job failed."""
    match kind:
        case "fail":
            reason, attempts_made, outcome, *_ = entry[1]
            return Failure(State.FAILED.value, reason, attempts_made, outcome, None)
        case "back_off":
            reason, attempts_made, due = entry[1]
            return Failure(State.DELAYED.value, reason, attempts_made, None, due)
        case "retry":
            reason, attempts_made, _ = entry[1]
            return Failure(State.WAITING.value, reason, attempts_made, None, None)
        case "expire" | "cancel":
            outcome = EXPIRED if kind == "expire" else CANCELLED
            return Failure(State.FAILED.value, entry[1][1], None, outcome, None)
    return None


def events_of_move(kind: str) -> int:
    """Return the number of events of one entry of a row of this kind."""
    return len(_EVENTS_OF_MOVES.get(kind, "1"))


def unfold(row: int, queue: int, kind: str, entries: Sequence[Any]) -> Iterator[Event]:
    """Return the events of one row, in causal order for each job."""
    index = 0
    for entry in entries:
        job, detail = (entry[0], entry[1]) if isinstance(entry, list) else (entry, None)
        about: Payload = {} if job is None else {"job_id": str(job)}
        truncated = kind == "complete" and isinstance(entry, list) and entry[2:3] == [1]
        for name, payload in _payloads(kind, about, detail):
            yield Event(f"{row}-{index}", queue, name, payload, truncated, kind == CUSTOM)
            index += 1


def _payloads(kind: str, about: Payload, detail: Any) -> _Payloads:
    if kind in _DETAILS:
        return _DETAILS[kind](about, detail)
    events = _EVENTS_OF_MOVES.get(kind, (kind.replace("_", "-"),))
    previous = {"prev": _PREVIOUS[kind]} if kind in _PREVIOUS else {}
    return [(name, about | previous) for name in events]


# --- kinds whose entries carry a detail ----------------------------------------------------------


def _added(about: Payload, name: Any) -> _Payloads:
    return [("added", about | {"name": name}), ("waiting", about)]


def _added_delayed(about: Payload, detail: Any) -> _Payloads:
    name, due = detail
    return [("added", about | {"name": name}), ("delayed", about | {"delay": due})]


def _added_blocked(about: Payload, name: Any) -> _Payloads:
    return [("added", about | {"name": name}), ("waiting-children", about)]


def _freed_for_later(about: Payload, due: Any) -> _Payloads:
    previous = {"prev": State.WAITING_CHILDREN.value}
    return [
        ("dependencies-completed", about | previous),
        ("delayed", about | previous | {"delay": due}),
    ]


def _let_go_for_later(about: Payload, due: Any) -> _Payloads:
    return [("delayed", about | {"prev": State.WAITING_CHILDREN.value, "delay": due})]


def _delayed(about: Payload, due: Any) -> _Payloads:
    return [("delayed", about | {"delay": due})]


def _completed(about: Payload, value: Any) -> _Payloads:
    return [("completed", about | {"return_value": value, "prev": State.ACTIVE.value})]


def _failed(about: Payload, detail: Any) -> _Payloads:
    reason, attempts_made, outcome, *_ = detail
    details = {"failed_reason": reason, "prev": "active", "final": True, "outcome": outcome}
    return [
        ("failed", about | details),
        ("retries-exhausted", about | {"attempts_made": attempts_made}),
    ]


def _attempt_failed(about: Payload, detail: Any) -> _Payloads:
    reason, attempts_made, _ = detail
    failed = {"failed_reason": reason, "prev": "active", "final": False}
    return [
        ("failed", about | failed),
        ("attempt-failed", about | {"failed_reason": reason, "attempts_made": attempts_made}),
    ]


def _backed_off(about: Payload, detail: Any) -> _Payloads:
    due = {"delay": detail[2]}
    return [
        *_attempt_failed(about, detail),
        ("delayed", about | due | {"prev": "active"}),
        ("retry-scheduled", about | due),
    ]


def _retried(about: Payload, detail: Any) -> _Payloads:
    return [
        *_attempt_failed(about, detail),
        ("waiting", about | {"prev": "active"}),
        ("retry-scheduled", about | {"delay": detail[2]}),
    ]


def _stalled_for_later(about: Payload, due: Any) -> _Payloads:
    previous = {"prev": State.ACTIVE.value}
    return [("stalled", about | previous), ("delayed", about | previous | {"delay": due})]


def _ended_unrun(outcome: str, about: Payload, detail: Any) -> _Payloads:
    previous, reason, *_ = detail
    details = {"failed_reason": reason, "prev": previous, "final": True, "outcome": outcome}
    return [("failed", about | details)]


def _waiting_after(about: Payload, previous: Any) -> _Payloads:
    return [("waiting", about | {"prev": previous})]


def _delayed_after(about: Payload, detail: Any) -> _Payloads:
    previous, due = detail
    return [("delayed", about | {"prev": previous, "delay": due})]


def _removed(about: Payload, previous: Any) -> _Payloads:
    return [("removed", about | {"prev": previous})]


def _restored_delayed(about: Payload, due: Any) -> _Payloads:
    return [("restored", about | {"prev": State.REMOVED.value}), *_delayed(about, due)]


def _deduplicated(about: Payload, detail: Any) -> _Payloads:
    key, left_out = detail
    details = {"deduplication_id": key, "deduplicated_job_id": str(left_out)}
    return [("deduplicated", about | details)]


def _custom(about: Payload, detail: Any) -> _Payloads:
    name, payload = detail
    return [(name, payload)]


_DETAILS: dict[str, Callable[[Payload, Any], _Payloads]] = {
    "add": _added,
    "add_delayed": _added_delayed,
    "add_blocked": _added_blocked,
    "free_delayed": _freed_for_later,
    "let_go_delayed": _let_go_for_later,
    "delay": _delayed,
    "reschedule": _delayed,
    "complete": _completed,
    "fail": _failed,
    "back_off": _backed_off,
    "retry": _retried,
    "expire": partial(_ended_unrun, EXPIRED),
    "cancel": partial(_ended_unrun, CANCELLED),
    "stall_delayed": _stalled_for_later,
    "revive": _waiting_after,
    "revive_delayed": _delayed_after,
    "remove": _removed,
    "restore_delayed": _restored_delayed,
    PROGRESS: lambda about, data: [("progress", about | {"data": data})],
    LOG_ADDED: lambda about, log: [("log-added", about | {"log": log})],
    CLEANED: lambda about, count: [("cleaned", {"count": count})],
    DEAD_LETTERED: lambda about, detail: [
        ("dead-lettered", about | {"from": detail[0], "to": detail[1]})
    ],
    CUSTOM: _custom,
    DEDUPLICATED: _deduplicated,
}
