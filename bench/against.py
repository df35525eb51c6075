"""Our package now against that of another commit, in one run, taking turns.

The programs are those of this tree for both; only the package they import differs.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from .cells import Bench
from .contestants import Settings, everybody
from .environments import OurEnvironment
from .folders import ROOT
from .places import Install, Places
from .rounds import in_turn, rounds, tell

ROUNDS, QUICK_ROUNDS = 9, 3

SHARE_OF_POSTGRES = 0.5
"""Of the jobs: a server takes longer."""

CELLS: Mapping[str, tuple[str, Settings, int]] = {
    # What, the cell, its settings, jobs: a second or more of each, since a few per cent are looked
    # for and a worker's start counts as well.
    "process, concurrency 100": ("process", {"concurrency": 100}, 60_000),
    "process, concurrency 10": ("process_10", {}, 60_000),
    "process, concurrency 1": ("process_1", {"concurrency": 1}, 60_000),
    "process, 8 threads": ("threads", {}, 40_000),
    "add_bulk(1000)": ("add_bulk", {}, 60_000),
    "add, 50 callers": ("add_50", {}, 30_000),
    "add, one by one": ("add", {}, 3_000),
}


def run(revision: str, *, quick: bool, number: int | None, store: str) -> None:
    """Measure both trees in turn and print the ratios, now to then."""
    about = everybody()[f"bullite_{store}"]
    share = (0.1 if quick else 1.0) * (SHARE_OF_POSTGRES if store == "postgres" else 1.0)
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in CELLS}
    with _checked_out(revision) as then, Places() as places:
        # Each has a template of its own: tables may differ.
        now, before = (
            Bench(about, _Apart(places, store, index), OurEnvironment(about.key, tree))
            for index, tree in enumerate((ROOT, then))
        )
        for index in rounds("against", number or (QUICK_ROUNDS if quick else ROUNDS)):
            for name, (cell, settings, jobs) in CELLS.items():
                rates = (
                    partial(_rate, bench, cell, settings, int(jobs * share))
                    for bench in (now, before)
                )
                figures[name].append(in_turn(index, *rates))
                places.sweep()
    tell("")
    print(f"{'':28}{'now':>12}{revision[:10]:>12}{'ratio':>8}   (of each round)")
    for name, pairs in figures.items():
        median, was = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = sorted(one / other for one, other in pairs)
        spread = f"{ratios[0]:.2f}-{ratios[-1]:.2f}"
        ratio = statistics.median(ratios)
        print(f"{name:28}{median:>10,.0f}/s{was:>10,.0f}/s{ratio:>8.2f}   ({spread})")


class _Apart:
    """A place under another name, so that what one tree installs is not given to the other."""

    def __init__(self, places: Places, kind: str, index: int) -> None:
        self._place = places.of(kind)
        self._suffix = f"_{index}"
        self.settle = self._place.settle
        self.sweep = self._place.sweep

    def fresh(self, who: str, install: Install) -> str:
        return self._place.fresh(who + self._suffix, install)


def _rate(bench: Bench, cell: str, settings: Settings, jobs: int) -> float:
    return bench.measure(cell, settings, jobs, 0, checked=False)["rate"]


@contextmanager
def _checked_out(revision: str) -> Iterator[Path]:
    """The files of a commit, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        archive = subprocess.run(
            ["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True
        ).stdout
        subprocess.run(["tar", "-x"], cwd=folder, input=archive, check=True)
        yield Path(folder)
