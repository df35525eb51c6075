"""The abort signal of a processor: a flag that it can read, wait for, or add a callback to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

log = logging.getLogger("bullite.worker")


class Signal:
    """The third argument of a processor: requests that it stops. Thread-safe."""

    __slots__ = ("_callbacks", "_event", "_lock", "_reason")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], Any]] = []
        self._reason: Any = None

    @property
    def aborted(self) -> bool:
        """True once the processor should stop."""
        return self._event.is_set()

    @property
    def reason(self) -> Any:
        """Why the processor should stop; None until then."""
        return self._reason

    def on_abort(self, callback: Callable[[], Any]) -> None:
        """Call `callback` when the processor should stop, in the thread that calls `abort`.

        If it should stop already, `callback` is called immediately.
        """
        with self._lock:
            if not self.aborted:
                self._callbacks.append(callback)
                return
        callback()

    async def wait(self) -> Any:
        """Wait, in a coroutine, until the processor should stop. Return the reason."""
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def resolve() -> None:
            if not future.done():
                future.set_result(None)

        self.on_abort(lambda: loop.call_soon_threadsafe(resolve))
        await future
        return self._reason

    def wait_in_thread(self, timeout: float | None = None) -> bool:
        """Block until the processor should stop, at most `timeout` seconds. Return `aborted`."""
        return self._event.wait(timeout)

    def throw_if_aborted(self) -> None:
        """Raise the reason if the processor should stop: as it is, or as InterruptedError."""
        if self.aborted:
            if isinstance(self._reason, BaseException):
                raise self._reason
            raise InterruptedError(self._reason or "the job was told to stop")

    def abort(self, reason: Any = None) -> None:
        """Request that the processor stops. Only the first reason is kept."""
        with self._lock:
            if self.aborted:
                return
            self._reason = reason
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.exception("a callback of a signal failed")
