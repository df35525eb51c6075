"""Ours on PostgreSQL against a bare loop and other queues, all on one server, taking turns.

A round runs every contestant once, each round starting with another one; a ratio compares figures
of the same round. Each peer runs with the settings that were best in a short trial before.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import psycopg

from .contestants import Bare, Contestant, Figures, Ours
from .environments import Unavailable
from .figures import Line, Section, Target, table
from .ground import Ground
from .machine import Machine
from .rivals import PEERS, Peer
from .rounds import QUICK, Size, rounds, tell

TRIAL = 0.5
"""The part of the jobs that settings are tried with."""

PASSES = 2
"""How often each is tried: one disturbance should not decide."""

_BARE = Bare.name


@dataclass
class Field:
    """All who take part, and why some do not."""

    ours: Ours
    bare: Bare
    peers: list[Peer] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    @classmethod
    def assemble(cls, ground: Ground) -> Field:
        assembled = cls(Ours(ground), Bare(ground))
        for about in PEERS:
            tell(f"preparing {about.name}")
            try:
                assembled.peers.append(Peer(about, ground))
            except Unavailable as error:
                assembled.missing[about.name] = str(error)
        return assembled


@dataclass(frozen=True)
class Cell:
    """One thing that is measured, and what our figure should be, as a ratio to another's."""

    title: str
    part: float
    """Of the jobs of a size."""

    targets: Mapping[str, Target]


MEASUREMENTS = {
    "process": Cell(
        f"process no-op jobs (ours: concurrency {Ours.concurrency})",
        part=1.0,
        targets={
            _BARE: Target(at_least=0.4),
            "procrastinate": Target(at_least=20),
            "pgqueuer": Target(above=1),
        },
    ),
    "add_bulk": Cell(
        "add jobs in lists of 1000",
        part=1.0,
        targets={about.name: Target(above=1) for about in PEERS},
    ),
    "add": Cell("add jobs one by one", part=0.025, targets={}),
    "latency": Cell("add to start in another process", part=0.0075, targets={}),
}


def run(
    names: Sequence[str],
    *,
    quick: bool,
    as_json: bool,
    number: int | None = None,
) -> None:
    """Measure and print. Figures are figures: whatever they are, nothing fails."""
    logging.getLogger("bullite").setLevel(logging.ERROR)  # slow commits are what we measure
    size = QUICK if quick else Size()
    machine = Machine()
    begin = time.monotonic()
    with Ground() as ground:
        versions = {"PostgreSQL": ground.version, "psycopg": psycopg.__version__}
        field = Field.assemble(ground)
        sections = [
            section
            for name in names
            for section in _measure(name, field, ground, size, number or size.rounds)
        ]
    # The server is gone by now, so what it used counts as ours.
    facts = machine.facts() | versions | {"seconds": round(time.monotonic() - begin)}
    notes = _notes(field)
    tell("")
    if as_json:
        found = {"machine": facts, "notes": notes, "sections": [s.as_json() for s in sections]}
        print(json.dumps(found))
        return
    print("; ".join(f"{name} {value}" for name, value in facts.items()))
    print(f"\n{table(sections)}\n")
    for name, note in notes.items():
        print(f"{name}: {note}")


def _measure(name: str, field: Field, ground: Ground, size: Size, number: int) -> Iterator[Section]:
    jobs = int(size.jobs * MEASUREMENTS[name].part)
    contest = Contest(name, jobs, field)
    contest.calibrate()
    ground.sweep()
    for index in rounds(name, number):
        contest.run_round(index)
        ground.sweep()
    yield Section(MEASUREMENTS[name].title, "ours", "other", list(_lines(name, contest)))


class Contest:
    """One cell, measured for everybody who can do it."""

    def __init__(self, cell: str, jobs: int, field: Field) -> None:
        self._cell = cell
        self._jobs = jobs
        self.ours = field.ours
        self.bare = None if cell == "latency" else field.bare
        self.peers = list(field.peers)
        self.failed = dict(field.missing)
        self.figures: dict[str, list[Figures]] = {}

    def calibrate(self) -> None:
        for peer in list(self.peers):
            tell(f"{self._cell}: trying settings of {peer.about.name}")
            try:
                peer.calibrate(self._cell, int(self._jobs * TRIAL), PASSES)
            except RuntimeError as error:
                self._drop(peer, error)

    def run_round(self, index: int) -> None:
        everybody: list[Contestant] = [self.ours, *([self.bare] if self.bare else []), *self.peers]
        first = index % len(everybody)
        for who in everybody[first:] + everybody[:first]:
            try:
                figures = who.measure(self._cell, self._jobs)
            except RuntimeError as error:
                if not isinstance(who, Peer):
                    raise
                self._drop(who, error)
            else:
                self.figures.setdefault(who.name, []).append(figures)

    def _drop(self, peer: Peer, error: RuntimeError) -> None:
        """One that fails is out of this cell, and is said to be."""
        self.peers.remove(peer)
        self.failed[peer.about.name] = str(error)
        self.figures.pop(peer.name, None)


# --- what is shown --------------------------------------------------------------------------------


def _lines(cell: str, contest: Contest) -> Iterator[Line]:
    targets = MEASUREMENTS[cell].targets
    if cell == "latency":
        yield from _latency_lines(contest)
    else:
        if contest.bare is not None:
            yield _line(contest, contest.bare, cell, targets.get(_BARE))
        for peer in contest.peers:
            yield _line(contest, peer, cell, targets.get(peer.about.name))
    for name, reason in contest.failed.items():
        yield Line(f"{name}: {reason}", "", targets.get(name))


def _line(contest: Contest, who: Contestant, cell: str, target: Target | None) -> Line:
    ours, other = contest.figures[contest.ours.name], contest.figures[who.name]
    return Line(
        _label(who, cell), "jobs/s", target, [row[0] for row in ours], [row[0] for row in other]
    )


def _latency_lines(contest: Contest) -> Iterator[Line]:
    ours = list(zip(*contest.figures[contest.ours.name]))
    others = {peer: list(zip(*contest.figures[peer.name])) for peer in contest.peers}
    if others:
        best = [min(p50s) for p50s in zip(*(columns[0] for columns in others.values()))]
        yield Line("p50, the best peer of each round", "ms", Target(at_most=1), list(ours[0]), best)
    for peer, columns in others.items():
        for name, our_column, column in zip(("p50", "p90", "p99"), ours, columns):
            yield Line(
                f"{name}, {_label(peer, 'latency')}", "ms", None, list(our_column), list(column)
            )


def _label(who: Contestant, cell: str) -> str:
    settings = who.settings(cell)
    return f"{who.name}: {settings}" if settings else who.name


def _notes(field: Field) -> dict[str, str]:
    return {peer.name: peer.about.note for peer in field.peers} | field.missing
