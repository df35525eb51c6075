"""Functions of users that take jobs: plain ones get blocking jobs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar, overload

from ..client.job.abort_signal import Signal
from ..client.job.job import Job as AsyncJob
from ..client.queue.queue import Queue as AsyncQueue
from ..client.runtime.emitter import EventEmitter, L, Listener, fitted
from ..errors import InvalidOption, InvalidOptionType
from ..worker.processors import make_handler
from .base import Blocking
from .job import Job

Processor = (
    Callable[[Job], Any]
    | Callable[[Job, str], Any]
    | Callable[[Job, str, Signal], Any]
    | Callable[[AsyncJob], Awaitable[Any]]
    | Callable[[AsyncJob, str], Awaitable[Any]]
    | Callable[[AsyncJob, str, Signal], Awaitable[Any]]
)
"""A plain function takes a job of this package, and runs in a thread; a coroutine function takes a
`bullite.Job`, and runs on the worker's event loop."""

BackoffStrategy = Callable[[int, str, BaseException, Job], int | float | bool | None]
"""Ms to the next attempt; False or a negative number for no other."""

E = TypeVar("E", bound=EventEmitter)
T = TypeVar("T")


def blocking_form(value: Any) -> Any:
    """Return the argument of a plain function: a blocking job for an asynchronous one."""
    return Job(value) if isinstance(value, AsyncJob) else value


def taking_job(function: Callable[[Job], T] | None) -> Callable[[AsyncJob], T] | None:
    if function is None:
        return None
    return lambda job: function(Job(job))


def plain(function: Any, what: str = "processor") -> Any:
    """Return a function that takes asynchronous jobs; return what is no function unchanged."""
    if not callable(function) or make_handler(what, function).in_loop:
        return function

    @functools.wraps(function, updated=())
    def call(*arguments: Any) -> Any:
        return function(*map(blocking_form, arguments))

    return call


def plain_strategy(function: Any) -> Any:
    if not callable(function):
        return function
    return lambda *arguments: function(*map(blocking_form, arguments))


def plain_processors(given: Any) -> Any:
    """The same for the processors of a worker."""
    if not isinstance(given, Mapping):
        return plain(given)
    return {name: _plain_of(name, processor) for name, processor in given.items()}


def _plain_of(name: Any, given: Any) -> Any:
    what = f"the processor of {name!r}"
    if isinstance(given, tuple) and given:
        return (plain(given[0], what), *given[1:])
    return plain(given, what)


@dataclass(frozen=True)
class _Listener:
    """A listener that takes asynchronous jobs; two of the same function are equal."""

    listener: Listener

    def __call__(self, *arguments: Any) -> Any:
        given = arguments
        if not inspect.iscoroutinefunction(self.listener):
            given = tuple(map(blocking_form, arguments))
        return fitted(self.listener)(*given)


class Listening(Blocking[E], Generic[E]):
    """An object that emits events."""

    @overload
    def on(self, event: str, listener: Listener) -> Self: ...
    @overload
    def on(self, event: str) -> Callable[[L], L]: ...
    def on(self, event: str, listener: Listener | None = None) -> Any:
        """Call `listener` at every such event. Without a listener, return a decorator."""
        return self._register(event, listener, once=False)

    @overload
    def once(self, event: str, listener: Listener) -> Self: ...
    @overload
    def once(self, event: str) -> Callable[[L], L]: ...
    def once(self, event: str, listener: Listener | None = None) -> Any:
        """Call `listener` at the next such event only."""
        return self._register(event, listener, once=True)

    def off(self, event: str, listener: Listener | None = None) -> Self:
        """Remove a listener, or all listeners of an event."""
        adapted = None if listener is None else _Listener(listener)
        self._call(lambda: self._async.off(event, adapted))
        return self

    def remove_all_listeners(self) -> None:
        """Remove all listeners of all events."""
        self._call(self._async.remove_all_listeners)

    def listeners(self, event: str) -> list[Listener]:
        """Return the listeners of an event, in the order in which they are called."""
        listeners = self._async.listeners(event)
        return [each.listener if isinstance(each, _Listener) else each for each in listeners]

    def emit(self, event: str, *arguments: Any) -> bool:
        """Call the listeners of an event, in order. Return True if there were any."""
        return self._call(lambda: self._async.emit(event, *arguments))

    def hears(self, *events: str) -> bool:
        """Return True if one of these events, given by plain names, has a listener."""
        return self._async.hears(*events)

    # --- underneath ---

    def _call(self, call: Callable[[], T]) -> T:
        """Call a function in the thread of the asynchronous object."""
        return call()

    def _register(self, event: Any, listener: Listener | None, once: bool) -> Any:
        if isinstance(self._async, AsyncQueue) and isinstance(event, str) and "." in event:
            raise InvalidOption(
                f"{event!r}: what a process does to a queue is told on an event loop; "
                "use bullite.sync.QueueEvents"
            )
        if listener is None and isinstance(event, str):

            def decorate(function: L) -> L:
                self._register(event, function, once)
                return function

            return decorate
        if not callable(listener):
            raise InvalidOptionType(f"a listener must be callable, not {listener!r}")
        register = self._async.once if once else self._async.on
        self._call(lambda: register(event, _Listener(listener)))
        return self
