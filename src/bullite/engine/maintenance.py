"""Maintenance: periodic work of every process that has a worker.

It submits promotion, expiry, recovery, renewal, retention and late job schedulers as requests to
the engine. Several processes may do so at the same time: every request is a guarded move, so each
takes effect once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..database.driver import Driver, WorkerRow
from ..errors import StoreError
from ..operations.after_failure import MAX_RETRIED, RetryFailedDue
from ..operations.cancel_and_expire import Expire
from ..operations.claim import Promote
from ..operations.locks import PruneLocks
from ..operations.retention import PruneQueue
from ..operations.scheduler_ticks import CatchUpScheduler, late_params
from ..operations.workers import MAX_RECOVERED, Recovered, RecoverStalled, RenewLeases
from .orphaned_commands import OrphanedCommands

log = logging.getLogger("bullite.scheduler")

PRUNE_EVERY = 10_000
CANCEL_EVERY = 500
WRITE_METRICS_EVERY = 2_000
MAINTENANCE_INTERVAL = 1_000
"""Ms by which maintenance may be late, unless a worker demands less."""

TIMER_SLACK = 25
"""Ms by which maintenance may be early: that saves a wake-up."""

UNTIL_KILLED = 50
"""Ms after which killed commands are looked for again."""

MaintenanceRequest = (
    CatchUpScheduler
    | Expire
    | Promote
    | RecoverStalled
    | RenewLeases
    | RetryFailedDue
    | PruneQueue
    | PruneLocks
)


@dataclass(slots=True)
class Maintenance:
    """What is due, by the monotonic clock."""

    driver: Driver
    maintenance_interval: int = MAINTENANCE_INTERVAL
    renew_every: int = 15_000
    recovers: bool = True
    """True if this process recovers the jobs of dead workers."""
    trouble: StoreError | None = None
    """The error of the last read of what is due, if it failed."""
    _renew_at: int = 0
    _recover_at: int = 0
    _promote_at: int = 0
    _prune_at: int = 0
    _cancel_at: int = 0
    _write_metrics_at: int = 0
    _commands: OrphanedCommands = field(init=False)

    def __post_init__(self) -> None:
        self._commands = OrphanedCommands(self.driver)

    def renew_within(self, ms: int, lease_now: int) -> None:
        """Renew leases every `ms`. The next renewal is not later either: a lease may be new."""
        self.renew_every = ms
        self._renew_at = min(self._renew_at, lease_now + ms)

    def next_at(self) -> int:
        """The lease time at which there is something to do."""
        return min(self._renew_at, self._recover_at, self._promote_at, self._prune_at)

    def cancellations_are_due(self, lease_now: int) -> bool:
        """Return True if it is time to read cancellations: a notification may be lost."""
        if lease_now < self._cancel_at:
            return False
        self._cancel_at = lease_now + CANCEL_EVERY
        return True

    def metrics_are_due(self, lease_now: int) -> bool:
        """Return True if it is time to write what was measured."""
        if lease_now < self._write_metrics_at:
            return False
        self._write_metrics_at = lease_now + WRITE_METRICS_EVERY
        return True

    def are_due(self, lease_now: int) -> bool:
        return lease_now + TIMER_SLACK >= self.next_at()

    def due(self, lease_now: int) -> list[MaintenanceRequest]:
        """Return the requests whose time has come, or is about to.

        If the database cannot be read, return only those that need no read, and set `trouble`.
        """
        requests: list[MaintenanceRequest] = []
        if lease_now + TIMER_SLACK >= self._renew_at:
            self._renew_at = lease_now + self.renew_every
            requests.append(RenewLeases())
        self.trouble = None
        try:
            requests.extend(self._found(lease_now))
        except StoreError as error:
            self.trouble = error
        return requests

    def _found(self, lease_now: int) -> Iterator[MaintenanceRequest]:
        """Read what is due in the database."""
        soon = lease_now + TIMER_SLACK
        if soon >= self._recover_at:
            self._recover_at = lease_now + min(self.driver.recover_every, self.maintenance_interval)
            if self.recovers:
                yield from self._recoveries(lease_now)
        if soon >= self._promote_at:
            self._promote_at = lease_now + self.maintenance_interval
            yield from self._promotions()
            yield from self._expiries()
            yield from self._late_schedulers()
        if soon >= self._prune_at:
            self._prune_at = lease_now + PRUNE_EVERY
            yield from self._lapsed_locks(lease_now)
            yield from self._auto_retries()
            yield from self._prunes()

    def again(self, request: MaintenanceRequest, answer: Any) -> bool:
        """Return True if a request did as much as one transaction may: there may be more to do.

        Log a recovery. All processes see that a worker is lost, and one recovers its jobs.
        """
        if isinstance(request, RecoverStalled):
            recovered: Recovered = answer
            if recovered:
                log.info(
                    "worker %d was lost; %d of its jobs were taken back",
                    request.worker.id,
                    recovered.jobs,
                )
            return recovered.jobs >= MAX_RECOVERED
        done: int = answer
        if isinstance(request, RetryFailedDue):
            return done >= MAX_RETRIED
        return isinstance(request, PruneQueue | Promote | Expire) and done > 0

    def _recoveries(self, lease_now: int) -> Iterator[RecoverStalled]:
        rows = self.driver.execute("workers", {}).rows
        # In one order: the jobs that are recovered last are the first in the queue.
        workers = sorted((WorkerRow(*row) for row in rows), key=lambda worker: worker.id)
        others = [worker for worker in workers if worker.nonce != self.driver.nonce]
        dead = {worker.id: worker for worker in self.driver.find_dead(others)}
        expired = [
            worker
            for worker in workers
            if worker.id not in dead
            and worker.lease_until < lease_now
            and not self.driver.is_alive_despite_lease(worker)
        ]
        lost = [*dead.values(), *expired]
        busy = self._commands.end(others, lost)
        if busy:
            self._recover_at = lease_now + UNTIL_KILLED
        for worker in lost:
            if worker.nonce not in busy:
                yield RecoverStalled(worker, dead=worker.id in dead)

    def _promotions(self) -> Iterator[Promote]:
        rows = self.driver.execute("due_queues", {"now": self.driver.clock.now()}).rows
        return (Promote(queue) for [queue] in rows)

    def _expiries(self) -> Iterator[Expire]:
        rows = self.driver.execute("expired_queues", {"now": self.driver.clock.now()}).rows
        return (Expire(queue) for [queue] in rows)

    def _late_schedulers(self) -> Iterator[CatchUpScheduler]:
        rows = self.driver.execute("late_schedulers", late_params(self.driver.clock.now())).rows
        # In one order in every process: each takes the locks of the queues one after the other.
        return (CatchUpScheduler(queue, key) for queue, key in sorted(map(tuple, rows)))

    def _lapsed_locks(self, lease_now: int) -> Iterator[PruneLocks]:
        boot = self.driver.clock.boot
        params = {"lease_now": lease_now, "boot": boot}
        [[lapsed]] = self.driver.execute("lapsed_locks", params).rows
        if lapsed:
            yield PruneLocks(boot)

    def _auto_retries(self) -> Iterator[RetryFailedDue]:
        rows = self.driver.execute("auto_retry_queues", {"now": self.driver.clock.now()}).rows
        return (RetryFailedDue(queue) for [queue] in rows)

    def _prunes(self) -> Iterator[PruneQueue]:
        workers = [WorkerRow(*row).nonce for row in self.driver.execute("workers", {}).rows]
        holders = [nonce for [nonce] in self.driver.execute("lock_holders", {}).rows]
        self.driver.remove_stale_files(workers + holders)
        rows = self.driver.execute("queues_to_prune", {"now": self.driver.clock.now()}).rows
        return (PruneQueue(queue) for [queue] in rows)
