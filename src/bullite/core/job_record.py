"""What is stored of a job, as it was read: nothing here asks a database, or changes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from .clock import moment_of
from .codec import decode
from .states import COMPLETED, State, shown_state

_NOTHING: Mapping[str, Any] = {}


class JobRow(NamedTuple):
    """What a worker is told of a job it now holds, and the beginning of what others read of it."""

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
    """What else belongs to it: see job_flags.py."""
    data: str


class JobStatusRow(NamedTuple):
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
    progress: str | None = None
    outcome: str | None = None
    processed_by: str | None = None
    worker_lease: int | None = None
    lease: int | None = None
    expires_at: int | None = None
    original_queue: str | None = None
    stacks: str | None = None


_COLUMNS = len(JobRow._fields)
OPTS, DATA, FLAGS = (JobRow._fields.index(field) for field in ("opts", "data", "traits"))


def split_job_row(row: Sequence[Any]) -> tuple[Sequence[Any], JobStatusRow]:
    """The two parts of a row that tells all of a job."""
    return row[:_COLUMNS], JobStatusRow(*row[_COLUMNS:])


class HasName(Protocol):
    """A queue, as far as those who only look at its jobs need to know it."""

    @property
    def name(self) -> str: ...


class JobRecord:
    """What is stored of one job of a queue; attributes tell what was true when it was read."""

    __slots__ = ("_columns", "_data", "_options", "_queue", "_status")

    def __init__(self, queue: HasName, facts: Sequence[Any], fate: JobStatusRow) -> None:
        self._queue = queue
        self._columns, self._status = facts, fate

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"<{kind} {self.id} {self.name!r} of {self._queue.name!r}: {self.state}>"

    # --- what it is ------------------------------------------------------------------------------

    @property
    def pk(self) -> int:
        """The number of the job, unique in the database."""
        pk: int = self._columns[0]
        return pk

    @property
    def id(self) -> str:
        """The id chosen for the job, or its number."""
        return self._columns[2] or str(self._columns[0])

    @property
    def custom_id(self) -> str | None:
        """The id chosen for the job, if one was."""
        custom_id: str | None = self._columns[2]
        return custom_id

    @property
    def name(self) -> str:
        name: str = self._columns[1]
        return name

    @property
    def queue_name(self) -> str:
        return self._queue.name

    @property
    def original_queue(self) -> str | None:
        """The queue it failed in, when it was moved to a dead-letter queue."""
        return self._status.original_queue

    @property
    def data(self) -> Any:
        """What the job was given; parsed when first asked for."""
        try:
            return self._data
        except AttributeError:
            self._data: Any = decode(self._columns[DATA])
            return self._data

    @property
    def place(self) -> tuple[int, int]:
        """Where it stood in line when it was read: the smaller, the sooner."""
        return self._columns[11], self._columns[12]

    @property
    def priority(self) -> int:
        priority: int = self._columns[3]
        return priority

    @property
    def attempts(self) -> int:
        """How many runs it may have."""
        attempts: int = self._columns[4]
        return attempts

    @property
    def delay(self) -> int:
        """Ms that it has to wait, or had to before its last run; 0 once its time has come."""
        return self._status.delay

    @property
    def lifo(self) -> bool:
        return bool(self._status.lifo)

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.stored_options.get("tags", ()))

    @property
    def timeout(self) -> int | None:
        """Ms that one run may take."""
        timeout: int | None = self.stored_options.get("timeout")
        return timeout

    @property
    def limit_key(self) -> str | None:
        """The key whose rate limit it counts for."""
        key: str | None = self.stored_options.get("limit_key")
        return key

    @property
    def stored_options(self) -> Mapping[str, Any]:
        """The options that no column holds, such as `backoff`."""
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
    def flags(self) -> int:
        """What else belongs to it, as bits: see job_flags.py."""
        traits: int = self._columns[FLAGS]
        return traits

    @property
    def needs_care(self) -> bool:
        """Whether there is more to running it than calling its processor."""
        facts = self._columns
        return facts[9] is not None or (facts[OPTS] is not None and "timeout" in facts[OPTS])

    def mentions_option(self, option: str) -> bool:
        """Whether it may have such an option: quicker to tell from their text than to read it."""
        text: str | None = self._columns[OPTS]
        return text is not None and option in text

    @property
    def opts(self) -> dict[str, Any]:
        """The options the job was added with; durations in ms."""
        return {
            "priority": self.priority,
            "delay": 0,
            "attempts": self.attempts,
            "lifo": self.lifo,
            "job_id": self._columns[2],
            **self.stored_options,
        }

    @property
    def repeat_job_key(self) -> str | None:
        """The id of the job scheduler that made it, if one did."""
        key: str | None = self.stored_options.get("repeat", _NOTHING).get("key")
        return key

    @property
    def deduplication_id(self) -> str | None:
        """The deduplication key that it was added under, whether it holds it or not."""
        rule: Mapping[str, Any] = self.stored_options.get("deduplication", _NOTHING)
        return rule.get("id")

    # --- how far it is ---------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """As last read; `prioritized` is waiting with a priority."""
        return shown_state(self._status.state, self.priority)

    @property
    def outcome(self) -> str | None:
        """How a finished job ended: `completed`, `error`, `timed-out`, `expired`, `stalled`,
        `cancelled`; None until then."""
        if self._status.state == State.COMPLETED:
            return COMPLETED
        if self._status.state == State.FAILED:
            return self._status.outcome or "error"
        return None

    @property
    def attempts_made(self) -> int:
        """Runs that ended, by success or failure."""
        made: int = self._columns[5]
        return made

    @property
    def attempts_started(self) -> int:
        """How often it was begun."""
        started: int = self._columns[6]
        return started

    @property
    def stalled_count(self) -> int:
        """How often its worker died under it."""
        count: int = self._columns[7]
        return count

    stalled_counter = stalled_count

    @property
    def deferred_failure(self) -> str | None:
        """Why it will fail, without running, when it is next taken."""
        reason: str | None = self._columns[9]
        return reason

    @property
    def progress(self) -> Any:
        """As last reported; 0 at first, and 100 for a completed job that reported numbers."""
        progress = 0 if self._status.progress is None else decode(self._status.progress)
        counts = isinstance(progress, int | float) and not isinstance(progress, bool)
        return 100 if counts and self._status.state == State.COMPLETED else progress

    @property
    def return_value(self) -> Any:
        value = self._status.return_value
        return None if value is None else decode(value)

    returnvalue = return_value

    @property
    def failed_reason(self) -> str | None:
        """The error of the last failed attempt."""
        return self._status.failed_reason

    @property
    def stacktrace(self) -> list[str]:
        """The stacks of its failed attempts, oldest first."""
        stacks: list[str] = [] if self._status.stacks is None else decode(self._status.stacks)
        return stacks

    @property
    def stack(self) -> str | None:
        """The stack of the last failed attempt."""
        stacks = self.stacktrace
        return stacks[-1] if stacks else None

    @property
    def processed_by(self) -> str | None:
        """The name of the worker that ran it last."""
        return self._status.processed_by

    @property
    def locked_by(self) -> str | None:
        """The name of the worker that runs it."""
        return self._status.processed_by if self._status.state == State.ACTIVE else None

    @property
    def created_at(self) -> datetime:
        return moment_of(self._columns[8])

    @property
    def timestamp(self) -> int:
        """When it was made, in ms since the epoch."""
        timestamp: int = self._columns[8]
        return timestamp

    @property
    def updated_at(self) -> datetime:
        return moment_of(self._status.updated_at or self._columns[8])

    @property
    def process_at(self) -> datetime | None:
        """When a delayed job is due."""
        return None if self._status.due_at is None else moment_of(self._status.due_at)

    @property
    def expires_at(self) -> datetime | None:
        """When it fails if nobody has begun it."""
        return None if self._status.expires_at is None else moment_of(self._status.expires_at)

    @property
    def processed_at(self) -> datetime | None:
        """When it was last taken."""
        return None if self._status.processed_at is None else moment_of(self._status.processed_at)

    @property
    def processed_on(self) -> int | None:
        """The same in ms since the epoch."""
        return self._status.processed_at

    @property
    def finished_at(self) -> datetime | None:
        return None if self._status.finished_at is None else moment_of(self._status.finished_at)

    @property
    def finished_on(self) -> int | None:
        """The same in ms since the epoch."""
        return self._status.finished_at
