"""Opening a database: check the server's version and our tables, and migrate the schema."""

from __future__ import annotations

import logging

import psycopg
from psycopg import errors

from ...errors import NotABulliteDatabase, PostgresTooOld, SchemaTooNew, StoreBusy, StoreUnwritable
from ..migrations import scripts
from .connections import Connection, first_line
from .location import ServerLocation
from .pipeline import PIN
from .statements import in_schema, quote, with_parameters

log = logging.getLogger("bullite.postgres")

OLDEST_SERVER = 14
_MIGRATE_WITHIN = "set local statement_timeout = 0; set local lock_timeout = '60s'"
_MIGRATED_WITHIN = 24 * 3600.0
"""Seconds that a statement of a migration may take: it may rewrite all jobs. If the server dies,
the keepalives of the connection detect that earlier."""

_MADE_MEANWHILE = (errors.DuplicateSchema, errors.DuplicateTable, errors.UniqueViolation)
"""Errors of the server if another process has just made the same schema or table."""


def prepare(connection: Connection, location: ServerLocation) -> None:
    """Migrate the schema, created if missing. Any number of processes may race."""
    _refuse_old_server(connection, location)
    migrations = scripts(__package__)
    with connection.transaction():
        connection.execute(PIN.encode())
        version = _version(connection, location)
    if version < len(migrations):
        _migrate_with_retries(connection, location, migrations)
    elif version > len(migrations):
        raise SchemaTooNew(
            f"{location} has schema {version}, this Bullite knows {len(migrations)}; upgrade it"
        )


def _refuse_old_server(connection: Connection, location: ServerLocation) -> None:
    version = connection.info.server_version // 10_000
    if version < OLDEST_SERVER:
        raise PostgresTooOld(
            f"{location} is PostgreSQL {version}; Bullite needs {OLDEST_SERVER} or newer"
        )


def _version(connection: Connection, location: ServerLocation) -> int:
    """Return the version of the schema; 0 if it has no tables of Bullite."""
    tables = {
        table
        for [table] in connection.execute(
            "select relname::text from pg_class "
            "join pg_namespace on pg_namespace.oid = relnamespace "
            "where nspname = %s and relname like %s",
            (location.schema, "bullite\\_%"),
        )
    }
    if not tables:
        return 0
    if "bullite_meta" in tables:
        query = in_schema(
            "select value from bullite.bullite_meta where key = 'schema'", location.schema
        )
        try:
            row = connection.execute(query.encode()).fetchone()
        except errors.InsufficientPrivilege as error:
            raise _not_allowed(location, error) from None
        except (psycopg.ProgrammingError, psycopg.DataError):
            row = None
        for value in row or ():
            if str(value).isdecimal():
                return int(value)
    raise NotABulliteDatabase(
        f"{location}: schema {location.schema} holds tables called {', '.join(sorted(tables))} "
        "that Bullite did not make; name another schema"
    )


def _migrate_with_retries(
    connection: Connection, location: ServerLocation, migrations: list[str]
) -> None:
    """Migrate. If another process makes the schema at the same time, try again after it."""
    connection.answer_within = _MIGRATED_WITHIN
    try:
        for last in (False, False, True):
            try:
                return _migrate(connection, location, migrations)
            except _MADE_MEANWHILE:
                if last:
                    raise
    except errors.InsufficientPrivilege as error:
        raise _not_allowed(location, error) from None
    except errors.LockNotAvailable as error:
        raise StoreBusy(
            f"{location}: the tables could not be made or changed, because another session holds a "
            f"lock on them ({first_line(error)}); pg_locks shows which one. Nothing was changed"
        ) from None
    finally:
        del connection.answer_within  # the class knows the usual limit


def _migrate(connection: Connection, location: ServerLocation, migrations: list[str]) -> None:
    """Run the scripts that are missing, in one transaction.

    Processes that migrate at the same time wait for each other on an object that needs rights in
    the schema: the schema or the first table, which one of them makes, or a lock on that table. Any
    role that may connect could hold an advisory lock.
    """
    with connection.transaction():
        connection.execute(f"{_MIGRATE_WITHIN}; {PIN}".encode())
        version = _version(connection, location)
        if version == 0:
            _make_schema(connection, location)
        else:
            lock = "lock table bullite.bullite_meta in share row exclusive mode"
            connection.execute(in_schema(lock, location.schema).encode())
            version = _version(connection, location)
        for number, script in enumerate(migrations, start=1):
            if number > version:
                _run(connection, location, number, script)


def _make_schema(connection: Connection, location: ServerLocation) -> None:
    known = "select 1 from pg_namespace where nspname = %s"
    if connection.execute(known, (location.schema,)).fetchone() is None:
        connection.execute(f"create schema {quote(location.schema)}".encode())


def _run(connection: Connection, location: ServerLocation, number: int, script: str) -> None:
    connection.execute(in_schema(script, location.schema).encode())
    remember = with_parameters(
        "insert into bullite.bullite_meta values ('schema', %s) "
        "on conflict (key) do update set value = excluded.value",
        location.schema,
    )
    connection.execute(remember, (str(number),))
    log.info("%s was brought to schema %d", location, number)


def _not_allowed(location: ServerLocation, error: psycopg.Error) -> StoreUnwritable:
    return StoreUnwritable(
        f"{location}: no permission to make or read Bullite's tables ({first_line(error)}); "
        "let their owner open the store once, and see docs/postgresql.md for the GRANTs"
    )
