"""Something asked of the engine, on its way: await it, wait for it, or let it be."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from .loop import Resolver, mailbox
from .store import Store

T = TypeVar("T")


class Pending(Generic[T]):
    """An answer to come.

    It is asked for already, whether anyone waits or not. In a coroutine, await it; in a thread,
    call `result()`.
    """

    __slots__ = ("_future", "_read")

    def __init__(self, store: Store, request: Any, read: Callable[[Any], T]) -> None:
        self._read = read
        self._future: asyncio.Future[Any] | concurrent.futures.Future[Any]
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._future = concurrent.futures.Future()
            store.open().submit(request, _resolver(self._future))
        else:
            self._future = loop.create_future()
            store.open().submit(request, Resolver(self._future), mailbox())

    def __await__(self) -> Generator[Any, None, T]:
        future = self._future
        if isinstance(future, concurrent.futures.Future):
            future = asyncio.wrap_future(future)
        answer = yield from future.__await__()
        return self._read(answer)

    def result(self, timeout: float | None = None) -> T:
        """Block this thread for the answer; `timeout` in seconds."""
        if not isinstance(self._future, concurrent.futures.Future):
            raise RuntimeError("this was asked for in an event loop: await it there")
        return self._read(self._future.result(timeout))


def _resolver(future: concurrent.futures.Future[Any]) -> Callable[[Any], None]:
    def resolve(answer: Any) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    return resolve
