"""A connection that is made again when it breaks."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Any

import psycopg

from ...errors import StoreError, StoreUnavailable
from .connections import Connection, cannot_connect, first_line, is_passing, store_error
from .location import Credentials, ServerLocation

log = logging.getLogger("bullite.postgres")

UNDONE = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
"""Errors of a transaction that the server rolled back and that can be run again as it is."""

TIMEOUT = 30.0
"""Seconds for which a transaction waits until the server is back."""

MIN_BACKOFF, MAX_BACKOFF = 0.05, 2.0
"""Seconds between two tries to connect."""


class ReconnectingConnection:
    """A connection for one user of the server: at most one is open at a time."""

    def __init__(
        self,
        location: ServerLocation,
        access: Credentials,
        welcome: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        self.location = location
        self._access = access
        self._welcome = welcome
        """Called with every new connection before its first use."""
        self._connection: Connection | None = None
        self._broken_at: float | None = None
        self._tried_at = 0.0

    def connect(self) -> Connection:
        """Return the connection, made in one try if there is none. Raise a StoreError."""
        if self._connection is None:
            self._connection = self._new()
        return self._connection

    def connect_patiently(self) -> Connection:
        """Return the connection, after a wait of up to `TIMEOUT` s. Raise a StoreError."""
        gives_up_at = time.monotonic() + TIMEOUT
        rest = MIN_BACKOFF
        while True:
            try:
                return self.connect()
            except StoreUnavailable:
                if time.monotonic() + rest > gives_up_at:
                    raise
            time.sleep(rest * random.uniform(0.5, 1))
            rest = min(2 * rest, MAX_BACKOFF)

    def connect_if_it_may_help(self) -> Connection:
        """Return the connection, made in one try unless the last try failed a moment ago."""
        if self._connection is None and time.monotonic() < self._tried_at + MAX_BACKOFF:
            raise StoreUnavailable(f"{self.location} cannot be reached; nothing was written")
        return self.connect()

    def _new(self) -> Connection:
        connection: Connection | None = None
        try:
            connection = Connection.open(self._access, self.location.pooled)
            self._welcome(connection)
        except psycopg.Error as error:
            self._tried_at = time.monotonic()
            passes = connection is None or is_passing(error, connection)
            if connection is not None:
                connection.close()
            if not passes:
                raise store_error(error, str(self.location)) from None
            raise cannot_connect(error, str(self.location), self._access) from None
        except StoreError:
            if connection is not None:
                connection.close()
            raise
        if self._broken_at is not None:
            away = time.monotonic() - self._broken_at
            log.info("%s: connected again after %.1f s", self.location, away)
            self._broken_at = None
        return connection

    def is_broken_by(self, error: psycopg.Error) -> bool:
        """Drop the connection and return True, if another connection may succeed."""
        if not is_passing(error, self._connection):
            return False
        self.drop(error)
        return True

    def drop(self, error: psycopg.Error | None = None) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if error is not None and self._broken_at is None:
            self._broken_at = time.monotonic()
            log.warning("%s: the connection was lost (%s)", self.location, first_line(error))

    def read(self, run: Callable[[Connection], Any]) -> Any:
        """Return the result of `run`. Try once more if the connection broke or on a rollback.

        Raise a StoreError, or psycopg's DataError if a value is at fault.
        """
        for last in (False, True):
            try:
                return run(self.connect_if_it_may_help())
            except psycopg.DataError:
                raise
            except UNDONE as error:
                if last:
                    raise store_error(error, str(self.location)) from None
            except psycopg.Error as error:
                if not self.is_broken_by(error):
                    raise store_error(error, str(self.location)) from None
                if last:
                    raise cannot_connect(error, str(self.location), self._access) from None
        raise AssertionError("unreachable")
