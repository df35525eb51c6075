"""Named locks: one holder at a time over all processes that use a database."""

from __future__ import annotations

import concurrent.futures
import os
import time
from typing import TYPE_CHECKING, Any, Self

from ...core.checks import Duration, check_duration
from ...core.names import check_name
from ...engine.calls import EngineCall
from ...engine.engine import Engine
from ...engine.held_locks import LockRequest
from ...errors import LockNotAcquired, LostLock
from ...operations.locks import Lease
from . import bridge
from .pending import Pending, Plan, is_in_loop

if TYPE_CHECKING:
    import asyncio

    from .store import Store

MIN_PAUSE, MAX_PAUSE = 5, 250
"""Ms between checks of a lock that another process holds; they grow with the wait."""


class NamedLock:
    """A mutex across processes, backed by a lease.

    Use it as `async with`, or in a thread as `with`. The engine renews it while it is held. If
    renewal fails for `ttl`, the lock is lost: another caller may acquire it, and its release raises
    LostLock. One object is for one holder at a time.
    """

    def __init__(
        self, store: Store, name: str, ttl: Duration = 30_000, wait: Duration | None = None
    ) -> None:
        self.name = check_name("the name of a lock", name)
        self._store = store
        self._ttl = check_duration("ttl", ttl, least=100)
        self._wait = None if wait is None else check_duration("wait", wait)
        self._request: LockRequest | None = None

    def __repr__(self) -> str:
        return f"<NamedLock {self.name!r}: {'held' if self.held else 'not held'}>"

    @property
    def held(self) -> bool:
        """Return True if this object holds the lock now, without doubt."""
        request = self._request
        if request is None or not request.token or request.lost or request.pid != os.getpid():
            return False
        return self._store.open().clock.lease_now() <= request.until

    @property
    def token(self) -> int | None:
        """The fencing token of the held lock; None if the lock is not held.

        Every later holder has a greater token. A store that keeps the token with each write can
        reject writes with a lower one.
        """
        return self._request.token or None if self._request is not None else None

    def acquire(self) -> Pending[int]:
        """Acquire the lock and return its fencing token.

        Wait up to `wait`, or without limit if it is None. Raise LockNotAcquired if `wait` elapses,
        or if this object already holds or awaits the lock.
        """
        if self._request is not None:
            raise LockNotAcquired(
                f"the lock {self.name!r} is held or waited for by this object: make another"
            )
        self._request = LockRequest(self.name, self._ttl)
        return Pending.from_plan(self._acquire(self._request))

    def release(self) -> Pending[None]:
        """Release the lock. Raise LostLock if it was lost before."""
        request, self._request = self._own_request(), None
        return Pending.from_plan(self._release(request))

    def extend(self, ttl: Duration | None = None) -> Pending[None]:
        """Hold the lock for `ttl` from now [default: its own]. Raise LostLock if it was lost."""
        ms = self._ttl if ttl is None else check_duration("ttl", ttl, least=100)
        return Pending.from_plan(self._extend(self._own_request(), ms))

    # --- as a context ---

    async def __aenter__(self) -> Self:
        try:
            await self.acquire()
        except BaseException:
            # The lock may have been acquired when this coroutine was cancelled.
            request, self._request = self._request, None
            if request is not None:
                self._store.open().held_locks.abandon(request)
            raise
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            await self.release()
        except LostLock:
            if error is None:
                raise

    def __enter__(self) -> Self:
        if is_in_loop():
            raise RuntimeError("waiting for a lock would block the event loop: use `async with`")
        self.acquire().result()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self.release()
        except LostLock:
            if error is None:
                raise

    # --- underneath ---

    def _own_request(self) -> LockRequest:
        """Return the request by which this object holds the lock in this process."""
        request = self._request
        if request is None or not request.token:
            raise LostLock(f"the lock {self.name!r} is not held by this object")
        if request.pid != os.getpid():
            raise LostLock(
                f"the lock {self.name!r} is held by the process that this was forked from"
            )
        return request

    def _acquire(self, request: LockRequest) -> Plan[int]:
        try:
            if is_in_loop() and not self._store.is_open:
                yield bridge.run_in_thread(self._store.open)
            yield from self._take(self._store.open(), request)
            return request.token
        except BaseException:
            if self._request is request:
                self._request = None
            if self._store.is_open:
                self._store.open().held_locks.abandon(request)
            raise

    def _take(self, engine: Engine, request: LockRequest) -> Plan[None]:
        began = time.monotonic()
        instead_of: int | None = None
        while not (yield self._submit(engine.held_locks.acquire_call(request, instead_of))):
            instead_of = yield from self._wait_until_free(engine, began)

    def _wait_until_free(self, engine: Engine, began: float) -> Plan[int | None]:
        """Wait until the lock is released here or seems free. Return the token of a dead holder."""
        wakeup = engine.held_locks.queue_up(self.name)
        in_loop = _wrap(wakeup) if is_in_loop() else None
        try:
            while not wakeup.done():
                is_free, holder = yield from self._check(engine)
                if is_free:
                    return holder
                pause = self._pause(int((time.monotonic() - began) * 1000)) / 1000
                if in_loop is None:
                    concurrent.futures.wait([wakeup], pause)
                else:
                    yield _within(in_loop, pause)
            return None
        finally:
            engine.held_locks.leave_queue(self.name, wakeup)

    def _check(self, engine: Engine) -> Plan[tuple[bool, int | None]]:
        """Return if the lock seems free, and the token of its holder if that process is gone."""
        rows = yield Pending.from_query(self._store, "lock_holder", {"name": self.name})
        if not rows:
            return True, None
        token, nonce, boot, until, has_left = rows[0]
        if has_left or engine.driver.is_dead(nonce, boot):
            return True, token
        return until < engine.clock.lease_now(), None

    def _pause(self, waited: int) -> int:
        """Return the ms until the next check. Raise LockNotAcquired if `wait` has elapsed."""
        pause = min(MAX_PAUSE, max(MIN_PAUSE, waited // 20))
        if self._wait is None:
            return pause
        if waited >= self._wait:
            raise LockNotAcquired(
                f"the lock {self.name!r} was not acquired within {waited} ms: another holder has it"
            )
        return min(pause, self._wait - waited)

    def _release(self, request: LockRequest) -> Plan[None]:
        if not (yield self._submit(self._store.open().held_locks.release_call(request))):
            raise LostLock(f"the lock {self.name!r} was lost before it was released")

    def _extend(self, request: LockRequest, ms: int) -> Plan[None]:
        lease: Lease | None = yield self._submit(
            self._store.open().held_locks.extend_call(request, ms)
        )
        if lease is None:
            raise LostLock(f"the lock {self.name!r} was lost before it was extended")

    def _submit(self, call: EngineCall) -> Pending[Any]:
        return Pending(self._store, call, _same)


def _wrap(wakeup: concurrent.futures.Future[None]) -> asyncio.Future[None]:
    import asyncio

    return asyncio.wrap_future(wakeup)


async def _within(in_loop: asyncio.Future[None], seconds: float) -> None:
    import asyncio

    await asyncio.wait([in_loop], timeout=seconds)


def _same(answer: Any) -> Any:
    return answer
