"""The PostgreSQL driver: runs the engine's statements on one schema beside other writers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from ...core.clock import Clock
from ...core.codec import encode_plain
from ...errors import StoreClosed, StoreError, StoreUnavailable
from ..driver import (
    Conflict,
    InvalidData,
    Notifications,
    Params,
    Result,
    Step,
    TransactionAborted,
    WorkerRow,
)
from .connections import SESSION, Connection, first_line, store_error
from .listener import ALERT, Listener
from .location import ServerLocation
from .maintenance_locks import Hindrances
from .pipeline import PIN, StatementPipeline, ask, message, predicted_result
from .reader import PostgresReader
from .reconnecting import UNDONE, ReconnectingConnection
from .schema import prepare
from .server_clock import ServerClock
from .statements import REFUSAL, Prepared, statements, storable

log = logging.getLogger("bullite.postgres")

SILENT = 60_000
"""Ms without a heartbeat after which the counts of a process are added to the common row."""

SURELY_GONE = 10 * 60_000
"""Ms without a heartbeat after which a process is dead. Its row is deleted if nothing needs it."""

MAX_FOLDED = 1_000
MOST_FORGOTTEN = 1_000

CERTAIN = SURELY_GONE - 60_000
"""Ms after the start of a transaction during which its process's row certainly exists."""

SKIPPED_EVENTS = 100_000
"""Event ids skipped at each connect. A server crash can lose a commit that was not synced, and its
event ids are then assigned again. A reader may have read the lost events: if ids were reused, it
would miss the new events. Such commits cannot have used as many ids as are skipped."""

_READ_HERE = frozenset({"lock_queue_limits", "lock_queue_limits_now", "try_housekeeping"})
"""Statements whose results the driver reads, too."""

_REFUSED = (psycopg.DataError, psycopg.IntegrityError, psycopg.NotSupportedError)


