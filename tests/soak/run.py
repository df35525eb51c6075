"""A soak from its beginning to its verdict."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from . import ledger, measures, stores
from .measures import Footprint, Minute, Standstills
from .processes import Processes
from .verdict import Findings, Line, apart_from_pauses, judge

KILL_EVERY, STOP_EVERY = 4.0, 20.0
"""Seconds on average between two kills, and between two stops, of a store's processes."""

DRAINED_WITHIN = 45.0
"""Seconds after the end of the load in which all jobs must have ended. A process may be killed at
the end of it, and on a server its leases decide, which are of 30 s."""

HEARD_EVERY, FOOTPRINT_EVERY = 1.0, 5.0


@dataclass
class Side:
    """One of the stores under soak, with its processes."""

    soaked: stores.Soaked
    folder: Path
    processes: Processes
    begins: float
    chooser: random.Random
    standstills: Standstills = field(default_factory=Standstills)
    minutes: list[Minute] = field(default_factory=list)
    probes: list[tuple[float, float]] = field(default_factory=list)
    footprints: list[tuple[float, Footprint]] = field(default_factory=list)
    unfinished: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    deadlocks: int = 0
    server_errors: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        ledgers = self.folder / "ledgers"
        self._heard = ledger.Tail(ledgers / "observer-0")
        self._probed = ledger.Tail(ledgers / "probe-worker-1")
        self._kill_at = self.begins + KILL_EVERY
        self._stop_at = self.begins + STOP_EVERY / 2
        self._look_at = self._footprint_at = 0.0

    # --- while it runs ---

    def turn(self, now: float) -> None:
        """Do what is due."""
        self.processes.look(now)
        if now >= self._kill_at:
            self.processes.kill()
            self._kill_at = now + self.chooser.uniform(0.5, 1.5) * KILL_EVERY
        if now >= self._stop_at:
            self.processes.stop()
            self._stop_at = now + self.chooser.uniform(0.5, 1.5) * STOP_EVERY
        if now >= self._look_at:
            self.look()
            self._look_at = now + HEARD_EVERY
        if now >= self._footprint_at:
            taken = measures.footprint(self.processes.undisturbed())
            self.footprints.append((now - self.begins, taken))
            self._footprint_at = now + FOOTPRINT_EVERY

    def look(self) -> None:
        self.standstills.note(stores.activity(self.soaked))

    def end_minute(self, now: float, busy: float) -> Minute:
        probes = self._new_probes()
        shown = [ms for _, ms in apart_from_pauses(probes, self.processes.pauses)]
        self.probes += [(sent - self.begins, ms) for sent, ms in probes]
        taken = measures.footprint(self.processes.undisturbed())
        rows = stores.rows(self.soaked)
        minute = Minute(
            minute=(now - self.begins) / 60,
            done=self._ends_heard(),
            p50_ms=measures.percentile(shown, 0.5),
            p99_ms=measures.percentile(shown, 0.99),
            max_ms=max((ms for _, ms in probes), default=0),
            memory_mb=taken.memory / measures.MB,
            descriptors=taken.descriptors,
            threads=taken.threads,
            server_mb=measures.server_memory(self.soaked.server()) / measures.MB,
            jobs=rows["bullite_jobs"],
            events=rows["bullite_events"],
            rows=sum(rows.values()),
            data_mb=self.soaked.data_bytes() / measures.MB,
            log_mb=self.soaked.log_bytes() / measures.MB,
            deadlocks=self.soaked.deadlocks(),
            server_errors=self.soaked.errors().total(),
            kills=self.processes.kills,
            standstill_s=self.standstills.next_minute(),
            busy=busy,
            tables=rows,
        )
        self.minutes.append(minute)
        return minute

    def _new_probes(self) -> list[tuple[float, float]]:
        lines = self._probed.lines()
        return [(float(words[1]), float(words[2])) for words in lines if words[0] == ledger.PROBED]

    def _ends_heard(self) -> int:
        ends = (ledger.COMPLETED, ledger.FAILED)
        return sum(1 for words in self._heard.lines() if words[0] in ends)

    # --- the end ---

    def has_drained(self) -> bool:
        self.look()
        self.unfinished = stores.unfinished(self.soaked)
        return not self.unfinished

    def check(self) -> None:
        """Look at the database once all its processes have ended."""
        self.problems = stores.problems(self.soaked)
        self.deadlocks = self.soaked.deadlocks()
        self.server_errors = self.soaked.errors()

    def findings(self, minutes: float) -> Findings:
        pauses = [(a - self.begins, b - self.begins) for a, b in self.processes.pauses]
        return Findings(
            minutes=minutes,
            account=ledger.read(self.folder / "ledgers"),
            unfinished=self.unfinished,
            probes=apart_from_pauses(self.probes, pauses),
            footprints=self.footprints,
            standstill=self.standstills.longest,
            standing_queue=self.standstills.queue,
            deadlocks=self.deadlocks,
            problems=self.problems,
            failures=self.processes.failures,
            disturbed=self.processes.disturbed,
        )

    def logged(self) -> Counter[str]:
        """What the processes logged, without numbers."""
        logs = sorted((self.folder / "logs").iterdir())
        return stores.grouped(
            line for log in logs for line in log.read_text(errors="replace").splitlines()
        )


