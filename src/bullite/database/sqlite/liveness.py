"""Who is alive: every process with a worker holds a kernel lock on a file of its own.

The kernel frees the lock the moment the process is gone, and never before: a frozen or busy process
is not taken for dead. It is a POSIX lock, which a forked child does not inherit. Such a lock is
dropped when *any* descriptor of the file is closed in its process, so nothing here ever opens the
file of its own process a second time.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ...core.file_lock import lock_named
from .side_files import open_existing, open_or_make

_held_here: set[Path] = set()


class Liveness:
    """This process's sign of life."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = lock_named(path, _open_and_lock)
        _held_here.add(path)

    def release(self, keep_file: bool = False, keep_lock: bool = False) -> None:
        """Give the sign up and clear it away, or leave the file to say that nobody is there.

        With `keep_lock` it says that only when the process is gone: the kernel frees the lock.
        """
        if keep_file and keep_lock:
            return
        _held_here.discard(self._path)
        if not keep_file:
            self._path.unlink(missing_ok=True)
        os.close(self._fd)


def _open_and_lock(path: Path) -> int:
    fd = open_or_make(path)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    return fd


def is_alive(path: Path) -> bool | None:
    """Whether the process behind a liveness file lives; None if the file cannot tell."""
    if path in _held_here:
        return True
    try:
        fd = open_existing(path)
    except OSError:
        return None
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def forget_after_fork() -> None:
    """The child of a fork holds none of its parent's locks."""
    _held_here.clear()
