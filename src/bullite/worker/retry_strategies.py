"""Custom retry strategies: functions of a worker that jobs name in their options."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..client.job.job import Job
from ..client.job.run import Wait
from ..core.backoff import MAX_DELAY, TYPES, matching_rule
from ..core.job_record import stored_options
from ..core.names import check_name
from ..errors import InvalidOption, InvalidOptionType, UnrecoverableError

StrategyResult = int | float | bool | None
"""Ms until the next attempt; False or a negative number for no further attempt."""

RetryStrategy = Callable[[int, BaseException], StrategyResult | Awaitable[StrategyResult]]
BackoffStrategy = Callable[
    [int, str, BaseException, Job], StrategyResult | Awaitable[StrategyResult]
]


class Strategies:
    """The retry strategies of one worker, and its backoff strategy."""

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

    def retry_delay(self, job: Job, error: BaseException) -> Awaitable[Wait] | Wait:
        """Return the delay of the next attempt; None if the job names no custom strategy.

        Raise InvalidOption if this worker does not have the strategy.
        """
        options, attempts_made = stored_options(job), job.attempts_made + 1
        if not options or attempts_made >= job.attempts or isinstance(error, UnrecoverableError):
            return None
        name = options.get("retry_strategy")
        if name is not None:
            if name not in self._named:
                raise InvalidOption(
                    f"{error}; not retried: no retry_strategies[{name!r}] at this worker"
                )
            return _check_result(self._named[name](attempts_made, error))
        rule = matching_rule(options.get("backoff"), error)
        kind = "fixed" if rule is None else rule.get("type", "fixed")
        if kind in TYPES:
            return None
        if self._backoff is None:
            raise InvalidOption(
                f"{error}; not retried: this worker has no backoff_strategy for type {kind!r}"
            )
        return _check_result(self._backoff(attempts_made, kind, error, job))


def _check_result(result: Any) -> Awaitable[Wait] | Wait:
    return _check_awaited(result) if inspect.isawaitable(result) else _check(result)


async def _check_awaited(result: Awaitable[Any]) -> Wait:
    return _check(await result)


def _check(result: Any) -> Wait:
    if result is False:
        return False
    if result is True or not isinstance(result, int | float) or result != result:
        raise InvalidOption(
            f"a retry strategy must give milliseconds, or False for no other try, not {result!r}"
        )
    return False if result < 0 else round(min(result, MAX_DELAY))
