"""Ticks of a cron pattern on the clocks of a time zone.

These rules hold when clocks change, in every zone, also in zones where they change by half an hour,
by a whole day or at midnight:

- A pattern that names its hours and minutes ("30 2 * * *") ticks once for each time it names. A
  time that the clocks skip ticks at the moment they jump, once for all times skipped there; a time
  that they show twice ticks the first time.
- A pattern whose minute or hour begins with a star ("*/5 * * * *", "0 */2 * * *") ticks whenever
  the clocks show a time it matches: twice if they show it twice, and not if they skip it.

Debian's cron has the same rules. Here they also apply to patterns with seconds and to jumps of any
length.

The library only finds the times of a pattern on a clock that never changes. With time zones, the
library loses ticks where clocks change by half an hour, returns moments before the given one, and
has another rule for patterns with seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ..errors import InvalidOption, InvalidOptionType
from .names import check_name

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_FIELDS = ("second", "minute", "hour", "day of month", "month", "day of week")

_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)
_DAY = 24 * 3600
_FIFTY_YEARS = 50 * 366 * _DAY


def check_pattern(value: Any, tz: str, now: int) -> str:
    """Return a pattern that ticks at least once in the next fifty years, or raise an error."""
    if not isinstance(value, str):
        raise InvalidOptionType(f'pattern must be text such as "0 9 * * MON", not {value!r}')
    pattern = check_name("pattern", " ".join(value.split()))
    if pattern.startswith("@") and pattern.lower() not in NICKNAMES:
        raise InvalidOption(f"pattern must be one of {', '.join(NICKNAMES)}, not {value!r}")
    try:
        ticks = tick_after(pattern, tz, now) is not None
    except CronSimError as error:
        raise InvalidOption(_what_is_wrong(pattern, str(error))) from error
    if not ticks:
        raise InvalidOption(f"pattern must match some time, {value!r} matches none")
    return pattern


def _what_is_wrong(pattern: str, message: str) -> str:
    fields = pattern.split()
    names = _FIELDS[-len(fields) :]
    bad = message.removeprefix("Bad ").replace("-", " ")
    if len(fields) not in (5, 6) or bad not in names:
        return (
            f"pattern must have 5 fields ({', '.join(_FIELDS[1:])}) or 6 (second first), such as "
            f'"0 9 * * MON", not {pattern!r}'
        )
    return (
        f"pattern must have a good {bad}, not {fields[names.index(bad)]!r} as in {pattern!r}; its "
        f"fields are {', '.join(names)}"
    )


def check_zone(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidOptionType(f'tz must be text such as "Europe/Paris", not {value!r}')
    _zone(value)
    return value


def tick_after(pattern: str, tz: str, after: int) -> int | None:
    """Return the first tick later than `after`, in ms since the epoch; None if there is none."""
    fields = NICKNAMES.get(pattern.lower(), pattern)
    follows_the_clock = any(field.startswith("*") for field in fields.split()[-5:-3])
    find = _next_shown if follows_the_clock else _next_reached
    try:
        return find(fields, _zone(tz), after // 1000) * 1000
    except (StopIteration, OverflowError):
        return None  # no time matches within fifty years, or before the year 10000


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # also on a system without a database of zones
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidOption(
            f'tz must be a zone of the IANA database such as "Europe/Paris", not {name!r}; '
            "if this machine has no such database, install the package tzdata"
        ) from error


# --- moments in whole seconds since the epoch ----------------------------------------------------


def _next_shown(fields: str, zone: tzinfo, after: int) -> int:
    """Return the first moment after `after` at which the clocks show a time that matches."""
    # Clocks that are put back repeat recent times. So near times are searched from change to
    # change; the clocks show every later time for the first time.
    near, horizon = after + 2 * _DAY, after + _FIFTY_YEARS
    offset = _offset(zone, after)
    while after < horizon:
        time = next(CronSim(fields, _clock(after + offset)))
        tick = _seconds(time) - offset
        change = _first_change(zone, offset, after, min(tick, near))
        if change is None and tick <= near:
            return tick
        if change is None:
            first, second = _moments(zone, time)
            if first <= second:
                return first
            change = _jump_over(zone, first, second)
        after, offset = change - 1, _offset(zone, change)
    raise StopIteration  # the clocks skip every time that would match


def _next_reached(fields: str, zone: tzinfo, after: int) -> int:
    """Return the first moment after `after` at which the clocks reach or pass a matching time."""
    times = CronSim(fields, _clock(after + _offset(zone, after)))
    while (tick := _when_reached(zone, next(times))) <= after:
        pass
    return tick


def _when_reached(zone: tzinfo, time: datetime) -> int:
    first, second = _moments(zone, time)
    return first if first <= second else _jump_over(zone, first, second)


def _moments(zone: tzinfo, time: datetime) -> tuple[int, int]:
    """Return the first and the last moment at which the clocks show a time.

    If they skip it, the last is before the first.
    """
    first, second = (int(time.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1))
    return first, second


def _jump_over(zone: tzinfo, first: int, second: int) -> int:
    """Return the moment at which the clocks skip the time of these moments."""
    return _change(zone, _offset(zone, second), range(second, first + 1))


def _first_change(zone: tzinfo, offset: int, after: int, until: int) -> int | None:
    """Return the first moment after `after` and up to `until` with another offset."""
    # One check per day finds it: no zone has ever changed its clocks twice within a day.
    for start in range(after, until, _DAY):
        moments = range(start + 1, min(start + _DAY, until) + 1)
        if _offset(zone, moments[-1]) != offset:
            return _change(zone, offset, moments)
    return None


def _change(zone: tzinfo, offset: int, moments: range) -> int:
    return moments[bisect_left(moments, True, key=lambda at: _offset(zone, at) != offset)]


def _offset(zone: tzinfo, at: int) -> int:
    """Return the seconds by which clocks in the zone are ahead of UTC."""
    return _seconds(zone.fromutc(_clock(at).replace(tzinfo=zone)).replace(tzinfo=None)) - at


def _clock(seconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


def _seconds(clock: datetime) -> int:
    return (clock - _EPOCH) // _SECOND
