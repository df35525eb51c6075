"""One cell, measured for everybody who takes part: settings are tried, then rounds are run.

In a round each has a turn, and each round begins with another: what happens to the machine happens
to all. Figures are compared only within a round.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from .cells import BOX, KINDS, LIST, LOAD, Bench, Figures, Kind
from .contestants import Entry, Settings
from .places import Places
from .rounds import Size, rounds, tell

MOST_JOBS = 250_000
MOST_BYTES = 250_000_000
"""What is put into a queue at most: Redis has it all in memory."""

TRIED_LATENCIES = 40

A_FEW = 5
SLOW_START = 0.1

LONGEST = 4.0
"""Seconds of work at most, for those that start slowly."""


@dataclass
class Line:
    """What was found for one entry of a cell; the figures of round after round, or why not."""

    settings: Settings = field(default_factory=dict)
    jobs: int = 0
    figures: list[Figures] = field(default_factory=list)
    failed: str | None = None
    start: float = 0.0
    """Seconds that a worker takes before it is at work."""

    def column(self, name: str) -> list[float]:
        return [figures[name] for figures in self.figures if name in figures]

    def as_json(self) -> dict[str, Any]:
        if self.failed is not None:
            return {"failed": self.failed}
        names = sorted({name for figures in self.figures for name in figures})
        return {
            "settings": dict(self.settings),
            "jobs": self.jobs,
            "start": _rounded(self.start),
            "medians": {name: _rounded(median(self.column(name))) for name in names},
            "rounds": {name: [_rounded(value) for value in self.column(name)] for name in names},
        }


@dataclass
class Trial:
    """What one trial of settings told."""

    settings: Settings
    figures: Figures
    rate: float
    """Jobs a second once it is at work; 0 where that does not matter."""

    start: float
    """Seconds that it takes to get there."""

    overhead: float
    """Seconds that are spent beside what is timed."""


class Contest:
    """All entries of one cell."""

    def __init__(
        self,
        cell: str,
        entries: Mapping[str, tuple[Entry, Bench]],
        size: Size,
        known: Mapping[str, Trial] | None = None,
    ) -> None:
        """Whose best settings are `known` is not tried."""
        self._cell = cell
        self._kind = KINDS[cell]
        self._entries = entries
        self._size = size
        self._known = known or {}
        self._trials: dict[str, Trial] = {}
        self.lines = {key: Line() for key in entries}

    def run(self, places: Places, seconds: float) -> dict[str, Line]:
        """Find the settings and measure, so that both take about so many seconds together."""
        ends = time.monotonic() + seconds
        self.tune(places)
        long = self._seconds_a_measurement(ends)
        for index in rounds(self._cell, self._size.rounds):
            self._run_round(index, long)
            places.sweep()
        return self.lines

    def tune(self, places: Places) -> dict[str, Trial]:
        """Find the best settings of everybody, and how much each does with them."""
        for number, (key, (entry, bench)) in enumerate(self._entries.items(), 1):
            tell(f"{self._cell}: settings of {key} ({number} of {len(self._entries)})")
            self._calibrate(key, entry, bench)
            places.sweep()
        return self._trials

    # --- settings and numbers ---

    def _calibrate(self, key: str, entry: Entry, bench: Bench) -> None:
        """Find the settings that are best, and how many jobs can be done in how much time."""
        known = self._known.get(key)
        if known is not None and known.settings in entry.candidates:
            self._trials[key], self.lines[key].settings = known, known.settings
            return
        trials, reasons, start, hint = list[Trial](), list[str](), None, None
        for settings in entry.candidates:
            try:
                if start is None or start > 0:
                    start = self._seconds_to_start(bench, settings)
                trial = self._try(bench, settings, start, hint)
            except RuntimeError as error:
                reasons.append(str(error))
            else:
                trials.append(trial)
                hint = trial.rate
        if not trials:
            self.lines[key].failed = reasons[0]
            return
        sign = 1 if self._kind.is_time else -1
        first = self._kind.first
        best = min(trials, key=lambda trial: sign * (trial.rate or trial.figures[first]))
        self._trials[key] = best
        self.lines[key].settings = best.settings

    def _seconds_to_start(self, bench: Bench, settings: Settings) -> float:
        """What a worker takes for next to no jobs: some start processes, some wait for a tick.

        0 if that is too little to matter; then it is not asked again for other settings.
        """
        if self._kind.how != "process":
            return 0.0
        few = bench.measure(self._cell, settings, A_FEW, 0.0, checked=True)
        return few["seconds"] if few["seconds"] > SLOW_START else 0.0

    def _try(self, bench: Bench, settings: Settings, start: float, hint: float | None) -> Trial:
        """Measure shortly; again with more jobs, as long as it was too short to tell."""
        wanted = self._size.trial
        jobs = _first_guess(self._kind, hint, wanted)
        most = _most_jobs(self._kind)
        while True:
            begin = time.perf_counter()
            figures = bench.measure(self._cell, settings, jobs, min(wanted, BOX), checked=True)
            wall = time.perf_counter() - begin
            net = max(figures["seconds"] - start, 0.02 * figures["seconds"])
            done = jobs - A_FEW if start else jobs  # those are in what a start takes
            rate = 0.0 if self._kind.is_time else done / net
            if self._kind.how == "processes":
                rate = figures["rate"]
            trial = Trial(settings, figures, rate, start, wall - figures["seconds"])
            if self._kind.is_time or jobs >= most:
                return trial
            if self._kind.how == "processes":
                if figures["left"] > 0:
                    return trial
                jobs = min(most, jobs * 8)
            elif net >= 0.6 * wanted:
                return trial
            else:
                factor = min(20.0, max(2.0, 1.2 * wanted / net))
                jobs = min(most, int(jobs * factor))

    def _seconds_a_measurement(self, ends: float) -> float:
        """What is left, shared by all; what is not timed (starting, filling) has its part."""
        count = len(self._trials)
        if not count:
            return 0.0
        left = (ends - time.monotonic()) / self._size.rounds
        spare = left - sum(trial.overhead for trial in self._trials.values())
        return min(self._size.longest, max(self._size.shortest, spare / count / 2))

    # --- rounds ---

    def _run_round(self, index: int, seconds: float) -> None:
        keys = [key for key, line in self.lines.items() if line.failed is None]
        first = index * max(1, len(keys) // self._size.rounds) % max(1, len(keys))
        for key in keys[first:] + keys[:first]:
            tell(f"{self._cell}: round {index + 1} of {self._size.rounds}, {key}")
            line = self.lines[key]
            try:
                line.figures.append(self._measure(key, seconds, checked=index == 0))
            except RuntimeError as error:
                # One that fails is out of this cell, and is said to be.
                line.failed = f"failed in round {index + 1}: {error}"

    def _measure(self, key: str, seconds: float, checked: bool) -> Figures:
        bench, line, trial = self._entries[key][1], self.lines[key], self._trials[key]
        if not line.jobs:
            line.jobs, line.start = self._jobs_for(trial, seconds), trial.start
        figures = bench.measure(self._cell, trial.settings, line.jobs, seconds, checked)
        if figures.get("left", 1) <= 0 and line.jobs < MOST_JOBS:
            # It did them all before the time was over: the figure would be too low.
            line.jobs = min(MOST_JOBS, 2 * line.jobs)
            figures = bench.measure(self._cell, trial.settings, line.jobs, seconds, checked)
        if self._kind.is_time:
            return figures
        enough = _long_enough(trial, seconds)
        if self._kind.how != "processes" and figures["seconds"] > 2 * (enough + trial.start):
            # A trial was too short to tell, or another machine's: less is enough from now on.
            line.jobs = max(self._fewest, int(line.jobs * enough / figures["seconds"]))
        return figures

    def _jobs_for(self, trial: Trial, seconds: float) -> int:
        if self._kind.is_time:
            number = self._size.latencies
            return 3 * number if "rate" in self._kind.options else number
        number = int(trial.rate * _long_enough(trial, seconds))
        if self._kind.how == "processes":
            number *= 2  # a trial is short, and a start is slow
        return max(self._fewest, min(_most_jobs(self._kind), number))

    @property
    def _fewest(self) -> int:
        return LIST if self._kind.how == "add_bulk" else 10


def _long_enough(trial: Trial, seconds: float) -> float:
    """Seconds of work beside which a slow start weighs little; a cell is short all the same."""
    return max(seconds, min(LONGEST, 4 * trial.start))


def _first_guess(kind: Kind, rate: float | None, seconds: float) -> int:
    if kind.is_time:
        return TRIED_LATENCIES if "rate" not in kind.options else LOAD // 2
    if kind.how == "processes":
        return 3_000 if rate is None else min(MOST_JOBS, int(3 * rate * seconds) + 100)
    if rate is None:
        return {"add_bulk": LIST, "add": 100}.get(kind.how, 60)
    return max(20, min(_most_jobs(kind), int(rate * seconds)))


def _most_jobs(kind: Kind) -> int:
    size = kind.filling.get("size", 0)
    return min(MOST_JOBS, MOST_BYTES // size) if size else MOST_JOBS


def ratios(ours: Sequence[float], others: Sequence[float]) -> list[float]:
    """Ours to another's, round by round."""
    return [one / other for one, other in zip(ours, others) if other]


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
