"""The parts of a worker that its pools, runners and completers share."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from ..client.job.run import JobOwner
from ..client.queue.base import pk_of
from ..client.queue.queue import Queue
from ..engine.subscription import WorkerIntervals
from ..operations.workers import RegisterWorker
from .activity import Activity
from .event_loop import WorkerLoop
from .notifications import Notifications
from .options import WorkerOptions


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The parts of one worker."""

    queue: Queue
    ordinal: int
    """The number of the worker among those of its process."""
    options: WorkerOptions
    intervals: WorkerIntervals
    loop: WorkerLoop
    notifications: Notifications
    activity: Activity

    def job_owner(self) -> JobOwner:
        """Return what the jobs of this worker need of it while they run."""
        return JobOwner(
            self.options.name,
            self.options.retention_defaults,
            self.options.strategies.retry_delay,
            self.notifications.progress,
        )

    def registration(self, names: tuple[str, ...] | None, concurrency: int) -> RegisterWorker:
        """Return the request that registers this worker for jobs of these names, None for all."""
        options = self.options
        return RegisterWorker(
            queue=pk_of(self.queue),
            name=options.name,
            names=names,
            lock_duration=options.lock_duration,
            max_stalled_count=options.max_stalled_count,
            pid=os.getpid(),
            host=socket.gethostname(),
            boot=self.queue.store.open().clock.boot,
            address=None,
            renews=options.renews_locks,
            stalled_backoff=options.stalled_backoff,
            number=self.ordinal,
            concurrency=concurrency,
            limiter=options.limiter,
            longest_rest=options.maximum_rate_limit_delay,
        )
