"""Sends verdicts to the engine until it is known what became of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .engine.appetite import Appetite
from .engine.feeding import FIRST_PAUSE, LONGEST_PAUSE
from .engine.writer import Engine
from .errors import RequestRefused, StoreClosed, StoreReplaced
from .operations.settling import Settle
from .outcome import Verdict, storable
from .states import FAIL

_FINAL = (StoreClosed, StoreReplaced, RequestRefused)
"""Errors after which trying again is no use."""

log = logging.getLogger("bullite.worker")


class Settler:
    """What a worker's runs came to, on its way into the database."""

    def __init__(self, engine: Engine, worker: Appetite, settled: Callable[[], None]) -> None:
        self._engine = engine
        self._worker = worker
        self._settled = settled
        self._lock = threading.Lock()
        self.unsettled = 0
        """Verdicts that are not known to be in the database."""

    def send(self, verdicts: Sequence[Verdict]) -> None:
        """Send the verdicts of runs that ended, or never began; their slots are free now."""
        with self._lock:
            self.unsettled += len(verdicts)
        worker = self._worker
        answered = partial(self._answered, verdicts, FIRST_PAUSE)
        self._engine.settle(Settle(worker.queue, verdicts), answered, worker.mailbox, worker)

    def _send_again(self, verdicts: Sequence[Verdict], pause: int) -> None:
        answered = partial(self._answered, verdicts, pause)
        settle = Settle(self._worker.queue, verdicts)
        self._engine.submit(settle, answered, self._worker.mailbox)

    def _answered(self, verdicts: Sequence[Verdict], pause: int, answer: Any) -> None:
        if isinstance(answer, RequestRefused) and self._send_otherwise(verdicts, answer):
            return
        if isinstance(answer, Exception) and not isinstance(answer, _FINAL):
            log.warning("%d results could not be stored, trying again: %s", len(verdicts), answer)
            again = [verdict._replace(again=True) for verdict in verdicts]
            longer = min(2 * pause, LONGEST_PAUSE)
            timer = threading.Timer(pause / 1000, self._send_again, (again, longer))
            timer.daemon = True
            timer.start()
            return
        if isinstance(answer, Exception):
            log.error("%d results were not stored: %s", len(verdicts), answer)
        else:
            for job in answer:
                log.warning(
                    "job %d was no longer held when its run ended; nothing was recorded", job
                )
        with self._lock:
            self.unsettled -= len(verdicts)
        self._settled()

    def _send_otherwise(self, verdicts: Sequence[Verdict], refusal: RequestRefused) -> bool:
        """Sending refused verdicts again is no use: send them apart, or fail the one at fault."""
        if len(verdicts) > 1:
            for verdict in verdicts:
                self._send_again((verdict,), FIRST_PAUSE)
            return True
        [verdict] = verdicts
        if verdict.move is FAIL:
            return False
        reason = storable(f"its result was refused: {refusal}")
        failed = Verdict(verdict.job, verdict.token, FAIL, reason=reason, ahead=verdict.ahead)
        self._send_again((failed,), FIRST_PAUSE)
        return True
