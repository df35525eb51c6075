"""Collect the outcomes of runs, and send them until they are recorded or rejected."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..client.job.job import Job
from ..core.decide_outcome import (
    Raised,
    Result,
    Returned,
    RunOutcome,
    Unstarted,
    decide,
    decide_returned,
    storable,
)
from ..core.log_throttle import ThrottledLog
from ..core.states import FAIL
from ..engine.engine import Engine
from ..engine.replies import PendingRequest
from ..engine.subscription import MAX_BACKOFF, MIN_BACKOFF, Subscription
from ..errors import ENDING, RequestRefused, StoreClosed
from ..operations.finish import FinishRuns
from .context import WorkerContext
from .outcome_batch import EndedRun, OutcomeBatch, ThreadOutcome

_FINAL = (StoreClosed, RequestRefused, *ENDING)
"""Errors after which a request is not repeated."""

log = logging.getLogger("bullite.worker")


class Completer:
    """The outcomes of a pool's runs, from the end of each run until the engine has recorded it."""

    def __init__(
        self,
        worker: WorkerContext,
        engine: Engine,
        subscription: Subscription,
        update_prefetch: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._subscription = subscription
        self._update_prefetch = update_prefetch
        self._notifications = worker.notifications
        self._activity = worker.activity
        self._random = worker.queue.random
        self._retention = worker.options.retention_defaults
        self._loop = asyncio.get_running_loop()
        self._outcomes: list[RunOutcome] = []
        """Of the runs that have ended in this turn of the event loop."""
        self._runs: list[EndedRun] = []
        self._lock = threading.Lock()
        self._unconfirmed = 0
        self._throttled_log = ThrottledLog(log)

    def pending(self) -> int:
        """Return the number of outcomes that are not known to be recorded, sent or not."""
        return len(self._outcomes) + self.unconfirmed()

    def unconfirmed(self) -> int:
        """Return the number of sent outcomes that are not known to be recorded."""
        return self._unconfirmed

    # --- collecting ---

    def returned(self, job: Job, value: Any) -> None:
        """A run on the event loop returned: the same as `ended` with Returned, for speed."""
        outcome = decide_returned(job, value, self._random, self._retention)
        if self._notifications.has_end_listeners or not self._outcomes:
            self._collect(job, outcome, Returned(value))
        else:
            self._outcomes.append(outcome)

    def ended(self, job: Job, result: Result | None) -> None:
        """A run on the event loop ended; without a result, a run that leaves nothing to record."""
        if result is None:
            self._engine.subscriptions.runs_ended(self._subscription, 1)
            self._activity.check_soon()
        elif type(result) is Returned:
            self.returned(job, result.value)
        else:
            if job._run.cancellation is not None:
                result = Raised(job._run.cancellation)
            self._collect(job, decide(job, result, self._random, self._retention), result)

    def _collect(self, job: Job, outcome: RunOutcome, result: Result) -> None:
        """Collect the outcomes of this turn of the event loop, to send them in one request."""
        if not self._outcomes:
            self._loop.call_soon(self._send_collected)
        self._outcomes.append(outcome)
        if self._notifications.has_end_listeners:
            self._runs.append(EndedRun(job, result))

    def _send_collected(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        runs, self._runs = self._runs, []
        self._update_prefetch()
        if runs and len(runs) != len(outcomes):
            # The first listener was registered during this turn: report the runs after it.
            first = len(outcomes) - len(runs)
            self._send(outcomes[:first])
            outcomes = outcomes[first:]
        self._send(outcomes, runs or None)

    def ended_in_thread(self, job: Job, result: Result, is_urgent: bool) -> None:
        """A run in a thread ended.

        If it is not urgent, its outcome waits for an urgent one, or until the prefetched jobs of
        the worker would be returned. So a worker without prefetched jobs must call it urgent.
        """
        if type(result) is Returned:  # most runs; `decide` looks at the other results first
            outcome = decide_returned(job, result.value, self._random, self._retention)
        else:
            if job._run.cancellation is not None:
                result = Raised(job._run.cancellation)
            outcome = decide(job, result, self._random, self._retention)
        run = EndedRun(job, result) if self._notifications.has_end_listeners else None
        with self._lock:
            self._unconfirmed += 1
        self._engine.submit_merged(self, (outcome, run, job._run.command_end), is_urgent)

    def merge(self, ended: Sequence[ThreadOutcome]) -> list[PendingRequest]:
        """Return requests that record several outcomes, as few as possible. Engine thread."""
        self._update_prefetch()
        self._subscription.remove_held(len(ended), self._engine.clock.lease_now())
        with_run: list[ThreadOutcome] = []
        without_run: list[ThreadOutcome] = []
        for one in ended:
            _, run, _ = one
            (without_run if run is None else with_run).append(one)
        return [
            self._request(OutcomeBatch.of_threads(some)) for some in (without_run, with_run) if some
        ]

    # --- sending ---

    def return_jobs(self, jobs: Sequence[Job]) -> None:
        """Return jobs to the queue that have not started."""
        if jobs:
            unstarted = Unstarted()
            self._send([decide(job, unstarted, self._random) for job in jobs])

    def _send(self, outcomes: Sequence[RunOutcome], runs: Sequence[EndedRun] | None = None) -> None:
        """Send outcomes; the same transaction claims jobs for the slots that are free now."""
        with self._lock:
            self._unconfirmed += len(outcomes)
        request = self._request(OutcomeBatch(outcomes, runs))
        self._engine.subscriptions.finish_runs(
            request.request, request.reply, request.target, self._subscription
        )

    def _request(self, batch: OutcomeBatch, backoff: int = MIN_BACKOFF) -> PendingRequest:
        finish = FinishRuns(self._subscription.queue, batch.outcomes, batch.commands)
        return PendingRequest(
            finish, partial(self._replied, batch, backoff), self._subscription.target
        )

    def _replied(self, batch: OutcomeBatch, backoff: int, reply: Any) -> None:
        """Outcomes were recorded, or sending them failed: repeat what may succeed later."""
        count = len(batch.outcomes)
        if isinstance(reply, RequestRefused) and self._send_individually(batch, reply):
            return
        if isinstance(reply, Exception) and not isinstance(reply, _FINAL):
            self._throttled_log.warning(
                "%d results could not be stored, trying again: %s", count, reply
            )
            self._notifications.store_failed(reply)
            self._repeat_later(batch, backoff)
            return
        if isinstance(reply, Exception):
            log.error("%d results were not stored: %s", count, reply)
            self._notifications.store_failed(reply)
        else:
            self._notifications.recorded(batch, reply)
        with self._lock:
            self._unconfirmed -= count
        self._activity.check_soon()

    def _repeat_later(self, batch: OutcomeBatch, backoff: int) -> None:
        repeated = [outcome._replace(again=True) for outcome in batch.outcomes]
        again = batch._replace(outcomes=repeated), min(2 * backoff, MAX_BACKOFF)
        timer = threading.Timer(backoff / 1000, self._send_again, again)
        timer.daemon = True
        timer.start()

    def _send_again(self, batch: OutcomeBatch, backoff: int = MIN_BACKOFF) -> None:
        self._engine.submit_all([self._request(batch, backoff)])

    def _send_individually(self, batch: OutcomeBatch, refusal: RequestRefused) -> bool:
        """Send each outcome of a refused request again; fail the job if it is the only one.

        Return False if that was refused, too.
        """
        if len(batch.outcomes) > 1:
            for index, outcome in enumerate(batch.outcomes):
                run = None if batch.runs is None else (batch.runs[index],)
                commands = [one for one in batch.commands if one.job == outcome.job]
                self._send_again(OutcomeBatch((outcome,), run, commands))
            return True
        [outcome] = batch.outcomes
        if outcome.move is FAIL:
            return False
        failed = RunOutcome(
            outcome.job,
            outcome.token,
            FAIL,
            reason=storable(f"its result was refused: {refusal}"),
            prefetched=outcome.prefetched,
            custom_id=outcome.custom_id,
            attempts_made=outcome.attempts_made,
        )
        self._send_again(OutcomeBatch((failed,), batch.runs))
        return True
