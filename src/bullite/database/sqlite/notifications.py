"""Wake-ups between the processes of one machine: a datagram on a Unix socket after the commit.

A datagram is only a hint: it carries the number of a queue, or an alert; it may get lost and may
come late. Who hears it looks into the database. Where there are no Unix sockets, nobody is woken
and all poll.
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
"""Sent to a process that runs a job which is cancelled."""

HAS_UNIX_SOCKETS = hasattr(socket, "AF_UNIX")

LONGEST_SOCKET_PATH = 100
"""The kernel's limit is 108 bytes on Linux and 104 on macOS, terminator included."""


class Wakeups:
    """The ear of this process, once it listens, and its voice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._side = os.fspath(path.parent)
        self._ear: socket.socket | None = None
        self._voice: socket.socket | None = None
        self._folder: int | None = None
        """A descriptor of the side folder, once a path is too long without it."""
        self._calls: list[tuple[str, bytes]] = []

    def listen(self) -> str | None:
        """Open the ear; the address others reach it at, or None if there can be none."""
        if self._ear is None and HAS_UNIX_SOCKETS:
            ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                self._path.unlink(missing_ok=True)
                self._bind(ear)
            except OSError:
                ear.close()
                return None
            ear.setblocking(False)
            self._ear = ear
        return os.fspath(self._path) if self._ear is not None else None

    def _bind(self, ear: socket.socket) -> None:
        """Give a socket its name; only the users of the side folder can send to it."""
        with suppress(OSError):  # not on every system
            os.fchmod(ear.fileno(), 0o600)  # before it has a name that others find
        ear.bind(self._short(os.fspath(self._path)))
        made = os.lstat(self._path)
        mode = side_mode(made, os.lstat(self._side))
        if made.st_mode & 0o777 != mode:
            os.chmod(self._path, mode)

    def _short(self, address: str) -> str:
        """Return a path to a socket of the side folder that the kernel takes, however long it is.

        Raise OSError where there is none: then wake-ups are lost, and all poll.
        """
        if len(os.fsencode(address)) <= LONGEST_SOCKET_PATH:
            return address
        if self._folder is None:
            self._folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        return f"/proc/self/fd/{self._folder}/{os.path.basename(address)}"

    def notification_fds(self) -> Sequence[int]:
        return () if self._ear is None else (self._ear.fileno(),)

    def read_notifications(self) -> Notifications:
        """What this process was woken for since it last asked."""
        queues: set[int] = set()
        is_alerted = False
        while self._ear is not None:
            try:
                message = self._ear.recv(32)
            except OSError:
                break
            if message.isdigit():
                queues.add(int(message))
            is_alerted = is_alerted or message == ALERT
        return Notifications(queues, is_alerted)

    def note(self, addresses: Iterable[str], queue: int) -> None:
        """Remember whom to wake once the transaction is committed."""
        self._calls += [(address, b"%d" % queue) for address in addresses]

    def note_alert(self, address: str) -> None:
        """The same for a process that runs a job which is cancelled."""
        self._calls.append((address, ALERT))

    def forget(self) -> None:
        """The transaction was rolled back: wake nobody."""
        self._calls.clear()

    def send(self) -> None:
        """Wake those remembered. One that is gone, or does not listen, is not worth an error."""
        if not self._calls:
            return
        if self._voice is None:
            self._voice = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._voice.setblocking(False)
        for address, message in self._calls:
            # The address is from the database. Only sockets of the side folder are sent to.
            path = os.path.join(self._side, os.path.basename(address))
            with suppress(OSError, ValueError):
                if stat.S_ISSOCK(os.lstat(path).st_mode):  # not a link to another
                    self._voice.sendto(message, self._short(path))
        self._calls.clear()

    def close(self) -> None:
        if self._ear is not None:
            self._path.unlink(missing_ok=True)
        self.abandon()

    def abandon(self) -> None:
        """After a fork: let go of the parent's sockets, and leave its file alone."""
        for end in (self._ear, self._voice):
            if end is not None:
                end.close()
        if self._folder is not None:
            os.close(self._folder)
        self._ear = self._voice = self._folder = None
