"""The numbers of `stats` and `metrics`, of several queues together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import floor
from typing import Any

from ..client.queue.base import pk_of
from ..client.queue.metrics import Metrics, Minute, metrics_of
from ..client.queue.queue import Queue
from ..client.runtime import bridge
from ..operations.metrics import MINUTE
from .counts import counts_of, workers_of, workers_summary
from .job_format import description_of
from .session import Session

HOUR = 3_600_000
SLOWEST = 5


def statistics_of(session: Session, queues: Sequence[Queue], name: str | None) -> dict[str, Any]:
    """Return the numbers of `stats` for these queues; `name` selects the workers of one queue."""
    numbers: Counter[str] = Counter()
    for queue in queues:
        numbers.update(counts_of(session, queue))
    total = sum(numbers.values())
    recent = metrics_over(session, queues, HOUR)
    return {
        "total": total,
        "by_status": dict(numbers),
        "durations": _durations(session, queues),
        "slowest": _slowest(session, queues),
        "priorities": _priorities(session, queues),
        "timeouts": _timeouts(session, queues, total),
        "throughput": _throughput(recent),
        "waits": asdict(recent.waits),
        "workers": _workers(session, name),
    }


def _read(session: Session, queue: Queue, statement: str, **more: Any) -> Sequence[Sequence[Any]]:
    async def read() -> Sequence[Sequence[Any]]:
        return await bridge.query(queue.store, statement, {"queue": pk_of(queue), **more})

    return session.wait(read())


def _durations(session: Session, queues: Sequence[Queue]) -> dict[str, Any]:
    numbers: Counter[int] = Counter()
    for queue in queues:
        for ms, number in _read(session, queue, "stats_durations"):
            numbers[ms] += number
    count = sum(numbers.values())
    if not count:
        names = ("average_ms", "median_ms", "min_ms", "max_ms", "p95_ms")
        return {"count": 0, **dict.fromkeys(names)}
    return {
        "count": count,
        "average_ms": sum(ms * number for ms, number in numbers.items()) / count,
        "median_ms": _at(numbers, floor(count / 2)),
        "min_ms": min(numbers),
        "max_ms": max(numbers),
        "p95_ms": _at(numbers, floor(count * 0.95)),
    }


def _at(numbers: Mapping[int, int], index: int) -> int:
    """Return the value at an index of the sorted values; `numbers` counts each value."""
    for value in sorted(numbers):
        index -= numbers[value]
        if index < 0:
            return value
    raise IndexError(index)


def _slowest(session: Session, queues: Sequence[Queue]) -> list[dict[str, Any]]:
    candidates = [
        (-ms, number, queue)
        for queue in queues
        for number, ms in _read(session, queue, "stats_slowest", most=SLOWEST)
    ]
    slowest = []
    for ms, number, queue in sorted(candidates, key=lambda one: one[:2])[:SLOWEST]:
        job = session.wait(queue.get_job(str(number)))
        if job is not None:
            facts = {"id": job.id, "queue": queue.name, "command": description_of(job)}
            slowest.append({**facts, "duration_ms": -ms})
    return slowest


def _priorities(session: Session, queues: Sequence[Queue]) -> list[dict[str, Any]]:
    numbers: Counter[int] = Counter()
    for queue in queues:
        for priority, number in _read(session, queue, "stats_priorities"):
            numbers[priority] += number
    total = sum(numbers.values())
    return [
        {"priority": priority, "jobs": numbers[priority], "share": 100 * numbers[priority] / total}
        for priority in sorted(numbers, reverse=True)
    ]


def _timeouts(session: Session, queues: Sequence[Queue], total: int) -> dict[str, Any]:
    number = ms = 0
    for queue in queues:
        [[jobs, total_ms]] = _read(session, queue, "stats_timeouts")
        number, ms = number + jobs, ms + total_ms
    return {
        "total": number,
        "share": 100 * number / total if total else 0.0,
        "average_s": ms / number / 1000 if number else None,
    }


def _throughput(recent: Metrics) -> dict[str, Any]:
    minutes = HOUR / MINUTE
    return {
        "completed": recent.completed,
        "failed": recent.failed,
        "completed_per_minute": recent.completed / minutes,
        "failed_per_minute": recent.failed / minutes,
    }


def _workers(session: Session, name: str | None) -> dict[str, Any]:
    found = workers_of(session, name)
    slots = sum(worker.concurrency for worker in found)
    share = sum(worker.busy_share * worker.concurrency for worker in found)
    # All workers of a process report the same numbers of its engine: count them once.
    waits = {(one.host, one.pid): (one.lock_waits, one.lock_wait_ms) for one in found}
    batches = {(one.host, one.pid): (one.batches, one.batched) for one in found}
    number = sum(batch for batch, _ in batches.values())
    return {
        **workers_summary(found),
        "busy_share": share / slots if slots else 0.0,
        "batch_size": round(sum(j for _, j in batches.values()) / number, 2) if number else 0,
        "lock_waits": sum(number for number, _ in waits.values()),
        "lock_wait_ms": sum(ms for _, ms in waits.values()),
    }


# --- minute by minute ---


def metrics_over(session: Session, queues: Sequence[Queue], last: int) -> Metrics:
    """Return the metrics of these queues over the last `last` ms, as if they were one."""
    now = session.now()
    span = {"first": (now - last) // MINUTE, "last": now // MINUTE}
    by_minute: dict[int, list[Sequence[Any]]] = {}
    for queue in queues:
        for row in _read(session, queue, "minutes", **span):
            minute, *_ = row
            by_minute.setdefault(minute, []).append(row)
    minutes = [_sum_of(by_minute[minute]) for minute in sorted(by_minute)]
    whole = metrics_of([row for rows in by_minute.values() for row in rows])
    return Metrics(minutes, whole.completed, whole.failed, whole.durations, whole.waits)


def _sum_of(rows: Sequence[Sequence[Any]]) -> Minute:
    """Return the sum of rows of one minute."""
    one = metrics_of(rows)
    return Minute(one.minutes[0].at, one.completed, one.failed, one.durations, one.waits)
