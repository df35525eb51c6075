"""What the engine asks of a database: the whole seam between the queue and its stores.

A driver belongs to the engine's thread, except where a method says otherwise. It knows SQL and
connections; it knows no rule about jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Protocol

from ..core.clock import Clock


class ConstantColumn(NamedTuple):
    """A column of which every row has the same value."""

    value: Any


class ColumnarRows(Sequence[Sequence[Any]]):
    """Rows by their columns: quicker to make of many, and what they share is known."""

    __slots__ = ("_size", "columns")

    def __init__(self, size: int, columns: Iterable[Sequence[Any] | ConstantColumn]) -> None:
        self._size = size
        self.columns = [
            ConstantColumn(column[0])
            if type(column) is not ConstantColumn and size > 1 and column.count(column[0]) == size
            else column
            for column in columns
        ]

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]]) -> ColumnarRows:
        return cls(len(rows), zip(*rows, strict=True))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[Sequence[Any]]:
        return zip(
            *[
                repeat(column.value, self._size) if isinstance(column, ConstantColumn) else column
                for column in self.columns
            ],
            strict=True,
        )


Params = Mapping[str, Any] | Sequence[Sequence[Any]]
"""Named values; for a statement over many rows, the rows."""


Step = tuple[str, Params]
"""The name of a statement, and its parameters."""


class Result(NamedTuple):
    """The result of a statement."""

    rows: Sequence[Any]
    """The rows, each a sequence of its columns."""
    changed: int
    """Number of rows that an update or a delete changed."""


class Notifications(NamedTuple):
    """What a process was woken for."""

    ready: set[int]
    """The queues that may have jobs for it."""
    is_alerted: bool
    """Whether a job that it runs may be cancelled."""


class WorkerRow(NamedTuple):
    """One row of the workers' table, as far as recovery needs it."""

    id: int
    queue: int
    nonce: int
    boot: str
    registered: int
    """1; 2 once it was told to stop while functions of it still ran, 0 if it was given up."""
    lease_until: int
    max_stalled_count: int
    renews: int
    """Whether its lease is renewed."""
    stalled_backoff: int
    """Whether its jobs go through their back-off when it is lost."""
    names: str | None = None
    """A JSON array of the job names that it takes; None for all."""


class InvalidData(Exception):
    """The data of one request was refused (a constraint, a value out of range)."""


class Conflict(Exception):
    """A row was not where a look in the same transaction had found it."""


class TransactionAborted(Exception):
    """The database undid the transaction, to let another go on or because the connection broke.

    Nothing of it is stored, now or later, and nothing was wrong with it: it is to be run again.
    """


class OutOfOrder(TransactionAborted):
    """The transaction needs rows that another has, and may not wait for them any more.

    It is to be run again, and to lock them first.
    """

    def __init__(
        self, queues: Iterable[int] = (), jobs: Iterable[int] = (), keyed: Iterable[int] = ()
    ) -> None:
        super().__init__("rows were needed that another has")
        self.queues, self.jobs = frozenset(queues), frozenset(jobs)
        self.keyed = frozenset(keyed)
        """The jobs whose deduplication keys are needed."""


class NotTogether(TransactionAborted):
    """Two groups of requests lock rows of which nobody knows the order before: deduplication keys.

    Each is to be carried out in a transaction of its own.
    """


class Reader(Protocol):
    """A connection for reading, used by one thread at a time."""

    clock: Clock

    def read(self, statement: str, params: Params) -> Result:
        """Run one statement on the latest committed state."""

    def close(self) -> None: ...


