"""The event loop that a worker runs on, for calls from any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any


class WorkerLoop:
    """The event loop on which a worker was started, and its thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def attach(self) -> None:
        """Use the running event loop."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def call(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call in the loop's thread: immediately if this is it, else soon. Ignore a closed loop."""
        if threading.get_ident() == self._thread:
            call(*arguments)
        elif self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(call, *arguments)
            except RuntimeError:
                pass  # the loop is closed: no listener of the worker can be called any more

    def call_later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call in the loop's thread after so many seconds. Return the function that cancels it."""
        timers: list[asyncio.TimerHandle] = []

        def start() -> None:
            if self._loop is not None:
                timers.append(self._loop.call_later(seconds, call))

        def cancel() -> None:
            for timer in timers:
                timer.cancel()

        self.call(start)
        return lambda: self.call(cancel)
