"""Reading many rows in few steps.

`sqlite3` releases the interpreter lock at every step of a statement, and each row is a step. If
another thread computes, a step may take 5 ms. So rows are folded into one: a JSON array of arrays,
and a text of all payloads. A separator that JSON text cannot contain joins them, which is cheaper
than escaping them. But joining long payloads costs several times as much as reading them. So long
payloads are fetched one by one while no other thread computes.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from ...core.codec import decode
from ..driver import Params

RECORD_SEPARATOR = "\x1e"

LONG = 2_000
"""Average length of the payloads, in characters, from which joining costs more than steps."""

FEW = 8
"""Rows between two readings of the clock."""

SLOW = 0.003
"""Seconds that `FEW` rows take only if another thread had the interpreter lock."""

FOLDS_AFTER = 500
"""Reads after such a wait that fold their rows, whatever their length."""


def parse_json_rows(row: Sequence[Any]) -> list[list[Any]]:
    """Return the rows of one folded row, each with its part of the joined texts appended."""
    rows: list[list[Any]] = decode(row[0])
    for joined in row[1:]:
        if rows:
            for columns, text in zip(rows, joined.split(RECORD_SEPARATOR), strict=True):
                columns.append(text)
    return rows


class RowLoader:
    """Reads rows that end in a payload, in the way that is faster at the moment."""

    def __init__(self) -> None:
        self._folded: dict[str, str] = {}
        self._is_long = False
        self._folds = 0

    def read(self, connection: sqlite3.Connection, text: str, params: Params) -> Sequence[Any]:
        """Return the rows of a select whose last column is a payload."""
        rows: Sequence[Any] | None = None
        if self._is_long and not self._folds:
            rows = self._one_by_one(connection, text, params)
        if rows is None:
            self._folds = max(0, self._folds - 1)
            rows = parse_json_rows(
                connection.execute(self._aggregate_sql(connection, text, params), params).fetchone()
            )
        if rows:
            self._is_long = sum([len(row[-1]) for row in rows]) > LONG * len(rows)
        return rows

    def _one_by_one(
        self, connection: sqlite3.Connection, text: str, params: Params
    ) -> Sequence[Any] | None:
        """Return the rows; None if that takes too long."""
        cursor = connection.execute(text, params)
        rows: list[Any] = []
        while True:
            began = time.perf_counter()
            some = cursor.fetchmany(FEW)
            rows += some
            if len(some) < FEW:
                return rows
            if time.perf_counter() - began > SLOW:
                cursor.close()
                self._folds = FOLDS_AFTER
                return None

    def _aggregate_sql(self, connection: sqlite3.Connection, text: str, params: Params) -> str:
        folded = self._folded.get(text)
        if folded is None:
            # Both texts are from our own SQL file; values are parameters.
            columns_of = f"select * from ({text}) limit 0"  # noqa: S608
            number = len(connection.execute(columns_of, params).description)
            columns = [f"c{index}" for index in range(number)]
            *leading, payload = columns
            folded = self._folded[text] = (
                f"with found ({', '.join(columns)}) as ({text}) "  # noqa: S608
                f"select json_group_array(json_array({', '.join(leading)})), "
                f"group_concat({payload}, char({ord(RECORD_SEPARATOR)})) from found"
            )
        return folded
