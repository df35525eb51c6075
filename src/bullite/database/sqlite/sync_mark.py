"""The mark of a failed sync: the first byte of the gate's file, read before every transaction.

Linux reports a failed write-back once to each open file, and then calls the lost pages clean. A
process that opens the log later syncs it without an error; but recovery reads a log only up to the
first page that is wrong, so what was committed behind the lost pages would not survive a power cut.
While the mark is set, nothing is accepted; who finds it set has the lost pages written again, then
clears it (decision 39).

It need not survive a power cut itself: after one, recovery has cut the log where it is wrong.
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
        """Make the file if need be, with that byte, so that setting it later needs no room."""
        self._descriptor = open_or_make(self._path)
        if hasattr(os, "posix_fallocate"):
            with contextlib.suppress(OSError):  # it only makes `set` safer
                os.posix_fallocate(self._descriptor, 0, 1)

    def is_set(self) -> bool:
        """Whether a sync failed and the log has not been written again since."""
        if self._descriptor is None:
            try:
                self._descriptor = open_existing(self._path)
            except OSError:
                return False  # no process has written, or this one must not
        try:
            return os.pread(self._descriptor, 1, 0) == _SET
        except OSError:
            return True  # the disk that cannot be read is the one that failed

    def set(self) -> None:
        """Say to all processes that a sync failed; never raises, the caller raises the error."""
        try:
            if self._descriptor is None:
                self._descriptor = open_or_make(self._path)
            os.pwrite(self._descriptor, _SET, 0)
        except (OSError, StoreUnwritable) as error:
            import logging  # programs that only look into a queue need not wait for it

            logging.getLogger("bullite.sqlite").error(
                "a sync failed, and %s cannot say so: %s; stop all processes that use the database",
                self._path,
                error,
            )

    def clear(self) -> None:
        """The log is whole: all may write again."""
        assert self._descriptor is not None
        os.pwrite(self._descriptor, _CLEAR, 0)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
