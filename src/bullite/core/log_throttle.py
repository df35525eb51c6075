"""Log lines about trouble that goes on: said once, then only now and again."""

from __future__ import annotations

import logging
import time

EVERY = 10.0
"""Seconds before the same is said again."""


class ThrottledLog:
    """Speaks through a logger, but says a thing at most once in so many seconds."""

    def __init__(self, log: logging.Logger, every: float = EVERY) -> None:
        self._log = log
        self._every = every
        self._said: dict[str, float] = {}

    def warning(self, message: str, *values: object) -> None:
        """A warning, unless one with this text, whatever its values, was given a moment ago."""
        now = time.monotonic()
        if now - self._said.get(message, -self._every) >= self._every:
            self._said[message] = now
            self._log.warning(message, *values)
