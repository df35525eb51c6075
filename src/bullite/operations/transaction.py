"""The state of one transaction: its time, its counts, its events and its notifications.

`write_counts_and_events` writes the counts and the events once, however many requests the
transaction has.
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
"""The columns of the stored counts, in the order of the statement `counts`."""

_UNCHANGED = dict.fromkeys(COUNTED, 0)

Event = int | str | tuple[int | str | None, Any]
"""The public id of a job, with a detail if the event has one; None for an event of the queue."""


def read_counts(queue: int) -> Operation[dict[str, int]]:
    """Return how many jobs of a queue are stored in each state of COUNTED."""
    [counts] = (yield "counts", {"queue": queue}).rows
    return dict(zip(COUNTED, counts, strict=True))


class LoggedEntries(NamedTuple):
    """The entries of one kind that a transaction added to the log of one queue, in order."""

    queue: int
    kind: str
    events: list[Event]
    at: int
    """Time of the transaction, in ms since the epoch."""


class Transaction:
    """The state that the operations of one transaction share."""

    __slots__ = (
        *("_counts", "_drains", "_events"),
        *("verify_first", "delayed", "ended", "lease_now", "limited", "nonce", "now", "ready"),
        "stopping",
    )

    def __init__(self, now: int, lease_now: int, nonce: int, careful: bool = False) -> None:
        self.verify_first = careful
        """This is the second try after a conflict: operations load each job before moving it."""
        self.now = now
        self.lease_now = lease_now
        self.nonce = nonce
        self.ready: dict[int, dict[str, int]] = {}
        """By queue: the names of jobs that became ready, and the number of jobs of each."""
        self.delayed: dict[int, int] = {}
        """By queue: the nearest due time among jobs that became delayed."""
        self.limited: set[int] = set()
        """The queues that were paused or whose limits changed: jobs that workers of this process
        have prefetched from them must not start."""
        self.ended: dict[int, tuple[int, int]] = {}
        """By queue: how many jobs completed, and how many failed permanently."""
        self.stopping: set[tuple[int, int]] = set()
        """Pairs of a queue and the nonce of a process that runs a cancelled job of the queue."""
        self._counts: dict[int, dict[str, int]] = {}
        self._drains: set[int] = set()
        self._events: dict[int, list[tuple[str, list[Event]]]] = {}

    def count(self, queue: int, kind: str, change: int) -> None:
        """Change a stored count; call it only for rows that are known to have moved."""
        counts = self._counts.get(queue)
        if counts is None:
            counts = self._counts[queue] = _UNCHANGED.copy()
        counts[kind] += change

    def count_waiting(self, queue: int, priorities: Iterable[int], change: int) -> None:
        """Change the counts of waiting jobs: those with a priority have a count of their own."""
        for priority in priorities:
            self.count(queue, "prioritized" if priority else "waiting", change)

    def counted(self, queue: int, kind: str) -> int:
        """Return the change of a stored count so far."""
        return self._counts.get(queue, _UNCHANGED)[kind]

    def count_runs_ended(self, queue: int, number: int) -> None:
        """Subtract jobs whose runs ended from the active ones; the queue may be drained now."""
        self.count(queue, "active", -number)
        self._drains.add(queue)

    def count_finished(self, queue: int, completed: int, failed: int) -> None:
        """Count finished jobs for the metrics."""
        before = self.ended.get(queue, (0, 0))
        self.ended[queue] = before[0] + completed, before[1] + failed

    def log(self, queue: int, kind: str, events: list[Event]) -> None:
        """Append to the event log; readers see the entries in the order of the calls."""
        self._events.setdefault(queue, []).append((kind, events))

    def logged(self) -> list[LoggedEntries]:
        """Return all entries appended to the log."""
        return [
            LoggedEntries(queue, kind, events, self.now)
            for queue, batches in self._events.items()
            for kind, events in batches
        ]

    def notify_ready(self, queue: int, name: str, number: int = 1) -> None:
        """Notify workers after the commit: jobs called `name` can be claimed from `queue`."""
        names = self.ready.setdefault(queue, {})
        names[name] = names.get(name, 0) + number

    def notify_due(self, queue: int, due: int) -> None:
        """Notify the engine after the commit: a job of `queue` is due at `due`."""
        self.delayed[queue] = min(due, self.delayed.get(queue, due))

    def notify_cancelled(self, queue: int, nonce: int) -> None:
        """Notify a process after the commit: it runs a job of `queue` that was cancelled."""
        self.stopping.add((queue, nonce))

    def lock_limits(self, queue: int) -> Operation[None]:
        """Lock the limits of `queue`: other transactions that count under them wait for this one.

        This one may have to wait for the lock, so it then takes the time of the database again.
        """
        locked = yield "lock_queue_limits", {"queue": queue}
        for [now] in locked.rows:
            if now is not None:
                self.now = max(self.now, now)

    def write_counts_and_events(self) -> Operation[None]:
        """Write the counts and the events: one statement per queue, and one for all events.

        A row of the log has the number of events of its queue up to and including this row. If the
        database has concurrent writers, which do not know that number, the row has the number of
        its own events.
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
                continue  # the queue does not exist, so it has no counts
            [(total, is_drained, shares_slots)] = changed.rows
            freed = -counts["active"]
            if shares_slots and freed > 0:
                # Jobs of any name may use the slots, whatever the outcomes of the runs were.
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
