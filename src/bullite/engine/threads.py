"""Start the threads of a store."""

from __future__ import annotations

import threading
from collections.abc import Callable

Spawn = Callable[[Callable[[], None], str], None]
"""Starts a thread that runs a function under a name."""


def start_thread(run: Callable[[], None], name: str) -> None:
    threading.Thread(target=run, name=name, daemon=True).start()
