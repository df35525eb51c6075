"""Processors of a worker: checked, and adapted to be called with the job alone."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..client.job.abort_signal import Signal
from ..client.job.job import Job
from ..core.checks import check_int
from ..core.names import check_name
from ..errors import InvalidOption, InvalidOptionType

Processor = (
    Callable[[Job], Awaitable[Any] | Any]
    | Callable[[Job, str], Awaitable[Any] | Any]
    | Callable[[Job, str, Signal], Awaitable[Any] | Any]
)
"""Takes the job, and optionally the token of its run and an abort signal."""

MAX_CONCURRENCY = 100_000


@dataclass(frozen=True, slots=True)
class Handler:
    """A processor that is called with the job alone."""

    call: Callable[[Job], Any]
    in_loop: bool
    """True for coroutine functions, which run on the event loop; others run in threads."""


@dataclass(frozen=True, slots=True)
class HandlerGroup:
    """Handlers of one pool: the jobs with their names are claimed and run together."""

    handlers: Mapping[str, Handler]
    """By job name; ANY for all other names."""
    concurrency: int | None
    """None for the concurrency of the worker."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the jobs to claim; None for all."""
        return None if ANY in self.handlers else tuple(self.handlers)


ANY = ""
"""The key of the handler for all other names. No job has this name."""


class WithFallback(NamedTuple):
    """Processors by job name, and one for jobs of all other names."""

    by_name: Mapping[str, Callable[..., Any]]
    fallback: Callable[..., Any]


def check_processors(processor: Any) -> list[HandlerGroup]:
    """Check the `processor` argument of a worker.

    Return one group for the processors that share its concurrency, and one for each other.
    """
    if processor is None:
        return []
    if isinstance(processor, WithFallback):
        handlers = {
            n: make_handler(f"the processor of {n!r}", f) for n, f in processor.by_name.items()
        }
        rest = make_handler("processor", processor.fallback)
        return [HandlerGroup({**handlers, ANY: rest}, None)]
    if callable(processor):
        return [HandlerGroup({ANY: make_handler("processor", processor)}, None)]
    if not isinstance(processor, Mapping):
        raise InvalidOptionType(
            f"processor must be a function or a mapping of names to functions, not {processor!r}"
        )
    if not processor:
        raise InvalidOption("processor must name at least one job name")
    shared: dict[str, Handler] = {}
    own: list[HandlerGroup] = []
    for name, given in processor.items():
        check_name("a processor's name", name)
        function, concurrency = _split(name, given)
        handler = make_handler(f"the processor of {name!r}", function)
        if concurrency is None:
            shared[name] = handler
        else:
            own.append(HandlerGroup({name: handler}, check_concurrency(concurrency)))
    return ([HandlerGroup(shared, None)] if shared else []) + own


def _split(name: str, given: Any) -> tuple[Any, int | None]:
    if not isinstance(given, tuple):
        return given, None
    if len(given) != 2:
        raise InvalidOptionType(
            f"the processor of {name!r} must be a function or (function, concurrency), "
            f"not {given!r}"
        )
    return given


def check_concurrency(value: Any) -> int:
    """Return the value if it is a valid concurrency, else raise."""
    return check_int("concurrency", value, 1, MAX_CONCURRENCY)


def make_handler(what: str, function: Any) -> Handler:
    """Return the handler of a processor. `what` names it in errors."""
    if not callable(function):
        raise InvalidOptionType(f"{what} must be callable, not {function!r}")
    return Handler(_adapted(what, function), is_async(function))


def _adapted(what: str, function: Callable[..., Any]) -> Callable[[Job], Any]:
    """Return a function of the job alone. It makes an abort signal only if `function` takes one."""
    match _arity(what, function):
        case 1:
            return function
        case 2:
            return lambda job: function(job, job.token)
        case _:
            return lambda job: function(job, job.token, job.signal)


def _arity(what: str, function: Callable[..., Any]) -> int:
    """Return how many of the arguments job, token and signal the function takes."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return 1  # a builtin without a signature
    required = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) and len(required) <= 3:
        return max(1, len(required))
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not positional or len(required) > 3:
        raise InvalidOptionType(
            f"{what} must take (job), (job, token) or (job, token, signal), "
            f"not {inspect.signature(function)}"
        )
    return max(1, len(required))


def is_async(function: Any) -> bool:
    """Return True for a coroutine function, also inside partials and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    call = getattr(function, "__call__", None)  # noqa: B004 - its kind matters, not its existence
    return inspect.iscoroutinefunction(call)
