"""Time as a parameter: wall time for due times, a monotonic clock for leases.

All times are integers in milliseconds. No other module of the package reads the clocks of the
system.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol


def moment_of(ms: int) -> datetime:
    """Return the datetime in UTC of a time in ms since the epoch."""
    return datetime.fromtimestamp(ms / 1000, UTC)


class Clock(Protocol):
    """The clocks that the core reads."""

    boot: str
    """The id of this boot of the machine; lease times of different boots cannot be compared."""

    def now(self) -> int:
        """Return the wall time, in ms since the epoch."""

    def lease_now(self) -> int:
        """Return the monotonic time in ms; all processes of one boot read the same clock."""


def boot_id() -> str:
    """Return the id of this boot of the machine; "" on a system without one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # On other systems only the kernel lock shows that a process of an earlier boot is dead.
        return ""


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self.boot = boot_id()
        # CLOCK_BOOTTIME also counts while the machine is suspended, so leases expire meanwhile.
        self._lease_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def lease_now(self) -> int:
        return time.clock_gettime_ns(self._lease_clock) // 1_000_000
