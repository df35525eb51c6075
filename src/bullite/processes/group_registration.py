"""The heartbeat of a group: its row in the database, updated on a thread of its supervisor."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from ..errors import BulliteError
from .group_lock import GroupTaken

UPDATE_EVERY = 10.0
RETRY_AFTER = 1.0
REPORT_EVERY = 60.0
"""Seconds: between updates, before an update is retried, between reports of failed updates."""

LEAVE_WITHIN = 5.0
"""Seconds that leaving may take, including an update that is in progress."""

T = TypeVar("T")


class GroupRegistry(Protocol):
    """Where a group is registered, visible to all machines. Calls may block."""

    def take(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Register the group. Return None, or the entry of the supervisor that runs it already."""

    def update(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Write the entry. Return None, or the entry of another supervisor that took over."""

    def leave(self) -> None:
        """Remove the registration, if it is still that of this supervisor."""


class GroupHeartbeat:
    """Updates a registry on a thread, one update at a time, so that the supervisor never waits.

    Errors are passed to `on_error`, at most every REPORT_EVERY seconds, and not raised.
    """

    def __init__(
        self,
        registry: GroupRegistry,
        clock: Callable[[], float],
        on_error: Callable[[BulliteError], None],
    ) -> None:
        self._registry, self._clock, self._on_error = registry, clock, on_error
        self._reported = -REPORT_EVERY
        self._update: Future[Mapping[str, Any] | None] | None = None
        self._due = clock()

    def take(self, group: str, entry: Mapping[str, Any]) -> None:
        """Register the group. Raise GroupTaken if another supervisor runs it."""
        if (holder := self._registry.take(entry)) is not None:
            raise GroupTaken(group, holder)

    @property
    def due(self) -> float | None:
        """When the next update is due; None during an update."""
        return None if self._update is not None else self._due

    def update(self, entry: Mapping[str, Any], then: Callable[[], None]) -> None:
        """Start an update; `then` is called, on a thread, when `holder` can return its result."""
        self._update = _run_in_thread(lambda: self._registry.update(entry))
        self._update.add_done_callback(lambda _: then())

    def holder(self) -> Mapping[str, Any] | None:
        """Return the supervisor that the last update found in our place, if any; once."""
        if self._update is None or not self._update.done():
            return None
        finished, self._update = self._update, None
        self._due = self._clock() + RETRY_AFTER
        holder: Mapping[str, Any] | None = None
        with self._report_errors():
            holder = finished.result()
            self._due = self._clock() + UPDATE_EVERY
        return holder

    def leave(self) -> None:
        """Remove the registration within LEAVE_WITHIN seconds; if that fails, it becomes stale."""
        ends = self._clock() + LEAVE_WITHIN
        with self._report_errors():
            try:
                if self._update is not None:
                    self._update.exception(LEAVE_WITHIN)
                _run_in_thread(self._registry.leave).result(max(0.0, ends - self._clock()))
            except TimeoutError:
                raise BulliteError(f"no answer within {LEAVE_WITHIN:g} s") from None

    @contextlib.contextmanager
    def _report_errors(self) -> Iterator[None]:
        try:
            yield
        except BulliteError as error:
            now = self._clock()
            if now - self._reported >= REPORT_EVERY:
                self._reported = now
                self._on_error(error)


def _run_in_thread(call: Callable[[], T]) -> Future[T]:
    """Call a function on a daemon thread, which does not delay the end of the process."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="bullite-group", daemon=True).start()
    return result
