"""Rows of the lists of jobs that users see, such as `waiting` and `prioritized`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.states import PRIORITIZED, State
from ..database.driver import Params

if TYPE_CHECKING:  # a program that only lists jobs makes no transaction
    from .transaction import Operation

FARTHEST = 2**62
"""Beyond every place in a list, in both directions."""

START = (-FARTHEST, -FARTHEST)
"""The place in front of a whole list."""

_IN_LANES = (State.WAITING.value, PRIORITIZED)


def rows_of_list(queue: int, statement: str, params: Params) -> Operation[Sequence[Sequence[Any]]]:
    """Return the rows that `statement` finds, which may be one of a list, as `after:waiting` is.

    Waiting jobs that are in several lanes are found by another statement.
    """
    if statement.partition(":")[2] not in _IN_LANES:
        return (yield statement, params).rows
    if not (yield from _has_lanes(queue)):
        rows = (yield statement, params).rows
        # If jobs were sorted into lanes meanwhile, some are missing.
        if not (yield from _has_lanes(queue)):
            return rows
    return (yield f"{statement}-by-name", params).rows


def _has_lanes(queue: int) -> Operation[bool]:
    """Return whether jobs wait in several lanes: by their names, or aside because of their keys."""
    rows = (yield "add_info", {"queue": queue}).rows
    return any(by_name or by_key for by_name, _, by_key, _ in rows)
