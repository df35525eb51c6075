"""What must be known of a machine to read its figures, and nothing that tells whose it is."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import time
from pathlib import Path
from typing import Any

from .places import folder

SYNCS = 200


class Machine:
    """Facts about the machine, and about how quiet it was since this was made."""

    def __init__(self) -> None:
        self._since = _cpu_seconds()

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "Python": platform.python_version(),
            "SQLite": sqlite3.sqlite_version,
            "cores": os.cpu_count(),
            "fdatasync us": round(microseconds_per_sync()),
        }
        foreign = self._foreign_load()
        return facts if foreign is None else facts | {"others' CPU %": foreign}

    def _foreign_load(self) -> int | None:
        """Percent of all cores that other processes used: above a few, figures are noise."""
        now = _cpu_seconds()
        if now is None or self._since is None:
            return None
        total, busy, own = (late - early for late, early in zip(now, self._since))
        return max(0, round(100 * (busy - own) / total)) if total else None


def microseconds_per_sync() -> float:
    """The median time to overwrite a page and have it on the disk, when busy."""
    sync = getattr(os, "fdatasync", os.fsync)
    page = b"\x55" * 4096
    times = []
    with folder() as path, open(path / "page", "wb", buffering=0) as file:
        for _ in range(SYNCS):
            file.seek(0)
            begin = time.perf_counter()
            file.write(page)
            sync(file.fileno())
            times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def _cpu_seconds() -> tuple[float, float, float] | None:
    """Seconds of all cores, those that were not idle, and those used by us and our children."""
    try:
        first_line = Path("/proc/stat").read_text().split("\n", 1)[0]
    except OSError:
        return None
    ticks = [int(word) for word in first_line.split()[1:9]]
    second = os.sysconf("SC_CLK_TCK")
    idle = ticks[3] + ticks[4]
    return sum(ticks) / second, (sum(ticks) - idle) / second, sum(os.times()[:4])
