"""One invocation of queuectl: its database, queues and jobs, used without an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from ..client.read_only import ReadOnlyQueue
from ..client.runtime.blocking import iterate_blocking, run_blocking
from ..database.locations import Origin, default_database, doubt_about_default, parse_location
from ..database.urls import means_server
from ..errors import BulliteError, InvalidOption, QueueOptionMismatch
from .console import CommandError, Console, InvalidInput

if TYPE_CHECKING:
    from ..client.job.job import Job
    from ..client.queue.queue import Queue
    from ..client.runtime.store import Store
    from ..database.driver import Reader
    from ..database.locations import Location

T = TypeVar("T")

DEFAULT_QUEUE = "default"
NOTICES = "notifications"
"""The queue of notifications about failures."""


def check_only_one(found: str, queues: Sequence[str], do: str = "say which with --queue") -> None:
    """Raise InvalidInput if something was found in several queues."""
    if len(queues) > 1:
        raise InvalidInput(f"{found} several queues ({', '.join(queues)}): {do}")


def file_of(location: Location) -> Path | None:
    """Return the file of a database; None if it is on a server."""
    path = getattr(location, "path", None)
    return path if isinstance(path, Path) else None


class Session:
    """The database, its queues and jobs, for one verb.

    Verbs that only read use `reader` and `views`, without the engine: importing it takes longer
    than most verbs do.
    """

    def __init__(self, db: str | None, console: Console) -> None:
        self.console = console
        self._db = db
        self._default: str | None = None
        self._reader: Reader | None = None
        self._store: Store | None = None
        self._queues: dict[str, Queue] = {}

    @property
    def location(self) -> str:
        """The database as the user named it; warn once of a default that is not trusted."""
        if self._db is not None:
            return self._db
        if self._default is None:
            found = default_database()
            if found.origin is Origin.NOTHING and (doubt := doubt_about_default()) is not None:
                self.console.note(f"warning: {doubt}")
            self._default = found.location
        return self._default

    def check_default(self) -> None:
        """Raise CommandError if the database is ./bullite.db by default and is not trusted.

        For verbs that run its jobs: a user who can write the database decides what is run.
        """
        if self._db is not None or default_database().origin is not Origin.NOTHING:
            return
        if (doubt := doubt_about_default()) is not None:
            raise CommandError(doubt)

    def use(self, location: str) -> None:
        """Use the database of an application. Raise InvalidInput if the user named another."""
        if self._db is None:
            self._db = location
        elif parse_location(self._db) != parse_location(location):
            raise InvalidInput(
                f"--db is not the database of the application, {parse_location(location)}: "
                "leave it out"
            )

    @property
    def absolute_location(self) -> str:
        """The location for processes with another current folder."""
        location, path = self.location, file_of(self.store().location)
        if path is None:
            return location
        options = location.partition("?")[2] if "://" in location else ""
        if not options and not means_server(str(path)):
            return str(path)
        return f"sqlite:///{quote(str(path))}" + (f"?{options}" if options else "")

    def reader(self) -> Reader:
        """Return a read-only connection. Raise CommandError if there is no database."""
        if self._reader is None:
            reader = self._existing().reader()
            if reader is None:
                from ..client.runtime.store_reader import StoreReader

                reader = StoreReader(self.store())
            self._reader = reader
        return self._reader

    def store(self, make: bool = False) -> Store:
        """Return the store. Raise CommandError if there is none, unless `make`."""
        if self._store is None:
            if not make:
                self._existing()
            import logging

            from ..client.runtime.store import Store

            # Without a handler, logging would print warnings of the library to the terminal.
            logger = logging.getLogger("bullite")
            if not logger.hasHandlers():
                logger.addHandler(logging.NullHandler())
            self._store = Store(self.location)
        return self._store

    def exists(self) -> bool:
        """Return whether the database exists; True for a server, without asking it."""
        path = file_of(parse_location(self.location))
        return self._store is not None or path is None or path.exists()

    def _existing(self) -> Location:
        location = parse_location(self.location)
        path = file_of(location)
        if path is not None and not path.exists():
            raise CommandError(
                f"there is no database {path}: `queuectl enqueue` makes one, --db names another"
            )
        return location

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._store is not None:
            self._store.close()
            self._store = None

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the library and return its result."""
        return run_blocking(coroutine)

    def each(self, iterator: AsyncIterator[T]) -> Iterator[T]:
        return iterate_blocking(iterator)

    # --- queues ---

    def queue_names(self) -> list[str]:
        return [view.name for view in self.views()]

    def views(self, name: str | None = None) -> list[ReadOnlyQueue]:
        """Return read-only views of the queue of this name, or of all."""
        reader = self.reader()
        keys = {name: key for key, name in reader.read("queue_names", {}).rows}
        if name is not None and name not in keys:
            known = ", ".join(sorted(keys)) or "none yet"
            raise CommandError(f"there is no queue {name!r}; the queues are: {known}")
        wanted = sorted(keys) if name is None else [name]
        return [ReadOnlyQueue(one, keys[one], reader) for one in wanted]

    def queue(self, name: str | None, make: bool = False) -> Queue:
        """Return the queue of this name; one that is created here runs higher priorities first."""
        wanted = DEFAULT_QUEUE if name is None else name
        if wanted in self._queues:
            return self._queues[wanted]
        if not make:
            self.views(wanted)  # raises if it does not exist
        from ..client.queue.queue import Queue

        try:
            queue = Queue(wanted, self.store(make), priority_order="high" if make else None)
            self.wait(queue.wait_until_ready())
        except QueueOptionMismatch:
            # It exists with the priority order "low": use it as it is.
            queue = Queue(wanted, self.store(make))
            self.wait(queue.wait_until_ready())
        self._queues[wanted] = queue
        return queue

    def queues(self, names: tuple[str, ...] | str | None) -> list[Queue]:
        """Return the queues of these names, or all."""
        wanted = [names] if isinstance(names, str) else list(names or self.queue_names())
        return [self.queue(name) for name in wanted]

    # --- jobs ---

    def job(self, job_id: str, queue: str | None = None) -> tuple[Queue, Job]:
        """Return a job and its queue; the queue is needed if several have the id."""
        from ..client.directory import queues_with

        names = [queue] if queue is not None else self.wait(queues_with(self.store(), job_id))
        if not names:
            raise CommandError(f"there is no job {job_id}; `queuectl list` shows those there are")
        check_only_one(f"job {job_id} is in", names)
        found = self.queue(names[0])
        job = self.wait(found.get_job(job_id))
        if job is None:
            raise CommandError(f"there is no job {job_id} in the queue {names[0]!r}")
        return found, job

    def now(self) -> int:
        return self.store().open().clock.now()

    def for_each(self, job_ids: tuple[str, ...], act: Any) -> None:
        """Call `act` for each job; afterwards raise all errors as one."""
        messages: list[str] = []
        kind: type[CommandError] | type[InvalidInput] = InvalidInput
        for job_id in job_ids:
            try:
                act(job_id)
            except InvalidInput as error:
                messages.append(error.message)
            except CommandError as error:
                kind = CommandError
                messages.append(error.message)
            except BulliteError as error:
                if isinstance(error, InvalidOption):
                    raise
                kind = CommandError
                messages.append(str(error))
        if messages:
            raise kind("; ".join(messages))
