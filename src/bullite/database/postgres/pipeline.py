"""Statements that are sent together, in one round trip to the server.

A transaction is a dozen small statements, and the round trip takes longer than most of them. So a
statement whose result is known beforehand is kept until the engine needs a result, or commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import psycopg
from psycopg import abc, errors
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, Escaping, ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Wait

from ..driver import Params, Result
from .connections import SEARCH_PATH, Connection
from .statements import Prepared, storable, storable_parameter

if not psycopg.Pipeline.is_supported():
    raise ImportError("libpq, which it uses, is older than 14")

MIN_PIPELINED = 12
"""Rows. That many rows or more are worth a round trip of their own."""


PIN = f"set local search_path = {SEARCH_PATH}"
"""Sent behind a pooler before statements outside the engine's transactions. It applies until the
end of the message, which the server treats as one transaction."""


def predicted_result(name: str, params: Params) -> Result | None:
    """Return the result of a statement that can wait; None if it is not known beforehand."""
    if not isinstance(params, Mapping):
        return Result((), len(params)) if len(params) < MIN_PIPELINED else None
    if "expected" in params:
        return Result((), params["expected"])
    if name == "add_to_counts":
        return Result([(None, False, False)], 1)
    return Result((), 1) if name in ("set_worker_idle", "lock_jobs") else None


class StatementPipeline(Protocol):
    """Statements to be sent together on one connection."""

    def __bool__(self) -> bool: ...

    def add_sql(self, text: str) -> None:
        """Add SQL without parameters."""

    def add_statement(self, statement: Prepared, params: Params) -> None:
        """Add a statement, with its values or with its rows of values."""

    def execute(self) -> list[Result]:
        """Send all statements. Return their results in order. Raise psycopg's errors."""


def message(connection: Connection, pooled: bool) -> StatementPipeline:
    return SeparateStatements(connection) if pooled else LibpqPipeline(connection)


def ask(connection: Connection, pooled: bool, statement: Prepared, params: Params) -> Result:
    """Return the result of one statement in a transaction of its own."""
    alone = message(connection, pooled)
    if pooled:
        alone.add_sql(PIN)
    alone.add_statement(statement, params)
    return alone.execute()[-1]


def look(
    connection: Connection, pooled: bool, statement: Prepared, params: Mapping[str, Any]
) -> Sequence[Any]:
    """Return the rows of one statement that is sent alone."""
    if pooled:
        return ask(connection, pooled, statement, params).rows
    return connection.execute(statement.text, params).fetchall()


class LibpqPipeline:
    """A pipeline of statements, each prepared by the server with the first message that holds it.

    It calls libpq directly: psycopg's own pipeline checks the socket at every statement, which
    takes longer than most statements.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sends: list[Callable[[], None]] = []
        self._wanted: list[bool] = []
        self._preparing: set[bytes] = set()

    def __bool__(self) -> bool:
        return bool(self._sends)

    def add_sql(self, text: str) -> None:
        name = sql = text.encode()
        pgconn = self._connection.pgconn
        self._prepare(name, lambda: pgconn.send_prepare(name, sql))
        self._add(name, ())

    def add_statement(self, statement: Prepared, params: Params) -> None:
        pgconn = self._connection.pgconn
        self._prepare(statement.name, lambda: pgconn.send_query_params(statement.prepare, None))
        if isinstance(params, Mapping):
            values = (storable_parameter(name, params[name]) for name in statement.parameters)
            return self._add(statement.name, values)
        for row in params:
            self._add(statement.name, map(storable, row))
        return None

    def _add(self, name: bytes, values: Iterable[Any]) -> None:
        send = self._connection.pgconn.send_query_prepared
        encoded = list(map(_encoded, values))
        self._sends.append(lambda: send(name, encoded))
        self._wanted.append(True)

    def _prepare(self, name: bytes, send: Callable[[], None]) -> None:
        if name not in self._connection.prepared and name not in self._preparing:
            self._preparing.add(name)
            self._sends.append(send)
            self._wanted.append(False)

    def execute(self) -> list[Result]:
        connection = self._connection
        sends, wanted, preparing = self._sends, self._wanted, self._preparing
        self._sends, self._wanted, self._preparing = [], [], set()
        if connection.is_unsure:
            connection.execute(b"deallocate all")
            connection.is_unsure = False
        try:
            with connection.lock:
                results = connection.wait(_exchange(connection.pgconn, sends))
            answers = _answers(connection, results)
            if len(answers) < len(sends):
                raise psycopg.OperationalError("the connection was lost amid the answers")
        except psycopg.Error:
            if preparing:
                # It failed at an unknown place: the set of prepared statements is unknown.
                connection.prepared, connection.is_unsure = frozenset(), True
            raise
        if not preparing:
            return answers
        connection.prepared |= preparing
        return [answer for answer, is_wanted in zip(answers, wanted, strict=True) if is_wanted]


def _exchange(pgconn: PGconn, sends: Iterable[Callable[[], None]]) -> abc.PQGen[list[PGresult]]:
    pgconn.enter_pipeline_mode()
    for send in sends:
        send()
    pgconn.pipeline_sync()
    while pgconn.flush():
        yield Wait.RW
        pgconn.consume_input()
    results: list[PGresult] = []
    while pgconn.status == ConnStatus.OK:
        while pgconn.is_busy():
            yield Wait.R
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is not None:
            if result.status == ExecStatus.PIPELINE_SYNC:
                pgconn.exit_pipeline_mode()
                break
            results.append(result)
    return results


def _answers(connection: Connection, results: list[PGresult]) -> list[Result]:
    answers: list[Result] = []
    reader: abc.Transformer = Transformer(connection)
    for result in results:
        status = result.status
        if status == ExecStatus.COMMAND_OK:
            answers.append(Result((), result.command_tuples or 0))
        elif status == ExecStatus.TUPLES_OK:
            reader.set_pgresult(result)
            rows = reader.load_rows(0, result.ntuples, tuple)
            answers.append(Result(rows, len(rows)))
        else:
            raise errors.error_from_result(result, encoding="utf-8")
    return answers


def _encoded(value: Any) -> bytes | None:
    if value is None:
        return None
    # Part of a millisecond makes no difference.
    return value.encode() if isinstance(value, str) else b"%d" % value


class SeparateStatements:
    """One query with literal values: a pooler may send the next query to another session."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._texts: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._texts)

    def add_sql(self, text: str) -> None:
        self._texts.append(text.encode())

    def add_statement(self, statement: Prepared, params: Params) -> None:
        if isinstance(params, Mapping):
            values = {
                name: self._literal(storable_parameter(name, params[name]))
                for name in statement.parameters
            }
            return self.add_sql(statement.text.decode() % values)
        rows = ", ".join(f"({', '.join(map(self._literal, row))})" for row in params)
        return self.add_sql(f"{statement.head} values {rows}{statement.tail}")

    def execute(self) -> list[Result]:
        texts, self._texts = self._texts, []
        cursor = self._connection.execute(b";\n".join(texts))
        answers: list[Result] = []
        for _ in texts:
            rows: Any = cursor.fetchall() if cursor.description else ()
            answers.append(Result(rows, cursor.rowcount))
            cursor.nextset()
        return answers

    def _literal(self, value: Any) -> str:
        if value is None:
            return "null"
        if isinstance(value, int | float):
            return str(int(value))  # part of a millisecond makes no difference
        text: str = storable(value)
        if "'" in text or "\\" in text:
            return Escaping(self._connection.pgconn).escape_literal(text.encode()).decode()
        return f"'{text}'"
