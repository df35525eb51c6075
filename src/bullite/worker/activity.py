"""What a worker is doing: paused, closing, or without jobs to run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .event_loop import WorkerLoop
from .notifications import Notifications


class Activity:
    """Knows if a worker is paused or closing, and when it is idle: without claimed jobs.

    `pause()` and `close()` wait until it is idle; `drained` is emitted then.
    """

    def __init__(
        self, loop: WorkerLoop, notifications: Notifications, busy: Callable[[], int]
    ) -> None:
        self._loop = loop
        self._notifications = notifications
        self._busy = busy
        """Returns the number of claimed jobs whose outcomes are not known to be recorded."""
        self.paused = self.closing = False
        self.idle_paused = asyncio.Event()
        """Set while the worker is paused and runs no jobs."""
        self._idle = asyncio.Event()
        self._has_claimed = self._queue_empty = False

    def claimed(self) -> None:
        """Jobs were claimed."""
        self._has_claimed, self._queue_empty = True, False

    def queue_empty(self) -> None:
        """A claim left no job in the queue."""
        self._queue_empty = True
        self.check_soon()

    def check_soon(self) -> None:
        """Check for idleness on the event loop, if it matters to a caller. From any thread."""
        if self.closing or self.paused or self._notifications.has_drained_listeners():
            self._loop.call(self.check)

    def check(self) -> None:
        """Wake the callers that wait until the worker is idle, and emit `drained`, if it is."""
        if self._busy():
            return
        self._idle.set()
        if self.paused:
            self.idle_paused.set()
        if self._queue_empty and self._has_claimed:
            self._queue_empty = self._has_claimed = False
            self._notifications.drained()

    async def becomes_idle(
        self, unless: asyncio.Event | None = None, timeout: float | None = None
    ) -> bool:
        """Wait until no jobs are left, `unless` is set, or `timeout` s. Return True if idle."""
        self._idle.clear()
        self.check()
        waits = [asyncio.create_task(e.wait()) for e in (self._idle, unless) if e is not None]
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return self._idle.is_set()
