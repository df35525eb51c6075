"""Store: the handle to a database that users hold."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...core.clock import Clock
from ...database.locations import default_location, parse_location
from ...engine.engine import Engine
from .named_lock import NamedLock
from .shared_engines import EngineHandle

if TYPE_CHECKING:
    from ...core.checks import Duration


class Store:
    """A handle to one database; cheap to make, opened when first used.

    All queues, workers and readers of a process on one database share one engine.
    """

    def __init__(
        self, location: str | os.PathLike[str] | None = None, *, clock: Clock | None = None
    ) -> None:
        self.location = parse_location(default_location() if location is None else location)
        # Import here, in the thread that makes the handle: after a fork while another thread
        # imports, the child would wait for that import for ever.
        self.location.import_driver()
        self._handle = EngineHandle(self.location, clock)

    def open(self) -> Engine:
        """Open the database unless it is open, and return its engine.

        May block while the database is created or upgraded.
        """
        return self._handle.open()

    @property
    def is_open(self) -> bool:
        """Whether this process has opened the database with this object, and not closed it."""
        return self._handle.is_open

    def lock(self, name: str, ttl: Duration = 30_000, *, wait: Duration | None = None) -> NamedLock:
        """Return a lock that one holder has at a time, over all processes that use this database.

        It is acquired by `async with store.lock(...)`, or by `with` in a thread. The engine renews
        it while it is held. If its process dies, it is free after `ttl`, and on SQLite immediately.
        `wait` is how long to wait for it: without limit, unless given.
        """
        return NamedLock(self, name, ttl, wait)

    def close(self) -> None:
        """Close this handle. The last open handle writes all accepted requests before it closes."""
        self._handle.close()

    def __repr__(self) -> str:
        return f"Store({str(self.location)!r})"
