"""The handlers of all contestants: they count, and only where they must do more, they do more."""

from __future__ import annotations

import itertools
import json
import os
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.workload import burn


class FailedOnPurpose(Exception):
    """What the first attempt of a job raises in the cell of retries."""


class Handler:
    """Called once for each attempt of a job, in any thread of one process."""

    def __init__(self, options: dict[str, Any], enough: Callable[[], object]) -> None:
        self._count = itertools.count(1)  # one step is atomic, also among threads
        self._last: int = options.get("jobs", 0)
        self._enough = enough
        self._fails: bool = options.get("fails", False)
        self._records: bool = options.get("record", False)
        self._burns: float = options.get("cpu_ms", 0)
        self._delays: list[int] = []
        self.is_plain = not (self._fails or self._records or self._burns)
        """It only counts: a contestant may call `counted` alone, and saves a call."""

    def __call__(self, data: Any = None, attempt: int = 1) -> None:
        if self._records:
            self.record(data)
        if self._burns:
            burn(self._burns)
        self.counted()
        if self._fails and attempt == 1:
            raise FailedOnPurpose

    def counted(self) -> None:
        if next(self._count) == self._last:
            self._enough()

    def record(self, data: Any) -> None:
        # CLOCK_MONOTONIC is the same clock in every process of a machine.
        now = time.monotonic_ns()
        if isinstance(data, bytes | str):
            data = json.loads(data)
        self._delays.append(now - data["sent"])

    def told_many(self, jobs: int) -> None:
        """So many were done by somebody who calls no handlers."""
        self._count = itertools.count(next(self._count) + jobs)

    def told(self, delay: int) -> None:
        """A handler ran in another process, and took so many nanoseconds to begin."""
        if self._records:
            self._delays.append(delay)
        self.counted()

    def report(self, seconds: float) -> dict[str, Any]:
        """What a worker has to say at its end; ask once."""
        found = {"seconds": seconds, "handled": next(self._count) - 1}
        return found | {"delays": self._delays} if self._records else found


class Fork:
    """A handler for the processes that a queue forks: they tell the first process through a pipe.

    Make it before the fork. Its children call it; the first process calls `listen`, and in the end
    `hang_up`, when no child will write any more.
    """

    _DELAY = struct.Struct("=q")

    def __init__(self, options: dict[str, Any]) -> None:
        self._reading, self._writing = os.pipe()
        self._fails: bool = options.get("fails", False)
        self._burns: float = options.get("cpu_ms", 0)
        self._thread: threading.Thread | None = None

    def __call__(self, data: Any = None, attempt: int = 1) -> None:
        now = time.monotonic_ns()
        sent = data.get("sent", now) if isinstance(data, dict) else now
        if self._burns:
            burn(self._burns)
        os.write(self._writing, self._DELAY.pack(now - sent))  # so few bytes arrive as one piece
        if self._fails and attempt == 1:
            raise FailedOnPurpose

    def listen(self, handle: Handler) -> None:
        """Have each call of a child counted in this process."""

        def count() -> None:
            size = self._DELAY.size
            rest = b""
            while piece := os.read(self._reading, 64 * 1024):
                rest += piece
                for start in range(0, len(rest) - size + 1, size):
                    handle.told(self._DELAY.unpack_from(rest, start)[0])
                rest = rest[len(rest) - len(rest) % size :]

        self._thread = threading.Thread(target=count, daemon=True)
        self._thread.start()

    def hang_up(self) -> None:
        os.close(self._writing)
        if self._thread is not None:
            self._thread.join(5)
