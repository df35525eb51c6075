"""Base of the blocking classes: an asynchronous object, used outside of event loops."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from ..client.runtime import blocking

A = TypeVar("A")


class Blocking(Generic[A]):
    """The blocking form of an asynchronous object; two forms of one object are equal."""

    __slots__ = ("_async",)

    def __init__(self, asynchronous: A) -> None:
        self._async = asynchronous

    @classmethod
    def _around(cls, asynchronous: A) -> Self:
        """Return the blocking form of an object that exists already."""
        made = cls.__new__(cls)
        Blocking.__init__(made, asynchronous)
        return made

    @property
    def _blocking(self) -> A:
        """The object, for a call that blocks. Raise WrongLoop if an event loop runs here."""
        refuse_in_loop(type(self._async).__name__)
        return self._async

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blocking) and self._async is other._async

    def __hash__(self) -> int:
        return hash(self._async)


def refuse_in_loop(name: str) -> None:
    """Raise WrongLoop if an event loop runs in this thread."""
    blocking.forbid_in_event_loop(f"bullite.sync.{name}", f"use bullite.{name} and await it")


def asynchronous(given: Any) -> Any:
    """Return the asynchronous object of a blocking one; return anything else unchanged."""
    return given._async if isinstance(given, Blocking) else given
