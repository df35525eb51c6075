"""Named locks: one holder at a time over all processes that use a database."""

from __future__ import annotations

import concurrent.futures
import os
import time
from typing import TYPE_CHECKING, Any, Self

from ...core.checks import Duration, check_duration
from ...core.names import check_name
from ...engine.engine import Engine
from ...engine.held_locks import LockRequest
from ...errors import LockNotAcquired, LostLock
from ...operations.locks import Lease
from . import bridge
from .pending import Pending, Plan, is_in_loop

if TYPE_CHECKING:
    import asyncio

    from .store import Store

LOOK_SOON, LOOK_LATE = 5, 250
"""Ms between looks at a lock that another process holds: few at first, then more."""


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
        self._grant: LockRequest | None = None

    def __repr__(self) -> str:
        return f"<NamedLock {self.name!r}: {'held' if self.held else 'not held'}>"

    @property
    def held(self) -> bool:
        """Whether it is certainly held by this object, now."""
        grant = self._grant
        if grant is None or not grant.token or grant.lost or grant.pid != os.getpid():
            return False
        return self._store.open().clock.lease_now() <= grant.until

    @property
    def token(self) -> int | None:
        """The fencing token of the held lock; None if the lock is not held.

        Every later holder has a greater token. A store that keeps the token with each write can
        reject writes with a lower one.
        """
        return self._grant.token or None if self._grant is not None else None

    def acquire(self) -> Pending[int]:
        """Acquire the lock and return its fencing token.

        Wait up to `wait`, or without limit if it is None. Raise LockNotAcquired if `wait` elapses,
        or if this object already holds or awaits the lock.
        """
        if self._grant is not None:
            raise LockNotAcquired(
                f"the lock {self.name!r} is held or waited for by this object: make another"
            )
        self._grant = LockRequest(self.name, self._ttl)
        return Pending.from_plan(self._acquire(self._grant))

    def release(self) -> Pending[None]:
        """Let go of it; LostLock if it was lost before."""
        grant, self._grant = self._own_grant(), None
        return Pending.from_plan(self._release(grant))

    def extend(self, ttl: Duration | None = None) -> Pending[None]:
        """Hold it for `ttl` from now, unless given its own; LostLock if it was lost before."""
        ms = self._ttl if ttl is None else check_duration("ttl", ttl, least=100)
        return Pending.from_plan(self._extend(self._own_grant(), ms))

    # --- as a context ---

    async def __aenter__(self) -> Self:
        try:
            await self.acquire()
        except BaseException:
            # It may have come in the very moment in which its waiter was told to go.
            grant, self._grant = self._grant, None
            if grant is not None:
                self._store.open().held_locks.abandon(grant)
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

    def _own_grant(self) -> LockRequest:
        """What was granted to this object in this process."""
        grant = self._grant
        if grant is None or not grant.token:
            raise LostLock(f"the lock {self.name!r} is not held by this object")
        if grant.pid != os.getpid():
            raise LostLock(
                f"the lock {self.name!r} is held by the process that this was forked from"
            )
        return grant

    def _acquire(self, grant: LockRequest) -> Plan[int]:
        try:
            if is_in_loop() and not self._store.is_open:
                yield bridge.run_in_thread(self._store.open)
            yield from self._take(self._store.open(), grant)
            return grant.token
        except BaseException:
            if self._grant is grant:
                self._grant = None
            if self._store.is_open:
                self._store.open().held_locks.abandon(grant)
            raise

    def _take(self, engine: Engine, grant: LockRequest) -> Plan[None]:
        began = time.monotonic()
        instead_of: int | None = None
        while not (yield self._ask(engine.held_locks.acquire_call(grant, instead_of))):
            instead_of = yield from self._until_it_may_be_had(engine, began)

    def _until_it_may_be_had(self, engine: Engine, began: float) -> Plan[int | None]:
        """Wait until it is let go here, or seems free; the token of a holder that is gone."""
        bell = engine.held_locks.queue_up(self.name)
        rung = _in_loop(bell) if is_in_loop() else None
        try:
            while not bell.done():
                is_free, holder = yield from self._look(engine)
                if is_free:
                    return holder
                pause = self._pause(int((time.monotonic() - began) * 1000)) / 1000
                if rung is None:
                    concurrent.futures.wait([bell], pause)
                else:
                    yield _within(rung, pause)
            return None
        finally:
            engine.held_locks.leave_queue(self.name, bell)

    def _look(self, engine: Engine) -> Plan[tuple[bool, int | None]]:
        """Whether it seems free, and the token of its holder if that one is known to be gone."""
        rows = yield Pending.from_query(self._store, "lock_holder", {"name": self.name})
        if not rows:
            return True, None
        token, nonce, boot, until, has_left = rows[0]
        if has_left or engine.driver.is_dead(nonce, boot):
            return True, token
        return until < engine.clock.lease_now(), None

    def _pause(self, waited: int) -> int:
        """Ms to the next look."""
        pause = min(LOOK_LATE, max(LOOK_SOON, waited // 20))
        if self._wait is None:
            return pause
        if waited >= self._wait:
            raise LockNotAcquired(
                f"the lock {self.name!r} was held by somebody else for the {waited} ms of waiting"
            )
        return min(pause, self._wait - waited)

    def _release(self, grant: LockRequest) -> Plan[None]:
        if not (yield self._ask(self._store.open().held_locks.release_call(grant))):
            raise LostLock(f"the lock {self.name!r} was lost before it was let go")

    def _extend(self, grant: LockRequest, ms: int) -> Plan[None]:
        lease: Lease | None = yield self._ask(self._store.open().held_locks.extend_call(grant, ms))
        if lease is None:
            raise LostLock(f"the lock {self.name!r} was lost before it was extended")

    def _ask(self, request: Any) -> Pending[Any]:
        return Pending(self._store, request, _same)


def _in_loop(bell: concurrent.futures.Future[None]) -> asyncio.Future[None]:
    import asyncio

    return asyncio.wrap_future(bell)


async def _within(rung: asyncio.Future[None], seconds: float) -> None:
    import asyncio

    await asyncio.wait([rung], timeout=seconds)


def _same(answer: Any) -> Any:
    return answer
