"""Where a queue finds a handler that it knows by its dotted name only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

handle: Callable[[dict[str, Any]], None] = print
"""Set by whoever starts a worker, in the same process or before it forks."""


def mail(**data: Any) -> None:
    handle(data)
