"""Counts of jobs by status, and of workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..client.directory import WorkerStats, workers
from ..client.queue.base import pk_of
from ..client.queue.queue import Queue
from ..client.runtime import bridge
from ..core.states import CANCELLED, EXPIRED, PRIORITIZED, State
from .console import pluralize
from .job_format import COMPLETED, DEAD, FAILED, PENDING, PROCESSING
from .session import Session


def counts_of(session: Session, queue: Queue) -> dict[str, int]:
    """Return the number of jobs of every status."""
    states = session.wait(queue.get_job_counts())
    retrying = _number(session, queue, "count_retrying", {"queue": pk_of(queue)})
    outcomes = _outcomes(session, queue)
    cancelled, expired = outcomes.get(CANCELLED, 0), outcomes.get(EXPIRED, 0)
    waiting = (State.WAITING, PRIORITIZED, State.DELAYED, State.WAITING_CHILDREN)
    # Jobs may change state between two reads: the differences may be negative.
    return {
        PENDING: max(0, sum(states[state] for state in waiting) - retrying),
        PROCESSING: states[State.ACTIVE],
        COMPLETED: states[State.COMPLETED],
        FAILED: retrying,
        DEAD: max(0, states[State.FAILED] - cancelled - expired),
        CANCELLED: cancelled,
        EXPIRED: expired,
    }


def count_due(session: Session, queue: Queue) -> int:
    """Return the number of delayed jobs that are due."""
    return _number(session, queue, "count_due", {"queue": pk_of(queue), "now": session.now()})


def _number(session: Session, queue: Queue, statement: str, params: Mapping[str, Any]) -> int:
    async def read() -> int:
        [[number]] = await bridge.query(queue.store, statement, params)
        return int(number)

    return session.wait(read())


def _outcomes(session: Session, queue: Queue) -> dict[str, int]:
    """Return the number of failed jobs by outcome."""

    async def read() -> dict[str, int]:
        rows = await bridge.query(queue.store, "count_outcomes", {"queue": pk_of(queue)})
        return dict(rows)

    return session.wait(read())


# --- workers ---


def workers_of(session: Session, queue: str | None = None) -> list[WorkerStats]:
    """Return the workers of one queue, or of all."""
    found = session.wait(workers(session.store()))
    return [worker for worker in found if queue is None or worker.queue == queue]


def heartbeat_age(session: Session, worker: WorkerStats) -> int:
    """Return the ms since the last heartbeat of a worker."""
    return round(session.now() - worker.seen_at.timestamp() * 1000)


def workers_summary(found: list[WorkerStats]) -> dict[str, Any]:
    """Return the number of workers, busy and lost ones, and the same for their processes.

    A process has a worker for every queue that it serves.
    """
    lost = [worker for worker in found if worker.is_lost]
    busy = [worker for worker in found if worker.jobs and not worker.is_lost]
    groups = {"number": found, "busy": busy, "lost": lost}
    return {
        **{name: len(group) for name, group in groups.items()},
        "running": sum(len(worker.jobs) for worker in found),
        "processes": {name: _processes(group) for name, group in groups.items()},
    }


def _processes(found: Iterable[WorkerStats]) -> int:
    return len({(worker.host, worker.pid) for worker in found})


def workers_line(summary: Mapping[str, Any]) -> str:
    """Return the line about workers for people, to whom a worker is a process."""
    processes = summary["processes"]
    number = pluralize(processes["number"], "process", "processes")
    return f"Workers: {number} ({processes['busy']} busy, {processes['lost']} lost)"
