"""Checkpoints: when the WAL is moved into the database, and how.

SQLite up to 3.51.2 can corrupt a file when a checkpoint runs while another process writes. So no
connection of ours checkpoints by itself. Our checkpoints run while another connection of ours holds
the write lock. They never truncate the WAL: a WAL that is overwritten syncs faster than one that
grows.
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
"""Pages in the WAL (4 MB) at which a checkpoint is worth its time."""

FRAMES_PER_TRANSACTION = 8
BYTES_PER_FRAME = 4_096


class CheckpointGauge:
    """Estimates the length of the WAL.

    SQLite reports the length of the WAL only when a checkpoint runs. Between two checkpoints it is
    estimated from the transactions and the rows written. Each checkpoint corrects the factor.
    """

    def __init__(self) -> None:
        self._frames = 0.0
        self._factor = 1.0

    def wrote(self, rows: int, size: int) -> None:
        """Count a committed transaction with `rows` rows and `size` bytes of parameters."""
        self._frames += FRAMES_PER_TRANSACTION + rows / 10 + size / BYTES_PER_FRAME

    def is_due(self) -> bool:
        return self._frames * self._factor >= CHECKPOINT_FRAMES

    def found(self, frames: int) -> None:
        """Correct the estimate: a checkpoint has found `frames` frames in the WAL."""
        if self._frames >= CHECKPOINT_FRAMES / 10 and frames > 0:
            seen = min(8.0, max(0.125, frames / self._frames))
            self._factor += (seen - self._factor) / 4
        self._frames = 0.0


def checkpoint(
    writer: sqlite3.Connection,
    other: sqlite3.Connection,
    first: Callable[[], None] = lambda: None,
) -> tuple[int, int]:
    """Move the WAL into the database. Return (frames in the WAL, frames moved).

    The caller holds the fair write lock. `writer` takes SQLite's write lock and writes nothing;
    then `first` is called.
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
    """After a failed sync: write the whole WAL to the disk again, then move it into the database.

    A checkpoint alone is not enough. It changes the database in place, and a power cut may leave
    that half done. Then the WAL must be complete: otherwise recovery would write the frames before
    the lost pages over newer pages of the database.

    A failed write-back is reported once to each open file, so the first tries may only receive
    these reports. Each try writes everything again.
    """
    for tries in range(1, TRIES + 1):
        try:
            checkpoint(writer, other, partial(rewrite, log))
            return
        except (StoreUnsynced, sqlite3.Error) as error:
            again = isinstance(error, StoreUnsynced) or is_failed_sync(error)
            if not again or tries == TRIES:
                raise
