"""A SQLite file as a location: which file it is, and how it is to be opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path

from ..clock import Clock, SystemClock
from .driver import SQLiteDriver


@dataclass(frozen=True, slots=True)
class FileLocation:
    """A database file."""

    path: Path
    durable: bool = True
    """Whether commits are synced."""
    allow_network: bool = False
    """Whether it may be on a network file system."""

    def __str__(self) -> str:
        return str(self.path)

    def identity(self) -> Hashable:
        """Names the file, whatever path leads to it."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None  # it is not there yet
        return status.st_dev, status.st_ino

    def driver(self, clock: Clock | None, random_bits: Callable[[int], int]) -> SQLiteDriver:
        return SQLiteDriver(
            self.path,
            clock or SystemClock(),
            random_bits,
            durable=self.durable,
            allow_network=self.allow_network,
        )
