"""Notifications between the processes of one machine: datagrams on Unix sockets after the commit.

A datagram is only a hint. It carries the pk of a queue, or an alert; it may get lost or come late.
A process that receives one reads the database. Without Unix sockets, every process polls.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from ...core.ownership import side_mode
from ..driver import Notifications

ALERT = b"c"
"""Sent to a process that runs a cancelled job."""

HAS_UNIX_SOCKETS = hasattr(socket, "AF_UNIX")

MAX_SOCKET_PATH = 100
"""The kernel's limit is 108 bytes on Linux and 104 on macOS, terminator included."""


class Notifier:
    """Sends notifications to other processes and, after `listen`, receives theirs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._side = os.fspath(path.parent)
        self._receiver: socket.socket | None = None
        self._sender: socket.socket | None = None
        self._folder: int | None = None
        """A descriptor of the side folder, once a path is too long without it."""
        self._calls: list[tuple[str, bytes]] = []

    def listen(self) -> str | None:
        """Open the socket that receives. Return its address, or None if there can be none."""
        if self._receiver is None and HAS_UNIX_SOCKETS:
            receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                self._path.unlink(missing_ok=True)
                self._bind(receiver)
            except OSError:
                receiver.close()
                return None
            receiver.setblocking(False)
            self._receiver = receiver
        return os.fspath(self._path) if self._receiver is not None else None

    def _bind(self, receiver: socket.socket) -> None:
        """Give a socket its path; only the users of the side folder can send to it."""
        with suppress(OSError):  # not on every system
            os.fchmod(receiver.fileno(), 0o600)  # before other processes can find its path
        receiver.bind(self._short(os.fspath(self._path)))
        made = os.lstat(self._path)
        mode = side_mode(made, os.lstat(self._side))
        if made.st_mode & 0o777 != mode:
            os.chmod(self._path, mode)

    def _short(self, address: str) -> str:
        """Return a path to a socket of the side folder that the kernel takes, however long it is.

        Raise OSError if there is none: notifications are lost then, and processes poll.
        """
        if len(os.fsencode(address)) <= MAX_SOCKET_PATH:
            return address
        if self._folder is None:
            self._folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        return f"/proc/self/fd/{self._folder}/{os.path.basename(address)}"

    def notification_fds(self) -> Sequence[int]:
        return () if self._receiver is None else (self._receiver.fileno(),)

    def read_notifications(self) -> Notifications:
        """Return the notifications that have arrived since the last call."""
        queues: set[int] = set()
        is_alerted = False
        while self._receiver is not None:
            try:
                message = self._receiver.recv(32)
            except OSError:
                break
            if message.isdigit():
                queues.add(int(message))
            is_alerted = is_alerted or message == ALERT
        return Notifications(queues, is_alerted)

    def note(self, addresses: Iterable[str], queue: int) -> None:
        """Queue a notification that is sent after the commit."""
        self._calls += [(address, b"%d" % queue) for address in addresses]

    def note_alert(self, address: str) -> None:
        """Queue an alert for a process that runs a cancelled job."""
        self._calls.append((address, ALERT))

    def forget(self) -> None:
        """Drop the queued notifications, after a rollback."""
        self._calls.clear()

    def send(self) -> None:
        """Send the queued notifications. A process that does not listen is ignored."""
        if not self._calls:
            return
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        for address, message in self._calls:
            # The address is from the database. Only sockets of the side folder are sent to.
            path = os.path.join(self._side, os.path.basename(address))
            with suppress(OSError, ValueError):
                if stat.S_ISSOCK(os.lstat(path).st_mode):  # not a link to another file
                    self._sender.sendto(message, self._short(path))
        self._calls.clear()

    def close(self) -> None:
        if self._receiver is not None:
            self._path.unlink(missing_ok=True)
        self.abandon()

    def abandon(self) -> None:
        """Close the sockets of the parent process after a fork, without deleting its file."""
        for end in (self._receiver, self._sender):
            if end is not None:
                end.close()
        if self._folder is not None:
            os.close(self._folder)
        self._receiver = self._sender = self._folder = None
