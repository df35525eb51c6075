"""Sends verdicts to the engine until it is known what became of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from .engine.appetite import Appetite
from .engine.feeding import FIRST_PAUSE, LONGEST_PAUSE
from .engine.writer import Engine
from .errors import RequestRefused, StoreClosed, StoreReplaced
from .job import Job
from .operations.settling import Settle, Settled
from .outcome import Result, Verdict, storable
from .seldom import Seldom
from .states import FAIL

_FINAL = (StoreClosed, StoreReplaced, RequestRefused)
"""Errors after which trying again is no use."""

log = logging.getLogger("bullite.worker")


class Run(NamedTuple):
    """A run that ended, for those who want to hear of it."""

    job: Job
    result: Result


class Batch(NamedTuple):
    """Verdicts on their way; the runs only if somebody listens."""

    verdicts: Sequence[Verdict]
    runs: Sequence[Run] | None


Report = Callable[[Batch, Settled], None]
Trouble = Callable[[Exception], None]


class Settler:
    """What a worker's runs came to, on its way into the database."""

    def __init__(
        self,
        engine: Engine,
        worker: Appetite,
        settled: Callable[[], None],
        report: Report,
        trouble: Trouble,
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._settled = settled
        self._report = report
        self._trouble = trouble
        self._lock = threading.Lock()
        self._seldom = Seldom(log)
        self.unsettled = 0
        """Verdicts that are not known to be in the database."""

    def send(self, verdicts: Sequence[Verdict], runs: Sequence[Run] | None = None) -> None:
        """Send the verdicts of runs that ended, or never began; their slots are free now."""
        with self._lock:
            self.unsettled += len(verdicts)
        worker = self._worker
        answered = partial(self._answered, Batch(verdicts, runs), FIRST_PAUSE)
        self._engine.settle(Settle(worker.queue, verdicts), answered, worker.mailbox, worker)

    def _send_again(self, batch: Batch, pause: int) -> None:
        answered = partial(self._answered, batch, pause)
        settle = Settle(self._worker.queue, batch.verdicts)
        self._engine.submit(settle, answered, self._worker.mailbox)

    def _answered(self, batch: Batch, pause: int, answer: Any) -> None:
        verdicts = batch.verdicts
        if isinstance(answer, RequestRefused) and self._send_otherwise(batch, answer):
            return
        if isinstance(answer, Exception) and not isinstance(answer, _FINAL):
            self._seldom.warning(
                "%d results could not be stored, trying again: %s", len(verdicts), answer
            )
            self._trouble(answer)
            again = Batch([verdict._replace(again=True) for verdict in verdicts], batch.runs)
            longer = min(2 * pause, LONGEST_PAUSE)
            timer = threading.Timer(pause / 1000, self._send_again, (again, longer))
            timer.daemon = True
            timer.start()
            return
        if isinstance(answer, Exception):
            log.error("%d results were not stored: %s", len(verdicts), answer)
            self._trouble(answer)
        elif answer.lost or batch.runs is not None:
            self._report(batch, answer)
        with self._lock:
            self.unsettled -= len(verdicts)
        self._settled()

    def _send_otherwise(self, batch: Batch, refusal: RequestRefused) -> bool:
        """Sending refused verdicts again is no use: send them apart, or fail the one at fault."""
        if len(batch.verdicts) > 1:
            for index, verdict in enumerate(batch.verdicts):
                run = None if batch.runs is None else (batch.runs[index],)
                self._send_again(Batch((verdict,), run), FIRST_PAUSE)
            return True
        [verdict] = batch.verdicts
        if verdict.move is FAIL:
            return False
        failed = Verdict(
            verdict.job,
            verdict.token,
            FAIL,
            reason=storable(f"its result was refused: {refusal}"),
            ahead=verdict.ahead,
            custom_id=verdict.custom_id,
            attempts_made=verdict.attempts_made,
        )
        self._send_again(Batch((failed,), batch.runs), FIRST_PAUSE)
        return True
