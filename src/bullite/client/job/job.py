"""A job as users see it: its data and options, its progress and its outcome."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...core.checks import (
    MAX_DATA_BYTES,
    Duration,
    Moment,
    check_bool,
    check_duration,
    check_int,
    check_moment,
    check_size,
    encode_limited,
)
from ...core.clock import moment_of
from ...core.codec import decode, encode, encode_plain
from ...core.decide_outcome import (
    MAX_REASON_LENGTH,
    NO_DEFAULTS,
    Raised,
    RetentionDefaults,
    Returned,
    RunOutcome,
    decide,
    storable,
)
from ...core.event_log import Failure
from ...core.job_flags import COMMAND
from ...core.job_options import KeepJobs, Priority, check_keep, check_priority
from ...core.job_record import DATA, FLAGS, OPTS, JobRecord, JobStatusRow
from ...core.retention import retention_of
from ...core.states import (
    COMPLETE,
    COMPLETED,
    DELAY,
    PROMOTE,
    RELEASE,
    REMOVE,
    RESCHEDULE,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    Move,
    State,
)
from ...engine.result_waiters import AwaitedJob
from ...errors import (
    IllegalMove,
    InvalidOption,
    InvalidOptionType,
    JobCancelled,
    JobFailed,
    JobNotFound,
    LostLock,
)
from ...operations.claim import Claimed
from ...operations.command_output import CommandExit
from ...operations.deduplicate_release import FreeKeyOf
from ...operations.finish import FinishResult, FinishRuns
from ...operations.move import MoveJob
from ...operations.update import AddLog, ClearLogs, ExtendLease, Progress, SetData, SetPriority
from ..runtime import bridge
from ..runtime.pending import Pending
from ..runtime.store import Store
from .abort_signal import Signal
from .dependencies import JobDependencies
from .steps import DurableSteps, StepContext

if TYPE_CHECKING:
    from ..queue.reads import QueueReads

LOG_LEVELS = ("info", "warn", "error")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job, as its history tells."""

    number: int
    started_at: datetime | None
    ended_at: datetime | None
    """None while it runs."""
    worker: str | None
    outcome: str | None
    """`completed`, `error`, `timed-out`, `stalled`, `cancelled`; None while it runs."""
    error: str | None
    stack: str | None


Wait = int | Literal[False] | None
"""Ms to the next attempt, False for no other; None if the job's back-off decides."""


class JobOwner(NamedTuple):
    """What a running job needs of the worker that has claimed it."""

    name: str
    retention_defaults: RetentionDefaults
    retry_delay: Callable[[Job, BaseException], Awaitable[Wait] | Wait]
    """The delay of the next attempt by a custom retry strategy; None if the job has none."""
    on_progress: Callable[[Job, Any], None]


