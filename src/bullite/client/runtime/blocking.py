"""Coroutines without an event loop: where none runs, awaiting a reply blocks the thread.

This module does not import asyncio, so that a program that only reads a queue starts faster.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...errors import WrongLoop

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

_get_running_loop: Callable[[], asyncio.AbstractEventLoop | None] | None = None


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread; None before asyncio was imported."""
    global _get_running_loop
    if _get_running_loop is None:
        _get_running_loop = getattr(sys.modules.get("asyncio.events"), "_get_running_loop", None)
        if _get_running_loop is None:
            return None
    return _get_running_loop()


def forbid_in_event_loop(verb: str, instead: str) -> None:
    """Raise WrongLoop if an event loop runs in this thread: `verb` would block it."""
    if running_loop() is not None:
        raise WrongLoop(f"{verb} would block the event loop that runs here: {instead}")


class BlockingFuture(Generic[T]):
    """A future for a thread without an event loop. It is itself the reply that resolves it."""

    __slots__ = ("_on_reply", "_resolved", "_value")

    def __init__(self, on_reply: Callable[[T], None] | None = None) -> None:
        self._resolved = threading.Event()
        self._on_reply = on_reply
        self._value: Any = None

    def __call__(self, answer: T | BaseException) -> None:
        self._value = answer
        self._resolved.set()

    def __await__(self) -> Generator[Any, None, T]:
        yield from ()
        return self.result()

    def result(self, timeout: float | None = None) -> T:
        """Block until it is resolved. Raise TimeoutError after `timeout` seconds."""
        if not self._resolved.wait(timeout):
            raise TimeoutError
        if isinstance(self._value, BaseException):
            raise self._value
        if self._on_reply is not None:
            self._on_reply(self._value)
        answer: T = self._value
        return answer


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits only replies of the engine, in this thread."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("this waits for something that needs an event loop")


def iterate_blocking(iterator: AsyncIterator[T]) -> Iterator[T]:
    """Iterate over an asynchronous iterator in the same way."""
    while True:
        try:
            yield run_blocking(_next(iterator))
        except _AtEnd:
            return


class _AtEnd(Exception):
    """A StopAsyncIteration cannot leave a coroutine."""


async def _next(iterator: AsyncIterator[T]) -> T:
    try:
        return await anext(iterator)
    except StopAsyncIteration:
        raise _AtEnd from None
