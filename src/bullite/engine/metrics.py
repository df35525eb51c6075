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
"""Seconds. Of shorter runs only the number and the mean are kept."""

SLOW_LOCK = 0.001
"""Seconds of waiting for the write lock that count as a wait."""


@dataclass(slots=True)
class RunTimings:
    """Timings of the runs of a worker, in seconds; each of its runners writes its own."""

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
        """Return the durations, in ms, of the runs since the last call."""
        histogram = DurationHistogram()
        short, self.short = self.short, 0
        time, self.short_time = self.short_time, 0.0
        long, self.long = self.long, []
        self.runs += short + len(long)
        self.busy += time + sum(long)
        if short:
            histogram.add(time * 1e3 / short, short)
        for seconds in long:
            histogram.add(seconds * 1e3)
        return histogram

    def as_json(self) -> dict[str, Any]:
        return {"runs": self.runs, "failed": self.failed, "busy_ms": round(self.busy * 1e3)}


@dataclass(slots=True)
class MetricsBuffer:
    """Measurements that are not written yet; used on the engine's thread."""

    batches: int = 0
    """Transactions in which jobs finished."""
    batched: int = 0
    """Jobs that finished in them."""
    lock_waits: int = 0
    lock_wait: float = 0.0
    _minutes: dict[tuple[int, int], MinuteTotals] = field(default_factory=dict)
    _written: dict[int, str] = field(default_factory=dict)

    def transacted(self, ended: int, waited: float) -> None:
        """Count a transaction that finished jobs, and its wait for the write lock in seconds."""
        self.batches += ended > 0
        self.batched += ended
        if waited > SLOW_LOCK:
            self.lock_waits += 1
            self.lock_wait += waited

    def ended(self, queue: int, now: int, completed: int, failed: int) -> None:
        minute = self._minute(queue, now)
        minute.completed += completed
        minute.failed += failed

    def waited(self, queue: int, now: int, ms: int, jobs: int) -> None:
        """Count jobs of one claim, which had waited `ms`."""
        self._minute(queue, now).waits.add(max(0, ms), jobs)

    def _minute(self, queue: int, now: int) -> MinuteTotals:
        return self._minutes.setdefault((queue, now // MINUTE), MinuteTotals())

    def record(self, subscriptions: Iterable[Subscription], now: int) -> WriteMetrics | None:
        """Return the request that writes what is new; None if nothing is."""
        stats: dict[int, str] = {}
        for subscription in subscriptions:
            for timings in subscription.timings:
                durations = timings.durations()
                if durations.count:
                    self._minute(subscription.queue, now).durations.merge(durations)
            if subscription.worker:
                stats[subscription.worker] = self._stats_of(subscription)
        new = {worker: text for worker, text in stats.items() if self._written.get(worker) != text}
        self._written = stats
        minutes, self._minutes = self._minutes, {}
        return WriteMetrics(minutes, new) if minutes or new else None

    def _stats_of(self, subscription: Subscription) -> str:
        timings = [each.as_json() for each in subscription.timings]
        own = {key: sum(one[key] for one in timings) for key in RunTimings().as_json()}
        return encode_plain({**own, **self.as_json()}).decode()

    def as_json(self) -> dict[str, Any]:
        """Return the numbers of the engine; none that changes because they are written."""
        return {
            "batches": self.batches,
            "batched": self.batched,
            "lock_waits": self.lock_waits,
            "lock_wait_ms": round(self.lock_wait * 1e3),
        }
