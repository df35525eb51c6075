"""A SQLite file as a location: its path and the options to open it with."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...core.clock import Clock, SystemClock
from .connections import refuse_old_sqlite
from .files import SideFiles, refuse_network_file_system
from .reader import SQLiteReader

if TYPE_CHECKING:
    from .driver import SQLiteDriver


class FileLocation(NamedTuple):
    """A database file."""

    path: Path
    durable: bool = True
    """Whether commits are synced."""
    allow_network: bool = False
    """Whether the file may be on a network file system."""

    def __str__(self) -> str:
        return str(self.path)

    def place(self) -> Hashable:
        return os.path.realpath(self.path)

    def identity(self) -> Hashable:
        """Return the device and inode: the same for every path to the file."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None  # the file does not exist yet
        return status.st_dev, status.st_ino

    def reader(self) -> SQLiteReader | None:
        places = SideFiles(self.path.resolve())
        refuse_old_sqlite()
        if not self.allow_network:
            refuse_network_file_system(places.database)
        if places.doubt() is not None:
            return None  # the driver says why
        return SQLiteReader.of_file_as_it_is(places, SystemClock(), self.durable)

    def import_driver(self) -> None:
        import_module(".driver", __package__)

    def driver(self, clock: Clock | None, random_bits: Callable[[int], int]) -> SQLiteDriver:
        from .driver import SQLiteDriver

        return SQLiteDriver(
            self.path,
            clock or SystemClock(),
            random_bits,
            durable=self.durable,
            allow_network=self.allow_network,
        )
