"""Metrics of a queue per minute: number of finished jobs, their run and wait times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...core.clock import moment_of
from ...core.histogram import DurationHistogram
from ...operations.metrics import MINUTE, MinuteTotals, stored_totals


@dataclass(frozen=True, slots=True)
class Durations:
    """How long something took, in ms; quantiles are right to 2 %, None without a count."""

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    least: float | None
    most: float | None

    @classmethod
    def of(cls, sketch: DurationHistogram) -> Durations:
        if not sketch.count:
            return cls(0, None, None, None, None, None, None)
        quantiles = (sketch.quantile(0.5), sketch.quantile(0.95), sketch.quantile(0.99))
        return cls(sketch.count, sketch.mean, *quantiles, sketch.least, sketch.most)


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute of a queue."""

    at: datetime
    completed: int
    failed: int
    durations: Durations
    """Of the runs that ended in it, whatever they came to."""
    waits: Durations
    """Of the jobs that were taken in it, from when they were added: those taken together count
    with the one in their middle."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a queue did in a time."""

    minutes: list[Minute]
    """Those in which it did something, oldest first."""
    completed: int
    failed: int
    durations: Durations
    waits: Durations


def metrics_of(rows: Sequence[Sequence[Any]]) -> Metrics:
    """From rows of [minute, completed, failed, durations, waits]."""
    total, minutes = MinuteTotals(), list[Minute]()
    for minute, *row in rows:
        tally = stored_totals(row)
        total.merge(tally)
        minutes.append(
            Minute(
                moment_of(minute * MINUTE),
                tally.completed,
                tally.failed,
                Durations.of(tally.durations),
                Durations.of(tally.waits),
            )
        )
    return Metrics(
        minutes,
        total.completed,
        total.failed,
        Durations.of(total.durations),
        Durations.of(total.waits),
    )
