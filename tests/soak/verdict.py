"""What a soak promises, and whether it was kept."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from .ledger import Account
from .measures import Footprint, percentile

LONG = 10.0
"""Minutes from which on a soak shows whether something grows; shorter ones do not judge that."""

LONGEST_STANDSTILL, LONGEST_STANDSTILL_WHEN_SHORT = 10.0, 30.0
"""Seconds; a short soak may run on a machine that is slow to start processes."""

SLOWER, LARGER = 1.5, 1.1
"""How much the last fifth may exceed an earlier one, in latency and in memory."""

AFTER_PAUSE = 1.0
"""Seconds in which the jobs that waited for a stopped process are done."""


T = TypeVar("T")


@dataclass
class Findings:
    """What one store came to."""

    minutes: float
    account: Account
    unfinished: dict[str, str]
    """Jobs that had not ended when the soak gave up waiting for them, with their states."""
    probes: Sequence[tuple[float, float]]
    """Seconds since the beginning, and ms."""
    footprints: Sequence[tuple[float, Footprint]]
    standstill: float
    standing_queue: str
    deadlocks: int
    problems: Sequence[str]
    failures: Sequence[str]
    """Processes that ended as they should not."""
    disturbed: set[str] = field(default_factory=set)
    """Processes that were killed or stopped."""


@dataclass(frozen=True)
class Line:
    """One promise. `kept` is None if the soak was too short to tell."""

    promise: str
    found: str
    kept: bool | None

    def __str__(self) -> str:
        word = {True: "ok", False: "FAILED", None: "not judged"}[self.kept]
        return f"{self.promise:54} {self.found:42} {word}"


def judge(findings: Findings) -> list[Line]:
    """Judge what was found; the soak has passed unless a line was not kept."""
    return [*_judge_jobs(findings), *_judge_processes(findings), *_judge_time(findings)]


def _judge_jobs(findings: Findings) -> list[Line]:
    account, unfinished = findings.account, findings.unfinished
    unheard = account.expected.keys() - account.ended.keys() - unfinished.keys()
    lost = sorted(job for job in unheard if not account.returned[job])
    untold = sorted(job for job in unheard if account.returned[job])
    wrong = sorted(
        job for job, how in account.ended.items() if account.expected.get(job, how) != how
    )
    return [
        Line("acknowledged jobs", str(len(account.expected)), len(account.expected) > 0),
        _none("lost: acknowledged and never ended", lost),
        _none("not finished in time", [f"{j} {state}" for j, state in sorted(unfinished.items())]),
        _none("ended otherwise than intended", wrong),
        _none("ended twice", account.ended_twice),
        _judge_events(account.missed_events, untold),
        _none("results that did not arrive", account.waited_in_vain),
        _again(findings),
    ]


def _judge_events(missed: int, untold: Sequence[str]) -> Line:
    promise = "ends that the reader of events was not told"
    if missed:
        return Line(promise, f"{len(untold)}; {missed} events were trimmed unread", None)
    return _none(promise, untold)


def _again(findings: Findings) -> Line:
    """Jobs that ran to their end more than once: they may, if a process was killed or stopped."""
    account = findings.account
    again = [job for job, times in account.returned.items() if times > 1]
    undisturbed = [job for job in again if not account.runners[job] & findings.disturbed]
    return Line(
        "returned twice",
        f"{len(again)}, of which {len(undisturbed)} beside no kill or stop",
        None,
    )


def _judge_processes(findings: Findings) -> list[Line]:
    limit = LONGEST_STANDSTILL if findings.minutes >= LONG else LONGEST_STANDSTILL_WHEN_SHORT
    queue = f" in {findings.standing_queue}" if findings.standing_queue else ""
    return [
        Line(
            f"longest standstill (at most {limit:.0f} s)",
            f"{findings.standstill:.1f} s{queue}",
            findings.standstill <= limit,
        ),
        Line("deadlocks", str(findings.deadlocks), findings.deadlocks == 0),
        _none("processes that ended as they should not", findings.failures),
        _none("bullite.verify", findings.problems),
    ]


def _judge_time(findings: Findings) -> list[Line]:
    seconds = findings.minutes * 60
    first, last = (_p99(findings.probes, seconds, fifth) for fifth in (0, 4))
    before, after = (_footprint(findings.footprints, seconds, fifth) for fifth in (1, 4))
    return [
        _growth("p99, ms: first fifth, last fifth", first, last, SLOWER, findings.minutes),
        _growth("memory, MB: second, last", before[0], after[0], LARGER, findings.minutes),
        _growth("descriptors: second, last", before[1], after[1], LARGER, findings.minutes),
        _growth("threads: second, last", before[2], after[2], LARGER, findings.minutes),
    ]


def _growth(promise: str, before: float, after: float, limit: float, minutes: float) -> Line:
    ratio = after / before if before else 0.0
    found = f"{before:.1f}, {after:.1f}: {ratio:.2f} times"
    kept = bool(before) and ratio <= limit
    return Line(f"{promise} (at most {limit} times)", found, kept if minutes >= LONG else None)


def _p99(probes: Iterable[tuple[float, float]], seconds: float, fifth: int) -> float:
    return percentile(_of_fifth(probes, seconds, fifth), 0.99)


def _footprint(
    footprints: Sequence[tuple[float, Footprint]], seconds: float, fifth: int
) -> tuple[float, float, float]:
    """The medians of memory in MB, descriptors and threads in a fifth of the time."""
    some = _of_fifth(footprints, seconds, fifth)
    if not some:
        return 0.0, 0.0, 0.0
    return (
        statistics.median(one.memory for one in some) / 1024**2,
        statistics.median(one.descriptors for one in some),
        statistics.median(one.threads for one in some),
    )


def _of_fifth(values: Iterable[tuple[float, T]], seconds: float, fifth: int) -> list[T]:
    begin, end = seconds * fifth / 5, seconds * (fifth + 1) / 5
    return [value for at, value in values if begin <= at < end]


def _none(promise: str, found: Sequence[str]) -> Line:
    shown = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
    return Line(promise, f"{len(found)} ({shown})" if found else "0", not found)


def apart_from_pauses(
    probes: Iterable[tuple[float, float]], pauses: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """The probes under way while no process was stopped: a stopped process may hold a lock that
    others wait for, as long as it is stopped."""
    return [
        (sent, ms)
        for sent, ms in probes
        if not any(
            sent < until + AFTER_PAUSE and sent + ms / 1000 > begin for begin, until in pauses
        )
    ]


def counted_errors(messages: Counter[str], most: int = 10) -> list[str]:
    """The most frequent messages, for a report."""
    return [f"{count:6} {message}" for message, count in messages.most_common(most)]
