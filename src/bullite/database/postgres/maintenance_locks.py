"""Chores that this process cannot do because another session holds their advisory lock for long.

A process of Bullite holds such a lock only briefly. A session that holds it for long is not ours:
every role that may connect can take an advisory lock.
"""

from __future__ import annotations

from typing import NamedTuple

Chore = tuple[str, int]
"""The name of a chore and its queue."""

HINDERED = 60_000
"""Ms from the first refusal to the one that is reported."""

REFUSALS = 3
"""The lowest number of refusals that is reported."""

FORGOTTEN = 5 * 60_000
"""Ms after a refusal in which the next one counts as the same hindrance."""


class _Hindrance(NamedTuple):
    since: int
    last: int
    refusals: int


class Hindrances:
    """The chores that this process was refused, and since when."""

    def __init__(self) -> None:
        self._known: dict[Chore, _Hindrance] = {}

    def began(self, chore: Chore) -> None:
        """Note that this process got the lock of a chore."""
        self._known.pop(chore, None)

    def refused(self, chore: Chore, now: int) -> bool:
        """Note that another session has the lock; return True if that is to be reported."""
        known = self._known.get(chore)
        if known is None or now - known.last > FORGOTTEN:
            known = _Hindrance(now, now, 0)
        known = _Hindrance(known.since, now, known.refusals + 1)
        is_reported = known.refusals >= REFUSALS and now - known.since >= HINDERED
        self._known[chore] = _Hindrance(now, now, 0) if is_reported else known
        return is_reported
