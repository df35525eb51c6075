"""Statements with their values written in, to be sent together: one way to the server and back.

A transaction is a dozen small statements, and the way to the server takes longer than most of them.
So what nobody waits for the answer of is kept until somebody waits, or until the commit. The server
prepares each statement once, with the first message that holds it; not behind a pooler, where the
next message may go to another session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.pq import Escaping

from ..engine.contract import Params, Result
from .connecting import Connection
from .dialect import Prepared, storable, storable_parameter

FEW = 12
"""Rows; more of them are worth a way of their own."""


def presumed(name: str, params: Params) -> Result | None:
    """What a statement will answer, if that is known before; then it can wait."""
    if not isinstance(params, Mapping):
        return Result((), len(params)) if len(params) < FEW else None
    if "expected" in params:
        return Result((), params["expected"])
    if name == "change_counts" and not params["drains"]:
        return Result([(None, False)], 1)
    return Result((), 1) if name == "set_hunger" else None


class Message:
    """Statements on their way, for one connection."""

    def __init__(self, connection: Connection, pooled: bool) -> None:
        self._connection = connection
        self._pooled = pooled
        self._texts: list[bytes] = []
        self._heard: list[bool] = []
        self._preparing: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._texts)

    def say(self, text: str) -> None:
        """Add SQL as it is."""
        self._texts.append(text.encode())
        self._heard.append(True)

    def add(self, statement: Prepared, params: Params) -> None:
        """Add a statement, with its values."""
        if not isinstance(params, Mapping):
            return self._add_rows(statement, [", ".join(map(self._literal, row)) for row in params])
        values = {
            name: self._literal(storable_parameter(name, params[name]))
            for name in statement.parameters
        }
        if self._pooled:
            return self.say(statement.text.decode() % values)
        self._prepare(statement)
        arguments = f"({', '.join(values.values())})" if values else ""
        return self.say(f"execute {statement.name}{arguments}")

    def _add_rows(self, statement: Prepared, rows: list[str]) -> None:
        if self._pooled:
            values = ", ".join(f"({row})" for row in rows)
            return self.say(f"{statement.head} values {values}{statement.tail}")
        self._prepare(statement)
        for row in rows:
            self.say(f"execute {statement.name}({row})")
        return None

    def _prepare(self, statement: Prepared) -> None:
        if statement.name not in self._connection.prepared | self._preparing:
            self._preparing.add(statement.name)
            self._texts.append(statement.prepare.encode())
            self._heard.append(False)

    def send(self) -> list[Result]:
        """Send everything; the answers, one for each statement."""
        connection = self._connection
        texts, heard, preparing = self._texts, self._heard, self._preparing
        self._texts, self._heard, self._preparing = [], [], set()
        if connection.is_unsure:
            texts.insert(0, b"deallocate all")
            heard.insert(0, False)
        try:
            cursor = connection.execute(b";\n".join(texts))
        except psycopg.Error:
            if preparing or connection.is_unsure:
                # It broke off somewhere: nobody knows what is prepared.
                connection.prepared, connection.is_unsure = frozenset(), True
            raise
        answers: list[Result] = []
        for is_heard in heard:
            if is_heard:
                rows: Any = cursor.fetchall() if cursor.description else ()
                answers.append(Result(rows, cursor.rowcount))
            cursor.nextset()
        connection.prepared |= preparing
        connection.is_unsure = False
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
