"""The signals that a process gets, as something that it can wait for beside other things."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

DRAIN_SIGNAL, STOP_SIGNAL = "SIGUSR1", "SIGUSR2"
"""Press just so hard, however often they come; TERM and INT press harder each time."""


class Signals:
    """Those of this process, for its main thread; as they were before, afterwards."""

    NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGCHLD", DRAIN_SIGNAL, STOP_SIGNAL)

    def __enter__(self) -> Signals:
        self._read, self._written = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._written, False)
        self._in_use, self._is_open = threading.Lock(), True
        self._before: dict[int, Any] = {}
        try:
            self._wakeup = signal.set_wakeup_fd(self._written, warn_on_full_buffer=False)
        except BaseException:
            self._close()
            raise
        for name in self.NAMES:
            if (number := getattr(signal, name, None)) is not None:
                self._before[number] = signal.signal(number, _ignore)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._wakeup)
        self._close()

    def _close(self) -> None:
        with self._in_use:
            os.close(self._read)
            os.close(self._written)
            self._is_open = False

    def fileno(self) -> int:
        return self._read

    def wake(self) -> None:
        """Have who waits go on, from whatever thread, though no signal came."""
        with self._in_use, contextlib.suppress(BlockingIOError):
            if self._is_open:
                os.write(self._written, b"\0")

    def received(self) -> list[str]:
        """The names of those that came, in order."""
        try:
            came = os.read(self._read, 4096)
        except BlockingIOError:
            return []
        return [signal.Signals(number).name for number in came if number in self._before]


def _ignore(number: int, frame: FrameType | None) -> None:
    """The wake-up descriptor tells of it; SIG_IGN would keep it from doing so."""
