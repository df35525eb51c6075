"""Named locks of this process: renew their leases, and wake the callers that wait for one here."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..database.driver import Driver
from ..operations.locks import ExtendLock, Lease, ReleaseLock, RenewLocks, TakeLock
from .replies import PendingRequest

log = logging.getLogger("bullite.engine")

Bell = Future[None]


@dataclass(slots=True, eq=False)
class LockRequest:
    """A lock that was asked for, and what became of that."""

    name: str
    ttl: int
    token: int = 0
    """0 until it is held."""
    until: int = 0
    """The lease time up to which it is."""
    renew_at: int = 0
    abandoned: bool = False
    """The caller waits no more: if the lock is acquired, release it."""
    lost: bool = False
    pid: int = field(default_factory=os.getpid)


class HeldLocks:
    """Named locks held by this process. Used on the engine's thread, except for the wake-ups."""

    def __init__(
        self, driver: Driver, submit: Callable[[Any, Callable[[Any], None]], None]
    ) -> None:
        self._driver = driver
        self._submit = submit
        self._requests: list[LockRequest] = []
        self._wakeups: dict[str, deque[Bell]] = {}
        self._waking = threading.Lock()

    # --- taking and letting go ---

    def take(
        self, grant: LockRequest, instead_of: int | None, ask: PendingRequest
    ) -> list[PendingRequest]:
        """Acquire a lock if it has no other holder."""
        self._driver.start_heartbeat()
        request = TakeLock(grant.name, grant.ttl, self._driver.clock.boot, instead_of)
        return [PendingRequest(request, partial(self._taken, grant, ask))]

    def _taken(self, grant: LockRequest, ask: PendingRequest, answer: Any) -> None:
        if isinstance(answer, Lease):
            self._hold(grant, answer)
            if grant.abandoned:
                self._submit(ReleaseLock(grant.name, grant.token), _ignore_reply)
                self._forget(grant)
        ask.target.deliver([(ask.reply, answer)])

    def _hold(self, grant: LockRequest, lease: Lease) -> None:
        grant.token, grant.until = lease
        grant.renew_at = grant.until - grant.ttl + grant.ttl // 3
        self._requests.append(grant)

    def abandon(self, grant: LockRequest, ask: PendingRequest) -> list[PendingRequest]:
        """Give up a lock that no caller waits for any more."""
        grant.abandoned = True
        return self.release(grant, ask) if grant.token and not grant.lost else []

    def release(self, grant: LockRequest, ask: PendingRequest) -> list[PendingRequest]:
        """Release a lock, and wake the next caller that waits for it in this process."""
        self._forget(grant)
        request = ReleaseLock(grant.name, grant.token)
        return [PendingRequest(request, partial(self._released, grant, ask))]

    def _released(self, grant: LockRequest, ask: PendingRequest, answer: Any) -> None:
        self.wake_waiters(grant.name)
        ask.target.deliver([(ask.reply, answer)])

    def extend(self, grant: LockRequest, ttl: int, ask: PendingRequest) -> list[PendingRequest]:
        """Hold a lock for `ttl` from now, and so at each renewal."""
        request = ExtendLock(grant.name, grant.token, ttl)
        return [PendingRequest(request, partial(self._extended, grant, ttl, ask))]

    def _extended(self, grant: LockRequest, ttl: int, ask: PendingRequest, answer: Any) -> None:
        if isinstance(answer, Lease):
            grant.ttl, grant.until = ttl, answer.until
            grant.renew_at = answer.until - ttl + ttl // 3
        elif answer is None:
            self._forget(grant)
        ask.target.deliver([(ask.reply, answer)])

    def _forget(self, grant: LockRequest) -> None:
        grant.lost = True
        if grant in self._requests:
            self._requests.remove(grant)

    def forget_all(self) -> None:
        """The engine ends."""
        for grant in list(self._requests):
            self._forget(grant)

    # --- renewing ---

    def next_at(self) -> int | None:
        """The lease time at which a lock must be renewed; None if none is held."""
        return min((grant.renew_at for grant in self._requests), default=None)

    def due(self, lease_now: int) -> list[PendingRequest]:
        grants = [grant for grant in self._requests if grant.renew_at <= lease_now]
        if not grants:
            return []
        for grant in grants:
            grant.renew_at = lease_now + grant.ttl // 3
        request = RenewLocks([(grant.name, grant.token, grant.ttl) for grant in grants])
        return [PendingRequest(request, partial(self._renewed, grants))]

    def _renewed(self, grants: Sequence[LockRequest], answer: Any) -> None:
        lease_now = self._driver.clock.lease_now()
        renewed = {} if isinstance(answer, BaseException) else answer
        for grant in grants:
            if grant.token in renewed:
                grant.until = renewed[grant.token]
            elif grant in self._requests and (renewed is answer or grant.until < lease_now):
                log.error("the lock %r was lost: it was not renewed in time", grant.name)
                self._forget(grant)

    # --- waiting, from any thread ---

    def queue_up(self, name: str) -> Bell:
        """Return a future that is set when a release here makes it the caller's turn."""
        bell: Bell = Future()
        with self._waking:
            self._wakeups.setdefault(name, deque()).append(bell)
        return bell

    def wake_waiters(self, name: str) -> None:
        """Wake the caller that has waited for the lock the longest."""
        with self._waking:
            line = self._wakeups.get(name)
            if line:
                line.popleft().set_result(None)

    def leave(self, name: str, bell: Bell) -> None:
        """Wait no more; if it was the waiter's turn, it is the next one's."""
        with self._waking:
            line = self._wakeups.get(name, deque())
            if bell in line:
                line.remove(bell)
            if not line:
                self._wakeups.pop(name, None)


def _ignore_reply(answer: Any) -> None:
    """Ignore the reply: if the release failed, the lease ends by itself."""
