"""Time as a parameter: wall time for due times, a clock that never jumps for leases.

Milliseconds, always as integers. Nothing else in the package asks the system for the time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol


def moment_of(ms: int) -> datetime:
    """What ms since the epoch mean."""
    return datetime.fromtimestamp(ms / 1000, UTC)


class Clock(Protocol):
    """What the core needs to know of time."""

    boot: str
    """Names this run of the machine; lease times of another boot mean nothing."""

    def now(self) -> int:
        """Wall time, in ms since the epoch."""

    def lease_now(self) -> int:
        """A time that only goes forward, comparable between the processes of one boot, in ms."""


def boot_id() -> str:
    """Names this run of the machine; "" where the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Elsewhere the kernel lock alone tells a dead process of an earlier boot.
        return ""


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self.boot = boot_id()
        # CLOCK_BOOTTIME goes on while the machine sleeps: a lease does not outlive a suspend.
        self._lease_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def lease_now(self) -> int:
        return time.clock_gettime_ns(self._lease_clock) // 1_000_000
