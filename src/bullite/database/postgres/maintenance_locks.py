"""Chores that other sessions keep this process from for long: they hold the chore's advisory lock.

Another process of Bullite holds it for a moment. Only a session that has nothing to do with jobs
holds it for long: every role that may connect can take an advisory lock.
"""

from __future__ import annotations

from typing import NamedTuple

Chore = tuple[str, int]
"""Its name and its queue."""

HINDERED = 60_000
"""Ms from the first refusal to the one that is reported."""

REFUSALS = 3
"""How many refusals are reported at the earliest."""

FORGOTTEN = 5 * 60_000
"""Ms after a refusal in which the next one counts as the same hindrance."""


class _Hindrance(NamedTuple):
    since: int
    last: int
    refusals: int


class Hindrances:
    """The refusals of one process."""

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
