"""The write gate: processes queue in the kernel for the write lock, first come, first served.

SQLite's own busy handler sleeps and retries, so one process can keep the others from writing for
seconds. Other programs do not use the gate: SQLite's lock and its timeout still apply to them.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from .side_files import open_or_make


class FairWriteLock:
    """Held while this process writes; entered by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._fd = open_or_make(path)
        self._porter: _LockWaiter | None = None

    def enter(self, timeout: float) -> bool:
        """Wait until no other process is inside; False if that takes longer than `timeout` s."""
        if self._porter is None or not self._porter.is_waiting():
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._porter = self._porter or _LockWaiter(self._fd)
            else:
                return True
        return self._porter.wait(timeout)

    def leave(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._porter is not None:
            self._porter.dismiss()
        os.close(self._fd)

    def abandon(self) -> None:
        """After a fork, in the child: the parent, if it is inside, stays inside.

        A number kept open here would keep the lock when the parent dies.
        """
        if self._porter is not None:
            self._porter.abandon()
        os.close(self._fd)


class _LockWaiter:
    """A thread that queues in the kernel on behalf of another, which may give up waiting.

    The kernel's queue is fair but knows no time limit, and a process frozen while inside would hold
    all others for ever.
    """

    def __init__(self, fd: int) -> None:
        # The same lock under a number of its own: it may still queue when the gate is closed.
        self._fd = os.dup(fd)
        self._changed = threading.Condition()
        self._queueing = self._wanted = self._dismissed = False
        threading.Thread(target=self._work, name="bullite-gate", daemon=True).start()

    def is_waiting(self) -> bool:
        """Whether it still queues for somebody who gave up."""
        return self._queueing

    def wait(self, timeout: float) -> bool:
        with self._changed:
            self._wanted = self._queueing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._queueing, timeout)
            self._wanted = False
            return not self._queueing

    def dismiss(self) -> None:
        with self._changed:
            self._dismissed = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """After a fork, in the child, where the thread does not exist."""
        os.close(self._fd)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queueing or self._dismissed)
                if self._dismissed:
                    os.close(self._fd)
                    return
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            with self._changed:
                if not self._wanted:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)
                self._queueing = False
                self._changed.notify_all()
