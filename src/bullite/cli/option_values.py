"""Values of options, from a command line, a template or a batch file: checked and converted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import times
from .console import InvalidInput


def text_of(option: str, value: Any) -> str:
    """Return a text that is not empty and contains no zero byte."""
    if not isinstance(value, str) or not value or "\x00" in value:
        is_secret = option.partition(" ")[0] in ("env", "header") and value not in (None, True)
        raise InvalidInput(f"{option} must be text" + ("" if is_secret else f", not {value!r}"))
    return value


def texts_of(option: str, value: Any) -> list[str]:
    """Return a list of texts; a single text or number is a list of one."""
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Sequence):
        value = [value]
    return [text_of(option, str(one) if type(one) is int else one) for one in value]


def int_of(option: str, value: Any) -> int:
    """Return a whole number, which may be written as text."""
    try:
        if isinstance(value, bool | float):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{option} must be a whole number, not {value!r}") from None


def flag_of(option: str, value: Any) -> bool:
    """Return True or False; nothing else is taken for either."""
    if not isinstance(value, bool):
        raise InvalidInput(f"{option} must be true or false, not {value!r}")
    return value


def seconds_of(option: str, value: Any) -> float | int:
    """Return the seconds of a duration, more than 0."""
    seconds = times.seconds(option, str(value))
    if not seconds:
        raise InvalidInput(f"{option} must be more than 0 seconds; leave it out for none")
    return seconds


def bytes_of(option: str, value: Any) -> int:
    """Return the bytes of a size such as 500M, more than 0."""
    from ..commands.config import size_in

    size = size_in(str(value))
    if not size:
        raise InvalidInput(f"{option} must be such as 500M or 2G, not {value!r}")
    return size


def pairs_of(option: str, value: Any, separator: str) -> dict[str, str]:
    """Return a mapping of names to values, from a mapping or from texts with a separator."""
    if isinstance(value, Mapping):
        return {
            text_of(option, key): _pair_value(f"{option} {key}", one) for key, one in value.items()
        }
    pairs: dict[str, str] = {}
    for one in texts_of(option, value):
        name, found, rest = one.partition(separator)
        if not found or not name.strip():
            # The message omits the text: it may be a value without its name, and so a secret.
            raise InvalidInput(f"{option} must be such as NAME{separator}VALUE")
        if separator == ":":
            name, rest = name.strip(" "), rest.strip(" ")
        pairs[name] = rest
    return pairs


def _pair_value(option: str, value: Any) -> str:
    """Return a text, which may be empty, or a number as text."""
    if type(value) in (int, float):
        return str(value)
    return "" if value == "" else text_of(option, value)
