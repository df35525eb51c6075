"""Maintenance of a database in a process without workers.

Every process with a worker does the same. Any number of processes may do it at the same time: each
delayed job is promoted once, and each tick of a job scheduler adds one job.
"""

from __future__ import annotations

import asyncio
import os
from typing import Self

from .client.runtime import bridge
from .client.runtime.store import Store


class Scheduler:
    """Runs the maintenance of a database from `start()` to `close()`, or as a context manager.

    It promotes delayed jobs, fails expired ones, recovers stalled ones, applies retention and
    checkpoints the WAL.
    """

    def __init__(self, store: Store | str | os.PathLike[str] | None = None) -> None:
        self._owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else Store(store)
        self._is_started = False

    async def start(self) -> None:
        """Start maintenance, if it is not started. Raise the error of opening the database."""
        if not self._is_started:
            engine = await bridge.run_in_thread(self.store.open)
            engine.change_maintenance_users(+1)
            self._is_started = True

    async def close(self) -> None:
        """Stop maintenance, and close the store if the scheduler has opened it."""
        if self._is_started and self.store.is_open:
            self.store.open().change_maintenance_users(-1)
        self._is_started = False
        if self._owns_store:
            await bridge.run_in_thread(self.store.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


async def run(store: Store | str | os.PathLike[str] | None = None) -> None:
    """Run the maintenance of a database until cancelled."""
    async with Scheduler(store):
        await asyncio.Event().wait()
