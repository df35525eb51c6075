"""The scheduler service alone: everything that is due by the clock, without a worker.

Every process with a worker does the same by itself; any number may, each due thing happens once.
"""

from __future__ import annotations

import asyncio
import os
from typing import Self

from .client.runtime import bridge
from .client.runtime.store import Store


class Scheduler:
    """Does the chores of a database while it is open."""

    def __init__(self, store: Store | str | os.PathLike[str] | None = None) -> None:
        self._owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else Store(store)
        self._at_work = False

    async def start(self) -> None:
        if not self._at_work:
            engine = await bridge.run_in_thread(self.store.open)
            engine.change_maintenance_users(+1)
            self._at_work = True

    async def close(self) -> None:
        if self._at_work and self.store.is_open:
            self.store.open().change_maintenance_users(-1)
        self._at_work = False
        if self._owns_store:
            await bridge.run_in_thread(self.store.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


async def run(store: Store | str | os.PathLike[str] | None = None) -> None:
    """Promote, expire, recover, retain and checkpoint until cancelled."""
    async with Scheduler(store):
        await asyncio.Event().wait()
