"""Times and durations, parsed and printed: +30s, 5m, 2h, 7d, ISO 8601."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from .console import InvalidInput

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)?", re.ASCII)
_MAX_DURATION = 100 * 365 * 86_400_000


def duration(option: str, text: str) -> int:
    """Return the ms of a duration; a number without a unit is seconds."""
    found = _DURATION.fullmatch(text.strip())
    ms = round(float(found[1]) * _UNITS[found[2] or "s"]) if found else -1
    if not 0 <= ms <= _MAX_DURATION:
        raise InvalidInput(f"{option} must be a time such as 90, 30s, 5m, 2h or 7d, not {text!r}")
    return ms


def seconds(option: str, text: str) -> float | int:
    """Return the seconds of a duration."""
    value = duration(option, text) / 1000
    return int(value) if value == int(value) else value


def moment(option: str, text: str, now: int) -> int:
    """Return the ms since the epoch of +30s, from now, or of a date, in UTC unless it says."""
    if text.startswith("+"):
        if _DURATION.fullmatch(text[1:]) is None:
            raise InvalidInput(
                f"{option} must be such as +30s, +5m, +2h, +1d or a date, not {text!r}"
            )
        return now + duration(option, text[1:])
    when = _date(text)
    if when is None:
        raise InvalidInput(
            f"{option} must be such as +30s, +5m, +2h, +1d, or a date such as "
            f"2030-01-31T08:00:00Z, not {text!r}"
        )
    return when


def since(option: str, text: str, now: int) -> int:
    """Return the ms since the epoch of a date, or of a duration before now."""
    if _DURATION.fullmatch(text):
        return now - duration(option, text)
    when = _date(text)
    if when is None:
        raise InvalidInput(
            f"{option} must be such as 2h or 7d, or a date such as 2025-01-31, not {text!r}"
        )
    return when


def _date(text: str) -> int | None:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1000)


def iso(when: datetime | None) -> str | None:
    """Return 2025-11-08T10:30:45.123Z."""
    if when is None:
        return None
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stamp(when: datetime | None, on_terminal: bool) -> str:
    """Return a time for a table: on a terminal without milliseconds."""
    text = iso(when)
    if text is None:
        return "-"
    return f"{text[:19]}Z" if on_terminal else text


def took(ms: float) -> str:
    """Return a measured duration."""
    if ms > 10_000:
        return f"{ms / 1000:.1f}s"
    return f"{ms}ms" if isinstance(ms, int) else f"{ms:.2f}ms"


def lasted(ms: float | None) -> str:
    """Return a duration for people, such as 2h 5m."""
    if ms is None:
        return "-"
    if ms < 1000:
        return f"{ms:.0f}ms"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if ms >= size:
            smaller = {"d": ("h", 3_600_000), "h": ("m", 60_000), "m": ("s", 1000)}[unit]
            rest = int(ms % size // smaller[1])
            return f"{int(ms // size)}{unit}" + (f" {rest}{smaller[0]}" if rest else "")
    return f"{round(ms / 1000, 1):g}s"
