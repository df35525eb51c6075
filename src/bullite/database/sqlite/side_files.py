"""Opening the files of a side folder: never through a link, never one that other users can open."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ...core.ownership import doubt_about_side_file, side_mode
from ...errors import StoreUnwritable

# Not blocking: if a FIFO has the name of a file, opening it must not wait.
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def open_existing(path: Path) -> int:
    """Open a file to read and write it. Raise OSError if it is missing or a symbolic link."""
    return os.open(path, os.O_RDWR | _SAFELY)


def open_or_make(path: Path) -> int:
    """Open a file to read and write it, created if missing. Set the mode of a file that is ours.

    Raise StoreUnwritable if another user made it or can open it, and OSError if it cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _SAFELY, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _unusable(path, f"it is a symbolic link: rm {path}") from error
        raise
    try:
        found = os.fstat(descriptor)
        if (doubt := doubt_about_side_file(path, found)) is not None:
            raise _unusable(path, doubt)
        mode = side_mode(found, os.lstat(path.parent))
        if found.st_mode & 0o777 != mode and found.st_uid == os.geteuid():
            os.fchmod(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _unusable(path: Path, reason: str) -> StoreUnwritable:
    return StoreUnwritable(f"cannot open {path}: {reason}")
