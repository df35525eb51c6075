"""Workers and event readers on an event loop in a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ..client.runtime.blocking import run_blocking
from ..client.runtime.loop_thread import LoopThread
from .base import refuse_in_loop
from .callbacks import Listening

if TYPE_CHECKING:
    from ..client.queue_events import QueueEvents as AsyncQueueEvents
    from ..core.checks import Duration
    from ..worker.worker import Worker as AsyncWorker

R = TypeVar("R", bound="AsyncWorker | AsyncQueueEvents")
T = TypeVar("T")


class Running(Listening[R], Generic[R]):
    """An object whose event loop runs in a thread from its first use until it is closed."""

    def __init__(self, asynchronous: R) -> None:
        super().__init__(asynchronous)
        self._thread: LoopThread | None = None
        self._has_left = False
        self._making = threading.Lock()

    def start(self) -> None:
        """Start, and wait until it has started. Raise the error if it cannot start."""
        refuse_in_loop(type(self._async).__name__)
        if self._async._closed:
            return
        try:
            self._wait(self._started())
        except Exception:
            self._leave_thread()  # it cannot be started twice
            raise

    async def _started(self) -> None:
        await self._async.__aenter__()
        await self._async.wait_until_ready()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._close(self._async.close())

    # --- underneath ---

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine on the loop; run it without one after the thread has ended."""
        try:
            refuse_in_loop(type(self._async).__name__)
            thread = self._own_thread()
        except BaseException:
            coroutine.close()
            raise
        return run_blocking(coroutine) if thread is None else thread.wait(coroutine)

    def _own_thread(self) -> LoopThread | None:
        with self._making:
            if self._thread is None and not self._has_left:
                self._thread = LoopThread(f"sync-{type(self._async).__name__.lower()}")
            return self._thread

    def _call(self, call: Callable[[], T]) -> T:
        thread = self._thread
        if thread is None or thread.is_here():
            return call()
        return self._wait(_called(call))

    def _close(self, closing: Coroutine[Any, Any, None]) -> None:
        if self._has_left:
            closing.close()
            return
        if self._thread is None:
            try:
                refuse_in_loop(type(self._async).__name__)
            except BaseException:
                closing.close()
                raise
            run_blocking(closing)
            self._has_left = self._async._closed
            return
        try:
            self._wait(closing)
        except Exception:
            if self._async._closed:
                self._leave_thread()
            raise
        self._leave_thread()

    def _leave_thread(self) -> None:
        with self._making:
            thread, self._thread, self._has_left = self._thread, None, True
        if thread is not None:
            thread.end()


class RunningWorker(Running["AsyncWorker"]):
    """A worker that runs in the background."""

    def run(self) -> None:
        """Work until it is closed or paused, or until Ctrl-C.

        At Ctrl-C, wait for the running jobs; at a second one, cancel them.
        """
        if self._async._closed:
            return
        try:
            self._wait(self._async.run())
        except KeyboardInterrupt:
            try:
                self.close()
            except KeyboardInterrupt:
                self.close(force=True)

    def close(self, force: bool = False, timeout: Duration | None = None) -> None:
        """Claim no more jobs, wait for the running ones and deregister.

        After `timeout`, or immediately with `force`, coroutines are cancelled and their jobs return
        to the queue; no attempt is used. A thread cannot be interrupted: it keeps its job, and its
        outcome is recorded if the process lives until then. Else the job returns to the queue.
        """
        self._close(self._async.close(force, timeout))


class RunningEvents(Running["AsyncQueueEvents"]):
    """An event reader that runs in the background."""

    def run(self) -> None:
        """Read until `close`, or until Ctrl-C."""
        try:
            self._wait(self._async.run())
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """Stop reading, and close the store if this object opened it."""
        self._close(self._async.close())


async def _called(call: Callable[[], T]) -> T:
    return call()