class Job(JobRecord, JobDependencies, DurableSteps):
    """One job of a queue.

    Attributes tell what was true when the job was last read; `queue.get_job(job.id)` reads again.
    Methods that change the job are asked for when they are called: await them in a coroutine; in a
    thread, call `.result()` on what they return, or let it be. Those of a running job are fenced:
    once the job is lost to another worker they raise LostLock and change nothing.
    """

    __slots__ = (
        *("_cancellation", "_holder", "_label", "_signal"),
        *("prefetched", "command_end", "moving", "run", "token_number"),
    )

    _queue: QueueReads

    def __init__(
        self,
        queue: QueueReads,
        facts: Sequence[Any],
        fate: JobStatusRow,
        token_number: int = 0,
        ahead: bool = False,
        holder: JobOwner | None = None,
    ) -> None:
        # All at once, and not by way of Record: this is done for every job that runs.
        self._queue, self._holder = queue, holder
        self._columns, self._status = facts, fate
        self.token_number = token_number
        """The number that proves this run holds the job; 0 outside a processor."""
        self.prefetched = ahead
        """Its worker fetched it ahead: that it begins is recorded together with its end."""
        self.moving: Pending[Any] | None = None
        """The move that its own run asked for, if it did."""
        self.command_end: CommandExit | None = None
        """What its command came to, to be written with the verdict on this run."""

    run: StepContext
    """What its run knows of its steps, once that has come to one."""

    # --- how far it is ---------------------------------------------------------------------------

    @property
    def lock_expires_at(self) -> datetime | None:
        """Until when it is its worker's, if that is not heard of again."""
        leases = [lease for lease in (self._status.lease, self._status.worker_lease) if lease]
        if self._status.state != State.ACTIVE or not leases:
            return None
        clock = self._store.open().clock
        return moment_of(clock.now() + max(leases) - clock.lease_now())

    async def get_attempts(self) -> list[Attempt]:
        """The history of its runs, oldest first, the present one included."""
        job = await self._queue.get_job(self.id)
        now = self if job is None or job.pk != self.pk else job
        rows = await bridge.query(self._store, "attempts", {"job": self.pk})
        history = [
            Attempt(number, _maybe(started), _maybe(ended), worker, outcome, error, stack)
            for number, started, ended, worker, outcome, error, stack in rows
        ]
        if now.state in (State.ACTIVE, State.COMPLETED):
            outcome = COMPLETED if now.state == State.COMPLETED else None
            number = len(history) + 1
            last = Attempt(
                number, now.processed_at, now.finished_at, now.processed_by, outcome, None, None
            )
            history.append(last)
        return history

    # --- where it is -----------------------------------------------------------------------------

    async def get_state(self) -> str:
        """Where the job is now; `unknown` if it does not exist."""
        return await self._queue.get_job_state(self.id)

    async def is_waiting(self) -> bool:
        return await self.get_state() == State.WAITING

    async def is_prioritized(self) -> bool:
        return await self.get_state() == "prioritized"

    async def is_delayed(self) -> bool:
        return await self.get_state() == State.DELAYED

    async def is_active(self) -> bool:
        return await self.get_state() == State.ACTIVE

    async def is_waiting_children(self) -> bool:
        return await self.get_state() == State.WAITING_CHILDREN

    async def is_completed(self) -> bool:
        return await self.get_state() == State.COMPLETED

    async def is_failed(self) -> bool:
        return await self.get_state() == State.FAILED

    # --- what it says ----------------------------------------------------------------------------

    def update_progress(self, progress: Any) -> Pending[None]:
        """Say how far this run is: any JSON value of at most 1 MiB, stored as given."""
        text = encode_limited(progress, "the progress")
        self._status = self._status._replace(progress=text)
        request = Progress(self._queue.key, self.pk, self._own_token(), text)
        self.prefetched = False  # it is told with this that it has begun
        if self._holder is not None:
            self._holder.on_progress(self, progress)
        return self._ask(request, self._must_be_held)

    def _must_be_held(self, held: bool) -> None:
        if not held and not self.token_number:
            raise JobNotFound(f"job {self.id} does not exist any more")
        if not held:
            raise LostLock(
                f"job {self.id} is no longer held by this run; its progress was not stored"
            )

    def update_data(self, data: Any) -> Pending[None]:
        """Replace the job's data; a later attempt sees the new."""
        text = encode(data, "the data of job ", self.name)
        check_size(self.name, text, self.stored_options.get("size_limit", MAX_DATA_BYTES))
        request = SetData(self.pk, self._own_token(), text)

        def stored(answer: Any) -> None:
            self._columns = [*self._columns[:DATA], text]
            self._data = decode(text)

        return self._ask(request, stored)

    def log(self, message: str, level: str = "info") -> Pending[int]:
        """Append a line to the job's log; how many lines it has now."""
        return self.append_log(message, level, self._own_token())

    def append_log(
        self, message: str, level: str, token: int | None, keep: int | None = None
    ) -> Pending[int]:
        """Append a line to the job's log, as its holder if there is a token."""
        text, checked_level = _check_log(message, level)
        if keep is None:
            keep = self.stored_options.get("keep_logs")
        else:
            check_int("keep_logs", keep, 0, 2**31 - 1)
        request = AddLog(self._queue.key, self.pk, token, checked_level, text, keep)
        self.prefetched = False  # it is told with this that it has begun
        return self._ask(request, lambda count: count)

    def clear_logs(self, keep: int = 0) -> Pending[None]:
        """Delete the job's log, but for the newest `keep` lines."""
        check_int("keep", keep, 0, 2**31 - 1)
        return self._ask(ClearLogs(self.pk, keep), _nothing)

    async def get_logs(self, start: int = 0, end: int = -1, asc: bool = True) -> dict[str, Any]:
        """Lines of the job's log, and how many there are: {"logs": [...], "count": n}."""
        return await self._queue.get_job_logs(self.id, start, end, asc)

    # --- moving it, from outside -----------------------------------------------------------------

    def promote(self) -> Pending[None]:
        """Let a delayed job wait in line now."""
        return self._move(PROMOTE, then=partial(self._now, State.WAITING, delay=0, due_at=None))

    def retry(
        self, state: str = "failed", *, delay: Duration = 0, reset_attempts: bool = False
    ) -> Pending[None]:
        """Let a failed job, or with `state="completed"` a completed one, run once more.

        It keeps the attempts it made, so it gets one run, unless `reset_attempts`.
        """
        source = _finished_state(state)
        wait = check_duration("delay", delay)
        check_bool("reset_attempts", reset_attempts)

        move = RETRY_FINISHED_DELAYED if wait else RETRY_FINISHED
        request = MoveJob(move, self.pk, self.id, wait, reset_attempts, source)
        return self._ask(request, lambda _: self._apply_retry(wait, reset_attempts))

    def remove(self, remove_children: bool = True) -> Pending[None]:
        """Take the job out, and all its descendants; `queue.restore` brings them back for a while.

        Not while it, or one of them, runs: then JobLocked, and nothing is taken out.
        """
        check_bool("remove_children", remove_children)
        request = MoveJob(REMOVE, self.pk, self.id, with_descendants=remove_children)
        return self._ask(request, lambda _: self._tell_removed())

    def change_delay(self, delay: Duration) -> Pending[None]:
        """Let a delayed job be due `delay` from now."""
        wait = check_duration("delay", delay)

        def rescheduled() -> None:
            self._now(State.DELAYED, delay=wait, due_at=self._due_in(wait))

        return self._move(RESCHEDULE, wait, rescheduled)

    def change_priority(
        self, priority: int | Priority | None = None, lifo: bool = False
    ) -> Pending[None]:
        """Give the job another priority; one that waits goes to the end of its new line, or with
        `lifo` to the front."""
        given = self.priority if priority is None else check_priority(priority)
        is_level = isinstance(given, Priority)
        number = given.value if isinstance(given, Priority) else given
        request = SetPriority(self.pk, number, is_level, check_bool("lifo", lifo))

        def changed(number: int) -> None:
            self._columns = [*self._columns[:3], number, *self._columns[4:]]

        return self._ask(request, changed)

    def remove_deduplication_key(self) -> Pending[bool]:
        """Free the job's deduplication key, if it holds it; whether it did."""
        return self._ask(FreeKeyOf(self.pk), bool)

    # --- ending its run by hand ------------------------------------------------------------------

    @property
    def token(self) -> str | None:
        """What proves that this run holds the job; None outside one."""
        if not self.token_number:
            return None
        try:
            return self._label
        except AttributeError:
            nonce = self._store.open().driver.nonce
            self._label: str = f"{nonce & (2**64 - 1):016x}-{self.token_number}"
            return self._label

    @property
    def signal(self) -> Signal:
        """Tells this run that it should stop; made when first asked for."""
        try:
            return self._signal
        except AttributeError:
            self._signal: Signal = Signal()
            return self._signal

    @property
    def _has_signal(self) -> bool:
        """Whether this run has asked for its signal."""
        return hasattr(self, "_signal")

    def abort(self, reason: Any) -> None:
        """Tell this run that it should stop, if it listens."""
        signal = getattr(self, "_signal", None)
        if signal is not None:
            signal.abort(reason)

    def end_command(self, end: CommandExit) -> None:
        """Say what its command came to."""
        self.command_end = end
        self._add_flags(COMMAND)

    @property
    def cancellation(self) -> JobCancelled | None:
        """Why this run is to end before its time; None while it need not."""
        return getattr(self, "_cancellation", None)

    @cancellation.setter
    def cancellation(self, reason: JobCancelled) -> None:
        self._cancellation = reason

    def _set_token_label(self, label: str) -> None:
        """Let the caller's own word stand for the token of this run."""
        self._label = label

    def move_to_completed(
        self,
        value: Any = None,
        token: str | None = None,
        remove_on_complete: bool | int | KeepJobs | None = None,
    ) -> Pending[None]:
        """End this run: the job is completed with `value`."""
        held = self._held_with(token)
        verdict = decide(held, Returned(value), self._random, self._rules)
        if verdict.move is not COMPLETE:
            encode(value, "the returned value")  # raises what is wrong with it
            raise InvalidOption(verdict.reason)
        return self._settle(self._keeping(verdict, "remove_on_complete", remove_on_complete))

    def move_to_failed(
        self,
        error: BaseException | str,
        token: str | None = None,
        retry: bool = True,
        remove_on_fail: bool | int | KeepJobs | None = None,
    ) -> Pending[None]:
        """End this run: it failed. Attempts that are left are used, unless `retry=False`."""
        if not isinstance(error, BaseException | str):
            raise InvalidOptionType(f"error must be an exception or text, not {error!r}")
        raised = error if isinstance(error, BaseException) else RuntimeError(error)
        if remove_on_fail is not None:
            check_keep("remove_on_fail", remove_on_fail)
        held, wait = self._held_with(token), None
        if check_bool("retry", retry) and self._holder is not None:
            asked = self._holder.retry_delay(held, raised)
            if inspect.isawaitable(asked):
                return Pending.from_coroutine(self._fail_when_known(raised, asked, remove_on_fail))
            wait = asked
        return self._fail(Raised(raised, wait if retry else False), remove_on_fail)

    async def _fail_when_known(
        self, error: BaseException, asked: Awaitable[Wait], remove_on_fail: Any
    ) -> None:
        await self._fail(Raised(error, await asked), remove_on_fail)

    def _fail(self, result: Raised, remove_on_fail: Any) -> Pending[None]:
        verdict = decide(self, result, self._random, self._rules)
        return self._settle(self._keeping(verdict, "remove_on_fail", remove_on_fail))

    def move_to_delayed(self, until: Moment, token: str | None = None) -> Pending[None]:
        """End this run: the job runs again at `until`. In a processor, raise DelayedError next.

        Costs no attempt.
        """
        due = check_moment("until", until)
        held = self._held_with(token)
        delay = max(0, due - self._store.open().clock.now())
        verdict = RunOutcome(
            self.pk,
            held.token_number,
            DELAY,
            delay,
            prefetched=self.prefetched,
            custom_id=self.custom_id,
        )
        return self._settle(verdict)

    def move_to_waiting(self, token: str | None = None) -> Pending[int]:
        """End this run: the job goes back to the front. In a processor, raise WaitingError next.

        Costs no attempt. Ms for which a rate limit of the queue lets nothing begin.
        """
        held = self._held_with(token)
        verdict = RunOutcome(
            self.pk,
            held.token_number,
            RELEASE,
            prefetched=self.prefetched,
            custom_id=self.custom_id,
        )
        return self._settle(verdict)

    move_to_wait = move_to_waiting

    def extend_lock(self, duration: Duration, token: str | None = None) -> Pending[None]:
        """Keep the job for `duration` from now, even if nothing is heard of its worker."""
        ms = check_duration("duration", duration, least=1)
        held = self._held_with(token)
        return self._ask(ExtendLease(self.pk, held.token_number, ms), _nothing)

    # --- waiting for it --------------------------------------------------------------------------

    async def result(self, timeout: Duration | None = None) -> Any:
        """Wait until the job is finished; its return value, or JobFailed with its reason.

        Raises TimeoutError after `timeout`, JobNotFound if the job is gone and the event log no
        longer tells how it ended.
        """
        limit = None if timeout is None else check_duration("timeout", timeout) / 1000
        watched = AwaitedJob(self.pk, self._queue.key, self.id)
        try:
            state, value, reason = await bridge.wait_result(self._store, watched, limit)
        except TimeoutError:
            raise TimeoutError(f"job {self.id} was not finished within {timeout}") from None
        self._status = self._status._replace(state=state, return_value=value, failed_reason=reason)
        if state == State.FAILED:
            raise JobFailed(reason)
        return self.return_value

    wait_until_finished = result

    # --- underneath ------------------------------------------------------------------------------

    def _apply_retry(self, delay: int, reset_attempts: bool) -> None:
        """It was let run again: say so in the attributes, too."""
        kept = (0, 0) if reset_attempts else self._columns[5:7]
        self._columns = [*self._columns[:5], *kept, *self._columns[7:9], None, *self._columns[10:]]
        self._now(
            State.DELAYED if delay else State.WAITING,
            delay=delay,
            due_at=self._due_in(delay) if delay else None,
            **dict.fromkeys(("processed_at", "finished_at", "return_value"), None),
            **dict.fromkeys(("failed_reason", "outcome", "expires_at", "original_queue"), None),
        )

    def _apply_stored(self, fate: JobStatusRow) -> None:
        """It was just added, tied to others."""
        self._status = fate

    def _clear_parent(self) -> None:
        """It belongs to nobody any more."""
        options = {name: v for name, v in self.stored_options.items() if name != "parent"}
        self._options = options
        text = encode_plain(options).decode() if options else None
        self._columns = [*self._columns[:OPTS], text, *self._columns[OPTS + 1 :]]

    def _apply_waiting_children(self) -> None:
        """Its run ended: it waits for its children."""
        self._now(State.WAITING_CHILDREN)

    def _moves(self, moving: Pending[Any] | None) -> None:
        self.moving = moving

    def _in_queue(self, queue: QueueReads) -> Job:
        """The same job where it has gone."""
        return Job(queue, self._columns, self._status)

    def _apply_outcome(self, verdict: RunOutcome, at: int) -> None:
        """The verdict on this run is in the database: say so in the attributes, too."""
        move = verdict.move
        counted = 1 if move.target in (State.COMPLETED, State.FAILED) or verdict.reason else 0
        started = self.attempts_started
        if verdict.unrun:
            counted, started = 0, started - 1
        self._columns = [
            *self._columns[:5],
            self._columns[5] + counted,
            started,
            *self._columns[7:],
        ]
        if verdict.unrun and not started:
            self._status = self._status._replace(processed_at=None)
        due = at + verdict.delay if move.target is State.DELAYED else None
        finished = at if move.target in (State.COMPLETED, State.FAILED) else None
        self._now(move.target, delay=verdict.delay, due_at=due, finished_at=finished, updated_at=at)
        if verdict.value is not None or move is COMPLETE:
            self._status = self._status._replace(return_value=verdict.value)
        if verdict.reason is not None:
            stacks = [*self.stacktrace, verdict.stack] if verdict.stack else self.stacktrace
            if verdict.stack_limit is not None:
                stacks = stacks[-verdict.stack_limit :] if verdict.stack_limit else []
            self._status = self._status._replace(
                failed_reason=verdict.reason,
                outcome=verdict.outcome,
                stacks=encode_plain(stacks).decode(),
            )

    def has_changed_since(self, failure: Failure, at: int) -> bool:
        """Whether the attributes show more than how it was when a run failed at `at`."""
        return self._status.state != failure.state or self._status.updated_at != at

    def failed_then(self, failure: Failure, at: int, rows: Sequence[Sequence[Any]]) -> None:
        """Show in the attributes how it was when a run failed at `at`; `rows` are its history."""
        number = next((row[0] for row in rows if row[2] == at and row[5] == failure.reason), None)
        if number is not None:
            self._forget_runs_after(number, rows, at)
        if failure.attempts_made is not None:
            self._columns = [*self._columns[:5], failure.attempts_made, *self._columns[6:]]
        is_final = failure.state == State.FAILED
        self._status = self._status._replace(
            state=failure.state,
            failed_reason=failure.reason,
            outcome=failure.outcome,
            due_at=failure.due,
            delay=0 if failure.due is None else failure.due - at,
            finished_at=at if is_final else None,
            updated_at=at,
            return_value=None,
            lease=None,
            worker_lease=None,
        )

    def _forget_runs_after(self, number: int, rows: Sequence[Sequence[Any]], at: int) -> None:
        """Runs after that of this number of its history are still to come."""
        known = [row for row in rows if row[0] <= number]
        # The history tells of a run that is under way, or that completed, only when it has ended.
        is_told = self._status.state not in (State.ACTIVE, State.COMPLETED)
        later = len(rows) - len(known) + (not is_told)
        self._columns = [*self._columns[:6], self._columns[6] - later, *self._columns[7:]]
        *_, (_, started_at, _, worker, *_) = known
        stacks = [row[6] for row in known if row[6] is not None]
        self._status = self._status._replace(
            processed_at=started_at,
            processed_by=worker,
            stacks=encode_plain(stacks).decode(),
        )

    def _add_flags(self, traits: int) -> None:
        """Something was tied to it here: a verdict on it is to know that."""
        if self.flags & traits != traits:
            facts = self._columns
            self._columns = [*facts[:FLAGS], self.flags | traits, *facts[FLAGS + 1 :]]

    def _now(self, state: State | None, **more: Any) -> None:
        self._status = self._status._replace(state=(state or State.REMOVED).value, **more)

    def _due_in(self, delay: int) -> int:
        return self._store.open().clock.now() + delay

    def _tell_removed(self) -> None:
        self._queue.emit("removed", self.id)

    def _own_token(self) -> int | None:
        return self.token_number or None

    def _held_with(self, token: str | None) -> Job:
        """This job as its holder; an error for anybody else."""
        if token is not None and token != self.token:
            raise LostLock(f"job {self.id} is not held with the token {token!r}")
        if not self.token_number:
            if self._status.state != State.ACTIVE:
                raise IllegalMove(f"job {self.id} is not in the active state but {self.state}")
            raise LostLock(f"job {self.id} is not held here: only the run that holds it can end it")
        return self

    def _keeping(self, verdict: RunOutcome, option: str, given: Any) -> RunOutcome:
        if given is None:
            return verdict
        return verdict._replace(retention=retention_of(check_keep(option, given)))

    def _settle(self, verdict: RunOutcome) -> Pending[Any]:
        def answered(answer: FinishResult) -> int | None:
            if answer.lost:
                raise LostLock(f"job {self.id} is no longer held by this run; nothing was changed")
            if self.pk in answer.overridden:
                self.moving = None
                raise answer.overridden[self.pk]
            self._apply_outcome(verdict, answer.at)
            return answer.ttl if verdict.move is RELEASE else None

        by_hand = verdict._replace(manual=True)
        self.moving = self._ask(FinishRuns(self._queue.key, (by_hand,)), answered)
        return self.moving

    def _move(
        self, move: Move, delay: int = 0, then: Callable[[], None] | None = None
    ) -> Pending[None]:
        request = MoveJob(move, self.pk, self.id, delay)
        return self._ask(request, lambda _: then() if then is not None else None)

    def _ask(self, request: Any, read: Callable[[Any], Any]) -> Pending[Any]:
        return Pending(self._store, request, read)

    @property
    def _rules(self) -> RetentionDefaults:
        return NO_DEFAULTS if self._holder is None else self._holder.retention_defaults

    @property
    def _random(self) -> Callable[[], float]:
        return self._queue.random

    @property
    def _store(self) -> Store:
        return self._queue.store

    @property
    def _queue_key(self) -> int:
        return self._queue.key


