"""No queue at all: a pool of threads that does the work of the handlers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .handling import Handler
from .protocol import main_sync


class ThreadPool:
    """Runs the handlers; keeps nothing."""

    def __init__(self, place: str, options: dict[str, Any]) -> None:
        self._options = options

    def install(self) -> None: ...

    def open(self) -> None: ...

    def close(self) -> None: ...

    def add(self, data: dict[str, Any]) -> None: ...

    def add_bulk(self, jobs: list[dict[str, Any]]) -> None: ...

    def work(self, handle: Handler, stop: threading.Event) -> None:
        with ThreadPoolExecutor(self._options["concurrency"]) as threads:
            for _ in range(self._options["jobs"]):
                threads.submit(handle)

    def count(self) -> dict[str, int | None]:
        return {"waiting": 0, "finished": None}


if __name__ == "__main__":
    main_sync(ThreadPool)
