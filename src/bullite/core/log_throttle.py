"""Throttled logging of problems that last: one message per text and interval."""

from __future__ import annotations

import logging
import time

EVERY = 10.0
"""Default minimum seconds between two messages with the same text."""


class ThrottledLog:
    """Writes to a logger, but each text at most once in `every` seconds."""

    def __init__(self, log: logging.Logger, every: float = EVERY) -> None:
        self._log = log
        self._every = every
        self._logged_at: dict[str, float] = {}

    def warning(self, message: str, *values: object) -> None:
        """Log a warning, unless one with this text, and any values, was logged recently."""
        now = time.monotonic()
        if now - self._logged_at.get(message, -self._every) >= self._every:
            self._logged_at[message] = now
            self._log.warning(message, *values)
