"""Rows of jobs and a read-only view of one: the only module that knows their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from .clock import moment_of
from .codec import decode
from .states import COMPLETED, State, shown_state

_NOTHING: Mapping[str, Any] = {}


class JobRow(NamedTuple):
    """The columns of a job that a claim returns; every longer row starts with them."""

    id: int
    name: str
    custom_id: str | None
    priority: int
    attempts: int
    attempts_made: int
    attempts_started: int
    stalled_count: int
    created_at: int
    deferred_failure: str | None
    opts: str | None
    rank: int
    seq: int
    traits: int
    """The stored name of `flags`: see job_flags.py."""
    data: str


class JobStatusRow(NamedTuple):
    """The other columns of a job: they change while the job runs, or are rarely read."""

    state: str
    lifo: int = 0
    delay: int = 0
    due_at: int | None = None
    updated_at: int | None = None
    processed_at: int | None = None
    finished_at: int | None = None
    return_value: str | None = None
    failed_reason: str | None = None
    progress: str | None = None
    outcome: str | None = None
    processed_by: str | None = None
    worker_lease: int | None = None
    lease: int | None = None
    expires_at: int | None = None
    original_queue: str | None = None
    stacks: str | None = None


# Positions in a row, for code that handles many rows and has no time to name each of their columns.
(
    ID,
    NAME,
    CUSTOM_ID,
    PRIORITY,
    ATTEMPTS,
    ATTEMPTS_MADE,
    ATTEMPTS_STARTED,
    STALLED_COUNT,
    CREATED_AT,
    DEFERRED_FAILURE,
    OPTS,
    RANK,
    SEQ,
    FLAGS,
    DATA,
) = range(len(JobRow._fields))


def split_job_row(row: Sequence[Any]) -> tuple[Sequence[Any], JobStatusRow]:
    """Return the columns of a JobRow, and the others, of a row that has all columns of a job."""
    return row[: DATA + 1], JobStatusRow(*row[DATA + 1 :])


class HasName(Protocol):
    """A queue, as far as a JobRecord needs it."""

    @property
    def name(self) -> str: ...


class JobRecord:
    """A stored job of a queue; its attributes have the values at the time of reading.

    Names with an underscore are for modules of this package.
    """

    __slots__ = ("_columns", "_data", "_options", "_queue", "_status")

    def __init__(self, queue: HasName, columns: Sequence[Any], status: JobStatusRow) -> None:
        self._queue = queue
        self._columns, self._status = columns, status

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"<{kind} {self.id} {self.name!r} of {self._queue.name!r}: {self.state}>"

    # --- identity and options --------------------------------------------------------------------

    @property
    def pk(self) -> int:
        """The primary key of the job, unique in the database."""
        pk: int = self._columns[ID]
        return pk

    @property
    def id(self) -> str:
        """The id of the job in its queue: the option `job_id`, else its primary key as text."""
        return self._columns[CUSTOM_ID] or str(self._columns[ID])

    @property
    def custom_id(self) -> str | None:
        """The option `job_id`; None without one."""
        custom_id: str | None = self._columns[CUSTOM_ID]
        return custom_id

    @property
    def name(self) -> str:
        """The name of the job, by which workers choose a processor."""
        name: str = self._columns[NAME]
        return name

    @property
    def queue_name(self) -> str:
        """The name of the queue in which the job is."""
        return self._queue.name

    @property
    def original_queue(self) -> str | None:
        """The queue in which the job failed, if it is in a dead-letter queue; else None."""
        return self._status.original_queue

    @property
    def data(self) -> Any:
        """The data of the job; parsed at first use."""
        try:
            return self._data
        except AttributeError:
            self._data: Any = decode(self._columns[DATA])
            return self._data

    @property
    def priority(self) -> int:
        """The priority; 0 without one."""
        priority: int = self._columns[PRIORITY]
        return priority

    @property
    def attempts(self) -> int:
        """The maximum number of attempts."""
        attempts: int = self._columns[ATTEMPTS]
        return attempts

    @property
    def delay(self) -> int:
        """Ms that the job has to wait, or had to before its last run; 0 once it was due."""
        return self._status.delay

    @property
    def lifo(self) -> bool:
        """True if the job was added in front of the waiting jobs of its priority."""
        return bool(self._status.lifo)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the job, by which `queue.find` finds it."""
        return tuple(self._stored_options.get("tags", ()))

    @property
    def timeout(self) -> int | None:
        """The time limit of one run, in ms; None without one."""
        timeout: int | None = self._stored_options.get("timeout")
        return timeout

    @property
    def limit_key(self) -> str | None:
        """The key whose rate limit counts the job; None without one."""
        key: str | None = self._stored_options.get("limit_key")
        return key

    @property
    def opts(self) -> dict[str, Any]:
        """The options with which the job was added; durations in ms."""
        return {
            "priority": self.priority,
            "delay": 0,
            "attempts": self.attempts,
            "lifo": self.lifo,
            "job_id": self._columns[CUSTOM_ID],
            **self._stored_options,
        }

    @property
    def repeat_job_key(self) -> str | None:
        """The id of the job scheduler that made the job; None without one."""
        key: str | None = self._stored_options.get("repeat", _NOTHING).get("key")
        return key

    @property
    def deduplication_id(self) -> str | None:
        """The deduplication key of the job, even if it no longer holds it."""
        rule: Mapping[str, Any] = self._stored_options.get("deduplication", _NOTHING)
        return rule.get("id")

    # --- state and runs --------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """The state as last read; `prioritized` is waiting with a priority."""
        return shown_state(self._status.state, self.priority)

    @property
    def outcome(self) -> str | None:
        """The outcome of a finished job: `completed`, `error`, `timed-out`, `expired`, `stalled` or
        `cancelled`; None until it is finished."""
        if self._status.state == State.COMPLETED:
            return COMPLETED
        if self._status.state == State.FAILED:
            return self._status.outcome or "error"
        return None

    @property
    def attempts_made(self) -> int:
        """Number of runs that completed or failed."""
        made: int = self._columns[ATTEMPTS_MADE]
        return made

    @property
    def attempts_started(self) -> int:
        """Number of runs that were started."""
        started: int = self._columns[ATTEMPTS_STARTED]
        return started

    @property
    def stalled_count(self) -> int:
        """Number of runs that were lost with their worker, or whose lease expired."""
        count: int = self._columns[STALLED_COUNT]
        return count

    stalled_counter = stalled_count

    @property
    def deferred_failure(self) -> str | None:
        """The reason for which the job fails at its next claim instead of running; else None."""
        reason: str | None = self._columns[DEFERRED_FAILURE]
        return reason

    @property
    def progress(self) -> Any:
        """The last reported value; at first 0; 100 if the job completed and reported numbers."""
        progress = 0 if self._status.progress is None else decode(self._status.progress)
        counts = isinstance(progress, int | float) and not isinstance(progress, bool)
        return 100 if counts and self._status.state == State.COMPLETED else progress

    @property
    def return_value(self) -> Any:
        """The return value of a completed job; None until then."""
        value = self._status.return_value
        return None if value is None else decode(value)

    returnvalue = return_value

    @property
    def failed_reason(self) -> str | None:
        """The error of the last failed attempt; None if none failed."""
        return self._status.failed_reason

    @property
    def stacktrace(self) -> list[str]:
        """The stacks of the failed attempts, oldest first."""
        stacks: list[str] = [] if self._status.stacks is None else decode(self._status.stacks)
        return stacks

    @property
    def stack(self) -> str | None:
        """The stack of the last failed attempt; None if none failed."""
        stacks = self.stacktrace
        return stacks[-1] if stacks else None

    @property
    def processed_by(self) -> str | None:
        """The name of the worker that ran the job last."""
        return self._status.processed_by

    @property
    def locked_by(self) -> str | None:
        """The name of the worker that runs the job; None if none does."""
        return self._status.processed_by if self._status.state == State.ACTIVE else None

    @property
    def created_at(self) -> datetime:
        """When the job was added, or its option `timestamp`."""
        return moment_of(self._columns[CREATED_AT])

    @property
    def timestamp(self) -> int:
        """The same as `created_at`, in ms since the epoch."""
        timestamp: int = self._columns[CREATED_AT]
        return timestamp

    @property
    def updated_at(self) -> datetime:
        """When the job was last changed."""
        return moment_of(self._status.updated_at or self._columns[CREATED_AT])

    @property
    def process_at(self) -> datetime | None:
        """When a delayed job is due; None if the job is not delayed."""
        return None if self._status.due_at is None else moment_of(self._status.due_at)

    @property
    def expires_at(self) -> datetime | None:
        """When the job fails unless it has started; None without `expires`."""
        return None if self._status.expires_at is None else moment_of(self._status.expires_at)

    @property
    def processed_at(self) -> datetime | None:
        """When the job was last claimed; None if it never was."""
        return None if self._status.processed_at is None else moment_of(self._status.processed_at)

    @property
    def processed_on(self) -> int | None:
        """The same as `processed_at`, in ms since the epoch."""
        return self._status.processed_at

    @property
    def finished_at(self) -> datetime | None:
        """When the job finished; None until then."""
        return None if self._status.finished_at is None else moment_of(self._status.finished_at)

    @property
    def finished_on(self) -> int | None:
        """The same as `finished_at`, in ms since the epoch."""
        return self._status.finished_at

    # --- for modules of this package -------------------------------------------------------------

    @property
    def _stored_options(self) -> Mapping[str, Any]:
        """The options without a column of their own, such as `backoff`."""
        text = self._columns[OPTS]
        if text is None:
            return _NOTHING
        try:
            return self._options
        except AttributeError:
            options: Mapping[str, Any] = decode(text)
            self._options: Mapping[str, Any] = options
            return options

    @property
    def _flags(self) -> int:
        """Bits: see job_flags.py."""
        flags: int = self._columns[FLAGS]
        return flags

    def _mentions_option(self, option: str) -> bool:
        """Return False if the job has no such option; quicker than parsing its options."""
        text: str | None = self._columns[OPTS]
        return text is not None and option in text

    def _change_columns(self, **changes: Any) -> None:
        """Replace columns, given by the names of JobRow."""
        columns = list(self._columns)
        for name, value in changes.items():
            columns[JobRow._fields.index(name)] = value
        self._columns = columns


def stored_options(job: JobRecord) -> Mapping[str, Any]:
    """Return the options of a job without a column of their own, such as `backoff`."""
    return job._stored_options


def queue_position(job: JobRecord) -> tuple[int, int]:
    """Return the position in the queue at the time of reading; a smaller position runs sooner."""
    return job._columns[RANK], job._columns[SEQ]


def needs_checks(job: JobRecord) -> bool:
    """Return True if a run needs more than a call: the job has a timeout or a deferred failure."""
    columns = job._columns
    if columns[DEFERRED_FAILURE] is not None:
        return True
    return columns[OPTS] is not None and "timeout" in columns[OPTS]
