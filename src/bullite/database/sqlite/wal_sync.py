"""The WAL of a database: fsync it outside of all locks.

Inside a commit, SQLite would call fsync while all writers wait for the write lock and no reader
sees the commit. So a commit only writes, and the engine calls fsync on the WAL before it replies.
One fsync writes all earlier commits to the disk, also those of other processes.

The WAL is the only file of SQLite that is opened here. SQLite holds no lock on it, so closing a
descriptor of it releases none (decision 38).
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from ...errors import StoreUnsynced
from .sync_mark import SyncMark

_PIECE = 1 << 20


class WalFile:
    """A descriptor of the WAL. The system reports each failed write-back to each descriptor."""

    def __init__(self, descriptor: int, path: Path, mark: SyncMark) -> None:
        self._descriptor = descriptor
        self._path = path
        self._mark = mark

    @classmethod
    def of(cls, path: Path, mark: SyncMark) -> WalFile | None:
        """Return the WAL at `path`; None if it cannot be opened.

        A connection of this process must have the WAL open while this descriptor is used. So no
        other process is the last to close the database: that would delete the WAL.
        """
        try:
            return cls(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), path, mark)
        except OSError:
            return None

    def sync(self) -> None:
        """Return when everything written to the WAL so far is on the disk.

        If that fails, set the mark and raise StoreUnsynced. Raise it also if the mark is set: our
        commits may be behind pages in the WAL that another process could not sync.
        """
        try:
            _sync(self._descriptor)
        except OSError as error:
            self._mark.set()
            raise _unsynced(self._path, error.strerror) from error
        if self._mark.is_set():
            raise _unsynced(self._path, "another process, or a reader of this one, met the error")

    def close(self) -> None:
        os.close(self._descriptor)


def rewrite(path: Path) -> None:
    """Write every byte of the WAL over itself, and sync it. Raise StoreUnsynced if that fails.

    The caller holds SQLite's write lock, so no other connection changes the WAL. After a failed
    sync, the system marks the lost pages as clean: they reach the disk only if they are written
    again. Pages that are on the disk already do not change, even if the power is cut meanwhile.
    """
    try:
        log = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            place = 0
            while piece := os.pread(log, _PIECE, place):
                place += os.pwrite(log, piece, place)
            _sync(log)
        finally:
            os.close(log)
    except OSError as error:
        raise _unsynced(path, error.strerror) from error


def _sync(descriptor: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def _unsynced(path: Path, reason: str | None) -> StoreUnsynced:
    return StoreUnsynced(
        f"{path} could not be synced: {reason}; whether the last requests are stored is not known: "
        "check the disk, then reopen the store"
    )
