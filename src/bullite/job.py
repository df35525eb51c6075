"""A job, as users hold it: what it was given, how far it is, what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from . import loop
from .codec import decode, encode
from .errors import JobFailed, LostLock
from .operations.claiming import JobRow
from .operations.settling import Progress
from .options import Duration, check_duration
from .pending import Pending
from .states import State
from .store import Store

if TYPE_CHECKING:
    from .queue import Queue

_NOTHING: Mapping[str, Any] = {}


_DATA = JobRow._fields.index("data")


class Fate(NamedTuple):
    """The rest of what is stored about a job: read when somebody asks for it."""

    state: str
    lifo: int = 0
    delay: int = 0
    due_at: int | None = None
    updated_at: int | None = None
    processed_at: int | None = None
    finished_at: int | None = None
    return_value: str | None = None
    failed_reason: str | None = None
    stack: str | None = None
    progress: str | None = None
    locked_by: str | None = None
    lease_until: int | None = None
    worker_lease_until: int | None = None


class Job:
    """One job of a queue.

    Attributes tell what was true when the job was last read; `queue.get_job(job.id)` reads again.
    """

    __slots__ = ("_data", "_facts", "_fate", "_queue", "ahead", "token")

    def __init__(
        self,
        queue: Queue,
        facts: Sequence[Any],
        fate: Fate,
        token: int = 0,
        ahead: bool = False,
    ) -> None:
        self._queue = queue
        self._facts = facts
        self._fate = fate
        self.token = token
        """The number that proves this run holds the job; 0 outside a processor."""
        self.ahead = ahead
        """Its worker fetched it ahead: that it begins is recorded together with its end."""

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.name!r} of {self._queue.name!r}: {self.state}>"

    # --- what it is ---

    @property
    def pk(self) -> int:
        """The number of the job, unique in the database."""
        pk: int = self._facts[0]
        return pk

    @property
    def id(self) -> str:
        """The id chosen for the job, or its number."""
        return self._facts[2] or str(self._facts[0])

    @property
    def name(self) -> str:
        name: str = self._facts[1]
        return name

    @property
    def queue_name(self) -> str:
        return self._queue.name

    @property
    def data(self) -> Any:
        """What the job was given; parsed when first asked for."""
        try:
            return self._data
        except AttributeError:
            self._data: Any = decode(self._facts[_DATA])
            return self._data

    @property
    def place(self) -> tuple[int, int]:
        """Where it stood in line when it was read: the smaller, the sooner."""
        return self._facts[11], self._facts[12]

    @property
    def priority(self) -> int:
        priority: int = self._facts[3]
        return priority

    @property
    def attempts(self) -> int:
        """How many runs it may have."""
        attempts: int = self._facts[4]
        return attempts

    @property
    def delay(self) -> int:
        return self._fate.delay

    @property
    def lifo(self) -> bool:
        return bool(self._fate.lifo)

    @property
    def stored_options(self) -> Mapping[str, Any]:
        """The options that no column holds, such as `backoff`."""
        opts = self._facts[10]
        return decode(opts) if opts is not None else _NOTHING

    @property
    def opts(self) -> dict[str, Any]:
        """The options the job runs under."""
        return {
            "priority": self.priority,
            "delay": self.delay,
            "attempts": self.attempts,
            "lifo": self.lifo,
            "job_id": self._facts[2],
            **self.stored_options,
        }

    # --- how far it is ---

    @property
    def state(self) -> str:
        return self._fate.state

    @property
    def attempts_made(self) -> int:
        """Runs that ended, by success or failure."""
        made: int = self._facts[5]
        return made

    @property
    def attempts_started(self) -> int:
        """How often it was taken."""
        started: int = self._facts[6]
        return started

    @property
    def stalled_count(self) -> int:
        """How often its worker died under it."""
        count: int = self._facts[7]
        return count

    @property
    def deferred_failure(self) -> str | None:
        """Why it will fail, without running, when it is next taken."""
        reason: str | None = self._facts[9]
        return reason

    @property
    def progress(self) -> Any:
        """As last reported; 0 at first."""
        return 0 if self._fate.progress is None else decode(self._fate.progress)

    @property
    def return_value(self) -> Any:
        value = self._fate.return_value
        return None if value is None else decode(value)

    @property
    def failed_reason(self) -> str | None:
        """The error of the last failed attempt."""
        return self._fate.failed_reason

    @property
    def stack(self) -> str | None:
        """The traceback of the last failed attempt."""
        return self._fate.stack

    @property
    def locked_by(self) -> str | None:
        """The name of the worker that runs it."""
        return self._fate.locked_by if self.state == State.ACTIVE else None

    @property
    def created_at(self) -> datetime:
        return _datetime(self._facts[8])

    @property
    def updated_at(self) -> datetime:
        return _datetime(self._fate.updated_at or self._facts[8])

    @property
    def process_at(self) -> datetime | None:
        """When a delayed job is due."""
        return None if self._fate.due_at is None else _datetime(self._fate.due_at)

    @property
    def processed_at(self) -> datetime | None:
        """When it was last taken."""
        return None if self._fate.processed_at is None else _datetime(self._fate.processed_at)

    @property
    def finished_at(self) -> datetime | None:
        return None if self._fate.finished_at is None else _datetime(self._fate.finished_at)

    # --- what one can do with it ---

    def update_progress(self, progress: Any) -> Pending[None]:
        """Report how far this run is: any JSON value, stored as given.

        Only the run that holds the job may; after losing it this raises LostLock. Await it in a
        coroutine; in a thread, call it and go on, or `.result()` to be sure.
        """
        text = encode(progress, "the progress")
        if not self.token:
            raise LostLock(f"job {self.id} is not held here: progress is reported by its processor")
        self._fate = self._fate._replace(progress=text)
        request = Progress(self._queue.key, self.pk, self.token, text)
        return Pending(self._store, request, self._must_be_held)

    def _must_be_held(self, held: bool) -> None:
        if not held:
            raise LostLock(
                f"job {self.id} is no longer held by this run; its progress was not stored"
            )

    async def result(self, timeout: Duration | None = None) -> Any:
        """Wait until the job is finished; its return value, or JobFailed with its reason.

        Raises TimeoutError after `timeout`, JobNotFound if the job is removed.
        """
        limit = None if timeout is None else check_duration("timeout", timeout) / 1000
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        engine, resolve = self._store.open(), loop.Resolver(future)
        engine.watch(self.pk, resolve, loop.mailbox())
        try:
            state, value, reason = await asyncio.wait_for(future, limit)
        except (TimeoutError, asyncio.CancelledError):
            engine.unwatch(self.pk, resolve)
            raise
        self._fate = self._fate._replace(state=state, return_value=value, failed_reason=reason)
        if state == State.FAILED:
            raise JobFailed(reason)
        return self.return_value

    @property
    def _store(self) -> Store:
        return self._queue.store


def _datetime(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
