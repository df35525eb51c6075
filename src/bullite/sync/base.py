"""What every class here is: an object of the asynchronous library, used outside of event loops."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from ..client.runtime import blocking

A = TypeVar("A")


class Blocking(Generic[A]):
    """Stands for an asynchronous object; two that stand for the same one are equal."""

    __slots__ = ("_async",)

    def __init__(self, asynchronous: A) -> None:
        self._async = asynchronous

    @classmethod
    def _around(cls, asynchronous: A) -> Self:
        """One that stands for an object which is there already."""
        made = cls.__new__(cls)
        Blocking.__init__(made, asynchronous)
        return made

    @property
    def _blocking(self) -> A:
        """The object, for something that will block this thread."""
        refuse_in_loop(type(self._async).__name__)
        return self._async

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blocking) and self._async is other._async

    def __hash__(self) -> int:
        return hash(self._async)


def refuse_in_loop(name: str) -> None:
    """A class of this package is for where no event loop runs."""
    blocking.forbid_in_event_loop(f"bullite.sync.{name}", f"use bullite.{name} and await it")


def asynchronous(given: Any) -> Any:
    """What an object of this package stands for; anything else is what it is."""
    return given._async if isinstance(given, Blocking) else given