class PostgresDriver:
    """One schema of a database, written by one thread of this process."""

    has_other_writers = True
    notices_changes = False
    recover_every = 1_000

    def __init__(
        self,
        location: ServerLocation,
        clock: Clock | None,
        random_bits: Callable[[int], int],
    ) -> None:
        self.location = location
        self._server_clock = ServerClock() if clock is None else None
        self.clock: Clock = clock or self._server_clock  # type: ignore[assignment]
        self.nonce = random_bits(64) - (1 << 63) or 1
        self._statements = statements(location.schema)
        self._connection = ReconnectingConnection(location, location.access, self._welcome)
        self._number = self._began_at = 0
        self._inside: Connection | None = None
        self._pipeline: StatementPipeline
        self._first_statements: list[tuple[Step, Result]] = []
        self._announced: dict[int, str] = {}
        self._alerted: set[int] = set()
        self._backend: tuple[Any, ...] | None = None
        settings = SESSION if location.pooled else {}
        self._begin = [
            "begin isolation level read committed read write",
            *(f"set local {name} = {value}" for name, value in settings.items()),
        ]
        self._hindrances = Hindrances()
        self._listener: Listener | None = None
        self._is_open = self._is_new = False

    # --- opening and closing ---------------------------------------------------------------------

    def open(self) -> None:
        self._connection.connect()
        self._is_open = True

    def close(self, still_runs: bool = False, exiting: bool = False) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if exiting or not still_runs:
            # This marks workers of ours that were not closed as dead.
            with contextlib.suppress(StoreError, psycopg.Error):
                self._run_alone("leave", {"nonce": self.nonce})
        self._connection.drop()

    def reader(self) -> PostgresReader:
        return PostgresReader(self.location, self.clock)

    def _welcome(self, connection: Connection) -> None:
        """Prepare a new connection, and end a transaction that the last one left open."""
        if not self._is_open:
            prepare(connection, self.location)
        self._is_new = self._is_open
        if not self.location.pooled:
            self._replace_backend(connection)
        self._run(connection, "skip_events", {"skipped": SKIPPED_EVENTS})
        if self._server_clock is not None:
            # The clock is used before the first transaction, to find dead workers and due jobs.
            [[now]] = self._run(connection, "clock", {}).rows
            self._server_clock.set(now)

    def _replace_backend(self, connection: Connection) -> None:
        """End the session of the previous connection, and remember that of this one."""
        if self._backend is not None:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where pid = %s and backend_start = %s",
                self._backend,
            )
        self._backend = connection.execute(
            "select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()"
        ).fetchone()

    # --- transactions ----------------------------------------------------------------------------

    def begin(self, durable: bool, foreseen: Sequence[Step] = ()) -> None:
        if not self._is_open:
            raise StoreClosed(f"{self.location} is closed")
        while True:
            connection = self._connection.connect_patiently()
            self._inside = connection
            self._pipeline = message(connection, self.location.pooled)
            try:
                for text in self._begin:
                    self._pipeline.add_sql(text)
                self._write("clock" if durable and self.location.durable else "clock_unsynced", {})
                for step in foreseen:
                    self._write(*step)
                answers = self._pipeline.execute()
                break
            except psycopg.Error as error:
                is_broken = self._connection.is_broken_by(error)
                self.rollback()
                if not is_broken:
                    raise self._meaning(error) from error
        self._first_statements.extend(zip(reversed(foreseen), reversed(answers), strict=False))
        [[self._began_at, *_]] = answers[-1 - len(foreseen)].rows
        if self._server_clock is not None:
            self._server_clock.set(self._began_at)
        self._number += 1

    def execute(self, statement: str, params: Params) -> Result:
        try:
            if self._inside is None:
                return self._run_alone(statement, params)
            answer = self._take_foreseen(statement, params) or self._run_inside(statement, params)
            if statement in _READ_HERE and isinstance(params, Mapping):
                return self._read_result(statement, params, answer)
            return answer
        except psycopg.Error as error:
            raise self._meaning(error) from error
        except (OverflowError, UnicodeError) as error:
            raise InvalidData(str(error)) from error

    def _read_result(self, statement: str, params: Mapping[str, Any], answer: Result) -> Result:
        if statement != "try_housekeeping":
            return self._at_our_time(answer)
        chore = params["chore"], params["queue"]
        [[is_taken]] = answer.rows
        if is_taken:
            self._hindrances.began(chore)
        elif self._hindrances.refused(chore, self.clock.now()):
            self._name_housekeeper(params)
        return answer

    def _name_housekeeper(self, params: Mapping[str, Any]) -> None:
        """Log which session holds the lock of a chore: any role may take it."""
        for pid, role in self._run_inside("housekeeper", params).rows:
            log.warning(
                "%s: housekeeping (%s of queue %d) is not possible: session %d of role %r has held "
                "its advisory lock for a minute or more; pg_terminate_backend(%d) ends it",
                self.location,
                *(params["chore"], params["queue"], pid, role, pid),
            )

    def _at_our_time(self, answer: Result) -> Result:
        """Set the server's clock from the result, or return the time of the clock in use."""
        if self._server_clock is None:
            return Result([(self.clock.now(),) for _ in answer.rows], len(answer.rows))
        for [now] in answer.rows:
            self._server_clock.set(now)
        return answer

    def _take_foreseen(self, statement: str, params: Params) -> Result | None:
        """Return the result of a foreseen step. Drop the remaining ones if another step comes."""
        if self._first_statements:
            step, answer = self._first_statements.pop()
            if step == (statement, params):
                return answer
            self._first_statements.clear()
        return None

    def _run_inside(self, statement: str, params: Params) -> Result:
        if statement == "change_counts" and isinstance(params, Mapping) and not params["drains"]:
            statement = "add_to_counts"
        answer = predicted_result(statement, params)
        if answer is not None:
            self._write(statement, params)
            return answer
        if isinstance(params, Mapping):
            self._write(statement, params)
            return self._pipeline.execute()[-1]
        if self._pipeline:
            self._pipeline.execute()
        assert self._inside is not None
        return self._insert(self._inside, self._statements[statement], params)

    def _write(self, statement: str, params: Params) -> None:
        self._pipeline.add_statement(self._statements[statement], self._with_nonce(params))

    def _with_nonce(self, params: Params) -> Params:
        return {"nonce": self.nonce, **params} if isinstance(params, Mapping) else params

    def _run_alone(self, statement: str, params: Params) -> Result:
        result: Result = self._connection.read(
            lambda connection: self._run(connection, statement, params)
        )
        return result

    def _run(self, connection: Connection, statement: str, params: Params) -> Result:
        known = self._statements[statement]
        return ask(connection, self.location.pooled, known, self._with_nonce(params))

    def _insert(
        self, connection: Connection, statement: Prepared, rows: Sequence[Sequence[Any]]
    ) -> Result:
        if statement.copy is not None:
            with connection.cursor().copy(statement.copy) as copy:
                for row in rows:
                    copy.write_row([storable(value) for value in row])
        else:
            columns = [[storable(value) for value in column] for column in zip(*rows, strict=True)]
            connection.execute(statement.text, columns)
        return Result((), len(rows))

    def commit(self) -> bool:
        connection = self._inside
        assert connection is not None
        try:
            self._write("mark", {"number": self._number, "now": self.clock.now()})
            self._pipeline.add_sql("commit")
            if self.location.pooled and (self._announced or self._alerted):
                self._pipeline.add_sql(PIN)
            for queue, name in self._announced.items():
                channel = Listener.channel(self.location.schema, queue)
                self._write("notify", {"queue": queue, "channel": channel, "name": name[:1000]})
            for queue in self._alerted:
                channel = Listener.channel(self.location.schema, queue)
                self._write("alert", {"channel": channel, "name": ALERT})
            self._pipeline.execute()
        except psycopg.Error as error:
            if self._connection.is_broken_by(error):
                self._inside = None
                if not self._was_committed(error):
                    raise TransactionAborted(
                        f"the connection was lost before the commit: {error}"
                    ) from error
            elif not self._has_ended(connection) or not self._was_committed(error):
                raise self._meaning(error) from error
            else:
                log.warning("%s: nobody was woken: %s", self.location, error)
        self._inside = None
        self._announced.clear()
        self._alerted.clear()
        return False

    def sync(self) -> None:
        """Do nothing: a commit is on the server's disk before it returns or becomes visible."""

    def _has_ended(self, connection: Connection) -> bool:
        """Return True if the server has ended the transaction, committed or not."""
        return connection.info.transaction_status is TransactionStatus.IDLE

    def _was_committed(self, lost: psycopg.Error) -> bool:
        """Return True if the transaction whose reply was lost is in the database.

        If it is not, give it up: a commit that was sent may still arrive, and then it must fail.
        If this process slept, its row with its last commit may have been deleted meanwhile.
        """
        params = {"nonce": self.nonce, "number": self._number, "now": self.clock.now()}
        for _ in range(3):
            try:
                given_up = self._run(self._connection.connect_patiently(), "give_up", params).rows
                if not given_up:
                    return True
                [(was_known, at)] = given_up
                if was_known or at - self._began_at < CERTAIN:
                    return False
                break
            except psycopg.Error as error:
                self._connection.drop(error)
            except StoreError:
                break
        raise StoreUnavailable(
            f"{self.location}: {lost}; whether the request was stored is not known"
        ) from lost

    def rollback(self) -> None:
        self._announced.clear()
        self._alerted.clear()
        self._first_statements.clear()
        connection, self._inside = self._inside, None
        if connection is not None and not connection.is_lost:
            try:
                connection.execute("rollback")
            except psycopg.Error as error:
                self._connection.drop(error)

    def _meaning(self, error: psycopg.Error) -> Exception:
        """Return the exception for the engine, for an error inside a transaction."""
        reason = first_line(error)
        if isinstance(error, UNDONE):
            return TransactionAborted(reason)
        if self._connection.is_broken_by(error):
            self._inside = None
            return TransactionAborted(reason)
        if isinstance(error, errors.InvalidTextRepresentation) and REFUSAL in reason:
            return Conflict(reason)
        if isinstance(error, errors.UniqueViolation):
            # Another process has just inserted the same row: the second try will find it.
            return Conflict(reason)
        if isinstance(error, _REFUSED):
            return InvalidData(reason)
        return store_error(error, str(self.location))

    def checkpoint_if_due(self) -> None:
        """Do nothing: the server runs checkpoints by itself."""

    # --- notifications ---------------------------------------------------------------------------

    def queue_notification(self, queue: int, names: Iterable[str], most: int) -> None:
        only = list(names)
        self._announced[queue] = only[0] if len(only) == 1 else ""

    def queue_cancel_notification(self, queue: int, nonce: int) -> None:
        self._alerted.add(queue)

    def send_notifications(self) -> None:
        """Do nothing: `commit` sends NOTIFY behind the commit, in the same message. Inside the
        transaction, NOTIFY would make all commits of the server wait for each other's sync."""

    def may_have_lost_commits(self) -> bool:
        was_new, self._is_new = self._is_new, False
        return was_new

    def set_idle(self, worker: int, idle: bool) -> None:
        self.execute("set_worker_idle", {"worker": worker, "idle": int(idle)})

    def listen(self, queue: int) -> str | None:
        if self._listener is None:
            self._listener = Listener(self.location, self.renewal)
        self._listener.listen(queue)
        return None

    def registered(self) -> None:
        if self._listener is not None:
            self._listener.renew_now()

    def renewal(self) -> tuple[Prepared, dict[str, int]]:
        """Return the statement that renews this process's leases. The listener thread calls it."""
        return self._statements["renew_workers"], {
            "lease_now": self.clock.lease_now(),
            "now": self.clock.now(),
            "nonce": self.nonce,
        }

    def notification_fds(self) -> Sequence[int]:
        return self._listener.notification_fds() if self._listener is not None else ()

    def read_notifications(self) -> Notifications:
        return (
            self._listener.read_notifications()
            if self._listener is not None
            else Notifications(set(), False)
        )

    def changed(self) -> bool:
        return True

    # --- dead processes --------------------------------------------------------------------------

    def start_heartbeat(self) -> None:
        """Do nothing: other processes see this one by the rows that it writes."""

    def is_dead(self, nonce: int, boot: str) -> bool:
        """Return False: another machine's processes cannot be checked, so leases decide."""
        return False

    def find_dead(self, workers: Sequence[WorkerRow]) -> list[WorkerRow]:
        """Return the workers whose process has left, or has sent no heartbeat for `SURELY_GONE` ms.

        Before that, a dead process and one out of reach look the same: the lease decides.
        """
        if not workers:
            return []
        long_ago = self.clock.now() - SURELY_GONE
        asked = encode_plain(sorted({worker.nonce for worker in workers})).decode()
        seen_at = dict(self._run_alone("processes", {"nonces": asked}).rows)
        return [
            worker
            for worker in workers
            if worker.nonce not in seen_at
            or max(seen_at[worker.nonce], worker.lease_until) < long_ago
        ]

    def is_alive_despite_lease(self, worker: WorkerRow) -> bool:
        """Return True for the workers of this process: only of them it is known."""
        return bool(worker.nonce == self.nonce and worker.registered and worker.renews)

    def remove_stale_files(self, known: Iterable[int]) -> None:
        now = self.clock.now()
        self._run_alone("fold_counts", {"silent_since": now - SILENT, "most": MAX_FOLDED})
        self._run_alone(
            "forget_processes", {"silent_since": now - SURELY_GONE, "most": MOST_FORGOTTEN}
        )
