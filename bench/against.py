"""The core now against the core of another commit, in one run, taking turns."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ._cell import CELLS
from .rounds import QUICK, Size, in_turn, rounds, tell

ROOT = Path(__file__).parents[1]

JOBS = 3 * Size.jobs
"""More than elsewhere: a difference of a few per cent is looked for, in the noise of a machine."""


def run(revision: str, *, quick: bool, number: int | None = None) -> None:
    """Measure both trees in turn and print the ratios, now to then."""
    size = QUICK if quick else Size(rounds=9)
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in CELLS}
    with _checked_out(revision) as then:
        for index in rounds("against", number or size.rounds):
            for name in CELLS:
                now, before = (partial(_jobs_a_second, tree, name) for tree in (ROOT, then))
                figures[name].append(in_turn(index, now, before))
    tell("")
    print(f"{'':28}{'now':>12}{revision[:10]:>12}{'ratio':>8}   (of each round)")
    for name, pairs in figures.items():
        median, was = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = sorted(one / other for one, other in pairs)
        spread = f"{ratios[0]:.2f}-{ratios[-1]:.2f}"
        ratio = statistics.median(ratios)
        print(f"{name:28}{median:>10,.0f}/s{was:>10,.0f}/s{ratio:>8.2f}   ({spread})")


@contextmanager
def _checked_out(revision: str) -> Iterator[Path]:
    """The files of a commit, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        archive = subprocess.run(
            ["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True
        ).stdout
        subprocess.run(["tar", "-x"], cwd=folder, input=archive, check=True)
        yield Path(folder)


def _jobs_a_second(tree: Path, name: str, jobs: int = JOBS) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "bench._cell", name, str(jobs)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)
