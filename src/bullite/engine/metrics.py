"""Measurements of this process: runs and waits per minute, its workers, its own transactions.

They are kept in memory and written every few seconds. If the process is killed, the last of them
are lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..core.codec import encode_plain
from ..core.histogram import DurationHistogram
from ..operations.metrics import MINUTE, MinuteTotals, WriteMetrics
from .subscription import Subscription

SHORT = 0.001
"""Seconds; the runs that are shorter are told apart only by their number and mean."""

SLOW_LOCK = 0.001
"""Seconds of waiting for the write lock that count as a wait."""


@dataclass(slots=True)
class RunTimings:
    """How the runs of a worker went, in seconds; written by those who run its jobs."""

    runs: int = 0
    failed: int = 0
    busy: float = 0.0
    short: int = 0
    short_time: float = 0.0
    long: list[float] = field(default_factory=list)

    def took(self, seconds: float) -> None:
        if seconds < SHORT:
            self.short += 1
            self.short_time += seconds
        else:
            self.long.append(seconds)

    def durations(self) -> DurationHistogram:
        """Of the runs since this was last asked, in ms."""
        sketch = DurationHistogram()
        short, self.short = self.short, 0
        time, self.short_time = self.short_time, 0.0
        long, self.long = self.long, []
        self.runs += short + len(long)
        self.busy += time + sum(long)
        if short:
            sketch.add(time * 1e3 / short, short)
        for seconds in long:
            sketch.add(seconds * 1e3)
        return sketch

    def as_json(self) -> dict[str, Any]:
        return {"runs": self.runs, "failed": self.failed, "busy_ms": round(self.busy * 1e3)}


@dataclass(slots=True)
class MetricsBuffer:
    """What was measured since it was last written down; on the engine's thread."""

    batches: int = 0
    """Transactions in which jobs ended."""
    batched: int = 0
    """How many did in these."""
    lock_waits: int = 0
    lock_wait: float = 0.0
    _minutes: dict[tuple[int, int], MinuteTotals] = field(default_factory=dict)
    _told: dict[int, str] = field(default_factory=dict)

    def transacted(self, ended: int, waited: float) -> None:
        """So many jobs ended in a transaction; it waited so long for the write lock."""
        self.batches += ended > 0
        self.batched += ended
        if waited > SLOW_LOCK:
            self.lock_waits += 1
            self.lock_wait += waited

    def ended(self, queue: int, now: int, completed: int, failed: int) -> None:
        tally = self._tally(queue, now)
        tally.completed += completed
        tally.failed += failed

    def waited(self, queue: int, now: int, ms: int, jobs: int) -> None:
        """So many jobs that were taken together had waited for so long."""
        self._tally(queue, now).waits.add(max(0, ms), jobs)

    def _tally(self, queue: int, now: int) -> MinuteTotals:
        return self._minutes.setdefault((queue, now // MINUTE), MinuteTotals())

    def record(self, subscriptions: Iterable[Subscription], now: int) -> WriteMetrics | None:
        """All that is new, to be written down; None if nothing is."""
        stats: dict[int, str] = {}
        for subscription in subscriptions:
            for readings in subscription.timings:
                durations = readings.durations()
                if durations.count:
                    self._tally(subscription.queue, now).durations.merge(durations)
            if subscription.worker:
                stats[subscription.worker] = self._stats_of(subscription)
        new = {worker: text for worker, text in stats.items() if self._told.get(worker) != text}
        self._told = stats
        minutes, self._minutes = self._minutes, {}
        return WriteMetrics(minutes, new) if minutes or new else None

    def _stats_of(self, subscription: Subscription) -> str:
        told = [readings.as_json() for readings in subscription.timings]
        own = {key: sum(one[key] for one in told) for key in RunTimings().as_json()}
        return encode_plain({**own, **self.as_json()}).decode()

    def as_json(self) -> dict[str, Any]:
        """What is told of the engine; nothing that changes because it is told."""
        return {
            "batches": self.batches,
            "batched": self.batched,
            "lock_waits": self.lock_waits,
            "lock_wait_ms": round(self.lock_wait * 1e3),
        }
