"""The driver interface: everything that the engine asks of a database.

The engine thread uses a driver, except where a method says otherwise. A driver knows SQL and
connections. It knows no rule about jobs.
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
    """Rows stored by column. Many rows are quicker to make, and constant columns are known."""

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
    """The notifications that a process has received."""

    ready: set[int]
    """The queues that may have jobs for the process."""
    is_alerted: bool
    """Whether a job that the process runs may be cancelled."""


class WorkerRow(NamedTuple):
    """The columns of a worker's row that recovery needs."""

    id: int
    queue: int
    nonce: int
    boot: str
    registered: int
    """1; 2 after a stop was requested while its functions still ran; 0 if it was given up."""
    lease_until: int
    max_stalled_count: int
    renews: int
    """Whether its lease is renewed."""
    stalled_backoff: int
    """Whether its jobs go through their back-off when it is lost."""
    names: str | None = None
    """A JSON array of the job names that the worker takes; None for all."""


class InvalidData(Exception):
    """The database refused the data of one request (a constraint, a value out of range)."""


class Conflict(Exception):
    """A row has changed since it was read in the same transaction."""


class TransactionAborted(Exception):
    """The database rolled back the transaction, or the connection broke before the commit.

    Nothing of the transaction is stored, now or later. It contained no error: run it again.
    """


class OutOfOrder(TransactionAborted):
    """The transaction needs rows that another one has locked, and must not wait for them now.

    Run it again, and lock these rows first.
    """

    def __init__(
        self, queues: Iterable[int] = (), jobs: Iterable[int] = (), keyed: Iterable[int] = ()
    ) -> None:
        super().__init__("rows were needed that another has")
        self.queues, self.jobs = frozenset(queues), frozenset(jobs)
        self.keyed = frozenset(keyed)
        """The jobs whose deduplication keys the transaction needs."""


class NotTogether(TransactionAborted):
    """Two groups of requests lock deduplication keys, whose order is not known beforehand.

    Run each group in its own transaction.
    """


class Reader(Protocol):
    """A read-only connection, used by one thread at a time."""

    clock: Clock

    def read(self, statement: str, params: Params) -> Result:
        """Run one statement on the latest committed state."""

    def close(self) -> None: ...


class Driver(Protocol):
    """One database, written by one thread."""

    clock: Clock
    nonce: int
    """A random 64-bit number that this process drew when it opened the database."""
    has_other_writers: bool
    """Whether other processes may commit during a transaction: a row that the transaction searched
    for and did not find may exist when the transaction ends."""
    notices_changes: bool
    """Whether `changed` is cheap and returns False if there was no commit."""
    recover_every: int
    """Ms between two checks for dead workers."""

    def open(self) -> None:
        """Connect and bring the schema up to date. Raise a StoreError that names the problem."""

    def close(self, still_runs: bool = False, exiting: bool = False) -> None:
        """Release all resources. The driver can be opened again later.

        If functions of our workers still run in threads of this process (`still_runs`), other
        processes must not treat this process as dead before it ends. `exiting`: it is about to end.
        """

    def begin(self, durable: bool, foreseen: Sequence[Step] = ()) -> None:
        """Start a transaction and set the clock. Raise a StoreError if that fails.

        Rows that a statement reads for update do not change until the end of the transaction, even
        if other processes write. The caller will probably execute the steps in `foreseen` first, in
        this order: a driver of a remote database sends them in one round trip.
        """

    def execute(self, statement: str, params: Params) -> Result:
        """Run one statement in the transaction, or in its own transaction if there is none.

        Raise InvalidData if the data is at fault, TransactionAborted if a second try can succeed,
        and a StoreError for any other failure.
        """

    def commit(self) -> bool:
        """Commit. Return True if the transaction is durable and still needs `sync`.

        Raise TransactionAborted if it is certain that nothing was committed, and a StoreError if
        that is not known.
        """

    def sync(self) -> None:
        """Return when the commits of all processes so far are on the disk, if they must be durable.

        Raise a StoreError if that is not known.
        """

    def rollback(self) -> None:
        """Roll back the transaction. Never raise."""

    def reader(self) -> Reader:
        """Return a new reader. Another thread calls this and uses the reader."""

    # --- notifications ---

    def queue_notification(self, queue: int, names: Iterable[str], most: int) -> None:
        """In the transaction: queue notifications for up to `most` idle workers elsewhere."""

    def queue_cancel_notification(self, queue: int, nonce: int) -> None:
        """In the transaction: queue a notification for another process, named by its nonce. That
        process then looks for cancelled jobs of `queue` that it runs."""

    def send_notifications(self) -> None:
        """After the commit: send the queued notifications. Never block and never raise."""

    def may_have_lost_commits(self) -> bool:
        """In the transaction: return True if commits that were not durable may have been lost since
        the last call."""

    def set_idle(self, worker: int, idle: bool) -> None:
        """In the transaction: advertise whether `worker` is idle and wants notifications."""

    def listen(self, queue: int) -> str | None:
        """Receive notifications for `queue`. Return the address that other processes send to.

        Raise a StoreError if this process cannot start its heartbeat.
        """

    def registered(self) -> None:
        """Renew the lease of a worker that this process has just registered, too."""

    def notification_fds(self) -> Sequence[int]:
        """Return the file descriptors that become readable when a notification arrives."""

    def read_notifications(self) -> Notifications:
        """Return the notifications that have arrived since the last call."""

    def changed(self) -> bool:
        """Return True if another connection has committed since the last call."""

    # --- dead processes ---

    def start_heartbeat(self) -> None:
        """Let other processes detect the death of this process immediately, if that is possible.

        Raise a StoreError if that fails.
        """

    def is_dead(self, nonce: int, boot: str) -> bool:
        """Return True if a process is certainly dead. Any thread may call it; it does not wait."""

    def find_dead(self, workers: Sequence[WorkerRow]) -> list[WorkerRow]:
        """Return the workers whose process, another one than this, is certainly dead."""

    def is_alive_despite_lease(self, worker: WorkerRow) -> bool:
        """Return True if `worker` is known to be alive: its expired lease is then ignored."""

    def remove_stale_files(self, known: Iterable[int]) -> None:
        """Delete the leftovers of dead processes, except those of processes with these nonces."""

    def checkpoint_if_due(self) -> None:
        """Between transactions: run a checkpoint if enough was written."""


ANY_NAME = ""
"""Placeholder for jobs whose names were not read: every worker of the queue may try."""
