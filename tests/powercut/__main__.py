"""Cuts the power while programs use a SQLite database, and looks what is left.

    python -m tests.powercut --images 1000 --seed 1 --json report.json

Programs are recorded with strace; from the recording the images are made that a cut would leave at
many moments: `synced` (only what was synced), `written` (all that was written), `torn` (the last
writes in part), `reordered` (any of what was not synced). In some of
the programs a sync of the log fails once. An image is corrupt when it cannot be
opened or `verify` finds something, it has lost when a job is missing whose adding was answered, it
is undone when an end, a step or an event is missing that somebody was told of. Controls, in which
syncs have no effect, must be bad. Exits with 1 if a promise was broken or a control kept all.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from .recorder import Failed, Operation
from .trial import DATABASE, Report, recording_of, trial
from .workloads import FAILING, WORKLOADS

ROUNDS = 100
IMAGES_OF_CONTROLS = 80
HEADINGS = ("workload", "kind", "images", "corrupt", "lost", "undone")
WIDTHS = (52, 10, 8, 8, 8, 8)


def recorded(workload: str, folder: Path, rounds: int = ROUNDS) -> tuple[list[Operation], Path]:
    place = Path(tempfile.mkdtemp(dir=folder))
    return recording_of(workload, rounds, place), place


def trials(folder: Path, images: int, seed: int) -> Iterator[Report]:
    for workload in WORKLOADS | FAILING:
        operations, place = recorded(workload, folder)
        yield trial(workload, operations, place, images, seed)


def controls(folder: Path, seed: int) -> Iterator[Report]:
    operations, place = recorded("working", folder)
    for what, deaf in (("log", "-wal"), ("database", DATABASE), ("folder", "/files")):
        name = f"control: syncs of the {what} do nothing"
        yield trial(name, operations, place, IMAGES_OF_CONTROLS, seed, deaf)
    operations, place = recorded("relaxed", folder)
    yield trial("control: durability=relaxed", operations, place, IMAGES_OF_CONTROLS, seed)
    operations, place = recorded("failing_unguarded", folder)
    name = "control: nobody learns of a failed sync"
    yield trial(name, operations, place, IMAGES_OF_CONTROLS, seed)
    operations, place = recorded("failing_and_not_rewritten", folder, 4)
    name = "control: the log is not written again"
    yield trial(name, operations, place, 2 * IMAGES_OF_CONTROLS, seed)


def show(reports: Iterator[Report]) -> list[Report]:
    shown = []
    for report in reports:
        shown.append(report)
        for kind, tally in report.kinds.items():
            line(report.workload, kind, tally.images, tally.corrupt, tally.lost, tally.undone)
    return shown


def line(*cells: object) -> None:
    first, second, *numbers = zip(cells, WIDTHS, strict=True)
    words = [f"{cell!s:{width}}" for cell, width in (first, second)]
    words += [f"{cell:>{width}}" for cell, width in numbers]
    sys.stdout.write("".join(words).rstrip() + "\n")
    sys.stdout.flush()


def total_of(name: str, reports: Sequence[Report]) -> None:
    line(name, "", *(sum(each.total(what) for each in reports) for what in HEADINGS[2:]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=1000, help="of each workload")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--json", type=Path, help="write the numbers to this file, too")
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}\n")
    line(*HEADINGS)
    with tempfile.TemporaryDirectory(prefix="bullite-powercut-") as name:
        folder = Path(name).resolve()
        try:
            judged = show(trials(folder, options.images, options.seed))
            total_of("all", judged)
            lost = show(controls(folder, options.seed))
        except Failed as error:
            sys.stderr.write(f"{error}\n")
            return 1
    if options.json is not None:
        numbers = {"seed": options.seed, "reports": [asdict(each) for each in judged + lost]}
        options.json.write_text(json.dumps(numbers, indent=2) + "\n")
    return verdict(judged, lost)


def verdict(judged: Sequence[Report], controls: Sequence[Report]) -> int:
    """0 if every promise was kept, and every control noticed."""
    broken = [example for report in judged for example in report.examples]
    blind = [f"{report.workload}: not noticed" for report in controls if not report.bad]
    for problem in broken + blind:
        sys.stdout.write(f"{problem}\n")
    return 1 if broken or blind else 0


if __name__ == "__main__":
    sys.exit(main())
