"""What a run meant: the one pure place where what happened becomes a move.

No clock, no database, no randomness of its own.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from . import states
from .backoff import Random, delay_after
from .codec import encode
from .errors import UnrecoverableError, UnserializableData

LONGEST_REASON = 64 * 1024
"""Characters of an error's text, and of its stack, that are kept."""

STALLED_TOO_OFTEN = "job stalled more than allowable limit"


class Attempt(Protocol):
    """What the decision needs to know of the job."""

    token: int
    ahead: bool

    @property
    def pk(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def attempts_made(self) -> int: ...
    @property
    def stored_options(self) -> Mapping[str, Any]: ...


class Verdict(NamedTuple):
    """One job's move, with all that the store must write for it."""

    job: int
    token: int
    move: states.Move
    delay: int = 0
    value: str | None = None
    reason: str | None = None
    stack: str | None = None
    again: bool = False
    """Sent before, with an answer that got lost: it may have been carried out already."""
    has_result: bool = True
    """Whether the job's result row must be written; False spares a no-op job the write."""
    ahead: bool = False
    """The run began after the claim was recorded: its beginning is to be told, too."""


class Returned(NamedTuple):
    """The processor returned `value`."""

    value: Any


class Raised(NamedTuple):
    """The processor raised `error`."""

    error: BaseException


class NotRun(NamedTuple):
    """The job was taken but must not run: it killed its workers too often."""

    reason: str


class Interrupted(NamedTuple):
    """The worker is leaving; the job did nothing wrong."""


Result = Returned | Raised | NotRun | Interrupted


def decide(job: Attempt, result: Result, random: Random) -> Verdict:
    """The move that `result` means for `job`."""
    if type(result) is Returned:  # by far the most common, and a match is slow
        return _completed(job, result.value, random)
    match result:
        case Raised(error):
            return _failed(job, error, random)
        case NotRun(reason):
            return Verdict(job.pk, job.token, states.FAIL, reason=reason, ahead=job.ahead)
        case _:
            return Verdict(job.pk, job.token, states.GIVE_BACK)


def _completed(job: Attempt, value: Any, random: Random) -> Verdict:
    if value is None and job.attempts_made == 0:
        return Verdict(
            job.pk, job.token, states.COMPLETE, 0, None, None, None, False, False, job.ahead
        )
    try:
        text = encode(value, "the returned value")
        return Verdict(job.pk, job.token, states.COMPLETE, value=text, ahead=job.ahead)
    except UnserializableData as error:
        return _failed(job, error, random)


def _failed(job: Attempt, error: BaseException, random: Random) -> Verdict:
    reason, stack = storable(_text_of(error)), storable(_stack_of(error))
    attempts_made = job.attempts_made + 1
    delay: int | None = None
    if attempts_made < job.attempts and not isinstance(error, UnrecoverableError):
        delay = delay_after(job.stored_options.get("backoff"), attempts_made, error, random)
    again = states.BACK_OFF if delay else states.RETRY
    move = states.FAIL if delay is None else again
    return Verdict(job.pk, job.token, move, delay or 0, None, reason, stack, ahead=job.ahead)


def _text_of(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _stack_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:
        return type(error).__name__


def storable(text: str) -> str:
    """`text` as any database can store it: no NUL, no lone surrogate, not endless."""
    clean = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
    if len(clean) <= LONGEST_REASON:
        return clean
    half = LONGEST_REASON // 2
    return f"{clean[:half]}\n[… {len(clean) - 2 * half} characters left out …]\n{clean[-half:]}"
