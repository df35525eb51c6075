"""The books of one transaction: its time, what it counted, logged and made ready.

Written to the database once, by `close_books`, whatever number of requests shared it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, NamedTuple, TypeVar

from ..core.codec import encode_plain
from ..core.event_log import DRAINED, events_of_move
from ..core.states import SHOWN_STATES
from ..database.driver import Result, Step

T = TypeVar("T")
Operation = Generator[Step, Result, T]

COUNTED = tuple(state.replace("-", "_") for state in SHOWN_STATES)
"""The columns of the kept counts, in the order they are read."""

_UNCHANGED = dict.fromkeys(COUNTED, 0)

Event = int | str | tuple[int | str | None, Any]
"""The id of a job as users know it, with a detail if there is one to tell; None for the queue's."""


def read_counts(queue: int) -> Operation[dict[str, int]]:
    """Return how many jobs of a queue are stored in each state of COUNTED."""
    [counts] = (yield "counts", {"queue": queue}).rows
    return dict(zip(COUNTED, counts, strict=True))


class LoggedEntries(NamedTuple):
    """What a transaction added to the log of one queue, in order."""

    queue: int
    kind: str
    events: list[Event]
    at: int
    """When, in ms since the epoch."""


class Transaction:
    """What the operations of one transaction share."""

    __slots__ = (
        *("_counts", "_drains", "_events"),
        *("verify_first", "delayed", "ended", "lease_now", "limited", "nonce", "now", "ready"),
        "stopping",
    )

    def __init__(self, now: int, lease_now: int, nonce: int, careful: bool = False) -> None:
        self.verify_first = careful
        """A second try after a conflict: look at each job before moving it."""
        self.now = now
        self.lease_now = lease_now
        self.nonce = nonce
        self.ready: dict[int, dict[str, int]] = {}
        """By queue: the names of jobs that became ready, and how many of each."""
        self.delayed: dict[int, int] = {}
        """By queue: the nearest due time among jobs that became delayed."""
        self.limited: set[int] = set()
        """The queues that were paused or whose limits changed: what workers of this process have
        fetched ahead from them must not begin."""
        self.ended: dict[int, tuple[int, int]] = {}
        """By queue: how many jobs completed, and how many failed for good."""
        self.stopping: set[tuple[int, int]] = set()
        """The queues with processes, by their nonces, that run a job of it which is cancelled."""
        self._counts: dict[int, dict[str, int]] = {}
        self._drains: set[int] = set()
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

    def counted(self, queue: int, kind: str) -> int:
        """The change of a kept count so far."""
        return self._counts.get(queue, _UNCHANGED)[kind]

    def count_runs_ended(self, queue: int, number: int) -> None:
        """Count jobs out of active by the end of their runs: the queue may be drained now."""
        self.count(queue, "active", -number)
        self._drains.add(queue)

    def count_finished(self, queue: int, completed: int, failed: int) -> None:
        """Count jobs that ended for those who measure."""
        before = self.ended.get(queue, (0, 0))
        self.ended[queue] = before[0] + completed, before[1] + failed

    def log(self, queue: int, kind: str, events: list[Event]) -> None:
        """Append to the event log; the order of calls is the order readers see."""
        self._events.setdefault(queue, []).append((kind, events))

    def logged(self) -> list[LoggedEntries]:
        """Everything appended to the log."""
        return [
            LoggedEntries(queue, kind, events, self.now)
            for queue, batches in self._events.items()
            for kind, events in batches
        ]

    def notify_ready(self, queue: int, name: str, number: int = 1) -> None:
        """Say that jobs called `name` can be claimed from `queue` when this commits."""
        names = self.ready.setdefault(queue, {})
        names[name] = names.get(name, 0) + number

    def notify_due(self, queue: int, due: int) -> None:
        """Say that a job of `queue` will be due at `due`."""
        self.delayed[queue] = min(due, self.delayed.get(queue, due))

    def notify_cancelled(self, queue: int, nonce: int) -> None:
        """Say that a process runs a job of `queue` that is cancelled: it should look for it."""
        self.stopping.add((queue, nonce))

    def lock_limits(self, queue: int) -> Operation[None]:
        """Wait until nobody else counts what limits `queue`, and keep others waiting.

        That may take a while: then it is later than it was.
        """
        turn = yield "lock_queue_limits", {"queue": queue}
        for [now] in turn.rows:
            if now is not None:
                self.now = max(self.now, now)

    def write_counts_and_events(self) -> Operation[None]:
        """Write the counts and the events, a statement or two whatever the batch.

        A row of the log says how many events its queue had up to its end; where writers work side
        by side, which cannot know that, how many it tells itself.
        """
        rows: list[tuple[int, str, str, int, int]] = []
        for queue in self._counts.keys() | self._events.keys():
            events = self._events.get(queue, [])
            size = sum([len(jobs) * events_of_move(kind) for kind, jobs in events])
            counts = self._counts.get(queue, _UNCHANGED)
            drains = queue in self._drains
            changed = yield (
                "change_counts",
                {**counts, "events": size, "drains": int(drains), "queue": queue},
            )
            if not changed.rows:
                continue  # no such queue: there is nothing to keep books of
            [(total, is_drained, shares_slots)] = changed.rows
            freed = -counts["active"]
            if shares_slots and freed > 0:
                # However they ended: somebody, of any name, may take the slots.
                self.notify_ready(queue, "", freed)
            if drains and is_drained:
                events.append((DRAINED, [(None, None)]))
                self._events[queue] = events
                size += 1
            before = None if total is None else total - size
            for kind, jobs in events:
                size = len(jobs) * events_of_move(kind)
                if before is not None:
                    size = before = before + size
                rows.append((queue, kind, encode_plain(jobs).decode(), size, self.now))
        if rows:
            yield "insert_events", rows
