"""Locks on files that other processes may delete: held on the file that has the name now."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Descriptor = TypeVar("Descriptor", bound=int | None)


def lock_named(path: Path, open_and_lock: Callable[[Path], Descriptor]) -> Descriptor:
    """Return the result of `open_and_lock`, a descriptor or None, for the file of that name."""
    while True:
        fd = open_and_lock(path)
        if fd is None or is_named(fd, path):
            return fd
        os.close(fd)  # another process deleted the file between opening and locking


def is_named(fd: int, path: Path) -> bool:
    """Return whether a descriptor is of the file that has the name now, and not of a link."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False
