"""Custom retry strategies: functions of a worker that jobs name in their backoff option."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..client.job.job import Job, Wait
from ..core.backoff import MAX_DELAY, TYPES, matching_rule
from ..core.names import check_name
from ..errors import InvalidOption, InvalidOptionType, UnrecoverableError

Answer = int | float | bool | None
"""Ms to the next attempt; False or a negative number for no other."""

RetryStrategy = Callable[[int, BaseException], Answer | Awaitable[Answer]]
BackoffStrategy = Callable[[int, str, BaseException, Job], Answer | Awaitable[Answer]]


class Strategies:
    """Those that a worker knows."""

    def __init__(
        self, named: Mapping[str, RetryStrategy] | None, backoff: BackoffStrategy | None
    ) -> None:
        named = {} if named is None else named
        if not isinstance(named, Mapping):
            raise InvalidOptionType(
                f"retry_strategies must be a mapping of names to functions, not {named!r}"
            )
        for name, function in named.items():
            check_name("a name in retry_strategies", name)
            if not callable(function):
                raise InvalidOptionType(f"retry_strategies[{name!r}] must be callable")
        if backoff is not None and not callable(backoff):
            raise InvalidOptionType(f"backoff_strategy must be callable, not {backoff!r}")
        self._named = dict(named)
        self._backoff = backoff

    def ask(self, job: Job, error: BaseException) -> Awaitable[Wait] | Wait:
        """When to try again after `error`; None if the job names no strategy of the user's own."""
        options, attempts_made = job.stored_options, job.attempts_made + 1
        if not options or attempts_made >= job.attempts or isinstance(error, UnrecoverableError):
            return None
        name = options.get("retry_strategy")
        if name is not None:
            if name not in self._named:
                raise InvalidOption(
                    f"{error}; not retried: no retry_strategies[{name!r}] at this worker"
                )
            return _meaning(self._named[name](attempts_made, error))
        rule = matching_rule(options.get("backoff"), error)
        kind = "fixed" if rule is None else rule.get("type", "fixed")
        if kind in TYPES:
            return None
        if self._backoff is None:
            raise InvalidOption(
                f"{error}; not retried: this worker has no backoff_strategy for type {kind!r}"
            )
        return _meaning(self._backoff(attempts_made, kind, error, job))


def _meaning(answer: Any) -> Awaitable[Wait] | Wait:
    return _awaited(answer) if inspect.isawaitable(answer) else _checked(answer)


async def _awaited(answer: Awaitable[Any]) -> Wait:
    return _checked(await answer)


def _checked(answer: Any) -> Wait:
    if answer is False:
        return False
    if answer is True or not isinstance(answer, int | float) or answer != answer:
        raise InvalidOption(
            f"a retry strategy must give milliseconds, or False for no other try, not {answer!r}"
        )
    return False if answer < 0 else round(min(answer, MAX_DELAY))
