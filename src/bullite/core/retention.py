"""Retention of finished jobs: the meaning of `remove_on_complete` and `remove_on_fail`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_REMOVED = 1_000
"""Default of `limit`: old jobs that are deleted when one job finishes."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits of the number and the age of finished jobs."""

    count: int | None = None
    """Number of the newest jobs to keep; None for all."""
    age: int | None = None
    """Ms for which a job is kept after its end; None for any age."""
    limit: int = MAX_REMOVED

    @property
    def nothing(self) -> bool:
        return self.count == 0


def retention_of(option: Any) -> Retention | None:
    """Return the retention of a checked option; None if all jobs are kept."""
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
