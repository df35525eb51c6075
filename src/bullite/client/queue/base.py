"""Base of a queue object: open its row in the store, its listeners, close it."""

from __future__ import annotations

import os
import random as _random
from collections.abc import Callable
from typing import Any, Self

from ...core.names import check_queue_name
from ...errors import InvalidOption, InvalidOptionType, QueueOptionMismatch
from ...operations.queues import OpenedQueue, OpenQueue
from ..runtime import bridge
from ..runtime.emitter import EventEmitter, OwnEmitter
from ..runtime.store import Store


class QueueBase(OwnEmitter):
    """A queue that can be opened and closed."""

    def __init__(
        self,
        name: str,
        store: Store | str | os.PathLike[str] | None = None,
        priority_order: str | None = None,
        events: EventEmitter | None = None,
        random: Callable[[], float] = _random.random,
    ) -> None:
        super().__init__()
        self.name = check_queue_name("the queue's name", name)
        self._wanted_order = check_order(priority_order)
        self._owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else Store(store)
        if not callable(random):
            raise InvalidOptionType(f"random must be a function, not {random!r}")
        self.random = random
        """Random numbers for jitter, in [0, 1)."""
        self._opened: OpenedQueue | None = None
        if events is not None and not isinstance(events, EventEmitter):
            raise InvalidOptionType(f"events must be an EventEmitter, not {events!r}")
        self.events = events or EventEmitter()
        """Emits what this process does to the queue: `(queue_name, job_id, ...)`."""

    # --- opening and closing ---

    async def wait_until_ready(self) -> None:
        """Open the store, and find or create the queue in it."""
        if self._opened is not None and self.store.is_open:
            return
        if not self.store.is_open:
            await bridge.run_in_thread(self.store.open)
        await self._open_row()

    async def _open_row(self) -> None:
        opened: OpenedQueue = await bridge.submit(
            self.store, OpenQueue(self.name, self._wanted_order)
        )
        if self._wanted_order is not None and opened.priority_order != self._wanted_order:
            raise QueueOptionMismatch(
                f"queue {self.name!r} has priority_order={opened.priority_order!r}, fixed when it "
                "was made; open it with that, without the option, or change it with configure()"
            )
        self._opened = opened

    @property
    def _pk(self) -> int:
        return self._ready().id

    @property
    def priority_order(self) -> str:
        """ "low" if lower priorities run first, "high" if higher ones do.

        Raise RuntimeError before the queue is ready.
        """
        return self._ready().priority_order

    def _ready(self) -> OpenedQueue:
        if self._opened is None:
            raise RuntimeError(
                f"queue {self.name!r} is not open yet: await queue.wait_until_ready()"
            )
        return self._opened

    async def _ensure_open(self, first: Callable[[], object] | None = None) -> None:
        """Open the queue, after a call of `first`, and wait while the engine is at capacity."""
        if self._opened is None or not self.store.is_open:
            if first is not None:
                first()
            await self.wait_until_ready()
        if not self.store.open().has_room():
            await bridge.wait_for_capacity(self.store)

    async def close(self) -> None:
        """Close the queue, and its store if it opened it. Accepted requests are written first."""
        if self._owns_store:
            await bridge.run_in_thread(self.store.close)

    async def disconnect(self) -> None:
        """The same as `close`."""
        await self.close()

    async def __aenter__(self) -> Self:
        try:
            await self.wait_until_ready()
        except BaseException:
            await self.close()  # the caller gets no object to close
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def pk_of(queue: QueueBase) -> int:
    """Return the primary key of a queue in its database, once it is ready."""
    return queue._pk


def check_order(value: Any) -> str | None:
    if value not in (None, "low", "high"):
        raise InvalidOption(f'priority_order must be "low" or "high", not {value!r}')
    order: str | None = value
    return order
