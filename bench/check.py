"""Has anything become slower? Ours to the bare loop, in under a minute, against what was accepted.

Only ratios are compared, for figures are the machine's. A ratio that seems to have dropped is
measured again, with more rounds, before it counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from .cells import Bench
from .contest import ratios
from .contestants import Settings, everybody
from .figures import aligned, number
from .folders import BASELINE
from .places import Places
from .rounds import rounds, tell
from .targets import BARE, SQLITE

ROUNDS, MORE_ROUNDS = 5, 9

DROP = 0.25
"""The part of a ratio that may be lost."""


@dataclass(frozen=True)
class Pair:
    """One of our cells, and the cell of the bare loop it is compared with."""

    cell: str
    settings: Settings
    jobs: int
    bare_cell: str
    bare_jobs: int


PAIRS: Mapping[str, Pair] = {
    "process, concurrency 100": Pair("process", {"concurrency": 100}, 6_000, "process", 8_000),
    "process, concurrency 10": Pair("process_10", {}, 5_000, "process", 8_000),
    "process, concurrency 1": Pair("process_1", {"concurrency": 1}, 3_000, "process", 8_000),
    "process, 8 threads": Pair("threads", {}, 4_000, "process", 8_000),
    "add_bulk": Pair("add_bulk", {}, 10_000, "add_bulk", 20_000),
    "add, 50 callers": Pair("add_50", {}, 4_000, "add_bulk", 20_000),
    "add, one by one": Pair("add", {}, 300, "add", 600),
}


def run(*, accept: bool) -> bool:
    """Measure, compare with the baseline, print; whether all is well."""
    known = _baseline()
    if not (known or accept):
        print("nothing was accepted yet: run `python -m bench check --accept` on a quiet machine")
        return False
    with Places() as places:
        checker = _Checker(places)
        for index in rounds("check", ROUNDS):
            for name in PAIRS:
                checker.measure(name, index)
        if not accept:
            _measure_doubtful_again(checker, known)
    found = checker.medians()
    tell("")
    if accept:
        rounded = {name: float(f"{value:.3g}") for name, value in found.items()}
        BASELINE.write_text(json.dumps(rounded, indent=1) + "\n")
    print(aligned(_rows(checker, known)))
    return accept or not _dropped(found, known)


class _Checker:
    """Both contestants, and the ratios of all rounds so far."""

    def __init__(self, places: Places) -> None:
        field = everybody()
        self._places = places
        self._ours, self._bare = (
            Bench(field[key], places.of(field[key].place)) for key in (SQLITE, BARE)
        )
        self.found: dict[str, list[float]] = {name: [] for name in PAIRS}
        self._bare_rates: dict[tuple[str, int], float] = {}

    def measure(self, name: str, index: int, again: bool = False) -> None:
        """One more round; the bare loop does the same for several cells only once in a round."""
        pair = PAIRS[name]
        against = (pair.bare_cell, index)
        if again or against not in self._bare_rates:
            found = self._bare.measure(pair.bare_cell, {}, pair.bare_jobs, 0, checked=False)
            self._bare_rates[against] = found["rate"]
        ours = self._ours.measure(pair.cell, pair.settings, pair.jobs, 0, checked=index == 0)
        self.found[name] += ratios([ours["rate"]], [self._bare_rates[against]])
        self._places.sweep()

    def forget(self, name: str) -> None:
        self.found[name].clear()

    def medians(self) -> dict[str, float]:
        return {name: median(values) for name, values in self.found.items()}


def _measure_doubtful_again(checker: _Checker, known: Mapping[str, float]) -> None:
    """On their own and with more rounds: a machine that was busy for a moment is no reason."""
    for name in _dropped(checker.medians(), known):
        checker.forget(name)
        for index in rounds(f"check, {name} again", MORE_ROUNDS):
            # The bare loop too, each time: what it did in another second is no measure.
            checker.measure(name, ROUNDS + index, again=True)


def _baseline() -> dict[str, float]:
    if not BASELINE.exists():
        return {}
    found: dict[str, float] = json.loads(BASELINE.read_text())
    return found


def _dropped(found: Mapping[str, float], known: Mapping[str, float]) -> list[str]:
    return [
        name for name, value in found.items() if name in known and value < (1 - DROP) * known[name]
    ]


def _rows(checker: _Checker, known: Mapping[str, float]) -> list[tuple[str, ...]]:
    found = checker.medians()
    dropped = _dropped(found, known)
    rows: list[tuple[str, ...]] = [("ours to the bare loop", "now (min-max)", "accepted", "")]
    for name, values in checker.found.items():
        spread = f"{number(found[name])} ({number(min(values))}-{number(max(values))})"
        said = "DROPPED" if name in dropped else ""
        rows.append((name, spread, number(known[name]) if name in known else "", said))
    return rows
