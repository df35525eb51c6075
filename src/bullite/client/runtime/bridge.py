"""The bridge between an event loop and the engine's thread: one call into the loop per batch.

Where no loop runs, awaiting blocks the thread instead (see `blocking`).
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ...database.driver import Params
from ...engine.engine import Engine
from ...engine.replies import SAME_THREAD, PendingRequest, Reply
from ...engine.result_waiters import AwaitedJob
from ...engine.subscription import Subscription
from .add_coalescing import coalesced
from .blocking import BlockingFuture, running_loop

if TYPE_CHECKING:
    import asyncio

    from .store import Store

T = TypeVar("T")


class EventLoopTarget:
    """Delivers replies into one event loop, and collects the requests of its coroutines."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weak: a target that kept its loop would stay in `_targets` with it.
        self._loop = weakref.ref(loop)
        self._is_busy = False
        self._outgoing: dict[Engine, list[PendingRequest]] = {}

    def send(self, engine: Engine, pending: PendingRequest) -> None:
        """Submit a request to the engine.

        If several coroutines submit at a time, the requests of one turn of the loop are submitted
        together: the first one would wake the engine for itself alone.
        """
        if not self._is_busy:
            engine.submit(pending.request, pending.reply, self)
            return
        if not self._outgoing and (loop := self._loop()) is not None:
            loop.call_soon(self._send_all)
        self._outgoing.setdefault(engine, []).append(pending)

    def _send_all(self) -> None:
        outgoing, self._outgoing = self._outgoing, {}
        self._is_busy = any(len(requests) > 1 for requests in outgoing.values())
        for engine, requests in outgoing.items():
            engine.submit_all(coalesced(engine, requests))

    def deliver(self, answers: Sequence[tuple[Reply, Any]]) -> None:
        self._is_busy = self._is_busy or len(answers) > 1
        loop = self._loop()
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(_call_all, answers)
        except RuntimeError:
            pass  # the loop is closed: no coroutine is left to read the replies

    def alive(self) -> bool:
        loop = self._loop()
        return loop is not None and not loop.is_closed()


def _call_all(answers: Sequence[tuple[Reply, Any]]) -> None:
    for reply, answer in answers:
        reply(answer)


_targets: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, EventLoopTarget] = (
    weakref.WeakKeyDictionary()
)


def reply_target() -> EventLoopTarget:
    """Return the reply target of the running loop."""
    loop = running_loop()
    if loop is None:
        raise RuntimeError("no running event loop")
    found = _targets.get(loop)
    if found is None:
        found = _targets[loop] = EventLoopTarget(loop)
    return found


class Resolver:
    """A reply that resolves a future, unless its caller was cancelled meanwhile."""

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future

    def __call__(self, answer: Any) -> None:
        if self._future.done():
            return
        if isinstance(answer, BaseException):
            self._future.set_exception(answer)
        else:
            self._future.set_result(answer)


def submit(
    store: Store, request: Any, on_reply: Callable[[Any], None] | None = None
) -> Awaitable[Any]:
    """Submit a request to the engine; await the answer. Cancelling does not undo the commit.

    `on_reply` is called with the answer before any event of the same commit is emitted.
    """
    loop = running_loop()
    if loop is None:
        answer: BlockingFuture[Any] = BlockingFuture(on_reply)
        store.open().submit(request, answer)
        return answer
    future = loop.create_future()
    target, resolve = reply_target(), Resolver(future)
    reply = resolve if on_reply is None else _both(on_reply, resolve)
    target.send(store.open(), PendingRequest(request, reply, target))
    return future


def _both(first: Callable[[Any], None], reply: Reply) -> Reply:
    def both(answer: Any) -> None:
        if not isinstance(answer, BaseException):
            first(answer)
        reply(answer)

    return both


def query(store: Store, statement: str, params: Params) -> Awaitable[Sequence[Any]]:
    """Run a read; await the rows."""
    loop = running_loop()
    if loop is None:
        answer: BlockingFuture[Sequence[Any]] = BlockingFuture()
        store.open().read_thread.read(statement, params, answer, SAME_THREAD)
        return answer
    future = loop.create_future()
    store.open().read_thread.read(statement, params, Resolver(future), reply_target())
    return future


async def wait_for_capacity(store: Store) -> None:
    """Wait until the engine accepts more jobs."""
    engine = store.open()
    while not engine.has_room():
        loop = running_loop()
        if loop is None:
            answer: BlockingFuture[Any] = BlockingFuture()
            engine.when_room(answer, SAME_THREAD)
            await answer
            continue
        future = loop.create_future()
        engine.when_room(Resolver(future), reply_target())
        await future


async def wait_result(store: Store, job: AwaitedJob, seconds: float | None) -> Any:
    """Wait until a job is finished: [state, return value, failed reason]; or TimeoutError."""
    engine, loop = store.open(), running_loop()
    if loop is None:
        answer: BlockingFuture[Any] = BlockingFuture()
        engine.result_waiters.watch(job, answer, SAME_THREAD)
        try:
            return answer.result(seconds)
        except BaseException:
            engine.result_waiters.unwatch(job.job, answer)
            raise
    import asyncio

    future = loop.create_future()
    resolve = Resolver(future)
    engine.result_waiters.watch(job, resolve, reply_target())
    try:
        return await asyncio.wait_for(future, seconds)
    except (TimeoutError, asyncio.CancelledError):
        engine.result_waiters.unwatch(job.job, resolve)
        raise


async def sleep(seconds: float) -> None:
    """Suspend the coroutine; without an event loop, block the thread."""
    if running_loop() is None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop to be held up
        return
    import asyncio

    await asyncio.sleep(seconds)


async def wait_registered(engine: Engine, subscription: Subscription) -> None:
    """Wait until a worker is registered. It polls: that happens once in the life of a worker."""
    while not (subscription.worker or subscription.unregistered or engine.is_stopping):
        await sleep(0.001)


async def run_in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call in a thread of its own, which ends with the call."""
    loop = running_loop()
    if loop is None:
        return call()
    future: asyncio.Future[T] = loop.create_future()
    target, resolve = reply_target(), Resolver(future)

    def run() -> None:
        answer: Any
        try:
            answer = call()
        except BaseException as error:
            answer = error
        target.deliver([(resolve, answer)])

    threading.Thread(target=run, name="bullite-open", daemon=True).start()
    return await future
