# mypy: disable-error-code="import-not-found"
# The package is not in our environment, so its names have no types here.
"""BullMQ's Python port, whatever it stores in: a queue that jobs are added to."""

from __future__ import annotations

from typing import Any

from bullmq import Queue

QUEUE = "bench"
NAME = "mail"

TWICE = {"attempts": 2}
"""Without a back-off, a failed job runs again at once."""


class Port:
    """Where jobs are added."""

    def __init__(self, connection: dict[str, Any], options: dict[str, Any]) -> None:
        self._connection = connection
        self._worker_options = {
            **connection,
            "autorun": False,
            "concurrency": options.get("concurrency", 1),
        }

    async def open(self) -> None:
        self._queue = Queue(QUEUE, self._connection)

    async def close(self) -> None:
        await self._queue.close()

    async def add(self, data: dict[str, Any]) -> None:
        await self._queue.add(NAME, data)

    async def add_bulk(self, jobs: list[dict[str, Any]]) -> None:
        await self._queue.addBulk([{"name": NAME, "data": data} for data in jobs])

    async def add_delayed(self, data: dict[str, Any], milliseconds: int) -> None:
        await self._queue.add(NAME, data, {"delay": milliseconds})

    async def add_failing(self, jobs: list[dict[str, Any]]) -> None:
        await self._queue.addBulk([{"name": NAME, "data": data, "opts": TWICE} for data in jobs])
