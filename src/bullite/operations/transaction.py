"""The books of one transaction: its time, what it counted, logged and made ready.

Written to the database once, by `close_books`, whatever number of requests shared it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

from ..codec import encode_plain
from ..engine.contract import Params, Result

Step = tuple[str, Params]
"""The name of a statement, and its parameters."""

T = TypeVar("T")
Operation = Generator[Step, Result, T]

_COUNTED = (
    "waiting",
    "prioritized",
    "delayed",
    "active",
    "waiting_children",
    "completed",
    "failed",
)
_UNCHANGED = dict.fromkeys(_COUNTED, 0)

Event = int | tuple[int, Any]
"""A job, with a detail if there is one to tell."""


class Transaction:
    """What the operations of one transaction share."""

    __slots__ = ("_counts", "_events", "careful", "delayed", "lease_now", "nonce", "now", "ready")

    def __init__(self, now: int, lease_now: int, nonce: int, careful: bool = False) -> None:
        self.careful = careful
        """A second try after a conflict: look at each job before moving it."""
        self.now = now
        self.lease_now = lease_now
        self.nonce = nonce
        self.ready: dict[int, dict[str, int]] = {}
        """By queue: the names of jobs that became ready, and how many of each."""
        self.delayed: dict[int, int] = {}
        """By queue: the nearest due time among jobs that became delayed."""
        self._counts: dict[int, dict[str, int]] = {}
        self._events: dict[int, list[tuple[str, list[Event]]]] = {}

    def count(self, queue: int, kind: str, change: int) -> None:
        """Change a kept count; only ever from rows that are known to have moved."""
        counts = self._counts.get(queue)
        if counts is None:
            counts = self._counts[queue] = _UNCHANGED.copy()
        counts[kind] += change

    def count_waiting(self, queue: int, priorities: Iterable[int], change: int) -> None:
        """Change the count of waiting jobs, those with a priority apart."""
        for priority in priorities:
            self.count(queue, "prioritized" if priority else "waiting", change)

    def log(self, queue: int, kind: str, events: list[Event]) -> None:
        """Append to the event log; the order of calls is the order readers see."""
        self._events.setdefault(queue, []).append((kind, events))

    def made_ready(self, queue: int, name: str, number: int = 1) -> None:
        """Say that jobs called `name` can be claimed from `queue` when this commits."""
        names = self.ready.setdefault(queue, {})
        names[name] = names.get(name, 0) + number

    def made_delayed(self, queue: int, due: int) -> None:
        """Say that a job of `queue` will be due at `due`."""
        self.delayed[queue] = min(due, self.delayed.get(queue, due))

    def close_books(self) -> Operation[None]:
        """Write the counts and the events, a statement or two whatever the batch."""
        rows: list[tuple[int, str, str, int, int]] = []
        for queue in self._counts.keys() | self._events.keys():
            events = self._events.get(queue, ())
            size = sum(len(jobs) for _, jobs in events)
            counts = self._counts.get(queue, _UNCHANGED)
            changed = yield "change_counts", {**counts, "events": size, "queue": queue}
            total = changed.rows[0][0] - size if changed.rows else 0
            for kind, jobs in events:
                total += len(jobs)
                rows.append((queue, kind, encode_plain(jobs).decode(), total, self.now))
        if rows:
            yield "insert_events", rows
