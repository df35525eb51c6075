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
    """Delivers into one event loop, and collects what many coroutines of it ask for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weak: `_mailboxes` keeps a mailbox only as long as nothing it refers to keeps the loop.
        self._loop = weakref.ref(loop)
        self._is_crowded = False
        self._outgoing: dict[Engine, list[PendingRequest]] = {}

    def send(self, engine: Engine, ask: PendingRequest) -> None:
        """Put a request to the engine.

        When several coroutines ask at a time, those of one turn of the loop go together: the first
        would wake the engine for itself alone.
        """
        if not self._is_crowded:
            engine.submit(ask.request, ask.reply, self)
            return
        if not self._outgoing and (loop := self._loop()) is not None:
            loop.call_soon(self._send_all)
        self._outgoing.setdefault(engine, []).append(ask)

    def _send_all(self) -> None:
        outgoing, self._outgoing = self._outgoing, {}
        self._is_crowded = any(len(asks) > 1 for asks in outgoing.values())
        for engine, asks in outgoing.items():
            engine.submit_all(coalesced(engine, asks))

    def deliver(self, answers: Sequence[tuple[Reply, Any]]) -> None:
        self._is_crowded = self._is_crowded or len(answers) > 1
        loop = self._loop()
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(_hand_out, answers)
        except RuntimeError:
            pass  # the loop is closed: nobody is left to read the answers

    def alive(self) -> bool:
        loop = self._loop()
        return loop is not None and not loop.is_closed()


def _hand_out(answers: Sequence[tuple[Reply, Any]]) -> None:
    for reply, answer in answers:
        reply(answer)


_mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, EventLoopTarget] = (
    weakref.WeakKeyDictionary()
)


def reply_target() -> EventLoopTarget:
    """The mailbox of the running loop."""
    loop = running_loop()
    if loop is None:
        raise RuntimeError("no running event loop")
    found = _mailboxes.get(loop)
    if found is None:
        found = _mailboxes[loop] = EventLoopTarget(loop)
    return found


class Resolver:
    """A reply that resolves a future; a caller that was cancelled meanwhile is left alone."""

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
    store: Store, request: Any, first: Callable[[Any], None] | None = None
) -> Awaitable[Any]:
    """Put a request to the engine; await the answer. Cancelling does not undo the commit.

    `first` is called with the answer before anything else that the same commit brought about.
    """
    loop = running_loop()
    if loop is None:
        answer: BlockingFuture[Any] = BlockingFuture(first)
        store.open().submit(request, answer)
        return answer
    future = loop.create_future()
    box, reply = reply_target(), Resolver(future)
    box.send(
        store.open(), PendingRequest(request, reply if first is None else _both(first, reply), box)
    )
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
    """Wait until the engine takes more jobs."""
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
    """Let time pass."""
    if running_loop() is None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop to be held up
        return
    import asyncio

    await asyncio.sleep(seconds)


async def wait_registered(engine: Engine, subscription: Subscription) -> None:
    """Wait until the database knows a worker; once in its life, so a bell is not worth it."""
    while not (subscription.worker or subscription.unregistered or engine.is_stopping):
        await sleep(0.001)


async def run_in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call beside the loop, in a thread that ends with it."""
    loop = running_loop()
    if loop is None:
        return call()
    future: asyncio.Future[T] = loop.create_future()
    box, resolve = reply_target(), Resolver(future)

    def run() -> None:
        answer: Any
        try:
            answer = call()
        except BaseException as error:
            answer = error
        box.deliver([(resolve, answer)])

    threading.Thread(target=run, name="bullite-open", daemon=True).start()
    return await future
