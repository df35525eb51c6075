"""The decision on a run: the only module that turns the result of a run into a move.

It is pure: it uses no clock, no database and no random numbers of its own.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from ..errors import JobCancelled, JobTimedOut, UnrecoverableError, UnserializableData
from . import states
from .backoff import Random, delay_after, least_delay
from .codec import encode
from .job_flags import CANCELLED as CANCELLED_FLAG
from .retention import Retention, retention_of
from .states import CANCELLED, COMPLETED, ERROR, STALLED, TIMED_OUT

MAX_REASON_LENGTH = 64 * 1024
"""Maximum length of the stored text of an error, and of its stack."""

MAX_RESULT_LENGTH = 1024 * 1024
"""Maximum size of a returned value in bytes, as JSON."""

STALLED_TOO_OFTEN = "job stalled more than allowable limit"
STARTED_TOO_OFTEN = "job started more than allowable limit"


class Run(Protocol):
    """The parts of a run that the decision reads."""

    token_number: int
    prefetched: bool


class Attempt(Protocol):
    """The parts of a claimed job that the decision reads."""

    @property
    def _run(self) -> Run: ...
    @property
    def pk(self) -> int: ...
    @property
    def custom_id(self) -> str | None: ...
    @property
    def attempts(self) -> int: ...
    @property
    def attempts_made(self) -> int: ...
    @property
    def _stored_options(self) -> Mapping[str, Any]: ...
    def _mentions_option(self, option: str) -> bool: ...
    @property
    def _flags(self) -> int: ...


class RetentionDefaults(NamedTuple):
    """The retention options of a worker, for jobs without such options of their own."""

    keep_completed: Retention | None = None
    keep_failed: Retention | None = None


NO_DEFAULTS = RetentionDefaults()


class RunOutcome(NamedTuple):
    """The move of one job, with all values that the engine must write for it."""

    job: int
    token: int
    move: states.Move
    delay: int = 0
    value: str | None = None
    reason: str | None = None
    stack: str | None = None
    again: bool = False
    """The outcome was sent before and the reply was lost: it may have been recorded already."""
    prefetched: bool = False
    """The job was prefetched, so its start is logged together with this outcome."""
    custom_id: str | None = None
    retention: Retention | None = None
    """How many jobs with the same final state are kept, and how long."""
    outcome: str = ERROR
    attempts_made: int = 1
    stack_limit: int | None = None
    """Maximum number of stored stacks of the job; None for all."""
    flags: int = 0
    """The flags of the job that its worker knows."""
    manual: bool = False
    """The caller that fetched the job finished it, not a processor of the worker."""
    unrun: bool = False
    """The job ends without a run: its claim counts neither as a start nor as an attempt."""

    @property
    def public_id(self) -> int | str:
        return self.custom_id or self.job


class Returned(NamedTuple):
    """The processor returned `value`."""

    value: Any


class Raised(NamedTuple):
    """The processor raised `error`."""

    error: BaseException
    wait: int | Literal[False] | None = None
    """The delay in ms that a retry strategy of the user returned, or False for no retry; None if
    the back-off of the job decides."""


class Skipped(NamedTuple):
    """The job was claimed but must not run."""

    reason: str


class Interrupted(NamedTuple):
    """The worker is closing: the run was stopped and is no failed attempt."""


class Unstarted(NamedTuple):
    """The job was prefetched and is returned unstarted."""


Result = Returned | Raised | Skipped | Interrupted | Unstarted


def decide(
    job: Attempt, result: Result, random: Random, rules: RetentionDefaults = NO_DEFAULTS
) -> RunOutcome:
    """Return the move that `result` means for `job`."""
    match result:
        case Returned(value):
            return decide_returned(job, value, random, rules)
        case Raised(error, wait):
            try:
                return _failed(job, error, wait, random, rules)
            except Exception as problem:  # the `str` of an error may raise or return anything
                return _failed(job, _unfit(error, problem), wait, random, rules)
        case Skipped(reason):
            return _not_run(job, reason, rules)
        case Interrupted():
            run = job._run
            return RunOutcome(job.pk, run.token_number, states.RELEASE, prefetched=run.prefetched,
                           custom_id=job.custom_id)  # fmt: skip
        case _:
            return RunOutcome(job.pk, job._run.token_number, states.RETURN_UNSTARTED)


def decide_returned(
    job: Attempt, value: Any, random: Random, rules: RetentionDefaults = NO_DEFAULTS
) -> RunOutcome:
    """Return the move for the most common result: the processor returned `value`."""
    keep = rules.keep_completed
    if job._mentions_option("remove_on_complete"):
        keep = _keep(job, "remove_on_complete", keep)
    text: str | None = None
    if value is not None:
        try:
            text = _encoded(value)
        except UnserializableData as error:
            return _failed(job, error, None, random, rules)
    # Made without its constructor, which would take a large part of the time of a short job.
    run = job._run
    return tuple.__new__(
        RunOutcome,
        (job.pk, run.token_number, states.COMPLETE, 0, text, None, None, False, run.prefetched,
         job.custom_id, keep, COMPLETED, 1, None, job._flags, False, False),
    )  # fmt: skip


def _encoded(value: Any) -> str:
    text = encode(value, "the returned value")
    if len(text) * 4 > MAX_RESULT_LENGTH and len(text.encode()) > MAX_RESULT_LENGTH:
        raise UnserializableData(
            f"the returned value takes {len(text.encode())} bytes as JSON, more than "
            f"{MAX_RESULT_LENGTH}; store it elsewhere and return where"
        )
    return text


def _failed(
    job: Attempt,
    error: BaseException,
    wait: int | Literal[False] | None,
    random: Random,
    rules: RetentionDefaults,
) -> RunOutcome:
    options = job._stored_options
    attempts_made = job.attempts_made + 1
    delay: int | None = None
    if attempts_made < job.attempts and not isinstance(error, _FINAL):
        if wait is None:
            delay = delay_after(options.get("backoff"), attempts_made, error, random)
        elif wait is not False:
            delay = wait
    if delay is not None:
        delay = max(delay, least_delay(error))
    again = states.BACK_OFF if delay else states.RETRY_NOW
    move = states.FAIL if delay is None else again
    stack_limit = options.get("stack_trace_limit")
    return RunOutcome(
        job.pk,
        job._run.token_number,
        move,
        delay or 0,
        reason=storable(text_of(error)),
        stack=None if stack_limit == 0 else storable(_stack_of(error)),
        prefetched=job._run.prefetched,
        custom_id=job.custom_id,
        retention=_keep(job, "remove_on_fail", rules.keep_failed) if move is states.FAIL else None,
        outcome=_outcome_of(error),
        attempts_made=attempts_made,
        stack_limit=stack_limit,
        flags=job._flags,
    )


def _not_run(job: Attempt, reason: str, rules: RetentionDefaults) -> RunOutcome:
    counts = reason in (STALLED_TOO_OFTEN, STARTED_TOO_OFTEN)  # its runs made it fail
    return RunOutcome(
        job.pk,
        job._run.token_number,
        states.FAIL,
        reason=reason,
        prefetched=job._run.prefetched,
        custom_id=job.custom_id,
        retention=_keep(job, "remove_on_fail", rules.keep_failed),
        outcome=_outcome_of_unrun(job, reason),
        attempts_made=job.attempts_made + counts,
        flags=job._flags,
        unrun=not counts,
    )


_FINAL = (UnrecoverableError, JobCancelled)
"""Errors after which the job is not retried."""


def _outcome_of(error: BaseException) -> str:
    if isinstance(error, JobCancelled):
        return CANCELLED
    return TIMED_OUT if isinstance(error, JobTimedOut) else ERROR


def _outcome_of_unrun(job: Attempt, reason: str) -> str:
    if job._flags & CANCELLED_FLAG:
        return CANCELLED
    return STALLED if reason == STALLED_TOO_OFTEN else ERROR


def _keep(job: Attempt, option: str, otherwise: Retention | None) -> Retention | None:
    """Return the retention of the job; without one, that of its worker."""
    options = job._stored_options
    return retention_of(options[option]) if option in options else otherwise


def text_of(error: BaseException) -> str:
    """Return the text of an error; its name, if the text is empty or cannot be read."""
    try:
        # As plain text: `str` of an error may return an instance of a subclass of str.
        return str.join("", (str(error),)) or type(error).__name__
    except KeyboardInterrupt:
        raise
    except BaseException:
        return type(error).__name__


def _unfit(error: BaseException, problem: Exception) -> RuntimeError:
    return RuntimeError(
        f"{type(error).__name__}: {text_of(error)} (nothing else could be asked of it: "
        f"{type(problem).__name__})"
    )


def _stack_of(error: BaseException) -> str:
    try:
        if _is_vast(error):
            return f"{type(error).__name__}: too many errors are in it to be written"
        return "".join(traceback.format_exception(error))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return type(error).__name__


MOST_ERRORS = 1_000
"""Maximum number of errors in one, as causes and in groups, for which a traceback is written."""


def _is_vast(error: BaseException) -> bool:
    """Return True if writing a traceback would take long, or recurse too deeply.

    A group that another one contains twice is written twice.
    """
    left, count, behind = [error], 0, {id(error)}
    while left and count <= MOST_ERRORS:
        one = left.pop()
        count += 1
        for cause in (one.__cause__, one.__context__):
            if cause is not None and id(cause) not in behind:
                behind.add(id(cause))
                left.append(cause)
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions
    return count > MOST_ERRORS


def storable(text: str) -> str:
    """Return `text` in a form that every database can store: without NUL and lone surrogates, and
    of limited length."""
    clean = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
    if len(clean) <= MAX_REASON_LENGTH:
        return clean
    half = MAX_REASON_LENGTH // 2
    return f"{clean[:half]}\n[… {len(clean) - 2 * half} characters left out …]\n{clean[-half:]}"
