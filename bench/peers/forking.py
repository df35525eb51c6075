"""Processes of one contestant whose command line would start several; each works until told."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable


class Children:
    """Forks of this process that all do the same, and end when they get SIGTERM."""

    def __init__(self, number: int, work: Callable[[], None]) -> None:
        self._children = [self._fork(work) for _ in range(number)]

    def stop(self) -> None:
        """Tell them all, then wait for each."""
        for child in self._children:
            os.kill(child, signal.SIGTERM)
        for child in self._children:
            os.waitpid(child, 0)

    @staticmethod
    def _fork(work: Callable[[], None]) -> int:
        child = os.fork()
        if child:
            return child
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)  # what the parent would do at its end is not for its children
