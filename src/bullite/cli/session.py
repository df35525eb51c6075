"""One use of the program: the database it is about, reached without an event loop."""

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
"""The queue of those who are to hear of failures."""


def check_only_one(found: str, queues: Sequence[str], do: str = "say which with --queue") -> None:
    """That something was found in no more than one queue, where its name alone is not enough."""
    if len(queues) > 1:
        raise InvalidInput(f"{found} several queues ({', '.join(queues)}): {do}")


def file_of(location: Location) -> Path | None:
    """The file that a database is, if it is one."""
    path = getattr(location, "path", None)
    return path if isinstance(path, Path) else None


class Session:
    """The database, its queues and jobs, for one verb.

    What only looks goes through `reader` and `views`: it starts without the engine, which takes
    longer to import than most verbs take.
    """

    def __init__(self, db: str | None, talk: Console) -> None:
        self.talk = talk
        self._db = db
        self._default: str | None = None
        self._reader: Reader | None = None
        self._store: Store | None = None
        self._queues: dict[str, Queue] = {}

    @property
    def location(self) -> str:
        """The database as the user names it; a default that is not trusted is warned of once."""
        if self._db is not None:
            return self._db
        if self._default is None:
            found = default_database()
            if found.origin is Origin.NOTHING and (doubt := doubt_about_default()) is not None:
                self.talk.note(f"warning: {doubt}")
            self._default = found.location
        return self._default

    def check_default(self) -> None:
        """Raise Refusal if the database is ./bullite.db only by default and is not trusted.

        For verbs that work its jobs: to work another user's database is to obey that user.
        """
        if self._db is not None or default_database().origin is not Origin.NOTHING:
            return
        if (doubt := doubt_about_default()) is not None:
            raise CommandError(doubt)

    def use(self, location: str) -> None:
        """Be about the database of an application; refused if the user named another."""
        if self._db is None:
            self._db = location
        elif parse_location(self._db) != parse_location(location):
            raise InvalidInput(
                f"--db is not the database of the application, {parse_location(location)}: "
                "leave it out"
            )

    @property
    def absolute_location(self) -> str:
        """The same for other processes, wherever they run."""
        location, path = self.location, file_of(self.store().location)
        if path is None:
            return location
        options = location.partition("?")[2] if "://" in location else ""
        if not options and not means_server(str(path)):
            return str(path)
        return f"sqlite:///{quote(str(path))}" + (f"?{options}" if options else "")

    def reader(self) -> Reader:
        """A connection that only reads; refused if there is no database."""
        if self._reader is None:
            reader = self._existing().reader()
            if reader is None:
                from ..client.runtime.store_reader import StoreReader

                reader = StoreReader(self.store())
            self._reader = reader
        return self._reader

    def store(self, make: bool = False) -> Store:
        """The database; refused if there is none, unless it may be made."""
        if self._store is None:
            if not make:
                self._existing()
            import logging

            from ..client.runtime.store import Store

            # What concerns the user is an answer or an error; without a handler, warnings of the
            # library would be written to the terminal beside it.
            logger = logging.getLogger("bullite")
            if not logger.hasHandlers():
                logger.addHandler(logging.NullHandler())
            self._store = Store(self.location)
        return self._store

    def exists(self) -> bool:
        """Whether there is a database; of a server that is taken for granted."""
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
        """Carry out something of the library."""
        return run_blocking(coroutine)

    def each(self, iterator: AsyncIterator[T]) -> Iterator[T]:
        return iterate_blocking(iterator)

    # --- queues ---

    def queue_names(self) -> list[str]:
        return [view.name for view in self.views()]

    def views(self, name: str | None = None) -> list[ReadOnlyQueue]:
        """The queue of this name, or all that there are, to be looked into."""
        reader = self.reader()
        there = {name: key for key, name in reader.read("queue_names", {}).rows}
        if name is not None and name not in there:
            known = ", ".join(sorted(there)) or "none yet"
            raise CommandError(f"there is no queue {name!r}; the queues are: {known}")
        wanted = sorted(there) if name is None else [name]
        return [ReadOnlyQueue(one, there[one], reader) for one in wanted]

    def queue(self, name: str | None, make: bool = False) -> Queue:
        """A queue of this name; one that is made here runs higher priorities first."""
        wanted = DEFAULT_QUEUE if name is None else name
        if wanted in self._queues:
            return self._queues[wanted]
        if not make:
            self.views(wanted)  # refused if it is not there
        from ..client.queue.queue import Queue

        try:
            queue = Queue(wanted, self.store(make), priority_order="high" if make else None)
            self.wait(queue.wait_until_ready())
        except QueueOptionMismatch:
            # Somebody made it before, the other way round: it stays as it is.
            queue = Queue(wanted, self.store(make))
            self.wait(queue.wait_until_ready())
        self._queues[wanted] = queue
        return queue

    def queues(self, names: tuple[str, ...] | str | None) -> list[Queue]:
        """Those named, or all that there are."""
        wanted = [names] if isinstance(names, str) else list(names or self.queue_names())
        return [self.queue(name) for name in wanted]

    # --- jobs ---

    def job(self, job_id: str, queue: str | None = None) -> tuple[Queue, Job]:
        """A job and its queue, found by its id alone if that is enough."""
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
        """Do something to each job; what cannot be done is told at the end, as one failure."""
        problems: list[str] = []
        kind: type[CommandError] | type[InvalidInput] = InvalidInput
        for job_id in job_ids:
            try:
                act(job_id)
            except InvalidInput as error:
                problems.append(error.message)
            except CommandError as error:
                kind = CommandError
                problems.append(error.message)
            except BulliteError as error:
                if isinstance(error, InvalidOption):
                    raise
                kind = CommandError
                problems.append(str(error))
        if problems:
            raise kind("; ".join(problems))
