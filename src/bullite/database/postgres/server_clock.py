"""The server's clock: one for all machines, set at the beginning of every transaction."""

from __future__ import annotations

import time


class ServerClock:
    """The server's last time, advanced by this machine's monotonic clock."""

    boot = ""
    """Empty: leases count from the server's time, so a reboot does not affect them."""

    def __init__(self) -> None:
        self._ahead = time.time_ns() - time.monotonic_ns()

    def set(self, server_now: int) -> None:
        """Set the clock to the server's time, in ms since the epoch."""
        self._ahead = server_now * 1_000_000 - time.monotonic_ns()

    def now(self) -> int:
        return (time.monotonic_ns() + self._ahead) // 1_000_000

    def lease_now(self) -> int:
        return self.now()
