"""Delays before the next attempt: pure arithmetic on the stored `backoff` option."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAX_DELAY = 10 * 366 * 24 * 3600 * 1000
"""Maximum of a computed delay, for any attempt number: about ten years."""

Random = Callable[[], float]
"""A number in [0, 1), as `random.random` gives."""


class RetryLater(Exception):
    """A failure that sets the time before the next attempt in place of the back-off."""

    retry_after: float | None = None
    """Seconds."""


def least_delay(error: BaseException) -> int:
    """Return the minimum delay in ms before the next attempt after `error`."""
    asked = error.retry_after if isinstance(error, RetryLater) else None
    return 0 if asked is None else round(min(asked * 1000, MAX_DELAY))


def delay_after(
    backoff: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    attempts_made: int,
    error: BaseException | None,
    random: Random,
) -> int | None:
    """Return the ms to wait after failed attempt number `attempts_made`; None for no retry."""
    rule = matching_rule(backoff, error)
    if rule is None:
        return 0
    if rule.get("retry") is False:
        return None
    grow = _GROWTH.get(rule["type"])
    if grow is None:
        return None  # a retry strategy that this worker does not have
    delay: float = min(grow(attempts_made, rule), rule.get("max_delay", MAX_DELAY))
    jitter = rule.get("jitter", 0)
    if jitter:
        delay = delay * (1 - jitter) + random() * delay * jitter
    if "added" in rule:
        delay += random() * delay * rule["added"]
    return max(0, round(min(delay, MAX_DELAY)))


def matching_rule(
    backoff: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None, error: BaseException | None
) -> Mapping[str, Any] | None:
    """Return the first rule that matches `error`; None if none does."""
    rules = () if backoff is None else [backoff] if isinstance(backoff, Mapping) else backoff
    names = {base.__name__ for base in type(error).__mro__} if error is not None else set()
    for rule in rules:
        if "on" not in rule or rule["on"] in names:
            return rule
    return None


def _exponential(attempts_made: int, rule: Mapping[str, Any]) -> float:
    # 2 ** 64 ms is longer than the maximum delay: a larger exponent would only cost time.
    return float(2 ** min(attempts_made - 1, 64) * rule["delay"])


def _polynomial(attempts_made: int, rule: Mapping[str, Any]) -> float:
    try:
        return float(attempts_made ** float(rule.get("exponent", 2)) * rule["delay"])
    except OverflowError:
        return float(MAX_DELAY)


_GROWTH: dict[str, Callable[[int, Mapping[str, Any]], float]] = {
    "fixed": lambda attempts_made, rule: rule["delay"],
    "linear": lambda attempts_made, rule: attempts_made * rule["delay"],
    "exponential": _exponential,
    "polynomial": _polynomial,
}

TYPES = tuple(_GROWTH)
