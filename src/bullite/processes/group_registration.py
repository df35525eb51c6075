"""A group's entry where others see it, kept up to date beside the loop of its supervisor."""

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
COMPLAIN_EVERY = 60.0
"""Seconds: between updates of the seat, after one that failed, between complaints about those."""

LEAVE_WITHIN = 5.0
"""Seconds that leaving may take, whatever the seat is busy with."""

T = TypeVar("T")


class GroupRegistry(Protocol):
    """Where a group is registered, so that others can see it; may take its time."""

    def take(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Take it; None if that worked, else the entry of who lives and has it."""

    def update(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Have the entry say how things are now; None if that worked, else who has it by now."""

    def leave(self) -> None:
        """Give it up, if it is still ours."""


class GroupHeartbeat:
    """A seat that is told of changes on a thread, one at a time: nobody waits for it.

    Its errors end nothing: `complain` is called with them, now and then.
    """

    def __init__(
        self,
        seat: GroupRegistry,
        clock: Callable[[], float],
        complain: Callable[[BulliteError], None],
    ) -> None:
        self._registry, self._clock, self._complain = seat, clock, complain
        self._complained = -COMPLAIN_EVERY
        self._under_way: Future[Mapping[str, Any] | None] | None = None
        self._due = clock()

    def take(self, group: str, entry: Mapping[str, Any]) -> None:
        if (holder := self._registry.take(entry)) is not None:
            raise GroupTaken(group, holder)

    @property
    def due(self) -> float | None:
        """When it wants to be told though nothing has changed; None while it is being told."""
        return None if self._under_way is not None else self._due

    def update(self, entry: Mapping[str, Any], then: Callable[[], None]) -> None:
        """Begin to tell the seat; `then` is called, on a thread, when `holder` has the answer."""
        self._under_way = _on_a_thread(lambda: self._registry.update(entry))
        self._under_way.add_done_callback(lambda _: then())

    def holder(self) -> Mapping[str, Any] | None:
        """Who has the seat instead of us, as far as the last update has told."""
        if self._under_way is None or not self._under_way.done():
            return None
        told, self._under_way = self._under_way, None
        self._due = self._clock() + RETRY_AFTER
        holder: Mapping[str, Any] | None = None
        with self._errors_ending_nothing():
            holder = told.result()
            self._due = self._clock() + UPDATE_EVERY
        return holder

    def leave(self) -> None:
        """Give the seat up; so late that it cannot be, it is left to who finds us gone."""
        ends = self._clock() + LEAVE_WITHIN
        with self._errors_ending_nothing():
            try:
                if self._under_way is not None:
                    self._under_way.exception(LEAVE_WITHIN)
                _on_a_thread(self._registry.leave).result(max(0.0, ends - self._clock()))
            except TimeoutError:
                raise BulliteError(f"no answer within {LEAVE_WITHIN:g} s") from None

    @contextlib.contextmanager
    def _errors_ending_nothing(self) -> Iterator[None]:
        try:
            yield
        except BulliteError as error:
            now = self._clock()
            if now - self._complained >= COMPLAIN_EVERY:
                self._complained = now
                self._complain(error)


def _on_a_thread(call: Callable[[], T]) -> Future[T]:
    """What a call answers, to come; a process that ends does not wait for it."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="bullite-seat", daemon=True).start()
    return answer
