"""Checks of the values that callers pass: numbers, durations, points in time, rates and sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ..errors import InvalidOption, InvalidOptionType, PayloadTooLarge
from .backoff import MAX_DELAY
from .codec import encode

MAX_COUNT = 2**31 - 1
"""The maximum of numbers of jobs, attempts, log lines and the like."""
MAX_DATA_BYTES = 1024 * 1024
"""Bytes of a job's data as JSON, unless `size_limit` allows more."""
MAX_BYTES = 512 * 1024 * 1024
MIN_TIME, MAX_TIME = -62_135_596_800_000, 253_402_300_799_999
"""The first ms of the year 1 and the last of the year 9999."""

Duration = int | timedelta | str
"""Milliseconds, a timedelta, or text such as "30s", "5m", "2h", "7d"."""

Moment = datetime | int | str
"""An aware datetime, milliseconds since the epoch, or ISO 8601 text."""

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def check_int(option: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOptionType(f"{option} must be a whole number, not {value!r}")
    if not least <= value <= most:
        raise InvalidOption(f"{option} must be between {least} and {most}, not {_shown(value)}")
    return value


def check_bool(option: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidOptionType(f"{option} must be True or False, not {value!r}")
    return value


def check_float(option: str, value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOptionType(f"{option} must be a number, not {value!r}")
    if not 0 <= value <= most:
        raise InvalidOption(f"{option} must be between 0 and {most:g}, not {value}")
    return float(value)


def _shown(number: float) -> str:
    """Return a number as text; Python raises ValueError for an int of many thousands of digits."""
    try:
        return str(number)
    except ValueError:
        return "a number of thousands of digits"


def check_duration(option: str, value: Any, least: int = 0) -> int:
    """Return a duration in whole milliseconds. Raise an error that names the option."""
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
    if not least <= milliseconds <= MAX_DELAY:
        raise InvalidOption(
            f"{option} must be between {least} and {MAX_DELAY} ms, not {_shown(milliseconds)}"
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


def check_age(option: str, value: Any) -> int | float:
    """Return an age in seconds; a number is taken as seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value <= MAX_DELAY / 1000:
            longest = MAX_DELAY // 1000
            raise InvalidOption(f"{option} must be between 0 and {longest} seconds, not {value}")
        return value
    return check_duration(option, value) / 1000


def check_moment(option: str, value: Any) -> int:
    """Return a point in time, in ms since the epoch."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise InvalidOption(
                f'{option} must look like "2030-01-31T12:00:00+00:00", not {value!r}'
            ) from error
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidOption(
                f"{option} must have a time zone, {value.isoformat()} could mean anything: "
                "use datetime.now(timezone.utc) or add +00:00"
            )
        value = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        return check_int(option, value, MIN_TIME, MAX_TIME)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOptionType(
            f"{option} must be an aware datetime, ms since the epoch or ISO text, not {value!r}"
        )
    return check_int(option, value, 0, MAX_TIME)


def check_rate(option: str, value: Any) -> tuple[int, int]:
    """Return a rate limit as (jobs, ms)."""
    if not isinstance(value, Mapping):
        raise InvalidOptionType(
            f'{option} must be a mapping such as {{"max": 10, "duration": "1s"}}, not {value!r}'
        )
    if value.keys() != {"max", "duration"}:
        wrong = sorted(map(str, value.keys() ^ {"max", "duration"}))
        raise InvalidOption(f"{option} must have max and duration and nothing else: {wrong[0]!r}")
    most = check_int(f"{option} max", value["max"], 1, MAX_COUNT)
    return most, check_duration(f"{option} duration", value["duration"], least=1)


def check_size(name: str, text: str, limit: int) -> None:
    """Raise PayloadTooLarge if the data of a job have more than `limit` bytes as JSON."""
    if len(text) * 4 <= limit:
        return
    size = len(text.encode())
    if size > limit:
        raise PayloadTooLarge(
            f"the size of job {name} exceeds the limit {limit} bytes: its data takes {size} as "
            "JSON; store it elsewhere and pass where, or raise size_limit"
        )


def encode_limited(value: Any, what: str, name: str = "") -> str:
    """Return a value as JSON text. Raise PayloadTooLarge if it has more than MAX_DATA_BYTES."""
    text = encode(value, what, name)
    if len(text) * 4 > MAX_DATA_BYTES and (size := len(text.encode())) > MAX_DATA_BYTES:
        raise PayloadTooLarge(
            f"{what}{name} takes {size} bytes as JSON, more than {MAX_DATA_BYTES}; "
            "store it elsewhere and give where"
        )
    return text
