"""How many jobs and workers there are, in queuectl's words for states."""

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
    """How many jobs have each status, those that none has too."""
    states = session.wait(queue.get_job_counts())
    retrying = _number(session, queue, "count_retrying", {"queue": pk_of(queue)})
    outcomes = _outcomes(session, queue)
    cancelled, expired = outcomes.get(CANCELLED, 0), outcomes.get(EXPIRED, 0)
    waiting = (State.WAITING, PRIORITIZED, State.DELAYED, State.WAITING_CHILDREN)
    # Jobs move between one look and the next.
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
    """How many delayed jobs have reached their time."""
    return _number(session, queue, "count_due", {"queue": pk_of(queue), "now": session.now()})


def _number(session: Session, queue: Queue, statement: str, params: Mapping[str, Any]) -> int:
    async def read() -> int:
        [[number]] = await bridge.query(queue.store, statement, params)
        return int(number)

    return session.wait(read())


def _outcomes(session: Session, queue: Queue) -> dict[str, int]:
    """How the failed jobs of a queue ended."""

    async def read() -> dict[str, int]:
        rows = await bridge.query(queue.store, "count_outcomes", {"queue": pk_of(queue)})
        return dict(rows)

    return session.wait(read())


# --- workers ---


def workers_of(session: Session, queue: str | None = None) -> list[WorkerStats]:
    """The workers of one queue, or of all."""
    found = session.wait(workers(session.store()))
    return [worker for worker in found if queue is None or worker.queue == queue]


def heartbeat_age(session: Session, worker: WorkerStats) -> int:
    """Ms since a worker was last heard of."""
    return round(session.now() - worker.seen_at.timestamp() * 1000)


def workers_summary(found: list[WorkerStats]) -> dict[str, Any]:
    """How many of these workers there are, how many run jobs, how many are lost; and the same of
    their processes, of which each has a worker for every queue that it serves."""
    lost = [worker for worker in found if worker.is_lost]
    busy = [worker for worker in found if worker.jobs and not worker.is_lost]
    some = {"number": found, "busy": busy, "lost": lost}
    return {
        **{name: len(these) for name, these in some.items()},
        "running": sum(len(worker.jobs) for worker in found),
        "processes": {name: _processes(these) for name, these in some.items()},
    }


def _processes(found: Iterable[WorkerStats]) -> int:
    return len({(worker.host, worker.pid) for worker in found})


def workers_line(crew: Mapping[str, Any]) -> str:
    """The same for people, to whom a worker is a process."""
    there = crew["processes"]
    number = pluralize(there["number"], "process", "processes")
    return f"Workers: {number} ({there['busy']} busy, {there['lost']} lost)"
