"""The queues of one application and the databases that hold them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..client.directory import queue_names
from ..client.queue.add import forbid_links
from ..client.queue.queue import Queue
from ..client.runtime import bridge
from ..client.runtime.store import Store
from ..core.job_options import JobOptions
from ..core.names import check_name
from ..errors import BulliteError, InvalidOptionType

Location = str | os.PathLike[str]


class Queues:
    """Queues by name. Each is created, and its store is opened, when it is first used.

    A queue that `files` names has a database file of its own; all others are in `store`.
    """

    def __init__(
        self, store: Store | Location | None, files: Mapping[str, Location] | None
    ) -> None:
        self._owns_store = not isinstance(store, Store)
        self._store = store if isinstance(store, Store) else None
        self._location = None if isinstance(store, Store) else store
        self._files = _checked_files(files)
        self._file_stores: dict[str, Store] = {}
        self._override_store: Store | None = None
        """The store of all queues inside `use_store`."""
        self._queues: dict[str, Queue] = {}
        self._job_options: dict[str, JobOptions] = {}

    @property
    def location(self) -> str | None:
        """The path or URL of the database; None if a Store was given, or nothing."""
        return None if self._location is None else os.fspath(self._location)

    def get(self, name: str) -> Queue:
        """Return the queue of that name."""
        if name not in self._queues:
            options = self._job_options.get(name)
            queue = Queue(name, self._store_of(name), default_job_options=options)
            if self._files:
                forbid_links(queue, partial(self._same_database, name))
            self._queues[name] = queue
        return self._queues[name]

    def set_job_options(self, name: str, options: JobOptions) -> None:
        """Set the default options of jobs that this application adds to a queue."""
        self._job_options[name] = options
        self._queues.pop(name, None)  # a queue takes its defaults when it is created

    def _same_database(self, one: str, other: str) -> bool:
        """Return whether two queues share a database.

        Inside `use_store` all do, but a test must see the errors that production would raise.
        """
        return self._files.get(one) == self._files.get(other)

    def _store_of(self, queue: str) -> Store:
        if self._override_store is not None:
            return self._override_store
        if queue in self._files:
            if queue not in self._file_stores:
                self._file_stores[queue] = Store(self._files[queue])
            return self._file_stores[queue]
        if self._store is None:
            self._store = Store(self._location)
        return self._store

    async def names(self) -> list[str]:
        """Return the names of all queues, also of those that this application did not create."""
        stores = self._stores()
        names: set[str] = set()
        for own, store in stores.items():
            found = set(await queue_names(store))
            names |= found - stores.keys() if own is None else found & {own}
        return sorted(names)

    def _stores(self) -> dict[str | None, Store]:
        """Return the stores of queues with a file of their own by queue, the shared one by None."""
        if self._override_store is not None:
            return {None: self._override_store}
        return {None: self._store_of(""), **{name: self._store_of(name) for name in self._files}}

    @property
    def is_overridden(self) -> bool:
        """Whether all queues are in the store of `use_store`."""
        return self._override_store is not None

    @contextmanager
    def use_store(self, store: Store) -> Iterator[None]:
        """Have all queues in `store` inside the context. Queues returned before stay as they are.

        Raise BulliteError inside another such context.
        """
        if self._override_store is not None:
            raise BulliteError("the application is in another store already: one at a time")
        self._queues, self._override_store = {}, store
        try:
            yield
        finally:
            self._queues, self._override_store = {}, None

    async def close(self) -> None:
        """Close all queues and each store that was opened here; a later use opens them again."""
        queues, self._queues = self._queues, {}
        stores, self._file_stores = list(self._file_stores.values()), {}
        if self._owns_store and self._store is not None:
            stores.append(self._store)
            self._store = None
        for queue in queues.values():
            await queue.close()
        for store in stores:
            await bridge.run_in_thread(store.close)


def _checked_files(files: Any) -> dict[str, Location]:
    if not isinstance(files or {}, Mapping):
        raise InvalidOptionType(f"files must be a mapping of queues to files, not {files!r}")
    for name, file in (files or {}).items():
        check_name("a queue in files", name)
        if not isinstance(file, str | os.PathLike):
            raise InvalidOptionType(f"the file of the queue {name!r} must be a path, not {file!r}")
    return dict(files or {})
