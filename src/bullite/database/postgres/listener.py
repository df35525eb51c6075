"""The second connection of a process with workers: receives notifications, renews leases.

It has a thread of its own, so that neither a slow statement nor a handler delays a renewal. If it
breaks or the server stops to reply, the thread connects again; then every queue counts as notified.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg.pq import PGnotify

from ...errors import StoreError
from ..driver import Notifications
from .connections import Connection
from .location import ServerLocation
from .pipeline import look
from .reconnecting import MAX_BACKOFF, MIN_BACKOFF, ReconnectingConnection
from .statements import Prepared, quote

log = logging.getLogger("bullite.postgres")

HEARTBEAT = 5.0
"""Seconds between two renewals, which also show that the connection works."""

ANSWER_WITHIN = 4.0
"""Seconds after which a server that does not reply counts as out of reach."""

SOONEST, LATEST = 0.02, 0.5
"""Seconds until the next try if leases could not be renewed because their rows were locked."""

ALERT = "\x01"
"""Sent to the processes that run jobs of a queue if one job is cancelled. No job has this name."""

Renewal = Callable[[], tuple[Prepared, Mapping[str, Any]]]


class Listener:
    """Receives the notifications of the queues for which this process has workers."""

    def __init__(self, location: ServerLocation, renewal: Renewal) -> None:
        self._location = location
        self._can_listen = location.listener is not None
        self._renewal = renewal
        self._reconnecting = ReconnectingConnection(
            location, location.listener or location.access, self._welcome
        )
        self._lock = threading.Lock()
        self._channels: dict[bytes, int] = {}
        self._notified: set[int] = set()
        self._is_alerted = False
        self._has_new_lease = False
        self._listening: Connection | None = None
        self._closed = False
        self._ours, self._engines = socket.socketpair()
        self._poke, self._poked = socket.socketpair()
        for end in (self._ours, self._engines, self._poke):
            end.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="bullite-listen", daemon=True)
        self._thread.start()

    @staticmethod
    def channel(schema: str, queue: int) -> str:
        """Return the channel of a queue. It differs between the schemas of one database."""
        digest = hashlib.blake2s(schema.encode(), digest_size=6).hexdigest()
        return f"bullite_{digest}_{queue}"

    # --- from the engine's thread ---

    def listen(self, queue: int) -> None:
        with self._lock:
            self._channels[self.channel(self._location.schema, queue).encode()] = queue
        self._ring(self._poke)

    def renew_now(self) -> None:
        """Renew now: a new lease may expire before the next planned renewal."""
        self._has_new_lease = True
        self._ring(self._poke)

    def notification_fds(self) -> Sequence[int]:
        if not self._can_listen:
            return ()
        # The engine thread waits on the connection itself, so that a notification wakes one thread.
        # While there is no connection, it waits for the socket that reports a new one.
        descriptors = [self._engines.fileno()]
        connection = self._listening
        if connection is not None:
            with contextlib.suppress(psycopg.Error):  # it has just been closed
                descriptors.append(connection.fileno())
        return descriptors

    def read_notifications(self) -> Notifications:
        with contextlib.suppress(BlockingIOError):
            while self._engines.recv(4096):
                pass
        connection = self._listening
        if connection is not None:
            try:
                self._take_in(connection)
            except psycopg.Error:
                # libpq has closed the socket: the listener thread must connect again.
                self._ring(self._poke)
        with self._lock:
            queues, self._notified = self._notified, set()
            is_alerted, self._is_alerted = self._is_alerted, False
        return Notifications(queues, is_alerted)

    def close(self) -> None:
        self._closed = True
        self._ring(self._poke)
        self._thread.join(2 * ANSWER_WITHIN)
        for end in (self._ours, self._engines, self._poke, self._poked):
            end.close()

    # --- the thread ---

    def _run(self) -> None:
        rest = MIN_BACKOFF
        while not self._closed:
            try:
                self._attend(self._reconnecting.connect())
            except psycopg.Error as error:
                self._listening = None
                self._reconnecting.drop(error)
                rest = MIN_BACKOFF
            except StoreError as error:
                log.debug("the listener cannot connect: %s", error)
                time.sleep(rest)
                rest = min(2 * rest, MAX_BACKOFF)
        self._reconnecting.drop()

    def _welcome(self, connection: Connection) -> None:
        connection.answer_within = ANSWER_WITHIN

    def _attend(self, connection: Connection) -> None:
        """Listen and renew until the connection breaks."""
        listening: set[bytes] = set()
        renew_at = 0.0
        connection.pgconn.notify_handler = self._note
        while not self._closed:
            if self._can_listen:
                self._listen_to_new(connection, listening)
            if self._renewal_is_due(renew_at):
                renew_at = time.monotonic() + self._renew(connection)
            self._take_in(connection)
            self._rest_until(renew_at)

    def _renew(self, connection: Connection) -> float:
        """Renew the leases whose rows are not locked. Return the seconds until the next renewal."""
        leases = look(connection, self._location.pooled, *self._renewal())
        shortest = min((ms / 1000 for ms, _ in leases), default=3.0)
        again = min(HEARTBEAT, shortest / 3)
        if not all(is_renewed for _, is_renewed in leases):
            # The engine of this process changes the row, and will commit soon.
            return min(max(SOONEST, shortest / 20), LATEST, again)
        return again

    def _renewal_is_due(self, renew_at: float) -> bool:
        if self._has_new_lease:
            self._has_new_lease = False  # before the renewal: a worker registered during it is next
            return True
        return time.monotonic() >= renew_at

    def _rest_until(self, moment: float) -> None:
        """Wait until `moment` or a call of the engine. Notifications wake the engine directly."""
        self._poked.settimeout(max(0.001, moment - time.monotonic()))
        with contextlib.suppress(TimeoutError):
            self._poked.recv(4096)

    def _listen_to_new(self, connection: Connection, listening: set[bytes]) -> None:
        with self._lock:
            new = {c: queue for c, queue in self._channels.items() if c not in listening}
        for channel in new:
            connection.execute(f"listen {quote(channel.decode())}".encode())
        listening.update(new)
        self._listening = connection
        if new:
            # Notifications sent before LISTEN were missed, so the engine must poll these queues.
            self._add_notified(set(new.values()))

    def _take_in(self, connection: Connection) -> None:
        """Note the notifications that have arrived, unless the other thread is doing so."""
        if connection.lock.acquire(blocking=False):
            try:
                connection.pgconn.consume_input()
                while notify := connection.pgconn.notifies():
                    self._note(notify)
            finally:
                connection.lock.release()

    def _note(self, notify: PGnotify) -> None:
        if notify.relname not in self._channels:
            return
        if notify.extra == ALERT.encode():
            self._add_notified(set(), alert=True)
        else:
            self._add_notified({self._channels[notify.relname]})

    def _add_notified(self, queues: set[int], alert: bool = False) -> None:
        with self._lock:
            self._notified |= queues
            self._is_alerted = self._is_alerted or alert
        if threading.current_thread() is self._thread:
            self._ring(self._ours)

    def _ring(self, end: socket.socket) -> None:
        with contextlib.suppress(OSError):  # full: a wake-up is pending; or closed
            end.send(b"!")
