"""The handler for queues that import it by its dotted name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

handle: Callable[[dict[str, Any]], None] = print
"""Set by the code that starts a worker, in the same process or before a fork."""


def mail(**data: Any) -> None:
    handle(data)
