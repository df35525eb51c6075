"""What users may ask of a job, checked once, here, with errors that name the option and the fix."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

from . import backoff as backoffs
from .codec import encode_plain
from .errors import InvalidOption, InvalidOptionType

HIGHEST_PRIORITY = 2_097_151
LONGEST_NAME = 255
MOST_ATTEMPTS = 2**31 - 1

Duration = int | timedelta | str
"""Milliseconds, a timedelta, or text such as "30s", "5m", "2h", "7d"."""

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class JobOptions(TypedDict, total=False):
    """The options of `add`, and of each job of `add_bulk`."""

    priority: int
    delay: Duration
    attempts: int
    backoff: Backoff
    lifo: bool
    job_id: str | None


class BackoffRule(TypedDict, total=False):
    """How long to wait before the next attempt."""

    type: str
    delay: Duration
    max_delay: Duration
    jitter: float
    exponent: float
    on: str
    retry: bool


Backoff = int | timedelta | str | BackoffRule | Sequence[BackoffRule] | None


@dataclass(frozen=True, slots=True)
class CheckedOptions:
    """Options that are known to be good."""

    priority: int = 0
    delay: int = 0
    attempts: int = 1
    lifo: bool = False
    job_id: str | None = None
    stored: str | None = None
    """What a worker needs and no index does, as JSON; None when there is nothing to tell."""


PLAIN = CheckedOptions()


def check_options(options: Mapping[str, Any]) -> CheckedOptions:
    """The options of one job, or an error that names the first bad one."""
    if not options:
        return PLAIN
    for name in options:
        if name not in JobOptions.__annotations__:
            known = ", ".join(sorted(JobOptions.__annotations__))
            raise InvalidOption(f"unknown job option {name!r}; the options are: {known}")
    backoff = check_backoff(options.get("backoff"))
    return CheckedOptions(
        priority=check_int(
            "priority", options.get("priority", 0), -HIGHEST_PRIORITY, HIGHEST_PRIORITY
        ),
        delay=check_duration("delay", options.get("delay", 0)),
        attempts=check_int("attempts", options.get("attempts", 1), 1, MOST_ATTEMPTS),
        lifo=check_bool("lifo", options.get("lifo", False)),
        job_id=check_job_id(options.get("job_id")),
        stored=None if backoff is None else encode_plain({"backoff": backoff}).decode(),
    )


def check_int(option: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOptionType(f"{option} must be a whole number, not {value!r}")
    if not least <= value <= most:
        raise InvalidOption(f"{option} must be between {least} and {most}, not {_shown(value)}")
    return value


def _shown(number: float) -> str:
    """A number as text; Python refuses to write out very long ones."""
    try:
        return str(number)
    except ValueError:
        return "a number of thousands of digits"


def check_bool(option: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidOptionType(f"{option} must be True or False, not {value!r}")
    return value


def check_duration(option: str, value: Any, least: int = 0) -> int:
    """A duration in whole milliseconds."""
    if isinstance(value, timedelta):
        milliseconds = value // timedelta(milliseconds=1)
    elif isinstance(value, str):
        milliseconds = _text_duration(option, value)
    elif isinstance(value, int) and not isinstance(value, bool):
        milliseconds = value
    else:
        raise InvalidOptionType(
            f'{option} must be milliseconds as a whole number, a timedelta or text such as "30s", '
            f"not {value!r}"
        )
    if not least <= milliseconds <= backoffs.LONGEST_DELAY:
        raise InvalidOption(
            f"{option} must be between {least} and {backoffs.LONGEST_DELAY} ms, "
            f"not {_shown(milliseconds)}"
        )
    return milliseconds


def _text_duration(option: str, text: str) -> int:
    match = _TEXT_DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidOption(
            f'{option} must look like "500ms", "30s", "5m", "2h" or "7d", not {text!r}'
        )
    milliseconds = float(match[1]) * _UNITS[match[2]]
    return round(min(milliseconds, 2.0**62))


def check_name(what: str, value: Any) -> str:
    """A queue name, a job name or an id: 1 to 255 characters, none of them a control character."""
    if not isinstance(value, str):
        raise InvalidOptionType(f"{what} must be text, not {value!r}")
    if not 1 <= len(value) <= LONGEST_NAME:
        raise InvalidOption(f"{what} must have 1 to {LONGEST_NAME} characters, not {len(value)}")
    if not value.isprintable() and _CONTROL_CHARACTER.search(value):
        raise InvalidOption(f"{what} must not contain control characters: {value!r}")
    return value


def check_job_id(value: Any) -> str | None:
    if value is None:
        return None
    job_id = check_name("job_id", value)
    if job_id.isdecimal():
        raise InvalidOption(
            f"job_id must not be all digits, those are handed out by the queue: {job_id!r}; "
            "add a letter or a prefix"
        )
    return job_id


def check_backoff(value: Any) -> dict[str, Any] | list[dict[str, Any]] | None:
    """The `backoff` option in the one form it is stored in."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return _check_backoff_rule(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_check_backoff_rule(rule) for rule in value]
    return {"type": "fixed", "delay": check_duration("backoff", value)}


def _check_backoff_rule(rule: Any) -> dict[str, Any]:
    if not isinstance(rule, Mapping):
        raise InvalidOptionType(
            f"backoff must be a delay, a mapping or a list of mappings, not {rule!r}"
        )
    for name in rule:
        if name not in BackoffRule.__annotations__:
            known = ", ".join(sorted(BackoffRule.__annotations__))
            raise InvalidOption(f"backoff has an unknown key {name!r}; the keys are: {known}")
    checked: dict[str, Any] = {}
    if "on" in rule:
        checked["on"] = check_name("backoff on", rule["on"])
    if not check_bool("backoff retry", rule.get("retry", True)):
        return checked | {"retry": False}
    kind = rule.get("type", "fixed")
    if kind not in backoffs.TYPES:
        raise InvalidOption(
            f"backoff type must be one of {', '.join(backoffs.TYPES)}, not {kind!r}"
        )
    checked |= {"type": kind, "delay": check_duration("backoff delay", rule.get("delay", 0))}
    if "max_delay" in rule:
        checked["max_delay"] = check_duration("backoff max_delay", rule["max_delay"])
    for name, most in (("jitter", 1.0), ("exponent", 100.0)):
        if name in rule:
            checked[name] = _check_float(f"backoff {name}", rule[name], most)
    return checked


def _check_float(option: str, value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOptionType(f"{option} must be a number, not {value!r}")
    if not 0 <= value <= most:
        raise InvalidOption(f"{option} must be between 0 and {most:g}, not {value}")
    return float(value)
