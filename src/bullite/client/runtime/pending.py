"""The pending reply to a request: await it, wait for it, or ignore it."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...database.driver import Params
from ...engine.replies import SAME_THREAD, Reply, ReplyTarget
from .blocking import run_blocking, running_loop
from .bridge import Resolver, reply_target

if TYPE_CHECKING:
    import asyncio

    from .store import Store

T = TypeVar("T")
Plan = Generator[Awaitable[Any], Any, T]
"""A procedure that yields what it waits for, and is the same for coroutines and threads."""


class Pending(Generic[T]):
    """The result of a request that is already submitted.

    In a coroutine, await it. In a thread, call `result()`.
    """

    __slots__ = ("_decoded", "_future", "_read")

    def __init__(self, store: Store, request: Any, read: Callable[[Any], T]) -> None:
        reply, target = self._expect_reply(read)
        store.open().submit(request, reply, target)

    def _expect_reply(self, read: Callable[[Any], T]) -> tuple[Reply, ReplyTarget]:
        """Make the future. Return the reply that resolves it, and where that is to be called."""
        self._read = read
        self._decoded: tuple[Any, Exception | None] | None = None
        self._future: asyncio.Future[Any] | concurrent.futures.Future[Any]
        loop = running_loop()
        if loop is None:
            self._future = concurrent.futures.Future()
            return _resolver(self._future), SAME_THREAD
        self._future = loop.create_future()
        return Resolver(self._future), reply_target()

    @classmethod
    def from_query(cls, store: Store, statement: str, params: Params) -> Pending[Sequence[Any]]:
        """Submit a read; the result is its rows."""
        pending: Pending[Sequence[Any]] = Pending.__new__(Pending)
        reply, target = pending._expect_reply(_same)
        store.open().read_thread.read(statement, params, reply, target)
        return pending

    @classmethod
    def from_plan(cls, plan: Plan[T], then: Callable[[], object] | None = None) -> Pending[T]:
        """Run a plan; the result is its return value. Call `then` when it has ended.

        In a thread it has ended when this returns, and its exception is raised here.
        """
        if is_in_loop():
            pending = cls.from_coroutine(_await_plan(plan))
            if then is not None:
                pending._future.add_done_callback(lambda _: then())
            return pending
        pending = cls.__new__(cls)
        pending._read, pending._decoded = _same, None
        pending._future = concurrent.futures.Future()
        pending._future.set_result(_run_plan(plan))
        return pending

    @classmethod
    def from_coroutine(cls, answer: Coroutine[Any, Any, T]) -> Pending[T]:
        """Start a coroutine. In a thread it has ended when this returns."""
        pending: Pending[T] = cls.__new__(cls)
        pending._read, pending._decoded = _same, None
        loop = running_loop()
        if loop is None:
            pending._future = concurrent.futures.Future()
            try:
                pending._future.set_result(run_blocking(answer))
            except Exception as error:
                pending._future.set_exception(error)
        else:
            pending._future = loop.create_task(answer)
        return pending

    def __await__(self) -> Generator[Any, None, T]:
        future = self._future
        if isinstance(future, concurrent.futures.Future):
            if not is_in_loop():
                return self.result()
            import asyncio

            future = asyncio.wrap_future(future)
        answer = yield from future.__await__()
        return self._decode_once(answer)

    def result(self, timeout: float | None = None) -> T:
        """Block this thread until the result is there. `timeout` is in seconds."""
        if not isinstance(self._future, concurrent.futures.Future):
            raise RuntimeError("result() called on a result of an event loop: await it there")
        return self._decode_once(self._future.result(timeout))

    def ignore_result(self) -> None:
        """Never read the result, nor an error."""
        self._future.add_done_callback(_swallow)

    def _decode_once(self, answer: Any) -> T:
        """Decode the answer once, however often the result is read."""
        if self._decoded is None:
            try:
                self._decoded = (self._read(answer), None)
            except Exception as error:
                self._decoded = (None, error)
        value, problem = self._decoded
        if problem is not None:
            raise problem
        return value  # type: ignore[return-value]


def is_in_loop() -> bool:
    """Return True if an event loop runs in this thread."""
    return running_loop() is not None


async def _await_plan(plan: Plan[T]) -> T:
    try:
        step = next(plan)
        while True:
            try:
                answer = await step
            except BaseException as error:
                step = plan.throw(error)
            else:
                step = plan.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _run_plan(plan: Plan[T]) -> T:
    try:
        step = next(plan)
        while True:
            try:
                answer = step.result() if isinstance(step, Pending) else _run(step)
            except BaseException as error:
                step = plan.throw(error)
            else:
                step = plan.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _run(step: Awaitable[Any]) -> Any:
    """A coroutine of the user's: it may wait for anything, and so needs a loop of its own."""
    import asyncio

    async def await_it() -> Any:
        return await step

    return asyncio.run(await_it())


def _swallow(future: asyncio.Future[Any] | concurrent.futures.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


def _same(answer: Any) -> Any:
    return answer


def _resolver(future: concurrent.futures.Future[Any]) -> Callable[[Any], None]:
    def resolve(answer: Any) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    return resolve
