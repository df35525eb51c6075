"""When to move the log back into the database, and the one way in which that is done.

SQLite up to 3.51.2 can corrupt a file when a checkpoint runs while another process writes. So no
connection of ours checkpoints by itself; ours run while we hold the write lock on another
connection, and never truncate the log: a log that is overwritten syncs faster than one that grows.
Only after a sync that failed the log is cut to nothing (`empty_log`).
"""

from __future__ import annotations

import sqlite3

from . import connecting
from .connecting import is_failed_sync

CHECKPOINT_FRAMES = 1_000
"""Pages in the log (4 MB) at which a checkpoint is worth its time."""

FRAMES_PER_TRANSACTION = 8
BYTES_PER_FRAME = 4_096


class CheckpointGauge:
    """Estimates how much the log holds, and learns from what checkpoints find.

    SQLite tells the length of the log only when a checkpoint runs. Between two of them it is
    guessed from the transactions and the rows written, with a factor corrected each time.
    """

    def __init__(self) -> None:
        self._frames = 0.0
        self._factor = 1.0

    def wrote(self, rows: int, size: int) -> None:
        """A transaction with so many rows and bytes of parameters was committed."""
        self._frames += FRAMES_PER_TRANSACTION + rows / 10 + size / BYTES_PER_FRAME

    def is_due(self) -> bool:
        return self._frames * self._factor >= CHECKPOINT_FRAMES

    def found(self, frames: int) -> None:
        """A checkpoint found so many frames in the log."""
        if self._frames >= CHECKPOINT_FRAMES / 10 and frames > 0:
            seen = min(8.0, max(0.125, frames / self._frames))
            self._factor += (seen - self._factor) / 4
        self._frames = 0.0


def checkpoint(writer: sqlite3.Connection, other: sqlite3.Connection) -> tuple[int, int]:
    """Move the log into the database; (frames in the log, frames moved).

    The caller holds the gate. `writer` takes the write lock and writes nothing.
    """
    writer.execute("begin immediate")
    try:
        _, frames, moved = other.execute("pragma wal_checkpoint(passive)").fetchone()
    finally:
        writer.execute("rollback")
    return frames, moved


READERS_MAY_TAKE = 5.0
"""Seconds that readers of the log are waited for before it is emptied."""

_TRIES = 3


def empty_log(writer: sqlite3.Connection, other: sqlite3.Connection) -> bool:
    """Move the whole log into the database, sync that, and cut the log to nothing.

    Return False if a reader holds the log for too long. The caller holds the gate.

    What a failed sync has lost of the log is still in the system's memory, from where it is copied;
    what then counts is the sync of the database. A failed write-back is reported once to each open
    file, so the first tries may meet reports of it: a try that fails copies everything again.
    """
    for tries in range(1, _TRIES + 1):
        try:
            checkpoint(writer, other)  # most of the work, in the one form
            return _truncate(other)
        except sqlite3.Error as error:
            if not is_failed_sync(error) or tries == _TRIES:
                raise
    raise AssertionError


def _truncate(connection: sqlite3.Connection) -> bool:
    """A full checkpoint does not empty the log if a reader holds it: commits would go behind."""
    _set_patience(connection, READERS_MAY_TAKE)
    try:
        busy, _, _ = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
    finally:
        _set_patience(connection, connecting.BUSY_TIMEOUT)
    return not busy


def _set_patience(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute(f"pragma busy_timeout = {round(seconds * 1000)}").fetchall()
