"""The engines of this process: one for each database, shared by all handles to it.

The first handle that is used opens the engine. The last one that is closed closes it. If a handle
was made before a fork, its first use in the child opens a new engine there.
"""

from __future__ import annotations

import atexit
import os
import random
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from ...core.clock import Clock
from ...database.locations import Location
from ...engine.engine import Engine
from ...errors import StoreClosed
from .blocking import BlockingFuture

EXIT_TIMEOUT = 30.0
"""Seconds an exiting interpreter waits until accepted requests are written."""


class EngineHandle:
    """One user of the engine of a database."""

    def __init__(self, location: Location, clock: Clock | None) -> None:
        self._location = location
        self._clock = clock
        self._shared: _SharedEngine | None = None
        self._pid = 0
        self._closed = False

    def open(self) -> Engine:
        """Return the engine, opened if need be; may block while the database is prepared."""
        shared = self._shared
        if shared is not None and self._pid == os.getpid():
            return shared.engine
        if self._closed:
            raise StoreClosed(f"{self._location} was closed")
        kept = self._keep(_share(self._location, self._make_engine))
        if kept is None:
            raise StoreClosed(f"{self._location} was closed")
        return kept.engine

    @property
    def is_open(self) -> bool:
        return self._shared is not None and self._pid == os.getpid()

    def close(self) -> None:
        """Use the engine no more. If no other handle uses it, write what was accepted and close."""
        with _lock:
            shared, self._shared = self._shared, None
            self._closed = True
        if shared is not None and self._pid == os.getpid():
            _leave(shared)

    def _keep(self, shared: _SharedEngine) -> _SharedEngine | None:
        """Use this engine from now on. Return the one in use, None if the handle was closed."""
        with _lock:
            kept = self._shared if self._pid == os.getpid() else None
            if kept is None and not self._closed:
                self._shared, self._pid = shared, os.getpid()
                return shared
        _leave(shared)  # another thread has opened this handle meanwhile: it counts once
        return kept

    def _make_engine(self) -> Engine:
        engine = Engine(self._location.driver(self._clock, random.SystemRandom().getrandbits))
        engine.start()
        return engine


class _SharedEngine:
    """An engine, and the number of handles that use it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.users = 0
        self.is_closing = False


_engines: dict[Hashable, _SharedEngine] = {}
"""By the identity of the database."""

_openings: dict[Hashable, BlockingFuture[_SharedEngine | None]] = {}
"""Futures of databases that are being opened, by place, and by identity if the database exists.
The file at a place gets its identity when it is opened."""

_lock = threading.Lock()
"""Guards those two, and the handles. Never held while an engine is opened or closed."""


def _share(location: Location, make_engine: Callable[[], Engine]) -> _SharedEngine:
    """Return the engine of a database, with one user more; open it if no other thread does.

    Raise what opening raises, in each thread that waits for it.
    """

    def find_or_open() -> _SharedEngine:
        identity = location.identity()
        with _lock:
            found = _engines.get(identity)
        if found is None or found.engine.is_stopping:
            found = _SharedEngine(make_engine())
            identity = location.identity()
            with _lock:
                _engines[identity] = found
        return found

    while True:
        keys = dict.fromkeys([location.place(), location.identity()])
        shared = _once([key for key in keys if key is not None], find_or_open)
        with _lock:
            if shared is not None and not shared.is_closing:
                shared.users += 1
                return shared


def _once(keys: Sequence[Hashable], find: Callable[[], _SharedEngine]) -> _SharedEngine | None:
    """Return the result of `find`: of this call, or of a thread that runs it for a same key.

    Return None if that thread was interrupted.
    """
    if not keys:
        return find()
    with _lock:
        opening = _openings.get(keys[0])
        is_first = opening is None
        if opening is None:
            opening = _openings[keys[0]] = BlockingFuture()
    if not is_first:
        opened: _SharedEngine | None = opening.result()
        return opened
    outcome: _SharedEngine | BaseException | None = None
    try:
        outcome = found = _once(keys[1:], find)
        return found
    except Exception as error:
        outcome = error
        raise
    finally:
        with _lock:
            if _openings.get(keys[0]) is opening:
                del _openings[keys[0]]
        opening(outcome)


def _leave(shared: _SharedEngine) -> None:
    """Count one user less, and close the engine after the last.

    While functions of closed workers still run in their threads, it stays open: their jobs are
    kept and their results are recorded. The last of them closes it.
    """
    with _lock:
        shared.users -= 1
        if shared.users > 0:
            return
    if shared.engine.subscriptions.leaving.still_run():
        shared.engine.subscriptions.leaving.when_all_left(partial(_close_unused, shared, 0))
    else:
        _close_unused(shared)


def _close_unused(shared: _SharedEngine, timeout: float | None = None) -> None:
    """Close an engine, unless another handle uses it by now."""
    with _lock:
        if shared.users > 0 or shared.is_closing:
            return
        shared.is_closing = True
        for key in [key for key, value in _engines.items() if value is shared]:
            del _engines[key]
    shared.engine.read_thread.close()
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
