"""The write gate: processes that want to write queue up in the kernel, first come, first served.

SQLite's own busy handler sleeps and tries again, so one process can starve the others for seconds.
Foreign writers do not know the gate; SQLite's lock and its timeout stay underneath for them.
"""

from __future__ import annotations

import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no flock; SQLite's own lock decides there
    fcntl = None  # type: ignore[assignment]


class Gate:
    """Held while this process writes."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def enter(self) -> None:
        """Wait until no other process is inside; lets other threads run meanwhile."""
        if fcntl is not None:
            fcntl.flock(self._fd, fcntl.LOCK_EX)

    def leave(self) -> None:
        if fcntl is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Gate:
        self.enter()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.leave()
