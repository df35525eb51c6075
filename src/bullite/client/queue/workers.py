"""The workers of a queue, in all processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from ...core.clock import moment_of
from ...core.codec import decode
from ..directory import is_lost
from ..runtime import bridge

if TYPE_CHECKING:
    from .base import QueueBase


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker of a queue, in any process."""

    id: str
    name: str
    pid: int
    host: str
    names: tuple[str, ...] | None
    """The job names that it claims; None for all."""
    concurrency: int
    active: int
    """The number of its active jobs."""
    started_at: datetime
    seen_at: datetime
    """The time of its last heartbeat."""
    is_lost: bool
    """True if its process is gone, or has sent no heartbeat for too long."""


async def workers_of(queue: QueueBase) -> list[WorkerInfo]:
    """Return the registered workers of a queue that is open, the lost ones included."""
    rows = await bridge.query(queue.store, "workers_of_queue", {"queue": queue._pk})
    workers: dict[tuple[int, int], WorkerInfo] = {}
    for id, name, names, nonce, pid, host, number, concurrency, started, *more in rows:
        seen, boot, lease, active = more
        last_seen = max(seen, started)
        info = WorkerInfo(
            id=str(id),
            name=name,
            pid=pid,
            host=host,
            names=None if names is None else tuple(decode(names)),
            concurrency=concurrency,
            active=active,
            started_at=moment_of(started),
            seen_at=moment_of(last_seen),
            is_lost=is_lost(queue.store, nonce, boot, last_seen, lease),
        )
        # One worker with several assignments has a row for each.
        other = workers.get((nonce, number)) if number else None
        workers[nonce, number or -id] = info if other is None else _both(other, info)
    return list(workers.values())


def _both(first: WorkerInfo, second: WorkerInfo) -> WorkerInfo:
    """One worker, of two of its rows."""
    names = None
    if first.names is not None and second.names is not None:
        names = first.names + second.names
    return replace(
        first,
        names=names,
        concurrency=first.concurrency + second.concurrency,
        active=first.active + second.active,
        seen_at=max(first.seen_at, second.seen_at),
        is_lost=first.is_lost and second.is_lost,
    )
