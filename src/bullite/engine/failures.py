"""Failures of the database: reply to the requests, report to the workers, or end the engine."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..core.log_throttle import ThrottledLog
from ..errors import ENDING, StoreError
from .dispatcher import READING, Dispatcher
from .replies import PendingRequest, deliver
from .state import EngineState

log = logging.getLogger("bullite.engine")


class Failures:
    """What the engine does about errors; used on its thread."""

    def __init__(self, dispatcher: Dispatcher, state: EngineState) -> None:
        self._dispatcher = dispatcher
        self._state = state
        self._throttled_log = ThrottledLog(log)

    def fail(self, requests: Sequence[PendingRequest], error: Exception) -> None:
        """Reply to requests with an error, and report it to workers that have capacity.

        An error after which the store must be opened again ends the engine, and all workers get it.
        """
        reports = self._dispatcher.after_failure(error)
        if isinstance(error, ENDING):
            if self._state.error is None:
                reports = self._dispatcher.report_to_all(error)
            self._state.stop(error)
        deliver([(pending, error) for pending in requests] + reports)

    def report(self, what: str, message: str, error: StoreError) -> None:
        """Log an error that no request caused, and report it to the workers."""
        if isinstance(error, ENDING):
            log.error("%s: %s", message, error)
            self.fail([], error)
        else:
            self._throttled_log.warning(f"{message}: %s", error)
            deliver(self._dispatcher.troubled(what, error))

    def report_failed_read(self) -> None:
        """Report a failed read of the dispatcher to the workers, also to idle ones."""
        error, self._dispatcher.trouble = self._dispatcher.trouble, None
        if error is not None:
            deliver(self._dispatcher.troubled(READING, error))