def claimed_jobs(queue: QueueReads, claimed: Claimed, owner: JobOwner) -> list[Job]:
    """Return the jobs that a worker has claimed."""
    active, now = State.ACTIVE.value, claimed.claimed_at
    fate = JobStatusRow(active, processed_at=now, processed_by=owner.name)
    token, begun = claimed.token, claimed.started
    jobs = [Job(queue, row, fate, token, False, owner) for row in claimed.rows[:begun]]
    jobs += [Job(queue, row, fate, token, True, owner) for row in claimed.rows[begun:]]
    if claimed.failed_reasons:
        for job in jobs:
            job._status = fate._replace(failed_reason=claimed.failed_reasons.get(job.pk))
    return jobs


def _finished_state(word: str) -> State:
    for state in (State.FAILED, State.COMPLETED):
        if word == state:
            return state
    raise InvalidOption(f'state must be "failed" or "completed", not {word!r}')


def _check_log(message: Any, level: Any) -> tuple[str, str]:
    """A line for a job's log, as it can be stored."""
    if level not in LOG_LEVELS:
        raise InvalidOption(f"level must be one of {', '.join(LOG_LEVELS)}, not {level!r}")
    text = message if isinstance(message, str) else str(message)
    return storable(text)[: MAX_REASON_LENGTH + 100], level


def _nothing(answer: Any) -> None:
    pass


def _maybe(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else moment_of(milliseconds)
