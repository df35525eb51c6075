"""A disk that fails to sync the log once, for the processes of one recording, as Linux tells of it.

The sync that fails writes nothing and is told so. Every other descriptor of the log that is open
at that moment is told once, at its next sync; one that is opened later is told nothing, and syncs
without an error what the system has lost. The ledger gets a line for the sync that failed: for the
disk that is rebuilt, the pages it was to write are clean from then on and not on the disk.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bullite.database.sqlite import checkpoints, wal_sync
from bullite.database.sqlite.sync_mark import SyncMark
from bullite.database.sqlite.wal_sync import WalFile

from .recorder import FAILED_SYNC

ENGINE, READER = "bullite-engine", "bullite-reader"


class FailingDisk:
    """Stands between the log and its syncs in one process; `count` is what all processes share."""

    def __init__(self, ledger: str, note: Callable[[list[Any]], None]) -> None:
        self._count = os.open(f"{ledger}.failures", os.O_RDWR | os.O_CREAT, 0o600)
        self._note = note
        self._told: dict[int, int] = {}
        """By descriptor of the log: how many failures it knows of."""
        self._thread: str | None = None
        self.has_failed = threading.Event()
        self._sync, self._of = os.fdatasync, WalFile.of
        wal_sync.os.fdatasync = self._fdatasync
        WalFile.of = self._open  # type: ignore[assignment,method-assign]

    def fail_in(self, thread: str) -> None:
        """Let the next sync of the log fail that a thread of this name asks for."""
        self.has_failed.clear()
        self._thread = thread

    @contextmanager
    def _failures(self) -> Iterator[int]:
        """How many there were; no other process syncs meanwhile."""
        with _one_at_a_time:
            fcntl.lockf(self._count, fcntl.LOCK_EX)
            try:
                yield len(os.pread(self._count, 100, 0))
            finally:
                fcntl.lockf(self._count, fcntl.LOCK_UN)

    def _open(self, *about: Any) -> WalFile | None:
        opened = self._of(*about)
        if opened is not None:
            with self._failures() as failures:
                self._told[opened._descriptor] = failures
        return opened

    def _fdatasync(self, descriptor: int) -> None:
        with self._failures() as failures:
            if threading.current_thread().name == self._thread and descriptor in self._told:
                self._thread = None
                os.pwrite(self._count, b".", failures)
                self._told[descriptor] = failures + 1
                self._note([FAILED_SYNC, os.readlink(f"/proc/self/fd/{descriptor}")])
                self.has_failed.set()
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if self._told.get(descriptor, failures) != failures:
                self._told[descriptor] = failures
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._sync(descriptor)


_one_at_a_time = threading.Lock()
"""The lock of the file keeps processes apart, and not threads."""


def write_nothing_again() -> None:
    """A control: the checkpoint changes the database while the log on the disk has a hole."""
    checkpoints.rewrite = lambda log: None


def take_away_the_guard() -> None:
    """A control: no process sees the mark of a failed sync, so nothing is written again."""
    SyncMark.is_set = lambda mark: False  # type: ignore[method-assign]
