"""Histograms of durations: small, and mergeable by adding the counts of their buckets.

Each bucket is 4 % wider than the one before, so a quantile has an error of at most 2 %, from a
tenth of a millisecond to years. Histograms of many processes and minutes can be merged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GROWTH = 1.04
SHORTEST = 0.1
"""Ms; the first bucket has all shorter durations."""

_LOG = math.log(GROWTH)


def bucket_of(duration: float) -> int:
    """Return the number of the bucket of a duration in ms."""
    if duration <= SHORTEST:
        return 0
    return math.ceil(math.log(duration / SHORTEST) / _LOG)


def middle_of(bucket: int) -> float:
    """Return a duration that differs from all durations of the bucket by at most 2 %."""
    if bucket == 0:
        return SHORTEST
    return SHORTEST * math.exp(bucket * _LOG) * 2 / (1 + GROWTH)


@dataclass(slots=True)
class DurationHistogram:
    """Durations in ms: their number, sum and extremes, and the number in each bucket."""

    count: int = 0
    total: float = 0.0
    least: float = math.inf
    most: float = 0.0
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, duration: float, times: int = 1) -> None:
        bucket = bucket_of(duration)
        self.count += times
        self.total += duration * times
        self.least, self.most = min(self.least, duration), max(self.most, duration)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + times

    def merge(self, other: DurationHistogram) -> None:
        """Add the counts of another histogram."""
        self.count += other.count
        self.total += other.total
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        for bucket, number in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + number

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> float | None:
        """Return a duration that this share of all durations does not exceed; None without any."""
        if not self.count:
            return None
        wanted = max(1, math.ceil(share * self.count))
        passed = 0
        for bucket in sorted(self.buckets):
            passed += self.buckets[bucket]
            if passed >= wanted:
                return min(max(middle_of(bucket), self.least), self.most)
        raise AssertionError("the buckets hold fewer than were counted")

    def as_json(self) -> dict[str, Any]:
        """Return the histogram in the form in which it is stored."""
        if not self.count:
            return {}
        return {
            "count": self.count,
            "total": round(self.total, 3),
            "least": self.least,
            "most": self.most,
            "buckets": sorted([bucket, number] for bucket, number in self.buckets.items()),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> DurationHistogram:
        if not stored:
            return cls()
        buckets = dict(map(tuple, stored["buckets"]))
        return cls(stored["count"], stored["total"], stored["least"], stored["most"], buckets)
