"""The whole run: everybody is installed, every cell is measured, and what was found is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from .alone import ALONE, measure_alone
from .cells import KINDS, Bench
from .contest import Contest
from .contestants import About, Entry, entries, everybody
from .environments import Unavailable
from .folders import CACHE
from .machine import Machine
from .places import Places
from .results import Results
from .rounds import QUICK, Size, note, tell
from .targets import BULLMQ, named_for
from .tuning import keep, known_trials

MEASUREMENTS = (*KINDS, *ALONE)


def compare(
    names: Sequence[str],
    *,
    quick: bool,
    only: Sequence[str] | None,
    rounds: int | None,
    file: Path,
) -> Results:
    """Measure these cells of these contestants (None: of all); `file` grows with every cell."""
    size = QUICK if quick else Size()
    size = replace(size, rounds=rounds or size.rounds)
    return _Comparison(names, size, only, file).run()


def tune(names: Sequence[str], *, only: Sequence[str] | None) -> None:
    """Find the best settings for these cells of these contestants, and keep them."""
    _Comparison(names, Size(), only, CACHE / "tuning.json").tune()


class _Comparison:
    def __init__(
        self, names: Sequence[str], size: Size, only: Sequence[str] | None, file: Path
    ) -> None:
        found = everybody()
        self._only = only
        self._size = size
        self._file = file
        cells = [name for name in KINDS if name in names]
        self._cells = [name for name in cells if named_for(name) or not size.for_targets]
        self._alone = [name for name in ALONE if name in names]
        chosen = {key: about for key, about in found.items() if only is None or key in only}
        self._results = Results(chosen, left_out=[c for c in cells if c not in self._cells])
        self._machine = Machine()

    def run(self) -> Results:
        begin = time.monotonic()
        with Places() as places:
            benches = self._assemble(places) if self._cells else {}
            # What is installed once is no part of a run.
            started = time.monotonic()
            ends = started + self._size.budget - (self._size.alone if self._alone else 0)
            for number, cell in enumerate(self._cells):
                weights = [self._weight(one, benches) for one in self._cells[number:]]
                share = weights[0] / sum(weights)
                if time.monotonic() > ends:
                    self._results.left_out.append(cell)
                    continue
                self._measure(cell, benches, places, share * (ends - time.monotonic()))
            self._results.machine = places.versions.copy()
        self._measure_alone()
        facts = self._machine.facts() | self._results.machine
        seconds = {"rounds": self._size.rounds, "seconds": round(time.monotonic() - begin)}
        self._results.machine = facts | seconds
        self._results.write(self._file)
        tell("")
        return self._results

    def tune(self) -> None:
        """Try the settings of everybody in these cells, and keep the best."""
        with Places() as places:
            benches = self._assemble(places)
            for cell in self._cells:
                begin = time.monotonic()
                pairs = _pairs(cell, self._taking_part(cell, benches), benches)
                contest = Contest(cell, pairs, self._size)
                keep(cell, contest.tune(places), self._results.field)
                failed = [
                    f"{key}: {line.failed}" for key, line in contest.lines.items() if line.failed
                ]
                note(f"{cell}: {len(pairs)} lines in {time.monotonic() - begin:.0f} s")
                for reason in failed:
                    note(f"  {reason}")

    def _assemble(self, places: Places) -> dict[str, Bench]:
        """Install everybody; who cannot be is named, not dropped."""
        benches = {}
        for key, about in self._results.field.items():
            tell(f"preparing {key}")
            try:
                place = places.of(about.place)
                environment = about.environment()
                environment.install(about.requirements)
                benches[key] = Bench(about, place, environment)
            except Unavailable as error:
                self._results.missing[key] = str(error)
                note(f"{key}: {error}")
        return benches

    def _measure(
        self, cell: str, benches: dict[str, Bench], places: Places, seconds: float
    ) -> None:
        begin = time.monotonic()
        taking_part = self._taking_part(cell, benches)
        pairs = _pairs(cell, taking_part, benches)
        able = {entry.about.key for entry, _ in pairs.values()}
        cannot = [about.key for about in taking_part if about.key not in able]
        self._results.cannot[cell] = cannot
        known = known_trials(cell, self._results.field)
        contest = Contest(cell, pairs, self._size, known)
        self._results.cells[cell] = contest.run(places, seconds)
        failed = [key for key, line in self._results.cells[cell].items() if line.failed]
        self._results.write(self._file)
        said = f"; failed: {', '.join(failed)}" if failed else ""
        note(f"{cell}: {len(pairs)} lines in {time.monotonic() - begin:.0f} s{said}")

    def _weight(self, cell: str, benches: dict[str, Bench]) -> int:
        """About how many lines a cell will have."""
        able = [about for about in self._taking_part(cell, benches) if cell in about.cells]
        return 1 + len(able)

    def _taking_part(self, cell: str, benches: dict[str, Bench]) -> list[About]:
        """Everybody; or ours, BullMQ on Node, the two best others and whom a target names."""
        known = [self._results.field[key] for key in benches]
        if self._only is not None or cell == "process":
            return known
        named = {BULLMQ, *named_for(cell)}
        if self._size.for_targets:
            return [about for about in known if about.key in named]
        if KINDS[cell].everybody or "process" not in self._cells:
            return known
        chosen = named | set(self._best_others())
        return [about for about in known if about.is_ours or about.key in chosen]

    def _best_others(self) -> list[str]:
        rates = {
            key: median(line.column("rate"))
            for key, about in self._results.field.items()
            if not about.is_ours and key != BULLMQ
            if (line := self._results.line("process", key))
        }
        return sorted(rates, key=lambda key: -rates[key])[: self._size.best]

    def _measure_alone(self) -> None:
        ends = time.monotonic() + self._size.alone
        for name in self._alone:
            begin = time.monotonic()
            self._results.alone += measure_alone(name, self._size, ends)
            self._results.write(self._file)
            note(f"{name}: {time.monotonic() - begin:.0f} s")


def _pairs(
    cell: str, taking_part: Sequence[About], benches: dict[str, Bench]
) -> dict[str, tuple[Entry, Bench]]:
    """The lines of a cell, and who measures each."""
    return {
        entry.key: (entry, benches[about.key])
        for about in taking_part
        for entry in entries(about, cell)
    }
