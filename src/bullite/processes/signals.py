"""The signals of this process, as a file descriptor that a selector can wait for."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

DRAIN_SIGNAL, STOP_SIGNAL = "SIGUSR1", "SIGUSR2"
"""Signals that set the stop level; TERM and INT raise it each time."""


class Signals:
    """Signals received by the main thread. Leaving the context restores the old handlers."""

    NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGCHLD", DRAIN_SIGNAL, STOP_SIGNAL)

    def __enter__(self) -> Signals:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._in_use, self._is_open = threading.Lock(), True
        self._before: dict[int, Any] = {}
        try:
            self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
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
            os.close(self._write)
            self._is_open = False

    def fileno(self) -> int:
        return self._read

    def wake(self) -> None:
        """Make the descriptor readable without a signal; callable from any thread."""
        with self._in_use, contextlib.suppress(BlockingIOError):
            if self._is_open:
                os.write(self._write, b"\0")

    def received(self) -> list[str]:
        """Return the names of the signals received since the last call, in order."""
        try:
            numbers = os.read(self._read, 4096)
        except BlockingIOError:
            return []
        return [signal.Signals(number).name for number in numbers if number in self._before]


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the signal is read from the wake-up descriptor, which SIG_IGN would suppress."""
