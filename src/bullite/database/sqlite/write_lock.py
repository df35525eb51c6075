"""The fair write lock: processes queue for it in the kernel, first come, first served.

SQLite's own busy handler sleeps and retries, so one process can keep other processes from writing
for seconds. Other programs do not use this lock: SQLite's own lock and its timeout apply to them.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from .side_files import open_or_make


class FairWriteLock:
    """A lock that this process holds while it writes. One thread at a time uses it."""

    def __init__(self, path: Path) -> None:
        self._fd = open_or_make(path)
        self._waiter: _LockWaiter | None = None

    def enter(self, timeout: float) -> bool:
        """Take the lock. Return False if other processes hold it for longer than `timeout` s."""
        if self._waiter is None or not self._waiter.is_waiting():
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._waiter = self._waiter or _LockWaiter(self._fd)
            else:
                return True
        return self._waiter.wait(timeout)

    def leave(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._waiter is not None:
            self._waiter.dismiss()
        os.close(self._fd)

    def abandon(self) -> None:
        """After a fork, in the child: close the descriptor. The parent keeps the lock if it has it.

        An open descriptor in the child would keep the lock after the parent's death.
        """
        if self._waiter is not None:
            self._waiter.abandon()
        os.close(self._fd)


class _LockWaiter:
    """A thread that queues in the kernel for the engine thread, which may give up waiting.

    The kernel's queue is fair but has no time limit. If a process froze while it held the lock, all
    other processes would wait for ever.
    """

    def __init__(self, fd: int) -> None:
        # A second descriptor of the same lock: this may still queue after `FairWriteLock.close`.
        self._fd = os.dup(fd)
        self._changed = threading.Condition()
        self._queueing = self._wanted = self._dismissed = False
        threading.Thread(target=self._work, name="bullite-write-lock", daemon=True).start()

    def is_waiting(self) -> bool:
        """Return True if the thread still queues for a caller that gave up."""
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
        """After a fork, in the child: close the descriptor. The thread does not exist there."""
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
