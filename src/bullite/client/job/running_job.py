"""The methods of a job for the code that runs it: token, signal, and how to end the run."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

from ...core.checks import Duration, Moment, check_bool, check_duration, check_moment
from ...core.clock import moment_of
from ...core.codec import encode
from ...core.decide_outcome import (
    NO_DEFAULTS,
    Raised,
    RetentionDefaults,
    Returned,
    RunOutcome,
    decide,
)
from ...core.job_flags import COMMAND
from ...core.job_options import KeepJobs, check_keep
from ...core.retention import retention_of
from ...core.states import COMPLETE, DELAY, RELEASE, Move, State
from ...errors import InvalidOption, InvalidOptionType, LostLock
from ...operations.command_output import CommandExit
from ...operations.finish import FinishResult, FinishRuns
from ...operations.update import ExtendLease
from ..runtime.pending import Pending
from .abort_signal import Signal
from .base import JobBase
from .run import NO_RUN, JobRun, Wait

if TYPE_CHECKING:
    from datetime import datetime

    from .job import Job


class RunningJob(JobBase):
    """A job, for the code that runs it.

    Each method that ends the run takes the claim token as `token`, or none.
    """

    __slots__ = ()

    @property
    def token(self) -> str | None:
        """The claim token of this run as text; None outside a run."""
        return self._token_label()

    @property
    def signal(self) -> Signal:
        """The abort signal of this run."""
        if self._run is NO_RUN:
            self._run = JobRun()
        return self._run.signal

    @property
    def lock_expires_at(self) -> datetime | None:
        """When the lease of its worker ends, unless renewed; None if the job is not active."""
        leases = [lease for lease in (self._status.lease, self._status.worker_lease) if lease]
        if self._status.state != State.ACTIVE or not leases:
            return None
        clock = self._store.open().clock
        return moment_of(clock.now() + max(leases) - clock.lease_now())

    # --- ending the run --------------------------------------------------------------------------

    def move_to_completed(
        self,
        value: Any = None,
        token: str | None = None,
        remove_on_complete: bool | int | KeepJobs | None = None,
    ) -> Pending[None]:
        """End this run: the job is completed, with `value` as its return value.

        Raise LostLock if this run does not hold the job, IllegalMove if the job is not active.
        """
        self._held_run(token)
        outcome = decide(self, Returned(value), self._queue.random, self._rules)
        if outcome.move is not COMPLETE:
            encode(value, "the returned value")  # raises what is wrong with it
            raise InvalidOption(outcome.reason)
        return self._finish(_retaining(outcome, "remove_on_complete", remove_on_complete))

    def move_to_failed(
        self,
        error: BaseException | str,
        token: str | None = None,
        retry: bool = True,
        remove_on_fail: bool | int | KeepJobs | None = None,
    ) -> Pending[None]:
        """End this run: the attempt failed. The job is retried if attempts are left and `retry`.

        Raise LostLock if this run does not hold the job, IllegalMove if the job is not active.
        """
        if not isinstance(error, BaseException | str):
            raise InvalidOptionType(f"error must be an exception or text, not {error!r}")
        raised = error if isinstance(error, BaseException) else RuntimeError(error)
        if remove_on_fail is not None:
            check_keep("remove_on_fail", remove_on_fail)
        run, wait = self._held_run(token), None
        if check_bool("retry", retry) and run.owner is not None:
            asked = run.owner.retry_delay(cast("Job", self), raised)
            if inspect.isawaitable(asked):
                return Pending.from_coroutine(self._fail_after(asked, raised, remove_on_fail))
            wait = asked
        return self._fail(Raised(raised, wait if retry else False), remove_on_fail)

    async def _fail_after(
        self, asked: Awaitable[Wait], error: BaseException, remove_on_fail: Any
    ) -> None:
        await self._fail(Raised(error, await asked), remove_on_fail)

    def _fail(self, result: Raised, remove_on_fail: Any) -> Pending[None]:
        outcome = decide(self, result, self._queue.random, self._rules)
        return self._finish(_retaining(outcome, "remove_on_fail", remove_on_fail))

    def move_to_delayed(self, until: Moment, token: str | None = None) -> Pending[None]:
        """End this run: the job runs again at `until`. In a processor, raise DelayedError next.

        Uses no attempt. Raise LostLock if this run does not hold the job, IllegalMove if the job
        is not active.
        """
        due = check_moment("until", until)
        run = self._held_run(token)
        delay = max(0, due - self._store.open().clock.now())
        return self._finish(self._moved_by(run, DELAY, delay))

    def move_to_waiting(self, token: str | None = None) -> Pending[int]:
        """End this run: the job goes to the front of the queue. In a processor, raise WaitingError
        next. Return for how many ms a rate limit of the queue lets no job start.

        Uses no attempt. Raise LostLock if this run does not hold the job, IllegalMove if the job
        is not active.
        """
        return self._finish(self._moved_by(self._held_run(token), RELEASE))

    move_to_wait = move_to_waiting

    def extend_lock(self, duration: Duration, token: str | None = None) -> Pending[None]:
        """Extend the lease: the job stays locked by its worker for `duration` from now, without
        a renewal.

        Raise LostLock if this run does not hold the job, IllegalMove if the job is not active.
        """
        ms = check_duration("duration", duration, least=1)
        run = self._held_run(token)
        return self._submit(ExtendLease(self.pk, run.token_number, ms), lambda _: None)

    # --- for modules of this package -------------------------------------------------------------

    def _end_command(self, end: CommandExit) -> None:
        """Note how the command of this run ended."""
        self._run.command_end = end
        self._add_flags(COMMAND)

    @property
    def _rules(self) -> RetentionDefaults:
        owner = self._run.owner
        return NO_DEFAULTS if owner is None else owner.retention_defaults

    def _moved_by(self, run: JobRun, move: Move, delay: int = 0) -> RunOutcome:
        return RunOutcome(
            self.pk,
            run.token_number,
            move,
            delay,
            prefetched=run.prefetched,
            custom_id=self.custom_id,
        )

    def _finish(self, outcome: RunOutcome) -> Pending[Any]:
        run = self._run

        def finished(result: FinishResult) -> int | None:
            if result.lost:
                raise LostLock(f"job {self.id} is no longer held by this run; nothing was changed")
            if self.pk in result.overridden:
                run.moving = None
                raise result.overridden[self.pk]
            self._apply_outcome(outcome, result.at)
            return result.ttl if outcome.move is RELEASE else None

        request = FinishRuns(self._queue._pk, (outcome._replace(manual=True),))
        run.moving = moving = self._submit(request, finished)
        return moving


def _retaining(outcome: RunOutcome, option: str, given: Any) -> RunOutcome:
    """Return the outcome with the retention that the caller gave as an option, if it did."""
    if given is None:
        return outcome
    return outcome._replace(retention=retention_of(check_keep(option, given)))
