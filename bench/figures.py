"""Figures: several rounds of one measurement, what it was compared with, and how they are shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Target:
    """What a figure should be."""

    at_least: float = -math.inf
    at_most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def is_met_by(self, value: float) -> bool:
        return self.at_least <= value <= self.at_most and self.above < value < self.below

    def __str__(self) -> str:
        limits = (
            (">=", self.at_least),
            ("<=", self.at_most),
            (">", self.above),
            ("<", self.below),
        )
        return " and ".join(f"{sign} {limit:g}" for sign, limit in limits if math.isfinite(limit))


@dataclass
class Line:
    """One thing measured. Where there is something to compare with, what counts is the ratio.

    The ratio of a round compares two measurements that were taken right after each other.
    """

    what: str
    unit: str
    target: Target | None = None
    ours: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)

    def add(self, ours: float, other: float | None = None) -> None:
        self.ours.append(ours)
        if other is not None:
            self.other.append(other)

    @property
    def ratios(self) -> list[float]:
        return [ours / other for ours, other in zip(self.ours, self.other)]

    @property
    def is_met(self) -> bool | None:
        if self.target is None or not self.ours:
            return None
        return self.target.is_met_by(median(self.ratios or self.ours))

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "unit": self.unit,
            "ours": _spread(self.ours),
            "other": _spread(self.other),
            "ratio": _spread(self.ratios),
            "target": None if self.target is None else str(self.target),
            "met": self.is_met,
        }

    def as_cells(self) -> tuple[str, ...]:
        verdict = {None: "", True: "met", False: "NOT met"}[self.is_met]
        return (
            self.what,
            _shown(self.ours, self.unit, spread=not self.other),
            _shown(self.other, self.unit),
            _shown(self.ratios, "x", spread=True),
            "" if self.target is None else str(self.target),
            verdict,
        )


@dataclass
class Section:
    """Lines that are compared with the same kind of thing."""

    title: str
    ours: str
    other: str
    lines: list[Line]

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "ours": self.ours,
            "other": self.other,
            "lines": [line.as_json() for line in self.lines],
        }

    def as_rows(self) -> list[tuple[str, ...]]:
        ratio = "ratio (min-max)" if self.other else ""
        target = "target" if any(line.target for line in self.lines) else ""
        header = (self.title, self.ours, self.other, ratio, target, "")
        return [header, *(line.as_cells() for line in self.lines)]


def table(sections: Iterable[Section]) -> str:
    """All sections under each other, their columns aligned."""
    return "\n\n".join(aligned(section.as_rows()) for section in sections)


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows of text, the first one a header; what does not fit its column has a line of its own."""
    whole = [row for row in rows if any(row[1:])]
    widths = [max((len(row[index]) for row in whole), default=0) for index in range(len(rows[0]))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(_aligned(row, widths) for row in (rows[0], rule, *rows[1:]))


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    what, *cells = row
    padded = [cell.rjust(width) for cell, width in zip(cells[:-1], widths[1:-1])]
    return "  ".join([what.ljust(widths[0]), *padded, cells[-1].ljust(widths[-1])]).rstrip()


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "median": _rounded(median(values)),
        "min": _rounded(min(values)),
        "max": _rounded(max(values)),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _shown(values: Sequence[float], unit: str, spread: bool = False) -> str:
    if not values:
        return ""
    middle = number(median(values))
    text = middle if unit == "x" else f"{middle} {unit}"
    if spread and len(values) > 1:
        text += f" ({number(min(values))}-{number(max(values))})"
    return text


def number(value: float) -> str:
    """Three digits or so."""
    for least, digits in ((99.95, 0), (9.995, 1), (0.0995, 2)):
        if value >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.3f}"