class Driver(Protocol):
    """One database, written by one thread."""

    clock: Clock
    nonce: int
    """The random 64-bit number of this process's opening of the database."""
    has_other_writers: bool
    """Whether others may commit while a transaction is under way: what it looked for and did not
    find may be there when it has ended."""
    notices_changes: bool
    """Whether `changed` costs next to nothing and can tell that nothing did."""
    recover_every: int
    """Ms between looks for workers that are gone."""

    def open(self) -> None:
        """Connect and bring the schema up to date; raises a StoreError that says what is wrong."""

    def close(self, still_runs: bool = False, exiting: bool = False) -> None:
        """Let go of everything; a later open starts afresh.

        If functions of our workers still run in threads of this process (`still_runs`), no other
        process may take theirs for a dead one before it ends. `exiting`: it is about to end.
        """

    def begin(self, durable: bool, foreseen: Sequence[Step] = ()) -> None:
        """Start a transaction and set the clock. Raise a StoreError if that fails.

        Rows that a statement reads for update do not change until the end of the transaction, even
        if other processes write. The steps in `foreseen` will probably be executed first, in this
        order: a driver of a remote database sends them in one round trip.
        """

    def execute(self, statement: str, params: Params) -> Result:
        """Run one statement inside the transaction, or on its own when there is none.

        Raises StatementRefused when the data was at fault, Undone when only the moment was, a
        StoreError for anything else.
        """

    def commit(self) -> bool:
        """Make the transaction permanent; whether it began as durable and needs a `sync` for that.

        Raises Undone if it is certain that it is not, a StoreError if that cannot be known.
        """

    def sync(self) -> None:
        """Return when everything that anybody committed so far is on the disk, if it has to be.

        Raises a StoreError if that cannot be known.
        """

    def rollback(self) -> None:
        """Undo the transaction; never raises."""

    def reader(self) -> Reader:
        """A new reader; called on, and used by, another thread."""

    # --- waking ---

    def queue_notification(self, queue: int, names: Iterable[str], most: int) -> None:
        """Inside the transaction: note that up to `most` idle workers elsewhere should be woken."""

    def queue_cancel_notification(self, queue: int, nonce: int) -> None:
        """Inside the transaction: note that the process of that nonce, which is another, should
        look for jobs of `queue` that it runs and that are cancelled."""

    def send_notifications(self) -> None:
        """After the commit: wake those announced; never blocks, never raises."""

    def may_have_lost_commits(self) -> bool:
        """Inside the transaction: whether, since last asked, commits may have been lost that were
        not durable."""

    def set_idle(self, worker: int, idle: bool) -> None:
        """Inside the transaction: say whether `worker` would welcome a wake-up."""

    def listen(self, queue: int) -> str | None:
        """Open this process's ear, as it has a worker of `queue`; the address others wake it at.

        Raise a StoreError if this process cannot show that it lives.
        """

    def registered(self) -> None:
        """A worker of this process has been registered: its lease is to be kept, too."""

    def notification_fds(self) -> Sequence[int]:
        """File descriptors that become readable when somebody wakes this process."""

    def read_notifications(self) -> Notifications:
        """What this process was woken for since last asked."""

    def changed(self) -> bool:
        """Whether anyone else has committed since last asked."""

    # --- living and dying ---

    def start_heartbeat(self) -> None:
        """From now on others can see at once when this process is gone, where that can be seen.

        Raise a StoreError if it cannot be made so.
        """

    def is_dead(self, nonce: int, boot: str) -> bool:
        """Whether a process is certainly gone, as far as that can be told at once; any thread."""

    def find_dead(self, workers: Sequence[WorkerRow]) -> list[WorkerRow]:
        """Those of other processes' workers whose process is certainly gone."""

    def is_alive_despite_lease(self, worker: WorkerRow) -> bool:
        """Whether `worker` is known to live, so that an expired lease means nothing."""

    def remove_stale_files(self, known: Iterable[int]) -> None:
        """Clear away what dead processes, except those with these nonces, left lying about."""

    def checkpoint_if_due(self) -> None:
        """Between transactions: checkpoint if there is enough to do."""


ANY_NAME = ""
"""Stands for jobs whose names were not looked up: every worker of the queue may try."""
