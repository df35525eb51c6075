"""Blocking reads through the engine of a store, for code without an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...database.driver import Params, Result
from ...engine.replies import SAME_THREAD
from .blocking import BlockingFuture
from .store import Store


class StoreReader:
    """A `Reader` that uses the read connection of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.clock = store.open().clock

    def read(self, statement: str, params: Params) -> Result:
        answer: BlockingFuture[Sequence[Any]] = BlockingFuture()
        self._store.open().read_thread.read(statement, params, answer, SAME_THREAD)
        return Result(answer.result(), 0)

    def close(self) -> None:
        """Do nothing: the store closes the connection."""
