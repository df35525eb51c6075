"""`stats`, `metrics`: statistics of queues, in total and by the minute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from ...client.queue.metrics import Durations, Metrics
from ...core.states import CANCELLED, EXPIRED
from ..console import InvalidInput, one_line, queue_option, verb
from ..counts import workers_line
from ..job_format import COMPLETED, DEAD, FAILED, PENDING, PROCESSING
from ..session import Session
from ..statistics import metrics_over, statistics_of
from ..times import duration, iso, took

Facts = Mapping[str, Any]

SHORT_ID = 8
"""Characters that are shown of the ids of the slowest jobs."""

# --- stats ---


@click.command()
@queue_option(help="One queue; all together unless given.")
@verb
def stats(session: Session, queue: str | None) -> None:
    """Show statistics: of one queue, or of all together."""
    facts = statistics_of(session, session.queues(queue), queue)
    if session.console.as_json:
        session.console.data(facts)
        return
    for line in _sections(facts):
        session.console.line(line)


def _sections(facts: Facts) -> Iterator[str]:
    sections = {
        "Queue Statistics": _numbers(facts),
        "Execution Time Statistics": _times(facts["durations"]),
        "Top 5 Slowest Jobs": _slowest(facts["slowest"]),
        "Priority Distribution": _priorities(facts["priorities"]),
        "Jobs with Timeout": _timeouts(facts["timeouts"]),
        "Throughput (last hour)": _throughput(facts["throughput"]),
        "Waits (last hour)": _waits(facts["waits"]),
        "Workers": _workers(facts["workers"]),
    }
    for number, (heading, lines) in enumerate(sections.items()):
        if number:
            yield ""
        yield f"--- {heading} ---"
        yield from lines


def _numbers(facts: Facts) -> Iterator[str]:
    total, numbers = facts["total"], facts["by_status"]
    yield f"Total Jobs: {total}"
    for status in (COMPLETED, FAILED, DEAD, PENDING, PROCESSING, CANCELLED, EXPIRED):
        if numbers[status] or status in (COMPLETED, FAILED, DEAD, PENDING):
            share = 100 * numbers[status] / total if total else 0
            yield f"{status.capitalize()}: {numbers[status]} ({share:.2f}%)"


def _times(times: Facts) -> Iterator[str]:
    if not times["count"]:
        yield "No finished jobs yet"
        return
    yield f"Average: {times['average_ms']:.2f}ms"
    for name in ("Median", "Min", "Max", "P95"):
        yield f"{name}: {times[f'{name.lower()}_ms']}ms"


def _slowest(jobs: Sequence[Facts]) -> Iterator[str]:
    if not jobs:
        yield "No finished jobs yet"
    for number, job in enumerate(jobs, start=1):
        command = one_line(job["command"])
        yield f"{number}. {one_line(job['id'][:SHORT_ID])}: {command} - {job['duration_ms']}ms"


def _priorities(priorities: Sequence[Facts]) -> Iterator[str]:
    if not priorities:
        yield "No jobs yet"
    for one in priorities:
        yield f"Priority {one['priority']}: {one['jobs']} jobs ({one['share']:.2f}%)"


def _timeouts(timeouts: Facts) -> Iterator[str]:
    yield f"Total: {timeouts['total']} ({timeouts['share']:.2f}%)"
    if timeouts["total"]:
        yield f"Average Timeout: {_plain(timeouts['average_s'])}s"


def _throughput(throughput: Facts) -> Iterator[str]:
    for status in (COMPLETED, FAILED):
        yield f"{status.capitalize()}: {throughput[f'{status}_per_minute']:.2f} per minute"


def _waits(waits: Facts) -> Iterator[str]:
    if not waits["count"]:
        yield "No jobs were taken"
        return
    for name in ("Mean", "P50", "P95", "P99"):
        yield f"{name}: {took(float(waits[name.lower()]))}"


def _workers(workers: Facts) -> Iterator[str]:
    yield workers_line(workers)
    yield f"Busy share: {100 * workers['busy_share']:.2f}%"
    yield f"Jobs per transaction: {workers['batch_size']}"
    yield f"Lock waits: {workers['lock_waits']} ({workers['lock_wait_ms']}ms)"


def _plain(number: float) -> str:
    """Return a number with at most two decimals, without trailing zeros."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


# --- metrics ---


@click.command()
@queue_option(help="One queue; all together unless given.")
@click.option(
    "--last",
    metavar="1h",
    default="1h",
    show_default=True,
    help="Time range to report, such as 30m or 7d.",
)
@verb
def metrics(session: Session, queue: str | None, last: str) -> None:
    """Show metrics of queues by the minute: finished jobs, run times and waiting times.

    Metrics are kept for seven days.
    """
    ms = duration("--last", last)
    if not ms:
        raise InvalidInput("--last must be more than 0, such as 30m, 1h or 7d")
    found = metrics_over(session, session.queues(queue), ms)
    if session.console.as_json:
        session.console.data(_as_json(found))
        return
    if not found.minutes:
        session.console.note(f"nothing happened in the last {last}")
        return
    columns = ["MINUTE", "COMPLETED", "FAILED", "P50", "P95", "P99", "WAIT P95"]
    rows = [
        _row(_minute(session, m.at), m.completed, m.failed, m.durations, m.waits)
        for m in found.minutes
    ]
    total = _row("total", found.completed, found.failed, found.durations, found.waits)
    session.console.table(columns, [*rows, total])


def _as_json(found: Metrics) -> dict[str, Any]:
    facts = asdict(found)
    for minute in facts["minutes"]:
        minute["at"] = iso(minute["at"])
    return facts


def _minute(session: Session, at: datetime) -> str:
    text = iso(at) or ""
    return f"{text[:16]}Z" if session.console.on_terminal else text


def _row(
    when: str, completed: int, failed: int, durations: Durations, waits: Durations
) -> list[str]:
    times = (durations.p50, durations.p95, durations.p99, waits.p95)
    texts = ("-" if ms is None else took(float(ms)) for ms in times)
    return [when, str(completed), str(failed), *texts]
