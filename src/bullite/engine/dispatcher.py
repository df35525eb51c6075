"""Keeps the workers of this process fed: who is hungry, what may be there for them, and when."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from ..core.codec import as_json
from ..core.log_throttle import ThrottledLog
from ..database.driver import ANY_NAME, Driver, Step, WorkerRow
from ..errors import StoreError
from ..operations.claim import Claim, Claimed, claim, first_statements
from ..operations.transaction import Operation, Transaction
from .replies import Ask
from .subscription import FIRST_PAUSE, LONGEST_PAUSE, Appetite, Habits, Stop

log = logging.getLogger("bullite.engine")

Drive = Callable[[Operation[Any]], Any]
Served = Sequence[tuple[Appetite, Claimed]]

MOST_CLAIMED = 1_000
"""Jobs one worker may claim in one transaction."""

LOOKING, WRITING = "looking", "writing"
"""What fails when the database does."""

_ANYTHING = {ANY_NAME: 1}


class Feeding:
    """The standing orders of this process's workers."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._clock = driver.clock
        self._appetites: list[Appetite] = []
        self._due: dict[int, int] = {}
        self._last_token = 0
        self._paused_until = 0
        self._pause = FIRST_PAUSE
        self._seldom = ThrottledLog(log)
        self._to_look_into: set[int] = set()
        self._failing: set[str] = set()
        """Of looking and writing, what failed last time."""
        self.trouble: StoreError | None = None
        """A look that failed, of which no worker was told yet."""

    # --- who there is ---

    def __bool__(self) -> bool:
        return bool(self._appetites)

    def add(self, appetite: Appetite) -> None:
        self._appetites.append(appetite)

    def remove(self, appetite: Appetite) -> None:
        if appetite in self._appetites:
            self._appetites.remove(appetite)
        if not any(a.queue == appetite.queue for a in self._appetites):
            self._due.pop(appetite.queue, None)

    def habits(self) -> Habits:
        """The strictest of what the workers want."""
        all = [appetite.habits for appetite in self._appetites]
        return Habits(
            renew_every=min(h.renew_every for h in all),
            poll_interval=min(h.poll_interval for h in all),
            maintenance_interval=min(h.maintenance_interval for h in all),
            stalled_interval=min(h.stalled_interval for h in all),
            checks_stalled=any(h.checks_stalled for h in all),
        )

    def unregistered(self) -> list[Appetite]:
        """Workers that the database does not know (any more)."""
        if self._is_paused():
            return []
        return [a for a in self._appetites if not (a.worker or a.leaving)]

    def abandoned(self) -> list[Appetite]:
        """Workers whose event loop is gone: they can finish nothing."""
        return [a for a in self._appetites if not (a.leaving or a.mailbox.alive())]

    def check_registered(self, registered: set[int]) -> None:
        """Leases were renewed. Others gave up on a worker whose lease ran out: it starts anew."""
        for appetite in self._appetites:
            if appetite.worker:
                appetite.habits.renewed(appetite.worker in registered)
            if appetite.worker and appetite.worker not in registered and not appetite.leaving:
                self._register_anew(appetite)

    def _register_anew(self, appetite: Appetite) -> None:
        log.error("worker %d lost its registration; its jobs were given to others", appetite.worker)
        appetite.worker = 0
        appetite.told_hungry = False

    # --- what may be there for them ---

    def is_hungry(self) -> bool:
        return any(appetite.is_hungry for appetite in self._appetites)

    def wants_to_claim(self) -> bool:
        """Whether some worker has free slots and nobody has looked since something changed."""
        return not self._is_paused() and any(
            appetite.stirred and appetite.is_hungry for appetite in self._appetites
        )

    def are_held_off(self) -> bool:
        """Whether a claim could not look for jobs, and may in a transaction of its own."""
        return any(not appetite.is_in_turn for appetite in self._appetites)

    def stir(self, queue: int, names: Mapping[str, int] = _ANYTHING) -> None:
        """Something in this queue became ready, or will be: a claim finds out about both."""
        for appetite in self._appetites:
            if appetite.queue == queue and appetite.takes(names):
                appetite.stirred = True

    def expect(self, queue: int, due: int) -> None:
        """A delayed job of this queue is due then: arm the timer, if a worker of it lives here."""
        if any(appetite.queue == queue for appetite in self._appetites):
            self._due[queue] = min(due, self._due.get(queue, due))

    def look_around(self) -> None:
        """Somebody else committed: see whether there is something to take."""
        for queue in {a.queue for a in self._appetites if a.is_hungry and not a.stirred}:
            self.look_into(queue)

    def look_into(self, queue: int) -> None:
        """See, without the write lock, whether a queue has something to take, now or later."""
        try:
            ready, due = self._driver.execute("outlook", {"queue": queue}).rows[0]
        except StoreError as error:
            self._seldom.warning("could not look for jobs: %s", error)
            self.trouble = error
            return
        if ready:
            self.stir(queue)
        if due is not None:
            self.expect(queue, due)

    def look_again(self) -> None:
        """Since it can be known that a worker of ours is hungry, nothing was looked for.

        Whoever committed before, beside our own transaction, did not wake us.
        """
        while self._to_look_into:
            self.look_into(self._to_look_into.pop())

    def all(self) -> Sequence[Appetite]:
        return self._appetites

    def holds_jobs(self) -> bool:
        """Whether a worker of this process may run something."""
        return any(appetite.held or appetite.by_hand for appetite in self._appetites)

    def stop_the_cancelled(self) -> list[tuple[Ask, Any]]:
        """Tell the workers of this process which of their jobs are cancelled."""
        try:
            rows = self._driver.execute("to_be_stopped", {"nonce": self._driver.nonce}).rows
        except StoreError as error:
            self._seldom.warning("could not look for jobs that are cancelled: %s", error)
            self.trouble = error
            return []
        stops: dict[int, list[Stop]] = {}
        for job, worker, token, reason in rows:
            stops.setdefault(worker, []).append(Stop(job, token, reason))
        return [
            (Ask(None, appetite.stop, appetite.mailbox), stops[appetite.worker])
            for appetite in self._appetites
            if appetite.worker in stops
        ]

    def taken_away(self) -> list[tuple[Ask, Any]]:
        """Tell the workers of this process which jobs they hold that are not theirs any more."""
        # Asked before the look: what is claimed or recorded meanwhile does not appear lost.
        held = [(appetite, appetite.holds()) for appetite in self._appetites]
        jobs = sorted({job for _, holds in held for job, _ in holds})
        if not jobs:
            return []
        params = {"jobs": as_json(jobs), "nonce": self._driver.nonce}
        try:
            rows = self._driver.execute("tokens_here", params).rows
        except StoreError as error:
            self._seldom.warning("could not look for jobs that were taken away: %s", error)
            self.trouble = error
            return []
        here = {(job, token) for job, token in rows}
        return [
            (Ask(None, appetite.lose, appetite.mailbox), holds - here)
            for appetite, holds in held
            if not holds <= here
        ]

    def stir_due(self) -> None:
        """The time of delayed jobs has come."""
        if self._due:
            now = self._clock.now()
            for queue in [queue for queue, due in self._due.items() if due <= now]:
                del self._due[queue]
                self.stir(queue)

    def will_be_heard_of(self) -> bool:
        """Whether workers have fetched ahead, and of none was nothing heard for too long."""
        lease_now = self._clock.lease_now()
        times = [ms for a in self._appetites if (ms := a.unload_in(lease_now)) is not None]
        return min(times, default=0) > 0

    def unload_the_stuck(self) -> None:
        """Jobs fetched ahead behind one that takes long are given back, for others to run."""
        lease_now = self._clock.lease_now()
        for appetite in self._appetites:
            if appetite.is_stuck(lease_now):
                appetite.moved_at = lease_now
                appetite.unload()

    def next_at(self) -> int | None:
        """Ms until a delayed job is due, a pause ends or a worker should be unloaded."""
        lease_now = self._clock.lease_now()
        times = [ms for a in self._appetites if (ms := a.unload_in(lease_now)) is not None]
        if self._due:
            times.append(min(self._due.values()) - self._clock.now())
        if self._is_paused():
            times.append(self._paused_until - lease_now)
        return min(times, default=None)

    # --- feeding, inside a transaction ---

    def claim_by_hand(self, appetite: Appetite) -> Claim:
        """A claim of one job for somebody who asked for it."""
        self._last_token += 1
        return replace(appetite.claim(self._last_token, 1), demand=1, start_now=1)

    def foreseen(self) -> list[Step]:
        """What `serve` will ask first, if nothing else happens before."""
        for appetite in self._appetites:
            if appetite.stirred and appetite.is_hungry:
                return first_statements(appetite.claim(0, MOST_CLAIMED), appetite.limited)
        return []

    def serve(self, tx: Transaction, drive: Drive) -> Served:
        """Claim for every worker that has free slots and may find something."""
        served: list[tuple[Appetite, Claimed]] = []
        if self._is_paused():
            return served
        if self._driver.may_have_lost_commits():
            for appetite in self._appetites:
                appetite.told_hungry = False
                appetite.stirred = True
        # Queue after queue: claims under limits wait for each other. Only the first may wait, so
        # those come first that could not the last time.
        for appetite in sorted(self._appetites, key=attrgetter("is_in_turn", "queue")):
            names = tx.ready.get(appetite.queue)
            if names and appetite.takes(names):
                appetite.stirred = True
            if appetite.stirred and appetite.is_hungry:
                self._last_token += 1
                [claimed] = drive(claim(tx, [appetite.claim(self._last_token, MOST_CLAIMED)]))
                appetite.is_in_turn = not claimed.held_off
                if claimed.held_off:
                    continue
                served.append((appetite, claimed))
                appetite.limited, appetite.share = claimed.limited, claimed.fair_share
                hungry = claimed.exhausted and appetite.want > len(claimed.rows)
                if hungry != appetite.told_hungry:
                    self._driver.set_idle(appetite.worker, hungry)
        return served

    def announce(self, tx: Transaction, served: Served) -> None:
        """Have as many idle workers elsewhere woken as there are jobs left for them."""
        left = {queue: (sum(names.values()), names) for queue, names in tx.ready.items()}
        for appetite, claimed in served:
            number, names = left.get(appetite.queue, (0, {}))
            number -= len(claimed.rows)
            if not claimed.exhausted and appetite.told_hungry:
                # It was woken and leaves work behind: it wakes the next.
                number, names = max(1, number), _ANYTHING
            left[appetite.queue] = number, names
        for queue in tx.delayed:
            left.setdefault(queue, (1, _ANYTHING))
        for queue, (number, names) in left.items():
            if number > 0:
                self._driver.queue_notification(queue, names, number)

    # --- and after it ---

    def committed(self, tx: Transaction, served: Served) -> list[tuple[Ask, Any]]:
        """What the committed transaction means for appetites and timers; the jobs to hand over."""
        self._pause = FIRST_PAUSE
        if self._failing:
            self.works(WRITING)
        for queue, names in tx.ready.items():
            self.stir(queue, names)
        for queue, due in tx.delayed.items():
            self.expect(queue, due)
        for appetite, claimed in served:
            appetite.took(len(claimed.rows), tx.lease_now)
            was_told, appetite.told_hungry = (
                appetite.told_hungry,
                claimed.exhausted and appetite.want > 0,
            )
            # Whom nobody wakes, because it wants nothing just now, looks for itself when it does.
            appetite.stirred = not appetite.told_hungry
            if appetite.told_hungry and not was_told and self._driver.has_other_writers:
                self._to_look_into.add(appetite.queue)
            if claimed.next_due is not None:
                self.expect(appetite.queue, claimed.next_due)
            if claimed.paused or (claimed.limited and appetite.held > appetite.concurrency):
                self._unload(appetite)
            if claimed.unregistered:
                self._register_anew(appetite)
        for queue in tx.limited:
            self._unload_all(queue)
        if len(self._appetites) > 1 and served:
            # Whoever was served first is served last next time.
            self._appetites.append(self._appetites.pop(0))
        return [
            (Ask(None, a.reply, a.mailbox), claimed)
            for a, claimed in served
            if claimed.rows or claimed.exhausted
        ]

    def _unload_all(self, queue: int) -> None:
        for appetite in self._appetites:
            if appetite.queue == queue:
                self._unload(appetite)

    def _unload(self, appetite: Appetite) -> None:
        """Nothing that was claimed up to now may begin, but what has a slot."""
        if appetite.unloaded_until < self._last_token:  # else it has been told of all of it
            appetite.unloaded_until = self._last_token
            appetite.unload()

    def failed(self, error: Exception) -> list[tuple[Ask, Any]]:
        """The database failed: leave it alone for a while, and tell those who were to be fed."""
        hungry = [a for a in self._appetites if (a.stirred and a.is_hungry) or not a.worker]
        if not hungry or self._is_paused():
            return []
        asked_for = [p for a in hungry if (p := a.habits.pause_after_error) is not None]
        self._paused_until = self._clock.lease_now() + min(asked_for, default=self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._failing.add(WRITING)
        return self._tell(hungry, error)

    def troubled(self, what: str, error: BaseException) -> list[tuple[Ask, Any]]:
        """Looking or writing failed: tell those who were not told a moment ago."""
        self._failing.add(what)
        lease_now = self._clock.lease_now()
        return self._tell([a for a in self._appetites if a.told_again_at <= lease_now], error)

    def works(self, what: str) -> None:
        """Looking or writing did not fail: when both work again, the next trouble is new."""
        self._failing.discard(what)
        if not self._failing:
            for appetite in self._appetites:
                appetite.knows_of_no_trouble()

    def judge(self, lost: WorkerRow) -> WorkerRow:
        """A worker whose jobs are taken back, under the limit that its successors here set."""
        limits = [
            appetite.registration.max_stalled_count
            for appetite in self._appetites
            if appetite.queue == lost.queue
        ]
        return lost._replace(max_stalled_count=min(limits, default=lost.max_stalled_count))

    def tell_all(self, error: BaseException) -> list[tuple[Ask, Any]]:
        """Something that concerns every worker failed."""
        return self._tell(self._appetites, error)

    def _tell(self, appetites: Sequence[Appetite], error: BaseException) -> list[tuple[Ask, Any]]:
        lease_now = self._clock.lease_now()
        for appetite in appetites:
            appetite.told_of_trouble(lease_now)
        return [(Ask(None, appetite.reply, appetite.mailbox), error) for appetite in appetites]

    def _is_paused(self) -> bool:
        return self._paused_until > 0 and self._paused_until > self._clock.lease_now()
