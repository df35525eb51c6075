"""Configuration of commands and their workers: keys, types, defaults, and where values are set."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..client.key_values import list_values
from ..client.runtime.store import Store
from ..core.checks import check_duration
from ..errors import InvalidOption

KIND = "config"
"""The kind of the key-value entries that hold the values."""

PREFIX = "QUEUECTL_"
"""Prefix of the environment variables that override stored values."""

HIDDEN = "***"
"""Shown in place of a secret."""

MAX_DELAY = 365 * 86_400.0
"""Maximum delay of the next attempt, in seconds."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: how its value is parsed from text, and its default."""

    read: Callable[[str], Any]
    default: Any
    meaning: str
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """A value and its origin."""

    value: Any
    origin: str
    """`default`, `database` or `environment`."""
    problem: str | None = None
    """The reason why a variable of the environment has no valid value."""


def _int(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,15}", text) or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return read


def _number(least: float) -> Callable[[str], float | int]:
    def read(text: str) -> float | int:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not least <= number <= 1e9:
            raise ValueError(f"a number of at least {least:g}")
        return int(number) if number == int(number) else number

    return read


def _seconds(text: str) -> float | int:
    """Parse a number of seconds, or a duration with a unit."""
    try:
        return _number(0)(text)
    except ValueError:
        pass
    try:
        return _number(0)(str(check_duration("it", text) / 1000))
    except ValueError:
        raise ValueError("seconds or a time such as 30s or 5m, at least 0") from None


def size_in(text: str) -> int | None:
    """Parse a size such as 500M, 2G or a number of bytes; None if it is none."""
    found = re.fullmatch(r"(\d{1,15})([KMG]?)B?", text.strip().upper(), re.ASCII)
    return None if found is None else int(found[1]) * 1024 ** " KMG".index(found[2] or " ")


def _bytes(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        size = size_in(text)
        if size is None or size > most:
            raise ValueError(f"bytes or a size such as 500K or 1M, at most {most} bytes")
        return size

    return read


def _choice(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text

    return read


def _yes_or_no(text: str) -> bool:
    if text.lower() not in ("true", "false", "yes", "no", "on", "off", "1", "0"):
        raise ValueError("true or false")
    return text.lower() in ("true", "yes", "on", "1")


def _text(text: str) -> str:
    if not text or any(ord(c) < 32 for c in text):
        raise ValueError("text without control characters")
    return text


def _patterns(text: str) -> list[str]:
    """Parse regular expressions, one a line."""
    return usable_patterns([line for line in text.splitlines() if line])


def usable_patterns(patterns: Sequence[str]) -> list[str]:
    """Return the patterns. Raise ValueError if one is invalid or can be too slow."""
    if not patterns:
        return []
    from .redaction_patterns import problem_of  # few configurations have patterns

    for pattern in patterns:
        if (problem := problem_of(pattern)) is not None:
            raise ValueError(f"regular expressions, one a line ({pattern!r}: {problem})")
    return list(patterns)


SETTINGS: Mapping[str, Setting] = {
    "max_retries": Setting(_int(0, 1_000_000), 3, "retries of a job before it is dead"),
    "retry_delay_type": Setting(
        _choice("exponential", "linear", "fixed"), "exponential", "how the wait grows"
    ),
    "backoff_base": Setting(_number(1), 2, "base of the exponential, factor of the linear wait"),
    "fixed_retry_delay": Setting(_seconds, 60, "seconds between retries, if fixed"),
    "max_output_size": Setting(
        _bytes(100_000_000), 100_000, "bytes kept of each stream of an attempt"
    ),
    "redact_output": Setting(
        _patterns, [], "what is taken out of output: regular expressions, one a line"
    ),
    "kill_grace": Setting(_seconds, 5, "seconds between TERM and KILL after a timeout"),
    "smtp_host": Setting(_text, None, "mail server for --notify-on-failure"),
    "smtp_port": Setting(_int(1, 65_535), 25, "its port"),
    "smtp_security": Setting(_choice("none", "starttls", "tls"), "none", "how it is spoken to"),
    "smtp_user": Setting(_text, None, "who to log in as"),
    "smtp_password": Setting(_text, None, "with which password", is_secret=True),
    "smtp_sender": Setting(_text, "bullite@localhost", "who mails are from"),
    "webhook_secret": Setting(_text, None, "web hooks are signed with it", is_secret=True),
    "allow_private_webhooks": Setting(
        _yes_or_no, False, "whether web hooks may go to private addresses"
    ),
}


def read_value(key: str, text: str, called: str | None = None) -> Any:
    """Parse the value of a key. Raise InvalidOption, naming the key or `called`, if it is bad."""
    setting = SETTINGS.get(key)
    if setting is None:
        known = ", ".join(SETTINGS)
        raise InvalidOption(f"unknown configuration key {key!r}; the keys are: {known}")
    try:
        return setting.read(text)
    except ValueError as error:
        given = HIDDEN if setting.is_secret else repr(text)
        raise InvalidOption(f"{called or key} must be {error}, not {given}") from None


def effective(stored: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Value]:
    """Return the value of every key: from the environment, else the database, else the default."""
    values: dict[str, Value] = {}
    for key, setting in SETTINGS.items():
        variable = variable_of(key)
        if variable in environment:
            values[key] = _of_environment(key, environment[variable])
        elif key in stored:
            values[key] = Value(stored[key], "database")
        else:
            values[key] = Value(setting.default, "default")
    return values


def variable_of(key: str) -> str:
    """Return the environment variable that overrides a key."""
    return PREFIX + key.upper()


def _of_environment(key: str, text: str) -> Value:
    try:
        return Value(read_value(key, text, variable_of(key)), "environment")
    except InvalidOption as error:
        return Value(None, "environment", str(error))


async def configuration(store: Store) -> dict[str, Any]:
    """Return the values by key. Raise InvalidOption if the environment has a bad one."""
    return _plain(effective(await list_values(store, KIND), os.environ))


def configuration_without_database() -> dict[str, Any]:
    """Return the values by key, as if nothing was stored."""
    return _plain(effective({}, os.environ))


def _plain(values: Mapping[str, Value]) -> dict[str, Any]:
    for value in values.values():
        if value.problem is not None:
            raise InvalidOption(value.problem)
    return {key: value.value for key, value in values.items()}


def retry_delay(config: Mapping[str, Any], attempts_made: int) -> int:
    """Return the ms until the next attempt, after that many attempts."""
    base = config["backoff_base"]
    seconds: float
    match config["retry_delay_type"]:
        case "fixed":
            seconds = config["fixed_retry_delay"]
        case "linear":
            seconds = base * attempts_made
        case _:
            seconds = _power(base, attempts_made)
    return round(min(seconds, MAX_DELAY) * 1000)


def _power(base: float, exponent: int) -> float:
    try:
        return float(base) ** exponent
    except OverflowError:
        return MAX_DELAY
