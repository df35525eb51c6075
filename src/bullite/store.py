"""Where a queue lives: one engine per database, shared by all who use it in this process.

All queues, workers and readers of a process on one database use one engine. A handle that was made
before a fork opens an engine of its own in the child, when it is first used there.
"""

from __future__ import annotations

import atexit
import os
import random
import threading
from collections.abc import Hashable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .blocking import Answer
from .clock import Clock
from .engine.contract import Params, Result
from .engine.mail import DIRECT
from .engine.reading import ReadingThread
from .engine.writer import Engine
from .errors import StoreClosed
from .locations import default_location, parse_location

if TYPE_CHECKING:
    from .locks import NamedLock
    from .options import Duration

EXIT_TIMEOUT = 30.0
"""Seconds an exiting interpreter waits for what was accepted to be written."""


class Store:
    """A handle to one database; cheap to make, opened when first used."""

    def __init__(
        self, location: str | os.PathLike[str] | None = None, *, clock: Clock | None = None
    ) -> None:
        self.location = parse_location(default_location() if location is None else location)
        # Here, by whoever makes the handle: a fork while another thread imports would leave the
        # child waiting for that import for ever.
        self.location.import_driver()
        self._clock = clock
        self._shared: _Shared | None = None
        self._pid = 0
        self._closed = False

    def open(self) -> Engine:
        """The engine of this database, opened if need be; may block while the file is prepared."""
        return self._open_shared().engine

    @property
    def is_open(self) -> bool:
        return self._shared is not None and self._pid == os.getpid()

    @property
    def reading(self) -> ReadingThread:
        return self._open_shared().reading

    def _open_shared(self) -> _Shared:
        shared = self._shared
        if shared is not None and self._pid == os.getpid():
            return shared
        with _lock:
            # Another thread may have opened it meanwhile: a handle counts once.
            if self._closed:
                raise StoreClosed(f"{self.location} was closed")
            if self._shared is None or self._pid != os.getpid():
                self._shared = _share(self)
                self._pid = os.getpid()
            return self._shared

    def lock(self, name: str, ttl: Duration = 30_000, *, wait: Duration | None = None) -> NamedLock:
        """A lock that one holder has at a time, over all processes that use this database.

        Not held yet: `async with store.lock(...)`, or `with` in a thread. It is renewed while it is
        held, freed `ttl` after its process was last heard of, and on SQLite as soon as it is gone.
        `wait` is how long to wait for it: for ever, unless given.
        """
        # Waiting for it takes an event loop, which nothing down here may need.
        locks = import_module(".locks", __package__)
        lock: NamedLock = locks.NamedLock(self, name, ttl, wait)
        return lock

    def close(self) -> None:
        """Let go; the last handle to let go has everything written and the file closed."""
        with _lock:
            shared, self._shared = self._shared, None
            self._closed = True
            is_last = shared is not None and self._pid == os.getpid() and _release(shared)
        if shared is not None and is_last:
            shared.reading.close()
            shared.engine.close()

    def __repr__(self) -> str:
        return f"Store({str(self.location)!r})"

    def _make_engine(self) -> Engine:
        engine = Engine(self.location.driver(self._clock, random.SystemRandom().getrandbits))
        engine.start()
        return engine


class StoreReader:
    """Reads for who blocks meanwhile; the connection is shared with all who read the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.clock = store.open().clock

    def read(self, statement: str, params: Params) -> Result:
        answer: Answer[Sequence[Any]] = Answer()
        self._store.reading.read(statement, params, answer, DIRECT)
        return Result(answer.result(), 0)

    def close(self) -> None:
        """Nothing to do: the connection is the store's."""


class _Shared:
    """One engine, and how many handles use it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.reading = ReadingThread(engine.driver.reader)
        self.users = 0


_engines: dict[Hashable, _Shared] = {}
_lock = threading.Lock()


def _share(store: Store) -> _Shared:
    shared = _engines.get(store.location.identity())
    if shared is None or shared.engine.is_stopping:
        shared = _Shared(store._make_engine())
        _engines[store.location.identity()] = shared
    shared.users += 1
    return shared


def _release(shared: _Shared) -> bool:
    """Whether nobody uses the engine any more; then it is known no more."""
    shared.users -= 1
    if shared.users > 0:
        return False
    for key in [key for key, value in _engines.items() if value is shared]:
        del _engines[key]
    return True


def _flush_all() -> None:
    for shared in list(_engines.values()):
        shared.engine.close(EXIT_TIMEOUT)


def _forget_parent() -> None:
    global _lock
    _lock = threading.Lock()
    _engines.clear()


atexit.register(_flush_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
