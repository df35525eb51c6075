"""Store: the handle to a database, with one engine per database and process.

All queues, workers and readers of a process on one database share one engine. If a handle was made
before a fork, its first use in the child opens a new engine there.
"""

from __future__ import annotations

import atexit
import os
import random
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.clock import Clock
from ...database.driver import Params, Result
from ...database.locations import Location, default_location, parse_location
from ...engine.engine import Engine
from ...engine.replies import SAME_THREAD
from ...errors import StoreClosed
from .blocking import BlockingFuture

if TYPE_CHECKING:
    from ...core.checks import Duration
    from ...engine.read_thread import ReadThread
    from .named_lock import NamedLock

EXIT_TIMEOUT = 30.0
"""Seconds an exiting interpreter waits for what was accepted to be written."""


class Store:
    """A handle to one database; cheap to make, opened when first used."""

    def __init__(
        self, location: str | os.PathLike[str] | None = None, *, clock: Clock | None = None
    ) -> None:
        self.location = parse_location(default_location() if location is None else location)
        # Import here, in the thread that makes the handle: after a fork while another thread
        # imports, the child would wait for that import for ever.
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
    def read_thread(self) -> ReadThread:
        return self._open_shared().reading

    def _open_shared(self) -> _Shared:
        shared = self._shared
        if shared is not None and self._pid == os.getpid():
            return shared
        if self._closed:
            raise StoreClosed(f"{self.location} was closed")
        shared = _share(self.location, self._make_engine)
        kept = self._keep(shared)
        if kept is None:
            raise StoreClosed(f"{self.location} was closed")
        return kept

    def _keep(self, shared: _Shared) -> _Shared | None:
        """Use this engine from now on; return the one in use, None if the handle was closed."""
        with _lock:
            kept = self._shared if self._pid == os.getpid() else None
            if kept is None and not self._closed:
                self._shared, self._pid = shared, os.getpid()
                return shared
        _let_go(shared)  # another thread has opened this handle meanwhile: it counts once
        return kept

    def lock(self, name: str, ttl: Duration = 30_000, *, wait: Duration | None = None) -> NamedLock:
        """A lock that one holder has at a time, over all processes that use this database.

        Not held yet: `async with store.lock(...)`, or `with` in a thread. It is renewed while it is
        held, freed `ttl` after its process was last heard of, and on SQLite as soon as it is gone.
        `wait` is how long to wait for it: for ever, unless given.
        """
        from .named_lock import NamedLock  # takes an event loop, which few stores need

        return NamedLock(self, name, ttl, wait)

    def close(self) -> None:
        """Let go; the last handle to let go has everything written and the file closed."""
        with _lock:
            shared, self._shared = self._shared, None
            self._closed = True
        if shared is not None and self._pid == os.getpid():
            _let_go(shared)

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
        answer: BlockingFuture[Sequence[Any]] = BlockingFuture()
        self._store.read_thread.read(statement, params, answer, SAME_THREAD)
        return Result(answer.result(), 0)

    def close(self) -> None:
        """Nothing to do: the connection is the store's."""


class _Shared:
    """One engine, and how many handles use it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.reading = engine.reading
        self.users = 0
        self.is_over = False
        """Whether its last user has let go: it is being closed."""


_engines: dict[Hashable, _Shared] = {}
"""By the identity of the database."""

_openings: dict[Hashable, BlockingFuture[_Shared | None]] = {}
"""What threads wait for while another one opens the database: by its place, and by its identity if
it is there already. The file at a place gets its identity by being opened."""

_lock = threading.Lock()
"""Guards those two, and the handles; never held while anything is opened or closed."""


def _share(location: Location, make_engine: Callable[[], Engine]) -> _Shared:
    """Return the engine of a database, with one user more; open it if no other thread does.

    Raise what opening raises, in each thread that waits for it.
    """

    def find_or_open() -> _Shared:
        identity = location.identity()
        with _lock:
            found = _engines.get(identity)
        if found is None or found.engine.is_stopping:
            found = _Shared(make_engine())
            identity = location.identity()
            with _lock:
                _engines[identity] = found
        return found

    while True:
        keys = dict.fromkeys([location.place(), location.identity()])
        shared = _once([key for key in keys if key is not None], find_or_open)
        with _lock:
            if shared is not None and not shared.is_over:
                shared.users += 1
                return shared


def _once(keys: Sequence[Hashable], find: Callable[[], _Shared]) -> _Shared | None:
    """Return what `find` returns, or what it returned to another thread that came with one of the
    same keys; None if that thread was interrupted."""
    if not keys:
        return find()
    with _lock:
        answer = _openings.get(keys[0])
        is_first = answer is None
        if answer is None:
            answer = _openings[keys[0]] = BlockingFuture()
    if not is_first:
        opened: _Shared | None = answer.result()
        return opened
    outcome: _Shared | BaseException | None = None
    try:
        outcome = found = _once(keys[1:], find)
        return found
    except Exception as error:
        outcome = error
        raise
    finally:
        with _lock:
            if _openings.get(keys[0]) is answer:
                del _openings[keys[0]]
        answer(outcome)


def _let_go(shared: _Shared) -> None:
    """Use an engine no more; the last user has everything written and the file closed.

    While functions of closed workers still run in their threads, it stays open: their jobs are
    kept, what they return is recorded, and the last of them closes it.
    """
    with _lock:
        shared.users -= 1
        if shared.users > 0:
            return
    if shared.engine.still_runs():
        shared.engine.when_all_left(partial(_close_unused, shared, 0))
    else:
        _close_unused(shared)


def _close_unused(shared: _Shared, timeout: float | None = None) -> None:
    """Close an engine, unless somebody uses it again."""
    with _lock:
        if shared.users > 0 or shared.is_over:
            return
        shared.is_over = True
        for key in [key for key, value in _engines.items() if value is shared]:
            del _engines[key]
    shared.reading.close()
    shared.engine.close(timeout)


def _flush_all() -> None:
    for shared in list(_engines.values()):
        shared.engine.close(EXIT_TIMEOUT, exiting=True)


def _forget_parent() -> None:
    global _lock
    _lock = threading.Lock()
    _engines.clear()
    _openings.clear()


atexit.register(_flush_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
