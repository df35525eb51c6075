"""Metrics: outcomes, durations and waits of each queue by minute, and statistics of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.codec import as_json, decode
from ..core.histogram import DurationHistogram
from .request import ALONE, Request
from .transaction import Operation, Transaction

MINUTE = 60_000
KEPT_MINUTES = 7 * 24 * 60


@dataclass(slots=True)
class MinuteTotals:
    """Runs that ended in one minute, and the waits of jobs that started in it."""

    completed: int = 0
    failed: int = 0
    durations: DurationHistogram = field(default_factory=DurationHistogram)
    waits: DurationHistogram = field(default_factory=DurationHistogram)

    def merge(self, other: MinuteTotals) -> None:
        self.completed += other.completed
        self.failed += other.failed
        self.durations.merge(other.durations)
        self.waits.merge(other.waits)


def stored_totals(row: Sequence[Any]) -> MinuteTotals:
    """Return the totals from a row of [completed, failed, durations, waits]."""
    completed, failed, durations, waits = row
    return MinuteTotals(completed, failed, _histogram(durations), _histogram(waits))


def _histogram(text: str | None) -> DurationHistogram:
    return DurationHistogram.from_json(decode(text)) if text else DurationHistogram()


class WriteMetrics(Request):
    """Add to the minutes of queues, and store the statistics of workers. Reply with None."""

    minutes: Mapping[tuple[int, int], MinuteTotals]
    """The totals to add, by queue and minute."""
    stats: Mapping[int, str]
    """The statistics as JSON, by worker."""
    durable = False
    reply_before_claims = False
    apart = ALONE


def write_metrics(tx: Transaction, requests: Sequence[WriteMetrics]) -> Operation[list[None]]:
    for request in requests:
        # All processes use the same order: rows are locked, and another order could deadlock.
        for (queue, minute), tally in sorted(request.minutes.items()):
            yield from _add_to_minute(queue, minute, tally)
        for worker, stats in request.stats.items():
            yield "write_stats", {"worker": worker, "stats": stats, "now": tx.now}
    return [None] * len(requests)


def _add_to_minute(queue: int, minute: int, tally: MinuteTotals) -> Operation[None]:
    key = {"queue": queue, "minute": minute}
    yield "lock_minute", key
    found = yield "minute", key
    if found.rows:
        before = stored_totals(found.rows[0])
        before.merge(tally)
        tally = before
    else:
        yield "forget_minutes", {"queue": queue, "before": minute - KEPT_MINUTES}
    yield (
        "write_minute",
        {
            **key,
            "completed": tally.completed,
            "failed": tally.failed,
            "durations": as_json(tally.durations.as_json()),
            "waits": as_json(tally.waits.as_json()),
        },
    )
