"""Connections to a server: every wait has a time limit, and no error contains a secret."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Mapping
from typing import Any, Self

import psycopg
from psycopg import errors, pq
from psycopg.abc import PQGen
from psycopg.types.numeric import Int8Dumper

from ...errors import (
    NotABulliteDatabase,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReplaced,
    StoreUnavailable,
    StoreUnwritable,
)
from .location import Credentials

CONNECT_WITHIN = 10
"""Seconds to connect, for each address of a host name."""

ANSWER_WITHIN = 40.0
"""Seconds to wait for a reply: a little longer than the server's statement timeout."""

_SECONDS = 1_000

SEARCH_PATH = "pg_catalog, pg_temp"
"""The schemas for names without a schema: only a superuser can create objects in them.

Names of functions, operators and types in our SQL have no schema. If another schema were searched,
a role that may create in it could add an overload that matches the types of our arguments better,
and it would run with the rights of our role. `pg_temp` is searched first unless it is listed.
"""

SESSION = {
    "search_path": SEARCH_PATH,
    # Whatever the server's own setting: an acknowledged commit is on its disk.
    "synchronous_commit": "on",
    "statement_timeout": 35 * _SECONDS,
    "lock_timeout": 30 * _SECONDS,
    # A process that was stopped in the middle of a transaction must not hold its locks for ever.
    "idle_in_transaction_session_timeout": 60 * _SECONDS,
    # Every statement has an index made for it. Otherwise the planner would scan a table that was
    # empty when last analyzed, and would keep that plan when the table has a million jobs.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    # The planner adds a high cost to what is switched off above, and starts two more processes for
    # a plan of high cost: 10 ms, for a table with three rows.
    "max_parallel_workers_per_gather": 0,
}
"""The settings of every transaction."""

_LIBPQ: Mapping[str, Any] = {
    "connect_timeout": CONNECT_WITHIN,
    "application_name": "bullite",
    "target_session_attrs": "read-write",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20 * _SECONDS,
}
"""Defaults of connection parameters; the URL may override them."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection in autocommit mode that gives up on a server that does not answer."""

    answer_within = ANSWER_WITHIN
    prepared: frozenset[bytes] = frozenset()
    """The names of the statements that the server has prepared for messages."""
    is_unsure = False
    """Whether the set of prepared statements is unknown."""

    def wait(self, gen: PQGen[Any], interval: float = 0.1, timeout: float | None = None) -> Any:
        return super().wait(gen, interval, self.answer_within if timeout is None else timeout)

    @property
    def is_lost(self) -> bool:
        return bool(self.closed or self.pgconn.status != pq.ConnStatus.OK)

    @classmethod
    def open(cls, access: Credentials, pooled: bool) -> Self:
        """Connect. Raise psycopg's errors."""
        parameters: dict[str, Any] = {**_LIBPQ, **access.parameters}
        if not pooled:
            # A pooler would refuse them. Behind one, each transaction sets them.
            parameters["options"] = _options(parameters.get("options", ""))
        # At every rollback, psycopg forgets which statements it and we have prepared.
        connection = cls.connect(autocommit=True, prepare_threshold=None, **parameters)
        # One type for all integers: otherwise each size of each would need a statement of its own.
        connection.adapters.register_dumper(int, Int8Dumper)
        connection._made_in = os.getpid()
        _open.add(connection)
        return connection

    _made_in = 0

    def __del__(self) -> None:  # type: ignore[override]
        # In the child of a fork, the connection is the parent's: do not close it or warn about it.
        if self._made_in == os.getpid():
            super().__del__()


def _options(of_user: str) -> str:
    """Return the settings of a session in the form of the connection parameter `options`.

    The last value of a name counts: the user may change all our settings but the search path.
    """
    ours = [f"-c {name}={value}" for name, value in SESSION.items() if name != "search_path"]
    path = SEARCH_PATH.replace(" ", "\\ ")
    return " ".join([*ours, of_user, f"-c search_path={path}"])


_open: weakref.WeakSet[Connection] = weakref.WeakSet()


def _let_go_in_child() -> None:
    """Close the sockets only: if a child kept them, the server would not see its parent die."""
    for connection in list(_open):
        with contextlib.suppress(psycopg.Error, OSError):
            os.close(connection.pgconn.socket)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)


_PASSING = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.ReadOnlySqlTransaction,
    errors.TooManyConnections,
    errors.IdleInTransactionSessionTimeout,
)
"""Errors of a server that stops, starts, is full, or has become a standby."""


def is_passing(error: psycopg.Error, connection: Connection | None) -> bool:
    """Return True if a new connection may succeed."""
    if isinstance(error, _PASSING):
        return True
    return isinstance(error, psycopg.OperationalError) and (
        connection is None or connection.is_lost or error.sqlstate is None
    )


def first_line(error: psycopg.Error) -> str:
    """Return the message of an error, without the lines that show its place in a statement."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def cannot_connect(error: psycopg.Error, where: str, access: Credentials) -> StoreError:
    """Return the error, in one line, for a connection that could not be made."""
    text = str(error)
    user = access.parameters.get("user", "")
    name = access.parameters.get("dbname", "")
    as_user = f" as user {user!r}" if user else ""
    if "password authentication failed" in text or "no password supplied" in text:
        return StoreUnwritable(f"{where} refuses the password{as_user}; check the URL")
    if "does not exist" in text and "database" in text:
        return StoreUnwritable(
            f"{where}: there is no database {name!r}; make it with CREATE DATABASE"
        )
    if "does not exist" in text and "role" in text:
        return StoreUnwritable(f"{where}: there is no user {user!r}; make it with CREATE ROLE")
    if "permission denied for database" in text:
        return StoreUnwritable(f"{where}: no permission to connect{as_user}; GRANT CONNECT")
    if "unsupported startup parameter" in text:
        return StoreUnwritable(f"{where} is behind a pooler; add pooler=transaction to the URL")
    if "no pg_hba.conf entry" in text or "pg_hba.conf rejects" in text:
        return StoreUnwritable(f"{where} lets nobody in from here{as_user}; see its pg_hba.conf")
    reason = text.strip().splitlines()[-1].strip() if text.strip() else type(error).__name__
    return StoreUnavailable(f"{where} cannot be reached ({reason}); nothing was written")


def store_error(error: psycopg.Error, where: str) -> StoreError:
    """Return the error, in one line, for a failed statement; its transaction wrote nothing."""
    reason = first_line(error)
    if isinstance(error, errors.QueryCanceled | errors.LockNotAvailable):
        return StoreBusy(f"{where} was busy for too long ({reason}); nothing was written")
    if isinstance(error, errors.DiskFull | errors.OutOfMemory):
        return StoreFull(f"no room left on {where} ({reason}); nothing was written")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreUnwritable(f"{where}: {reason}; see docs/postgresql.md for the GRANTs")
    if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):
        return StoreReplaced(f"{where}: the tables were dropped ({reason}); reopen the store")
    if isinstance(error, errors.UndefinedColumn | errors.UndefinedFunction):
        return NotABulliteDatabase(f"{where}: {reason}; these tables are not ours")
    return StoreUnavailable(f"{where}: {reason}; nothing was written")
