"""Errors that end runs: control errors, suspensions, and errors that are not safe to inspect."""

from __future__ import annotations

import sys

from ..core.decide_outcome import Interrupted, Raised, Result, text_of
from ..errors import ControlError, DelayedError, JobSuspended, WaitingChildrenError


def is_suspension(error: BaseException) -> bool:
    """Return True if the job sleeps or waits: each error of a group may be a JobSuspended."""
    if not isinstance(error, BaseExceptionGroup):
        return isinstance(error, JobSuspended)
    # Not `split`, which recurses: groups may be nested deeper than the recursion limit, and contain
    # the same group many times.
    left, seen = [error], {id(error)}
    while left:
        for one in left.pop().exceptions:
            if not isinstance(one, BaseExceptionGroup):
                if not isinstance(one, JobSuspended):
                    return False
            elif id(one) not in seen:
                seen.add(id(one))
                left.append(one)
    return True


def is_control(error: BaseException) -> bool:
    """Return True for an error that says what becomes of the job; other packages' by its name."""
    return (
        isinstance(error, ControlError)
        or is_suspension(error)
        or not _CONTROLS.isdisjoint(_names_of(error))
    )


_CONTROLS = {kind.__name__ for kind in ControlError.__subclasses__()}


def _names_of(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def result_of_control(error: BaseException) -> Result:
    """Return the result of a run that raised a control error and had not moved its job."""
    for kind, move in _MOVES_BEFORE.items():
        if kind.__name__ in _names_of(error):
            advice = f"{kind.__name__} was raised without {move} before it"
            return Raised(RuntimeError(f"{advice}: {error}" if str(error) else advice))
    return Interrupted()


_MOVES_BEFORE = {
    DelayedError: "job.move_to_delayed(...)",
    WaitingChildrenError: "job.move_to_waiting_children() telling that it has to wait",
}


def tame(error: BaseException) -> BaseException:
    """Return the error of a processor, or a RuntimeError in its place if it is not safe to handle.

    Inspecting an error runs methods of its class, which may raise as well.
    """
    if issubclass(type(error), (SystemExit, GeneratorExit)):
        return _substitute(error)
    try:
        is_control(error)
        str(error)
        return error
    except KeyboardInterrupt:
        raise
    except BaseException:
        return _substitute(error)


def _substitute(error: BaseException) -> RuntimeError:
    text = text_of(error)
    kind = type(error).__name__
    substitute = RuntimeError(kind if text == kind else f"{kind}: {text}")
    return substitute.with_traceback(sys.exc_info()[2])


def strategy_error(problem: BaseException, error: BaseException) -> BaseException:
    """Return what a retry strategy raised for `error`, with `error` as its context."""
    problem = tame(problem)
    if problem is not error:
        problem.__context__ = error
    return problem
