"""What our figures should be, each as a ratio of two figures of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from .contest import ratios
from .figures import Target, number

if TYPE_CHECKING:
    from .results import Results

SQLITE, RELAXED, POSTGRES = "bullite_sqlite", "bullite_sqlite_relaxed", "bullite_postgres"
BARE, BARE_POSTGRES, THREADS = "bare_sqlite", "bare_postgres", "thread_pool"
BULLMQ = "bullmq_node"

BACKLOG = "claim and finish beside a backlog"
IDLE = "a worker process with nothing to do"


@dataclass(frozen=True)
class Verdict:
    """A target and what was found: a value for each round, or None."""

    what: str
    target: Target | None
    values: Sequence[float] = ()
    unit: str = ""

    @property
    def is_met(self) -> bool | None:
        """None if it was not measured, or is only shown."""
        if not self.values or self.target is None:
            return None
        return self.target.is_met_by(median(self.values))

    def as_cells(self) -> tuple[str, ...]:
        found = "not measured"
        if self.values:
            found = number(median(self.values)) + self.unit
            if len(self.values) > 1:
                found += f" ({number(min(self.values))}-{number(max(self.values))})"
        said = {True: "met", False: "NOT met", None: ""}[self.is_met]
        return self.what, found, "" if self.target is None else str(self.target), said

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "target": None if self.target is None else str(self.target),
            "found": float(f"{median(self.values):.4g}") if self.values else None,
            "met": self.is_met,
        }


@dataclass(frozen=True)
class Goal:
    """One of our figures, to another's in the same round of the same cell; or on its own."""

    what: str
    target: Target | None
    cell: str
    ours: str
    other: str | None = None
    figure: str = "rate"
    unit: str = ""

    def values(self, results: Results) -> list[float]:
        line = results.line(self.cell, self.ours)
        if line is None:
            return []
        if self.other is None:
            return line.column(self.figure)
        other = results.line(self.cell, self.other)
        return ratios(line.column(self.figure), other.column(self.figure)) if other else []

    def judge(self, results: Results) -> Iterator[Verdict]:
        yield Verdict(self.what, self.target, self.values(results), self.unit)


def _at_least(value: float) -> Target:
    return Target(at_least=value)


def _at_most(value: float) -> Target:
    return Target(at_most=value)


GOALS: tuple[Goal, ...] = (
    Goal("process, to the bare loop", _at_least(0.75), "process", SQLITE, BARE),
    Goal("process, to BullMQ on Node", _at_least(6), "process", SQLITE, BULLMQ),
    Goal("concurrency 1, to BullMQ on Node", _at_least(5), "process_1", SQLITE, BULLMQ),
    Goal(
        "concurrency 1 without prefetch, to BullMQ on Node",
        None,
        "process_1",
        f"{SQLITE}, without prefetch",
        BULLMQ,
    ),
    Goal(
        "4 processes on one file, to one",
        _at_least(0.9),
        "processes_4",
        SQLITE,
        f"{SQLITE}, one process",
    ),
    Goal(
        "4 processes, slowest to fastest",
        _at_least(0.8),
        "processes_4",
        SQLITE,
        figure="fairness",
    ),
    Goal(
        "4 processes, worst wait for the write lock",
        Target(below=100),
        "processes_4",
        SQLITE,
        figure="worst wait",
        unit=" ms",
    ),
    Goal("add_bulk, to the bare loop", _at_least(0.6), "add_bulk", SQLITE, BARE),
    Goal("add_bulk, to BullMQ's addBulk", _at_least(6), "add_bulk", SQLITE, BULLMQ),
    Goal("add by 50 callers, synced, to BullMQ's", _at_least(1.5), "add_50", SQLITE, BULLMQ),
    Goal("add one by one, to a bare insert a commit", _at_least(0.6), "add", SQLITE, BARE),
    Goal("latency p50, synced, to BullMQ's", _at_most(1.1), "latency", SQLITE, BULLMQ, "p50"),
    Goal("latency p99, synced, to BullMQ's", _at_most(1.2), "latency", SQLITE, BULLMQ, "p99"),
    Goal("latency p50, relaxed, to BullMQ's", _at_most(0.6), "latency", RELAXED, BULLMQ, "p50"),
    Goal("8 threads, to the bare loop", _at_least(0.5), "threads", SQLITE, BARE),
    Goal("8 threads, to huey", _at_least(20), "threads", SQLITE, "huey"),
    Goal("8 threads, to Dramatiq", _at_least(10), "threads", SQLITE, "dramatiq"),
    Goal("1 ms of CPU each, to a thread pool", _at_least(0.9), "threads_cpu", SQLITE, THREADS),
    Goal("PostgreSQL, to the bare loop", _at_least(0.5), "process", POSTGRES, BARE_POSTGRES),
    Goal("PostgreSQL, to pgqueuer", _at_least(1.2), "process", POSTGRES, "pgqueuer"),
    Goal("PostgreSQL, to procrastinate", _at_least(20), "process", POSTGRES, "procrastinate"),
    Goal("payloads of 10 KB, to the bare loop", _at_least(0.5), "payload_10k", SQLITE, BARE),
)


def verdicts(results: Results) -> list[Verdict]:
    """All targets, and what was found."""
    parts: tuple[Callable[[Results], Iterator[Verdict]], ...] = (
        _of_goals,
        _of_every_python_peer,
        _of_backlogs,
        _of_idleness,
    )
    return [verdict for part in parts for verdict in part(results)]


def named_for(cell: str) -> set[str]:
    """Who must take part in a cell, for a target names them."""
    keys = {key for goal in GOALS if goal.cell == cell for key in (goal.ours, goal.other) if key}
    return {key.partition(", ")[0] for key in keys}


def _of_goals(results: Results) -> Iterator[Verdict]:
    for goal in GOALS:
        yield from goal.judge(results)


def _of_every_python_peer(results: Results) -> Iterator[Verdict]:
    """Of all on Redis or SQLite, the one that comes nearest to us decides."""
    found = {
        about.title: ratios(ours.column("rate"), line.column("rate"))
        for key, about in results.field.items()
        if about.language == "python" and about.place in ("redis", "sqlite")
        if (line := results.line("process", key)) and (ours := results.line("process", SQLITE))
    }
    target = _at_least(20)
    if not found:
        yield Verdict("process, to every Python peer on Redis or SQLite", target)
        return
    nearest = min(found, key=lambda name: median(found[name]))
    what = f"process, to every Python peer on Redis or SQLite (nearest: {nearest})"
    yield Verdict(what, target, found[nearest])


def _of_backlogs(results: Results) -> Iterator[Verdict]:
    """The largest backlog that was built, of each kind."""
    section = results.section(BACKLOG)
    largest: dict[str, Any] = {}
    for line in section.lines if section else ():
        if line.ratios:
            largest[line.what.partition(" ")[2]] = line
    for line in largest.values():
        yield Verdict(f"beside {line.what}, to 1,000", _at_most(1.3), line.ratios)
    if not largest:
        yield Verdict("beside a backlog, to 1,000", _at_most(1.3))


def _of_idleness(results: Results) -> Iterator[Verdict]:
    section = results.section(IDLE)
    limits = {"CPU": (Target(below=0.3), " %"), "resident memory": (Target(below=40), " MB")}
    for what, (target, unit) in limits.items():
        lines = [line for line in section.lines if line.what == what] if section else []
        values = lines[0].ours if lines else []
        yield Verdict(f"idle worker, {what}", target, values, unit)
