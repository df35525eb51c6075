"""The log of a database: what puts it on the disk, outside of all locks.

Inside a commit, SQLite would sync while everybody waits for the write lock and nobody sees what was
committed. So commits only write, and whoever answers for one syncs the log first: then all of it up
to there is on the disk, whoever wrote it.

This is the one file of SQLite's that is opened here. SQLite holds no lock on it, so closing a
descriptor of it releases none (decision 38).
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from ..errors import StoreUnsynced
from .syncmark import SyncMark


class Journal:
    """A descriptor of the log, which hears by itself of every write-back that failed."""

    def __init__(self, descriptor: int, path: Path, mark: SyncMark) -> None:
        self._descriptor = descriptor
        self._path = path
        self._mark = mark

    @classmethod
    def of(cls, path: Path, mark: SyncMark) -> Journal | None:
        """The log at `path`; None if it cannot be opened.

        A connection of this process must have it open, and keep it open as long as this is used: so
        no other process is the last to close the database, which would delete the log.
        """
        try:
            return cls(os.open(path, os.O_RDONLY), path, mark)
        except OSError:
            return None

    def sync(self) -> None:
        """Return when everything written to the log so far is on the disk.

        Raise StoreUnsynced, and set the mark, if that fails; raise it also if the mark is set: what
        was committed here may stand behind what another process could not sync.
        """
        try:
            if sys.platform == "darwin":
                fcntl.fcntl(self._descriptor, fcntl.F_FULLFSYNC)
            else:
                os.fdatasync(self._descriptor)
        except OSError as error:
            self._mark.set()
            raise self._unsynced(error.strerror) from error
        if self._mark.is_set():
            raise self._unsynced("another process, or a reader of this one, met the error")

    def _unsynced(self, reason: str | None) -> StoreUnsynced:
        return StoreUnsynced(
            f"{self._path} could not be synced: {reason}; whether the last requests are stored is "
            "not known: check the disk, then reopen the store"
        )

    def close(self) -> None:
        os.close(self._descriptor)
