"""When to move the log back into the database, and the one way in which that is done.

SQLite up to 3.51.2 can corrupt a file when a checkpoint runs while another process writes. So no
connection of ours checkpoints by itself; ours run while we hold the write lock on another
connection, and never truncate the log: a log that is overwritten syncs faster than one that grows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ...errors import StoreUnsynced
from .connections import is_failed_sync
from .wal_sync import rewrite

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


def checkpoint(
    writer: sqlite3.Connection,
    other: sqlite3.Connection,
    first: Callable[[], None] = lambda: None,
) -> tuple[int, int]:
    """Move the log into the database; (frames in the log, frames moved).

    The caller holds the gate. `writer` takes the write lock and writes nothing; `first` is called
    when it has it.
    """
    writer.execute("begin immediate")
    try:
        first()
        _, frames, moved = other.execute("pragma wal_checkpoint(passive)").fetchone()
    finally:
        writer.execute("rollback")
    return frames, moved


TRIES = 3


def checkpoint_what_was_lost(
    writer: sqlite3.Connection, other: sqlite3.Connection, log: Path
) -> None:
    """After a sync that failed: have all of the log on the disk, then move it into the database.

    A checkpoint alone would not do. It changes the database in place, which a power cut may leave
    half done; then the log must be whole, or what is in front of its lost pages would be put over
    newer pages.

    A failed write-back is reported once to each open file, so the first tries may only meet reports
    of it. Each of them writes everything again.
    """
    for tries in range(1, TRIES + 1):
        try:
            checkpoint(writer, other, partial(rewrite, log))
            return
        except (StoreUnsynced, sqlite3.Error) as error:
            again = isinstance(error, StoreUnsynced) or is_failed_sync(error)
            if not again or tries == TRIES:
                raise
