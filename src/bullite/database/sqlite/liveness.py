"""Liveness of processes: every process with a worker holds a kernel lock on its own file.

The kernel releases the lock when the process dies, and never before: a frozen or busy process does
not count as dead. It is a POSIX lock, which a forked child does not inherit. A process loses such a
lock when it closes *any* descriptor of the file, so a process never opens its own file a second
time.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ...core.file_lock import lock_named
from .side_files import open_existing, open_or_make

_held_here: set[Path] = set()


class Liveness:
    """The liveness file of this process, and the lock on it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = lock_named(path, _open_and_lock)
        _held_here.add(path)

    def release(self, keep_file: bool = False, keep_lock: bool = False) -> None:
        """Release the lock and delete the file. An unlocked file shows that the process is dead.

        With `keep_file` the file stays, unlocked. With `keep_lock` as well, it stays locked until
        the process ends and the kernel releases the lock.
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
    """Return whether the process of a liveness file is alive; None if the file cannot be opened."""
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
    """Forget the locks of the parent: the child of a fork does not hold them."""
    _held_here.clear()
