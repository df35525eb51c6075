"""The log of a database, as SQLite has it open: what puts it on the disk, outside of all locks.

Inside a commit, SQLite would sync while everybody waits for the write lock and nobody sees what was
committed. So commits only write, and whoever answers for one syncs the log first: then all of it up
to there is on the disk, whoever wrote it.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from ..errors import StoreUnsynced

_DESCRIPTORS = "/dev/fd"


class Journal:
    """A descriptor of the log, which SQLite opened."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path

    @classmethod
    def of(cls, path: Path) -> Journal | None:
        """The log at `path`, which a connection of this process has open; None if it cannot be had.

        It is never opened here: one of SQLite's descriptors is found and duplicated.
        """
        try:
            wanted = os.stat(path)
            numbers = [int(name) for name in os.listdir(_DESCRIPTORS)]
        except (OSError, ValueError):
            return None
        for number in numbers:
            try:
                if os.path.samestat(os.fstat(number), wanted):
                    return cls(os.dup(number), path)
            except OSError:
                continue  # it was the listing's own
        return None

    def sync(self) -> None:
        """Return when everything written to the log so far is on the disk."""
        try:
            if sys.platform == "darwin":
                fcntl.fcntl(self._descriptor, fcntl.F_FULLFSYNC)
            else:
                os.fdatasync(self._descriptor)
        except OSError as error:
            raise StoreUnsynced(
                f"{self._path} could not be synced: {error.strerror}; whether the last requests "
                "are stored is not known: check the disk, then reopen the store"
            ) from error

    def close(self) -> None:
        os.close(self._descriptor)
