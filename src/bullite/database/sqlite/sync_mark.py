"""The mark of a failed sync: the first byte of the write lock's file, read before a transaction.

Linux reports a failed write-back once to each open file, and then marks the lost pages as clean. A
process that opens the WAL later syncs it without an error. But recovery reads a WAL only up to the
first wrong page, so commits behind the lost pages would not survive a power cut. While the mark is
set, no request is accepted. A process that finds it set writes the lost pages again and then clears
it (decision 39).

The mark need not survive a power cut: recovery then cuts the WAL at the first wrong page.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ...errors import StoreUnwritable
from .side_files import open_existing, open_or_make

_SET, _CLEAR = b"!", b"\0"


class SyncMark:
    """The mark of one database, through a descriptor of its owner."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def make(self) -> None:
        """Create the file with that byte if it is missing, so that `set` needs no disk space."""
        self._descriptor = open_or_make(self._path)
        if hasattr(os, "posix_fallocate"):
            with contextlib.suppress(OSError):  # this only makes `set` safer
                os.posix_fallocate(self._descriptor, 0, 1)

    def is_set(self) -> bool:
        """Return True if a sync failed and the WAL has not been written again since."""
        if self._descriptor is None:
            try:
                self._descriptor = open_existing(self._path)
            except OSError:
                return False  # no process has written, or this one has no permission
        try:
            return os.pread(self._descriptor, 1, 0) == _SET
        except OSError:
            return True  # a disk that cannot be read has failed

    def set(self) -> None:
        """Mark the database for all processes. Never raise: the caller raises the error."""
        try:
            if self._descriptor is None:
                self._descriptor = open_or_make(self._path)
            os.pwrite(self._descriptor, _SET, 0)
        except (OSError, StoreUnwritable) as error:
            import logging  # a program that only reads need not import it

            logging.getLogger("bullite.sqlite").error(
                "a sync failed, and %s cannot say so: %s; stop all processes that use the database",
                self._path,
                error,
            )

    def clear(self) -> None:
        """Clear the mark, after the WAL was written again: all processes may write."""
        assert self._descriptor is not None
        os.pwrite(self._descriptor, _CLEAR, 0)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
