"""Event listeners in this process: registration, calls, and exceptions that listeners raise.

This module does not depend on jobs. Emitting an event without a listener costs one dictionary
lookup.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Coroutine, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, overload

from ...errors import InvalidOptionType
from .blocking import running_loop

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger("bullite.events")

Listener = Callable[..., Any]
L = TypeVar("L", bound=Listener)

_PREFIXES = ("job.", "queue.", "worker.")
_OF_WORKERS = ("drained",)
"""Events on a shared emitter, beside `error`, whose second argument is the name of a worker."""


def plain(event: str) -> str:
    """Return the one name of an event: `job.log_added`, `log_added` and `log-added` are the same.

    The text after a colon is the id of a job and stays as it is.
    """
    for prefix in _PREFIXES:
        event = event.removeprefix(prefix)
    name, colon, id = event.partition(":")
    return name.replace("_", "-") + colon + id


def fitted(listener: Listener) -> Listener:
    """Return a listener that drops the last arguments if `listener` has no parameters for them."""
    try:
        parameters = inspect.signature(listener).parameters.values()
    except (TypeError, ValueError):
        return listener  # a builtin without a signature
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return listener
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes = sum(1 for p in parameters if p.kind in positional)
    return lambda *arguments: listener(*arguments[:takes])


class Entry(NamedTuple):
    listener: Listener
    """As it was registered."""
    call: Listener
    """As it is called."""
    once: bool
    scope: str | None = None
    """Called only if the first argument is this one; called without it."""

    def hears(self, arguments: tuple[Any, ...]) -> bool:
        return self.scope is None or arguments[:1] == (self.scope,)


class EventEmitter:
    """Listeners by event; a listener may be a plain function or a coroutine function.

    A listener with fewer parameters than the event has arguments is called with the first of them.

    An exception in a listener does not reach the code that emits. It becomes an `error` event, or a
    log record if `error` has no listener. `error` is `(queue, worker, error)`; `queue` and `worker`
    are names, None if the emitted event had none.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, list[Entry]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._feeds: dict[Hashable, Any] = {}
        """Sources that emit here, such as a followed queue; kept here so that they live as long."""

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
        self._forget(plain(event), listener)
        return self

    def _forget(self, key: str, listener: Listener | None, scope: str | None = None) -> None:
        """Remove a listener, or all, of an event; if `scope` is given, only within that scope."""
        entries = self._listeners.get(key, [])
        # In place: `emit` may be calling them.
        entries[:] = [
            entry
            for entry in entries
            if (listener is not None and entry.listener != listener)
            or (scope is not None and entry.scope != scope)
        ]
        if not entries:
            self._listeners.pop(key, None)

    def remove_all_listeners(self) -> None:
        """Remove all listeners of all events."""
        for key in list(self._listeners):
            self._forget(key, None)

    def listeners(self, event: str) -> list[Listener]:
        """Return the listeners of an event, in the order in which they are called."""
        return [entry.listener for entry in self._listeners.get(plain(event), ())]

    def emit(self, event: str, *arguments: Any) -> bool:
        """Call the listeners of an event, in order. Return True if there were any."""
        key = plain(event)
        entries = self._listeners.get(key)
        if not entries:
            return False
        concerned = [entry for entry in entries if entry.hears(arguments)]
        for entry in concerned:
            if entry.once:
                if entry not in entries:
                    continue  # an earlier listener has emitted the event, or removed this one
                entries.remove(entry)
            self._call(key, entry, arguments)
        if not entries and self._listeners.get(key) is entries:
            del self._listeners[key]
        return bool(concerned)

    def hears(self, *events: str) -> bool:
        """Return True if one of these events, given by plain names, has a listener."""
        listeners = self._listeners
        return bool(listeners) and any(event in listeners for event in events)

    # --- underneath ---

    def _register(self, event: str, listener: Listener | None, once: bool) -> Any:
        if not isinstance(event, str):
            raise InvalidOptionType(f"an event is named by text, not {event!r}")
        if listener is None:

            def decorate(function: L) -> L:
                self._register(event, function, once)
                return function

            return decorate
        if not callable(listener):
            raise InvalidOptionType(f"a listener must be callable, not {listener!r}")
        self._add_entry(plain(event), Entry(listener, fitted(listener), once))
        return self

    def _add_entry(self, key: str, entry: Entry) -> None:
        self._listeners.setdefault(key, []).append(entry)

    def _call(self, key: str, entry: Entry, arguments: tuple[Any, ...]) -> None:
        try:
            result = entry.call(*arguments[entry.scope is not None :])
        except Exception as error:
            self._listener_failed(key, arguments, error)
            return
        if inspect.iscoroutine(result):
            self._call_later(key, arguments, result)

    def _call_later(
        self, key: str, arguments: tuple[Any, ...], coroutine: Coroutine[Any, Any, Any]
    ) -> None:
        loop = running_loop()
        if loop is None:
            coroutine.close()
            error = TypeError("a coroutine listener needs an event loop")
            self._listener_failed(key, arguments, error)
            return
        task = loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._listener_ended(key, arguments, task))

    def _listener_ended(
        self, key: str, arguments: tuple[Any, ...], task: asyncio.Task[Any]
    ) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, Exception):
                raise error
            self._listener_failed(key, arguments, error)

    def _listener_failed(self, key: str, arguments: tuple[Any, ...], error: Exception) -> None:
        if key == "error" or not self.emit("error", *self._before_error(key, arguments), error):
            log.error("a listener of %r failed", key, exc_info=error)

    def _before_error(self, key: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of `error` that precede the error of a listener of `key`."""
        queue, worker = (*arguments, None, None)[:2]
        return queue if isinstance(queue, str) else None, worker if key in _OF_WORKERS else None


class OwnEmitter(EventEmitter):
    """The listeners of one object, such as a worker: its `error` is `(error,)`, as BullMQ's."""

    def _before_error(self, key: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return ()
