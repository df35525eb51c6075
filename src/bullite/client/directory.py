"""Queues and workers of a database: names of queues, queues that have a job, all workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from ..core.clock import moment_of
from ..core.codec import decode
from ..core.names import job_number
from .runtime import bridge
from .runtime.store import Store

WORKER_LOST_AFTER = 60_000
"""Ms without a heartbeat after which a worker is lost; or its lease, if that is longer."""


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """A worker, as it last registered itself."""

    queue: str
    name: str
    pid: int
    host: str
    names: tuple[str, ...] | None
    concurrency: int
    started_at: datetime
    seen_at: datetime
    """The time of its last heartbeat."""
    is_lost: bool
    """True if its process is gone, or has sent no heartbeat for too long."""
    jobs: tuple[str, ...]
    """The ids of its active jobs."""
    runs: int
    failed: int
    busy_ms: int
    batches: int
    """Transactions of its process in which jobs ended."""
    batched: int
    """Jobs that ended in these."""
    lock_waits: int
    lock_wait_ms: int

    @property
    def busy_share(self) -> float:
        """The busy part of the time of all its slots since it started."""
        had = (self.seen_at - self.started_at).total_seconds() * 1000 * self.concurrency
        return min(1.0, self.busy_ms / had) if had > 0 else 0.0


async def queue_names(store: Store) -> list[str]:
    """Return the names of all queues, sorted."""
    return sorted(name for _, name in await bridge.query(store, "queue_names", {}))


async def queues_with(store: Store, job_id: str) -> list[str]:
    """Return the names of the queues that have a job of this id."""
    number = job_number(job_id)
    if number is not None:
        rows = await bridge.query(store, "queues_with_job", {"number": number})
    else:
        rows = await bridge.query(store, "queues_with_custom_id", {"custom_id": job_id})
    return [name for [name] in rows]


class RemovedJob(NamedTuple):
    """A removed job that may be restored."""

    pk: int
    removed_from: str
    removed_at: int


async def removed_job(store: Store, queue: int, job_id: str) -> RemovedJob | None:
    """Return the last job of this id that was removed from a queue; None if none was."""
    params = {"queue": queue, "number": job_number(job_id), "custom_id": job_id}
    rows = await bridge.query(store, "removed_job", params)
    return RemovedJob(*rows[0]) if rows else None


async def queues_that_removed(store: Store, job_id: str) -> list[str]:
    """Return the names of the queues from which a job of this id was removed."""
    queues = await bridge.query(store, "queue_names", {})
    return sorted([name for pk, name in queues if await removed_job(store, pk, job_id)])


async def workers(store: Store) -> list[WorkerStats]:
    """Return all registered workers, in all processes."""
    found = []
    for row in await bridge.query(store, "all_workers", {}):
        _, queue, name, names, nonce, pid, host, _, concurrency, started, seen, *more = row
        boot, lease, stats, jobs = more
        last_seen = max(seen, started)
        said: dict[str, int] = decode(stats) if stats else {}
        found.append(
            WorkerStats(
                queue=queue,
                name=name,
                pid=pid,
                host=host,
                names=None if names is None else tuple(decode(names)),
                concurrency=concurrency,
                started_at=moment_of(started),
                seen_at=moment_of(last_seen),
                is_lost=is_lost(store, nonce, boot, last_seen, lease),
                jobs=tuple(decode(jobs)),
                runs=said.get("runs", 0),
                failed=said.get("failed", 0),
                busy_ms=said.get("busy_ms", 0),
                batches=said.get("batches", 0),
                batched=said.get("batched", 0),
                lock_waits=said.get("lock_waits", 0),
                lock_wait_ms=said.get("lock_wait_ms", 0),
            )
        )
    return found


def is_lost(store: Store, nonce: int, boot: str, last_seen: int, lease: int | None) -> bool:
    """Return True if a worker's process is gone, or its last heartbeat is too old.

    A worker without a `lease` sends none.
    """
    engine = store.open()
    if engine.driver.is_dead(nonce, boot):
        return True
    return lease is not None and engine.clock.now() - last_seen > max(WORKER_LOST_AFTER, lease)
