"""When a worker had settled what it did: how slowly it says goodbye afterwards is not its speed."""

from __future__ import annotations

import time
from typing import Any


class Settling:
    """Told of each attempt that the queue has written down, it knows when the last one was."""

    def __init__(self) -> None:
        self._begin = self._last = time.perf_counter()

    def settled(self, *anything: Any) -> None:
        """To be called, by whatever the queue has for it, when an attempt has been settled."""
        self._last = time.perf_counter()

    def report(self) -> dict[str, float]:
        """Seconds from when this was made until the last was settled."""
        return {"seconds": self._last - self._begin}
