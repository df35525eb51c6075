"""Trials: record a workload, cut the power at many moments of it, judge every image."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import workloads
from .disk import KINDS, Disk
from .judge import Promise, Verdict, judge
from .recorder import Acknowledged, Operation, SyncEnds, python, record

DATABASE = "jobs.db"
USED_EVERY = 25
"""Of so many images one is also opened and used by the product: that takes longest."""


@dataclass
class Tally:
    """What came of the images of one kind."""

    images: int = 0
    corrupt: int = 0
    lost: int = 0
    undone: int = 0
    examples: list[str] = field(default_factory=list)

    def count(self, cut: int, verdict: Verdict) -> None:
        self.images += 1
        self.corrupt += bool(verdict.corrupt)
        self.lost += bool(verdict.lost)
        self.undone += bool(verdict.undone)
        if not verdict.is_good and len(self.examples) < 3:
            wrong = [what[:3] for what in verdict if what]
            self.examples.append(f"after operation {cut}: {wrong}")

    @property
    def bad(self) -> int:
        return self.corrupt + self.lost + self.undone


@dataclass
class Report:
    """What came of the images of one recording."""

    workload: str
    promises: int
    failed_syncs: int
    kinds: dict[str, Tally]

    @property
    def images(self) -> int:
        return sum(tally.images for tally in self.kinds.values())

    @property
    def bad(self) -> int:
        return sum(tally.bad for tally in self.kinds.values())

    def total(self, what: str) -> int:
        return sum(asdict(tally)[what] for tally in self.kinds.values())

    @property
    def examples(self) -> list[str]:
        return [
            f"{self.workload}, {kind}: {example}"
            for kind, tally in self.kinds.items()
            for example in tally.examples
        ]


def recording_of(workload: str, rounds: int, folder: Path) -> list[Operation]:
    """What a workload does in an empty folder."""
    inside = folder / "files"
    inside.mkdir()
    ledger = folder / "ledger"
    command = python(workloads.PROGRAM, workload, inside / DATABASE, ledger, rounds)
    return record(inside, ledger, command)


def cuts_of(operations: Sequence[Operation], number: int, dice: random.Random) -> list[int]:
    """Moments to cut the power at, as numbers of operations done: half of them right after
    somebody was answered, half anywhere; after the first failed sync if there is one."""
    first = next(
        (at for at, each in enumerate(operations) if isinstance(each, SyncEnds) and not each.good),
        0,
    )
    answered = [
        at for at in range(first, len(operations)) if isinstance(operations[at], Acknowledged)
    ]
    anywhere = range(first, len(operations))
    return sorted(
        dice.choice(answered if answered and each % 2 else anywhere) + 1 for each in range(number)
    )


def images_of(
    disk: Disk, operations: Sequence[Operation], cuts: Sequence[int], dice: random.Random
) -> Iterator[tuple[int, str, dict[str, bytearray]]]:
    """(moment, kind, files) for each moment and each kind."""
    done = 0
    for cut in cuts:
        for operation in operations[done:cut]:
            disk.follow(operation)
        done = cut
        for kind in KINDS:
            yield cut, kind, disk.image(kind, dice)


def trial(
    workload: str,
    operations: Sequence[Operation],
    folder: Path,
    images: int,
    seed: int,
    deaf: str | None = None,
) -> Report:
    """Judge so many images of a recording that was made in `folder`."""
    dice = random.Random(f"{seed} {workload}")
    disk = Disk(folder / "files", deaf)
    tallies: dict[str, Tally] = defaultdict(Tally)
    cuts = cuts_of(operations, -(-images // len(KINDS)), dice)
    promises: list[Promise] = []
    place = folder / "image"
    place.mkdir()
    for number, (cut, kind, image) in enumerate(images_of(disk, operations, cuts, dice)):
        promises += map(json.loads, disk.acknowledged[len(promises) :])
        used = number % USED_EVERY == 0
        tallies[kind].count(cut, judge(place, DATABASE, image, promises, used))
    place.rmdir()
    return Report(workload, len(promises), disk.failed_syncs, dict(tallies))
