"""The server's clock: one for all machines, set at the beginning of every transaction."""

from __future__ import annotations

import time


class ServerClock:
    """Goes on by this machine's clock that never jumps from what the server last said."""

    boot = ""
    """Leases count from the server's time: the boots of machines mean nothing."""

    def __init__(self) -> None:
        self._ahead = time.time_ns() - time.monotonic_ns()

    def set(self, server_now: int) -> None:
        """The server says that it is so many ms since the epoch."""
        self._ahead = server_now * 1_000_000 - time.monotonic_ns()

    def now(self) -> int:
        return (time.monotonic_ns() + self._ahead) // 1_000_000

    def lease_now(self) -> int:
        return self.now()
