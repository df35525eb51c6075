"""Select the function that runs a job, and its arguments."""

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
"""Takes the job; if it wants, also the token of this run, and a signal that tells it to stop."""

MAX_CONCURRENCY = 100_000


@dataclass(frozen=True, slots=True)
class Handler:
    """A processor, ready to be called with the job alone."""

    call: Callable[[Job], Any]
    in_loop: bool
    """A coroutine function: it runs on the event loop, the others in threads."""


@dataclass(frozen=True, slots=True)
class HandlerGroup:
    """Jobs of these names, or of any, run by so many at a time."""

    handlers: Mapping[str, Handler]
    """By name; under ANY for all other names."""
    concurrency: int | None
    """None for what the worker has."""

    @property
    def names(self) -> tuple[str, ...] | None:
        return None if ANY in self.handlers else tuple(self.handlers)


ANY = ""
"""The name under which the processor for all other names is kept; no job can be called that."""


class WithFallback(NamedTuple):
    """Processors by name, and one for jobs of all other names."""

    by_name: Mapping[str, Callable[..., Any]]
    fallback: Callable[..., Any]


def check_processors(processor: Any) -> list[HandlerGroup]:
    """What a worker was given, as assignments: one shared, and one for each name with its own
    concurrency."""
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
    return check_int("concurrency", value, 1, MAX_CONCURRENCY)


def make_handler(what: str, function: Any) -> Handler:
    if not callable(function):
        raise InvalidOptionType(f"{what} must be callable, not {function!r}")
    return Handler(_adapted(what, function), is_async(function))


def _adapted(what: str, function: Callable[..., Any]) -> Callable[[Job], Any]:
    """The function as one of the job alone; a signal is made only for those that take one."""
    match _how_many(what, function):
        case 1:
            return function
        case 2:
            return lambda job: function(job, job.token)
        case _:
            return lambda job: function(job, job.token, job.signal)


def _how_many(what: str, function: Callable[..., Any]) -> int:
    """How many of job, token and signal it takes."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return 1  # a builtin that does not tell
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
    """Whether it is a coroutine function, however it is wrapped."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - its kind is wanted, not its existence
    )
