"""Has anything become slower? Ours to the bare loop, in under a minute, against what was accepted.

Only ratios are compared, for figures are the machine's, and only of what the processor decides,
for how long a sync takes is the disk's. Each is taken between the best rounds of both, for whatever
else is at work makes a round only slower, and in the middle of all rounds, for the bare loop may
have had one round on a quicker machine: what has become slower is so in both. One that seems to
have dropped gets more rounds before it counts.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .cells import Bench
from .contestants import Settings, everybody
from .figures import aligned, number
from .folders import BASELINE
from .places import Places
from .rounds import rounds, tell
from .targets import BARE, SQLITE

ROUNDS, MORE_ROUNDS = 3, 9

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
}


def run(*, accept: bool) -> bool:
    """Measure, compare with the baseline, print; whether all is well."""
    known = _baseline()
    if not (known or accept):
        print("nothing was accepted yet: run `python -m bench check --accept` on a quiet machine")
        return False
    with Places() as places:
        checker = _Checker(places)
        for index in rounds("check", MORE_ROUNDS if accept else ROUNDS):
            for name in PAIRS:
                checker.measure(name, index)
        if not accept:
            _measure_doubtful_again(checker, known)
    tell("")
    if accept:
        rounded = {name: float(f"{value:.3g}") for name, value in checker.ratios().items()}
        BASELINE.write_text(json.dumps(rounded, indent=1) + "\n")
    print(aligned(_rows(checker, known)))
    return accept or not _dropped(checker.ratios(), known)


class _Checker:
    """Both contestants, and what they did in all rounds so far."""

    def __init__(self, places: Places) -> None:
        field = everybody()
        self._places = places
        self._ours, self._bare = (
            Bench(field[key], places.of(field[key].place)) for key in (SQLITE, BARE)
        )
        self.rates: dict[str, list[tuple[float, float]]] = {name: [] for name in PAIRS}
        self._bare_rates: dict[tuple[str, int], float] = {}

    def measure(self, name: str, index: int) -> None:
        """One more round; the bare loop does the same for several cells only once in a round."""
        pair = PAIRS[name]
        against = (pair.bare_cell, index)
        if against not in self._bare_rates:
            found = self._bare.measure(pair.bare_cell, {}, pair.bare_jobs, 0, checked=False)
            self._bare_rates[against] = found["rate"]
        ours = self._ours.measure(pair.cell, pair.settings, pair.jobs, 0, checked=index == 0)
        self.rates[name].append((ours["rate"], self._bare_rates[against]))
        self._places.sweep()

    def ratios(self) -> dict[str, float]:
        return {name: _ratio(rates) for name, rates in self.rates.items()}


def _ratio(rates: Sequence[tuple[float, float]]) -> float:
    of_best = max(ours for ours, _ in rates) / max(bare for _, bare in rates)
    in_the_middle = statistics.median(ours / bare for ours, bare in rates)
    return max(of_best, in_the_middle)


def _measure_doubtful_again(checker: _Checker, known: Mapping[str, float]) -> None:
    for name in _dropped(checker.ratios(), known):
        for index in rounds(f"check, {name} again", MORE_ROUNDS):
            checker.measure(name, ROUNDS + index)


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
    found = checker.ratios()
    dropped = _dropped(found, known)
    rows: list[tuple[str, ...]] = [
        ("ours to the bare loop", "found", "of each round", "accepted", "")
    ]
    for name, rates in checker.rates.items():
        each = [ours / bare for ours, bare in rates]
        spread = f"{number(min(each))}-{number(max(each))}"
        said = "DROPPED" if name in dropped else ""
        accepted = number(known[name]) if name in known else ""
        rows.append((name, number(found[name]), spread, accepted, said))
    return rows