@dataclass
class Report:
    """What a store came to."""

    store: str
    minutes: list[Minute]
    lines: list[Line]
    kills: int
    stops: int
    runs: int
    server_errors: Counter[str]
    logged: Counter[str]

    @property
    def passed(self) -> bool:
        return all(line.kept is not False for line in self.lines)


def soak(
    minutes: float, names: list[str], seed: int, told: Callable[[str, Minute], None]
) -> list[Report]:
    """Run a soak, and report about each store; `told` is called with every minute of a store.

    It takes at most a minute longer than asked for.
    """
    chooser = random.Random(seed)
    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        sides = _sides(stack, folder, names, minutes, chooser)
        for side in sides:
            side.processes.start_observer()
        for side in sides:
            side.processes.start_others()
        _go_on(sides, minutes, told)
        for side in sides:
            side.processes.await_end_of_load(within=10)
        _drain(sides)
        # First those that work, then those that read what they did.
        for roles in (("producer", "worker", "probe-worker"), ("observer",)):
            for side in sides:
                side.processes.terminate(*roles)
            for side in sides:
                side.processes.await_terminated()
        for side in sides:
            side.check()
        return [_report(side, minutes) for side in sides]


def _sides(
    stack: ExitStack, folder: Path, names: list[str], minutes: float, chooser: random.Random
) -> list[Side]:
    soaked = []
    for name in names:
        (folder / name / "ledgers").mkdir(parents=True)
        (folder / name / "logs").mkdir()
        soaked.append(stores.made(name, folder / name))
        stack.callback(soaked[-1].close)
    begins = time.monotonic()
    sides = []
    for one in soaked:
        own = folder / one.name
        processes = Processes(one.location, own, begins + minutes * 60, chooser)
        stack.callback(processes.end)
        sides.append(Side(one, own, processes, begins, chooser))
    return sides


def _go_on(sides: list[Side], minutes: float, told: Callable[[str, Minute], None]) -> None:
    begins = sides[0].begins
    ends = begins + minutes * 60
    minute_ends, load = min(begins + 60, ends), measures.Load()
    while (now := time.monotonic()) < ends:
        for side in sides:
            side.turn(now)
        if now >= minute_ends:
            _end_minute(sides, now, load, told)
            minute_ends = min(minute_ends + 60, ends)
        time.sleep(0.05)
    _end_minute(sides, time.monotonic(), load, told)
    for side in sides:
        side.processes.continue_all()


def _end_minute(
    sides: list[Side], now: float, load: measures.Load, told: Callable[[str, Minute], None]
) -> None:
    busy = load.part()
    for side in sides:
        told(side.soaked.name, side.end_minute(now, busy))


def _drain(sides: list[Side]) -> None:
    until = time.monotonic() + DRAINED_WITHIN
    left = list(sides)
    while left and time.monotonic() < until:
        left = [side for side in left if not side.has_drained()]
        time.sleep(0.1)


def _report(side: Side, minutes: float) -> Report:
    findings = side.findings(minutes)
    return Report(
        store=side.soaked.name,
        minutes=side.minutes,
        lines=judge(findings),
        kills=side.processes.kills,
        stops=side.processes.stops,
        runs=findings.account.runs,
        server_errors=side.server_errors,
        logged=side.logged(),
    )


# --- the folder ----------------------------------------------------------------------------------

_GUARD = """
cat
for again in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf -- "$0" && exit
    sleep 0.5
done
"""
"""Removes the folder when the soak has ended, however it did; its processes may need a moment."""


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="bullite-soak-"))
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, os.fspath(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        guard.communicate()
