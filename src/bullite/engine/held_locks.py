"""Named locks of this process: acquire, release and renew them, and wake callers that wait here."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..database.driver import Driver
from ..operations.locks import ExtendLock, Lease, ReleaseLock, RenewLocks, TakeLock
from .calls import EngineCall, Submit, call
from .replies import PendingRequest, deliver, ignore_reply

log = logging.getLogger("bullite.engine")

Wakeup = Future[None]
"""Set when a caller's turn to acquire a lock has come."""


@dataclass(slots=True, eq=False)
class LockRequest:
    """A request for a named lock, and the lease that it got."""

    name: str
    ttl: int
    token: int = 0
    """0 until it is held."""
    until: int = 0
    """The lease time up to which it is held."""
    renew_at: int = 0
    abandoned: bool = False
    """The caller waits no more: if the lock is acquired, release it."""
    lost: bool = False
    pid: int = field(default_factory=os.getpid)


class HeldLocks:
    """Named locks that this process holds, and its callers that wait for one."""

    def __init__(self, driver: Driver, submit: Submit) -> None:
        self._driver = driver
        self._submit = submit
        self._held: list[LockRequest] = []
        self._wakeups: dict[str, deque[Wakeup]] = {}
        self._wakeups_lock = threading.Lock()

    # --- from any thread ---

    def acquire_call(self, lock: LockRequest, instead_of: int | None) -> EngineCall:
        """Return the call that acquires a lock if it has no other holder, or only `instead_of`."""
        return EngineCall(partial(self._acquire, lock, instead_of))

    def release_call(self, lock: LockRequest) -> EngineCall:
        """Return the call that releases a lock, and wakes a caller of this process that waits."""
        return EngineCall(partial(self._release, lock))

    def extend_call(self, lock: LockRequest, ttl: int) -> EngineCall:
        """Return the call that extends a lock to `ttl` from now; each renewal extends it so."""
        return EngineCall(partial(self._extend, lock, ttl))

    def abandon(self, lock: LockRequest) -> None:
        """Give up a lock that no caller waits for any more."""
        self._submit(call(partial(self._abandon, lock)))

    def queue_up(self, name: str) -> Wakeup:
        """Return a future that is set when a release here makes it the caller's turn."""
        wakeup: Wakeup = Future()
        with self._wakeups_lock:
            self._wakeups.setdefault(name, deque()).append(wakeup)
        return wakeup

    def leave_queue(self, name: str, wakeup: Wakeup) -> None:
        """Wait no more."""
        with self._wakeups_lock:
            waiting = self._wakeups.get(name, deque())
            if wakeup in waiting:
                waiting.remove(wakeup)
            if not waiting:
                self._wakeups.pop(name, None)

    # --- acquiring and releasing, on the engine's thread ---

    def _acquire(
        self, lock: LockRequest, instead_of: int | None, pending: PendingRequest
    ) -> list[PendingRequest]:
        self._driver.start_heartbeat()
        request = TakeLock(lock.name, lock.ttl, self._driver.clock.boot, instead_of)
        return [PendingRequest(request, partial(self._acquired, lock, pending))]

    def _acquired(self, lock: LockRequest, pending: PendingRequest, answer: Any) -> None:
        if isinstance(answer, Lease):
            lock.token, lock.until = answer
            lock.renew_at = lock.until - lock.ttl + lock.ttl // 3
            self._held.append(lock)
            if lock.abandoned:
                # If this fails, the lease ends by itself.
                release = ReleaseLock(lock.name, lock.token)
                self._submit([PendingRequest(release, ignore_reply)])
                self._forget(lock)
        deliver([(pending, answer)])

    def _abandon(self, lock: LockRequest, pending: PendingRequest) -> list[PendingRequest]:
        lock.abandoned = True
        return self._release(lock, pending) if lock.token and not lock.lost else []

    def _release(self, lock: LockRequest, pending: PendingRequest) -> list[PendingRequest]:
        self._forget(lock)
        request = ReleaseLock(lock.name, lock.token)
        return [PendingRequest(request, partial(self._released, lock, pending))]

    def _released(self, lock: LockRequest, pending: PendingRequest, answer: Any) -> None:
        self._wake_first(lock.name)
        deliver([(pending, answer)])

    def _wake_first(self, name: str) -> None:
        """Wake the caller that has waited for the lock the longest."""
        with self._wakeups_lock:
            waiting = self._wakeups.get(name)
            if waiting:
                waiting.popleft().set_result(None)

    def _extend(self, lock: LockRequest, ttl: int, pending: PendingRequest) -> list[PendingRequest]:
        request = ExtendLock(lock.name, lock.token, ttl)
        return [PendingRequest(request, partial(self._extended, lock, ttl, pending))]

    def _extended(self, lock: LockRequest, ttl: int, pending: PendingRequest, answer: Any) -> None:
        if isinstance(answer, Lease):
            lock.ttl, lock.until = ttl, answer.until
            lock.renew_at = answer.until - ttl + ttl // 3
        elif answer is None:
            self._forget(lock)
        deliver([(pending, answer)])

    def _forget(self, lock: LockRequest) -> None:
        lock.lost = True
        if lock in self._held:
            self._held.remove(lock)

    def forget_all(self) -> None:
        """Renew no lock any more: the engine ends."""
        for lock in list(self._held):
            self._forget(lock)

    # --- renewing, on the engine's thread ---

    def next_at(self) -> int | None:
        """The lease time at which a lock must be renewed; None if none is held."""
        return min((lock.renew_at for lock in self._held), default=None)

    def due(self, lease_now: int) -> list[PendingRequest]:
        """Return the request that renews the locks whose time has come."""
        locks = [lock for lock in self._held if lock.renew_at <= lease_now]
        if not locks:
            return []
        for lock in locks:
            lock.renew_at = lease_now + lock.ttl // 3
        request = RenewLocks([(lock.name, lock.token, lock.ttl) for lock in locks])
        return [PendingRequest(request, partial(self._renewed, locks))]

    def _renewed(self, locks: Sequence[LockRequest], answer: Any) -> None:
        lease_now = self._driver.clock.lease_now()
        renewed = {} if isinstance(answer, BaseException) else answer
        for lock in locks:
            if lock.token in renewed:
                lock.until = renewed[lock.token]
            elif lock in self._held and (renewed is answer or lock.until < lease_now):
                log.error("the lock %r was lost: it was not renewed in time", lock.name)
                self._forget(lock)
