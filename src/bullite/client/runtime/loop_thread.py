"""An event loop in a thread of its own, for code that has none."""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import WrongProcess

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

CHECK_INTERVAL = 0.5
"""Seconds between checks for Ctrl-C, which on Windows does not interrupt a wait for a lock."""

END_GRACE = 5.0
"""Seconds that callers blocked in `wait` have to get their results when the loop ends."""


class LoopThread:
    """Runs an event loop until `end` is called, or until the process ends."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._waited_for: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name=f"bullite-{name}", daemon=True)
        self._thread.start()
        self._begun.wait()

    def _run(self) -> None:
        import asyncio

        asyncio.run(self._live())

    async def _live(self) -> None:
        import asyncio

        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._begun.set()
        await self._end.wait()
        if self._waited_for:
            await asyncio.wait(self._waited_for, timeout=END_GRACE)

    def is_here(self) -> bool:
        """Return True if this is called on the thread itself."""
        return threading.current_thread() is self._thread

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and block this thread until it has ended."""
        if self._pid != os.getpid():
            coroutine.close()
            raise WrongProcess("this was started before a fork; make a new one in this process")
        import asyncio

        future = asyncio.run_coroutine_threadsafe(self._visit(coroutine), self._loop)
        try:
            while not concurrent.futures.wait([future], CHECK_INTERVAL).done:
                pass
        except BaseException:
            future.cancel()
            raise
        return future.result()

    async def _visit(self, coroutine: Coroutine[Any, Any, T]) -> T:
        import asyncio

        task = asyncio.current_task()
        assert task is not None
        self._waited_for.add(task)
        try:
            return await coroutine
        finally:
            self._waited_for.discard(task)

    def end(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._end.set)
        except RuntimeError:
            pass  # another caller has ended it
        self._thread.join()
