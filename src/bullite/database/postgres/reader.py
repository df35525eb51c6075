"""A connection that only reads, on a thread of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

from ...core.clock import Clock
from ..driver import Params, Result
from .connections import SESSION, Connection
from .location import ServerLocation
from .pipeline import PIN, look
from .reconnecting import ReconnectingConnection
from .statements import Prepared, statements, storable_parameter

_AT_LEISURE = "; ".join(
    [f"set local {name} = on" for name in SESSION if name.startswith("enable_")]
    + ["set local statement_timeout = 0", PIN]
).encode()


class PostgresReader:
    """Reads the latest committed state, and the event log up to the last settled row.

    Ids of events are assigned in causal order, but not committed in that order. So a row is settled
    when all transactions that may add an older row have ended.
    """

    def __init__(self, location: ServerLocation, clock: Clock) -> None:
        self.clock = clock
        self._statements = statements(location.schema)
        self._reconnecting = ReconnectingConnection(location, location.access, self._welcome)
        self._pooled = location.pooled
        self._settled = 0
        self._newest = 0
        self._adding: frozenset[str] = frozenset()

    def read(self, statement: str, params: Params) -> Result:
        assert isinstance(params, Mapping)
        known = self._statements[statement]
        try:
            result: Result = self._reconnecting.read(
                lambda connection: self._run(connection, known, params)
            )
        except (psycopg.DataError, OverflowError, UnicodeError):
            return Result((), 0)  # no row has such a value
        return result

    def _welcome(self, connection: Connection) -> None:
        if not self._pooled:
            connection.prepare_threshold, connection.prepared_max = 2, None

    def close(self) -> None:
        self._reconnecting.drop()

    def _run(
        self, connection: Connection, statement: Prepared, params: Mapping[str, Any]
    ) -> Result:
        named = {name: storable_parameter(name, value) for name, value in params.items()}
        if statement.flag == "durable_read":
            self._see_how_far_the_log_is_settled(connection)
            named["settled"] = self._settled
        if statement.flag == "whole":
            with connection.transaction():
                connection.execute(_AT_LEISURE)
                return Result(look(connection, self._pooled, statement, named), 0)
        return Result(look(connection, self._pooled, statement, named), 0)

    def _see_how_far_the_log_is_settled(self, connection: Connection) -> None:
        known = self._statements["end_of_settled"]
        [(newest, adding)] = look(connection, self._pooled, known, {})
        now_adding = frozenset(adding.split())
        if not self._adding & now_adding:
            # All transactions that could add events before those of the last read have ended.
            self._settled = max(self._settled, self._newest)
            self._newest, self._adding = newest, now_adding
        if not now_adding:
            self._settled = max(self._settled, newest)
