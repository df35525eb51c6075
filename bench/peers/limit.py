"""The bare loops as contestants: what any queue in that database must write, and nothing else."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from .handling import Handler


class Loop(Protocol):
    """A bare loop on one database."""

    def install(self) -> None: ...

    def close(self) -> None: ...

    def add(self, payloads: list[Any], batch: int) -> None: ...

    def process(self) -> int: ...

    def count(self) -> dict[str, int | None]: ...


class Limit:
    """Adds as many jobs a commit as it is told, and takes and finishes a hundred a commit."""

    def __init__(self, loop: Loop, options: dict[str, Any]) -> None:
        self._loop = loop
        self._batch: int = options.get("batch", 100)

    def install(self) -> None:
        self._loop.install()

    def open(self) -> None:
        """It is."""

    def close(self) -> None:
        self._loop.close()

    def add(self, data: dict[str, Any]) -> None:
        self._loop.add([data], 1)

    def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        self._loop.add(jobs, self._batch)

    def work(self, handle: Handler, stop: threading.Event) -> None:
        """It has no handlers: what it did is counted when it was done."""
        handle.told_many(self._loop.process())

    def count(self) -> dict[str, int | None]:
        return self._loop.count()
