"""Rows of the lists of jobs that users see, such as `waiting` and `prioritized`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.states import PRIORITIZED, State
from ..database.driver import Params

if TYPE_CHECKING:  # a program that only lists jobs makes no transaction
    from .transaction import Operation

FARTHEST = 2**62
"""A number beyond all positions in a list, in both directions."""

START = (-FARTHEST, -FARTHEST)
"""The position before the first job of a list."""

_IN_LANES = (State.WAITING.value, PRIORITIZED)


def rows_of_list(queue: int, statement: str, params: Params) -> Operation[Sequence[Sequence[Any]]]:
    """Return the rows of `statement`, which may be a statement on a list, such as `after:waiting`.

    Another statement finds waiting jobs that are in several lanes.
    """
    if statement.partition(":")[2] not in _IN_LANES:
        return (yield statement, params).rows
    if not (yield from _has_lanes(queue)):
        rows = (yield statement, params).rows
        # If jobs were moved to other lanes meanwhile, the rows are incomplete.
        if not (yield from _has_lanes(queue)):
            return rows
    return (yield f"{statement}-by-name", params).rows


def _has_lanes(queue: int) -> Operation[bool]:
    """Return True if jobs wait in several lanes: by their names, or parked by their keys."""
    rows = (yield "add_info", {"queue": queue}).rows
    return any(by_name or by_key for by_name, _, by_key, _ in rows)
