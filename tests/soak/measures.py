"""The figures of a soak, minute by minute."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MB = 1024 * 1024


@dataclass
class Minute:
    """What was measured in one minute, or at its end."""

    minute: float
    """Minutes since the beginning, at the end of this one."""
    done: int
    """Jobs that ended."""
    p50_ms: float
    p99_ms: float
    max_ms: float
    """Of probes, from before they were added until they were started."""
    memory_mb: float
    descriptors: int
    threads: int
    """Of the processes that are never killed."""
    server_mb: float
    """Memory of the server's own: what its processes share is not counted."""
    jobs: int
    events: int
    """Rows of the two tables that grow first."""
    rows: int
    """Rows of all tables."""
    data_mb: float
    log_mb: float
    deadlocks: int
    server_errors: int
    kills: int
    standstill_s: float
    """The longest time in which no job of a queue ended although some waited."""
    busy: float
    """Share of CPU time that was busy, all processes of the machine included."""
    tables: dict[str, int] = field(default_factory=dict)


_COLUMNS: Sequence[tuple[str, str, Callable[[Minute], str]]] = (
    ("minute", "6", lambda m: f"{m.minute:.1f}"),
    ("done", "6", lambda m: f"{m.done}"),
    ("p50 ms", "7", lambda m: f"{m.p50_ms:.1f}"),
    ("p99 ms", "7", lambda m: f"{m.p99_ms:.1f}"),
    ("max ms", "7", lambda m: f"{m.max_ms:.0f}"),
    ("MB", "6", lambda m: f"{m.memory_mb:.1f}"),
    ("fds", "4", lambda m: f"{m.descriptors}"),
    ("threads", "7", lambda m: f"{m.threads}"),
    ("server MB", "9", lambda m: f"{m.server_mb:.1f}"),
    ("jobs", "6", lambda m: f"{m.jobs}"),
    ("events", "6", lambda m: f"{m.events}"),
    ("rows", "7", lambda m: f"{m.rows}"),
    ("data MB", "7", lambda m: f"{m.data_mb:.1f}"),
    ("log MB", "6", lambda m: f"{m.log_mb:.1f}"),
    ("deadlocks", "9", lambda m: f"{m.deadlocks}"),
    ("errors", "6", lambda m: f"{m.server_errors}"),
    ("kills", "5", lambda m: f"{m.kills}"),
    ("still s", "7", lambda m: f"{m.standstill_s:.1f}"),
    ("busy", "4", lambda m: f"{m.busy:.0%}"),
)


def header() -> str:
    return "  ".join(f"{name:>{width}}" for name, width, _ in _COLUMNS)


def line(minute: Minute) -> str:
    return "  ".join(f"{shown(minute):>{width}}" for _, width, shown in _COLUMNS)


def as_json(minute: Minute) -> dict[str, Any]:
    return asdict(minute)


def percentile(values: Iterable[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


# --- processes, as the kernel shows them ---------------------------------------------------------


@dataclass
class Footprint:
    """What some processes take together."""

    memory: int = 0
    """Bytes that are resident."""
    descriptors: int = 0
    threads: int = 0


def footprint(processes: Iterable[int]) -> Footprint:
    taken = Footprint()
    for pid in processes:
        status = _status(pid)
        taken.memory += _kilobytes(status.get("VmRSS")) * 1024
        taken.threads += int(status.get("Threads", "0"))
        taken.descriptors += _descriptors(pid)
    return taken


def server_memory(server: int | None) -> int:
    """Bytes that the processes of a server have each for itself."""
    if server is None:
        return 0
    family = [server, *(int(pid) for pid in _children(server))]
    return sum(_kilobytes(_status(pid).get("RssAnon")) for pid in family) * 1024


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _kilobytes(value: str | None) -> int:
    return int(value.split()[0]) if value else 0


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


class Load:
    """How busy the machine was since the last look."""

    def __init__(self) -> None:
        self._last = self._times()

    def part(self) -> float:
        (busy, total), (busy_before, total_before) = self._times(), self._last
        self._last = busy, total
        return (busy - busy_before) / max(1, total - total_before)

    @staticmethod
    def _times() -> tuple[int, int]:
        with Path("/proc/stat").open() as file:
            times = [int(word) for word in file.readline().split()[1:9]]
        return sum(times) - times[3] - times[4], sum(times)


# --- standstills ---------------------------------------------------------------------------------


class Standstills:
    """The longest time in which jobs of a queue waited and none ended."""

    def __init__(self) -> None:
        self._waiting_since: dict[str, float] = {}
        self.longest = self.longest_of_minute = 0.0
        self.queue = ""

    def note(self, activity: Iterable[tuple[str, int, float]]) -> None:
        """Take what `stores.activity` says, about once a second."""
        now = time.monotonic()
        for queue, waiting, since_end in activity:
            if not waiting:
                self._waiting_since.pop(queue, None)
                continue
            since = self._waiting_since.setdefault(queue, now)
            still = min(now - since, since_end)
            self.longest_of_minute = max(self.longest_of_minute, still)
            if still > self.longest:
                self.longest, self.queue = still, queue

    def next_minute(self) -> float:
        """The longest of the minute that ends now."""
        longest, self.longest_of_minute = self.longest_of_minute, 0.0
        return longest
