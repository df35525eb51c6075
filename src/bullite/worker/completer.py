"""The completer sends the outcomes of runs to the engine until each was recorded or rejected."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..client.job.job import Job
from ..core.decide_outcome import Result, RunOutcome, storable
from ..core.log_throttle import ThrottledLog
from ..core.states import FAIL
from ..engine.engine import Engine
from ..engine.replies import PendingRequest
from ..engine.subscription import MAX_BACKOFF, MIN_BACKOFF, Subscription
from ..errors import ENDING, RequestRefused, StoreClosed
from ..operations.command_output import CommandExit
from ..operations.finish import FinishResult, FinishRuns

_FINAL = (StoreClosed, RequestRefused, *ENDING)
"""Errors after which trying again is no use."""

log = logging.getLogger("bullite.worker")


class EndedRun(NamedTuple):
    """A run that ended, for those who want to hear of it."""

    job: Job
    result: Result


Part = tuple[RunOutcome, EndedRun | None, CommandExit | None]
"""What one run in a thread came to: the run only if somebody listens, and the end of its command.

No class: short runs in threads would be several per cent slower for it."""


class OutcomeBatch(NamedTuple):
    """Verdicts on their way; the runs only if somebody listens."""

    outcomes: Sequence[RunOutcome]
    runs: Sequence[EndedRun] | None
    commands: Sequence[CommandExit] = ()

    @classmethod
    def of(cls, parts: Sequence[Part]) -> OutcomeBatch:
        """Parts of which somebody listens to all, or nobody to any."""
        return cls(
            [verdict for verdict, _, _ in parts],
            [run for _, run, _ in parts if run is not None] or None,
            [command for _, _, command in parts if command is not None],
        )


Report = Callable[[OutcomeBatch, FinishResult], None]
Trouble = Callable[[Exception], None]


class Completer:
    """What a worker's runs came to, on its way into the database."""

    def __init__(
        self,
        engine: Engine,
        worker: Subscription,
        settled: Callable[[], None],
        report: Report,
        trouble: Trouble,
        about_to_join: Callable[[], None],
    ) -> None:
        self._before_merge = about_to_join
        self._engine = engine
        self._worker = worker
        self._recorded = settled
        self._report = report
        self._trouble = trouble
        self._lock = threading.Lock()
        self._throttled_log = ThrottledLog(log)
        self.unconfirmed = 0
        """Verdicts that are not known to be in the database."""

    def send(self, verdicts: Sequence[RunOutcome], runs: Sequence[EndedRun] | None = None) -> None:
        """Send the verdicts of runs that ended, or never began; their slots are free now."""
        with self._lock:
            self.unconfirmed += len(verdicts)
        ask = self._ask(OutcomeBatch(verdicts, runs))
        self._engine.subscriptions.finish_runs(ask.request, ask.reply, ask.target, self._worker)

    def send_merged(self, part: Part, hurry: bool) -> None:
        """Send what a run in a thread came to, with others that end meanwhile.

        Without hurry it waits for one that is in a hurry, or until what the worker fetched ahead
        would be taken back: only a worker that has fetched ahead need not hurry.
        """
        with self._lock:
            self.unconfirmed += 1
        self._engine.submit_merged(self, part, hurry)

    def merge(self, parts: Sequence[Part]) -> list[PendingRequest]:
        """What several runs came to, in as few requests as can be; on the engine's thread."""
        self._before_merge()
        self._worker.remove_held(len(parts), self._engine.clock.lease_now())
        unheard = [part for part in parts if part[1] is None]
        heard = [part for part in parts if part[1] is not None]
        return [self._ask(OutcomeBatch.of(some)) for some in (unheard, heard) if some]

    def _ask(self, batch: OutcomeBatch, pause: int = MIN_BACKOFF) -> PendingRequest:
        settle = FinishRuns(self._worker.queue, batch.outcomes, batch.commands)
        return PendingRequest(settle, partial(self._answered, batch, pause), self._worker.target)

    def _send_again(self, batch: OutcomeBatch, pause: int) -> None:
        self._engine.submit_all([self._ask(batch, pause)])

    def _answered(self, batch: OutcomeBatch, pause: int, answer: Any) -> None:
        verdicts = batch.outcomes
        if isinstance(answer, RequestRefused) and self._send_individually(batch, answer):
            return
        if isinstance(answer, Exception) and not isinstance(answer, _FINAL):
            self._throttled_log.warning(
                "%d results could not be stored, trying again: %s", len(verdicts), answer
            )
            self._trouble(answer)
            repeated = [verdict._replace(again=True) for verdict in verdicts]
            again = batch._replace(outcomes=repeated)
            longer = min(2 * pause, MAX_BACKOFF)
            timer = threading.Timer(pause / 1000, self._send_again, (again, longer))
            timer.daemon = True
            timer.start()
            return
        if isinstance(answer, Exception):
            log.error("%d results were not stored: %s", len(verdicts), answer)
            self._trouble(answer)
        else:
            self._report(batch, answer)
        with self._lock:
            self.unconfirmed -= len(verdicts)
        self._recorded()

    def _send_individually(self, batch: OutcomeBatch, refusal: RequestRefused) -> bool:
        """Sending refused verdicts again is no use: send them apart, or fail the one at fault."""
        if len(batch.outcomes) > 1:
            for index, verdict in enumerate(batch.outcomes):
                run = None if batch.runs is None else (batch.runs[index],)
                commands = [one for one in batch.commands if one.job == verdict.job]
                self._send_again(OutcomeBatch((verdict,), run, commands), MIN_BACKOFF)
            return True
        [verdict] = batch.outcomes
        if verdict.move is FAIL:
            return False
        failed = RunOutcome(
            verdict.job,
            verdict.token,
            FAIL,
            reason=storable(f"its result was refused: {refusal}"),
            prefetched=verdict.prefetched,
            custom_id=verdict.custom_id,
            attempts_made=verdict.attempts_made,
        )
        self._send_again(OutcomeBatch((failed,), batch.runs), MIN_BACKOFF)
        return True
