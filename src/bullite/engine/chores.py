"""The scheduler service: what has to be done by the clock, in every process that has a worker.

Promotion, expiry, recovery, renewal, retention and job schedulers that are late, as requests for
the engine. Any number of processes may do this at once: each due thing happens once, because every
request is a guarded move.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from ..operations.claiming import Promote
from ..operations.expiring import Expire
from ..operations.locking import SweepLocks
from ..operations.scheduling import CatchUp, late
from ..operations.sweeping import Sweep
from ..operations.tending import MOST_RECOVERED, Recover, Renew
from .contract import Driver, Worker

log = logging.getLogger("bullite.scheduler")

SWEEP_EVERY = 10_000
MAINTENANCE_INTERVAL = 1_000
"""Ms by which housekeeping may be late, unless a worker wants it otherwise."""

LEEWAY = 25
"""Ms by which a chore may be early: better than to wake up again for it."""

Chore = CatchUp | Expire | Promote | Recover | Renew | Sweep | SweepLocks


@dataclass(slots=True)
class Chores:
    """What is due, by the clock that never jumps."""

    driver: Driver
    maintenance_interval: int = MAINTENANCE_INTERVAL
    renew_every: int = 15_000
    recovers: bool = True
    """Whether the jobs of dead workers are taken back here."""
    _renew_at: int = 0
    _recover_at: int = 0
    _promote_at: int = 0
    _sweep_at: int = 0

    def next_at(self) -> int:
        """The lease time at which there is something to do."""
        return min(self._renew_at, self._recover_at, self._promote_at, self._sweep_at)

    def are_due(self, lease_now: int) -> bool:
        return lease_now + LEEWAY >= self.next_at()

    def due(self, lease_now: int) -> list[Chore]:
        """The requests whose time has come, or is about to."""
        chores: list[Chore] = []
        soon = lease_now + LEEWAY
        if soon >= self._renew_at:
            self._renew_at = lease_now + self.renew_every
            chores.append(Renew())
        if soon >= self._recover_at:
            self._recover_at = lease_now + min(self.driver.recover_every, self.maintenance_interval)
            if self.recovers:
                chores += self._recoveries(lease_now)
        if soon >= self._promote_at:
            self._promote_at = lease_now + self.maintenance_interval
            chores += self._promotions()
            chores += self._expiries()
            chores += self._late_schedulers()
        if soon >= self._sweep_at:
            self._sweep_at = lease_now + SWEEP_EVERY
            chores += self._lapsed_locks(lease_now)
            chores += self._sweeps()
        return chores

    def again(self, chore: Chore, answer: int) -> bool:
        """Whether a chore that did as much as one transaction may has more to do."""
        if isinstance(chore, Recover):
            return answer >= MOST_RECOVERED
        return isinstance(chore, Sweep | Promote | Expire) and answer > 0

    def _recoveries(self, lease_now: int) -> Iterator[Recover]:
        rows = self.driver.execute("workers", {}).rows
        workers = [Worker(*row) for row in rows]
        others = [worker for worker in workers if worker.nonce != self.driver.nonce]
        dead = {worker.id: worker for worker in self.driver.dead(others)}
        for worker in dead.values():
            log.info("worker %d died; taking its jobs back", worker.id)
            yield Recover(worker, dead=True)
        for worker in workers:
            expired = worker.lease_until < lease_now
            if worker.id not in dead and expired and not self.driver.frozen_lease(worker):
                yield Recover(worker, dead=False)

    def _promotions(self) -> Iterator[Promote]:
        rows = self.driver.execute("due_queues", {"now": self.driver.clock.now()}).rows
        return (Promote(row[0]) for row in rows)

    def _expiries(self) -> Iterator[Expire]:
        rows = self.driver.execute("expired_queues", {"now": self.driver.clock.now()}).rows
        return (Expire(row[0]) for row in rows)

    def _late_schedulers(self) -> Iterator[CatchUp]:
        rows = self.driver.execute("late_schedulers", late(self.driver.clock.now())).rows
        # In one order in every process: each takes the locks of the queues one after the other.
        return (CatchUp(queue, key) for queue, key in sorted((row[0], row[1]) for row in rows))

    def _lapsed_locks(self, lease_now: int) -> Iterator[SweepLocks]:
        boot = self.driver.clock.boot
        params = {"lease_now": lease_now, "boot": boot}
        if self.driver.execute("lapsed_locks", params).rows[0][0]:
            yield SweepLocks(boot)

    def _sweeps(self) -> Iterator[Sweep]:
        workers = [row[2] for row in self.driver.execute("workers", {}).rows]
        holders = [row[0] for row in self.driver.execute("lock_holders", {}).rows]
        self.driver.tidy(workers + holders)
        rows = self.driver.execute("dusty_queues", {"now": self.driver.clock.now()}).rows
        return (Sweep(row[0]) for row in rows)
