"""How many finished jobs to keep, and how long: what `remove_on_complete` and the like ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_REMOVED = 1_000
"""Old jobs that the end of one job removes, unless `limit` says otherwise."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What may stay."""

    count: int | None = None
    """So many, the newest; None for all."""
    age: int | None = None
    """Those that ended less than so many ms ago; None for all."""
    limit: int = MAX_REMOVED

    @property
    def nothing(self) -> bool:
        return self.count == 0


def retention_of(option: Any) -> Retention | None:
    """The meaning of a checked option; None when everything is kept."""
    if option is True:
        return Retention(count=0)
    if option is None or option is False:
        return None
    if isinstance(option, Mapping):
        count, age = option.get("count"), option.get("age")
        count = None if count is not None and count < 0 else count
        if count is None and age is None:
            return None
        limit = option.get("limit", MAX_REMOVED)
        return Retention(count, None if age is None else age * 1000, limit)
    return None if option < 0 else Retention(count=option)
