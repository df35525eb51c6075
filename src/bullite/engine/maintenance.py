"""Maintenance: periodic work of every process that has a worker.

It submits promotion, expiry, recovery, renewal, retention and late job schedulers as requests to
the engine. Several processes may do so at the same time: every request is a guarded move, so each
takes effect once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.codec import as_json
from ..core.states import State
from ..database.driver import Driver, WorkerRow
from ..errors import StoreError
from ..operations.after_failure import MAX_RETRIED, RetryFailedDue
from ..operations.cancel_and_expire import Expire
from ..operations.claim import Promote
from ..operations.locks import PruneLocks
from ..operations.retention import PruneQueue
from ..operations.scheduler_ticks import CatchUpScheduler, late_params
from ..operations.transitions import LockedJob
from ..operations.workers import MAX_RECOVERED, Recovered, RecoverStalled, RenewLeases
from ..processes.orphaned_commands import Look, RunMarker, end, may_run_commands

log = logging.getLogger("bullite.scheduler")

PRUNE_EVERY = 10_000
STOP_EVERY = 500
RECORD_EVERY = 2_000
MAINTENANCE_INTERVAL = 1_000
"""Ms by which housekeeping may be late, unless a worker wants it otherwise."""

TIMER_SLACK = 25
"""Ms by which a chore may be early: better than to wake up again for it."""

UNTIL_KILLED = 50
"""Ms after which it is seen whether commands that were killed are dead."""

MAX_LOOKS = 20
"""How often that is seen before jobs run again all the same: some can never be killed."""

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
    """What is due, by the clock that never jumps."""

    driver: Driver
    maintenance_interval: int = MAINTENANCE_INTERVAL
    renew_every: int = 15_000
    recovers: bool = True
    """Whether the jobs of dead workers are taken back here."""
    trouble: StoreError | None = None
    """Why the database could not be read when it was last looked for what is due."""
    _renew_at: int = 0
    _recover_at: int = 0
    _promote_at: int = 0
    _prune_at: int = 0
    _stop_at: int = 0
    _record_at: int = 0
    _look: Look | None = None
    """For commands that lost processes left running; under way, or done."""
    _has_looked: bool = False
    """Whether nothing runs any more that was left when this process began."""
    _looks: int = 0
    """How often in a row something was found running that had been left."""

    def renew_within(self, ms: int, lease_now: int) -> None:
        """Renew leases so often, the next time included: one may be new, and run out sooner."""
        self.renew_every = ms
        self._renew_at = min(self._renew_at, lease_now + ms)

    def next_at(self) -> int:
        """The lease time at which there is something to do."""
        return min(self._renew_at, self._recover_at, self._promote_at, self._prune_at)

    def stops_are_due(self, lease_now: int) -> bool:
        """Whether it is time to look for jobs that are cancelled, in case nobody told."""
        if lease_now < self._stop_at:
            return False
        self._stop_at = lease_now + STOP_EVERY
        return True

    def record_is_due(self, lease_now: int) -> bool:
        """Whether it is time to write down what was measured."""
        if lease_now < self._record_at:
            return False
        self._record_at = lease_now + RECORD_EVERY
        return True

    def are_due(self, lease_now: int) -> bool:
        return lease_now + TIMER_SLACK >= self.next_at()

    def due(self, lease_now: int) -> list[MaintenanceRequest]:
        """The requests whose time has come, or is about to.

        If the database cannot be read, those that need no look, and `trouble` has the error.
        """
        chores: list[MaintenanceRequest] = []
        if lease_now + TIMER_SLACK >= self._renew_at:
            self._renew_at = lease_now + self.renew_every
            chores.append(RenewLeases())
        self.trouble = None
        try:
            chores.extend(self._found(lease_now))
        except StoreError as error:
            self.trouble = error
        return chores

    def _found(self, lease_now: int) -> Iterator[MaintenanceRequest]:
        """What is seen to be due in the database."""
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

    def again(self, chore: MaintenanceRequest, answer: Any) -> bool:
        """Whether a chore that did as much as one transaction may has more to do.

        Log a recovery: in the process that made it, for all see that a worker is lost.
        """
        if isinstance(chore, RecoverStalled):
            recovered: Recovered = answer
            if recovered:
                log.info(
                    "worker %d was lost; %d of its jobs were taken back",
                    chore.worker.id,
                    recovered.jobs,
                )
            return recovered.jobs >= MAX_RECOVERED
        done: int = answer
        if isinstance(chore, RetryFailedDue):
            return done >= MAX_RETRIED
        return isinstance(chore, PruneQueue | Promote | Expire) and done > 0

    def _recoveries(self, lease_now: int) -> Iterator[RecoverStalled]:
        rows = self.driver.execute("workers", {}).rows
        # A database has them in any order, but the last to be recovered goes first in the line.
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
        busy = self._end_commands(others, lost)
        if busy:
            self._recover_at = lease_now + UNTIL_KILLED
        for worker in lost:
            if worker.nonce not in busy:
                yield RecoverStalled(worker, dead=worker.id in dead)

    def _end_commands(self, others: Sequence[WorkerRow], lost: Sequence[WorkerRow]) -> set[int]:
        """Kill what lost processes left running; the nonces of those that may still have something.

        Only what belongs to a job that is still held: what a command left behind when it ended may
        live on. The first look is also for processes that are gone and not yet lost: by then their
        jobs may be taken back by somebody who cannot reach what they left.
        """
        known = {worker.nonce for worker in others if may_run_commands(worker.names)}
        gone = {worker.nonce for worker in lost} & known
        if not gone and (self._has_looked or not known):
            return set()
        if self._look is None:
            self._look = Look(known, gone)
            self._look.start()
        if not self._look.is_done:
            return gone
        look, self._look = self._look, None
        # A process that was alive when the look began may have started commands since.
        return self._end_found(look) | (gone - look.lost)

    def _end_found(self, look: Look) -> set[int]:
        left = {
            mark: members
            for mark, members in look.found.items()
            if mark.nonce in look.lost or mark in look.without_process
            if self._is_held(mark)
        }
        for members in left.values():
            end(members)
        self._has_looked = not left
        self._looks = self._looks + 1 if left else 0
        return {mark.nonce for mark in left} if self._looks <= MAX_LOOKS else set()

    def _is_held(self, mark: RunMarker) -> bool:
        """Whether a command has not ended as far as the database knows."""
        # One at a time: who waits for the lock of a row must not have another's.
        rows = self.driver.execute("load_jobs_for_update", {"jobs": as_json([mark.job])}).rows
        places = [LockedJob(*row) for row in rows]
        return any(
            (place.state, place.token, place.nonce) == (State.ACTIVE, mark.token, mark.nonce)
            for place in places
        )

    def _promotions(self) -> Iterator[Promote]:
        rows = self.driver.execute("due_queues", {"now": self.driver.clock.now()}).rows
        return (Promote(row[0]) for row in rows)

    def _expiries(self) -> Iterator[Expire]:
        rows = self.driver.execute("expired_queues", {"now": self.driver.clock.now()}).rows
        return (Expire(row[0]) for row in rows)

    def _late_schedulers(self) -> Iterator[CatchUpScheduler]:
        rows = self.driver.execute("late_schedulers", late_params(self.driver.clock.now())).rows
        # In one order in every process: each takes the locks of the queues one after the other.
        return (
            CatchUpScheduler(queue, key) for queue, key in sorted((row[0], row[1]) for row in rows)
        )

    def _lapsed_locks(self, lease_now: int) -> Iterator[PruneLocks]:
        boot = self.driver.clock.boot
        params = {"lease_now": lease_now, "boot": boot}
        if self.driver.execute("lapsed_locks", params).rows[0][0]:
            yield PruneLocks(boot)

    def _auto_retries(self) -> Iterator[RetryFailedDue]:
        rows = self.driver.execute("auto_retry_queues", {"now": self.driver.clock.now()}).rows
        return (RetryFailedDue(row[0]) for row in rows)

    def _prunes(self) -> Iterator[PruneQueue]:
        workers = [row[2] for row in self.driver.execute("workers", {}).rows]
        holders = [row[0] for row in self.driver.execute("lock_holders", {}).rows]
        self.driver.remove_stale_files(workers + holders)
        rows = self.driver.execute("queues_to_prune", {"now": self.driver.clock.now()}).rows
        return (PruneQueue(row[0]) for row in rows)
