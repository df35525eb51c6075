"""Ticks of a job scheduler: pure arithmetic on a checked interval or cron pattern."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Self

from ..errors import InvalidOption
from .checks import (
    MAX_COUNT,
    MAX_TIME,
    Duration,
    Moment,
    check_bool,
    check_duration,
    check_int,
    check_moment,
)
from .codec import decode, encode_plain

MISSED = ("skip", "once", "all")
GRACE = 60_000
"""A tick counts as missed if its job was not claimed within this many ms after it."""
DEFAULT_MAX_MISSED = 100
MAX_MISSED = 1_000
"""The default and the maximum of `most_missed`."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A checked cron pattern or interval; moments and durations are in ms."""

    pattern: str | None = None
    every: int | None = None
    limit: int | None = None
    start_date: int | None = None
    end_date: int | None = None
    tz: str = "UTC"
    immediately: bool = False
    offset: int | None = None
    missed: str = "once"
    most_missed: int = DEFAULT_MAX_MISSED

    def to_json(self) -> str:
        return encode_plain({k: v for k, v in asdict(self).items() if v is not None}).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**decode(text))


# --- checks --------------------------------------------------------------------------------------


def check_recurrence(
    now: int,
    *,
    pattern: str | None = None,
    every: Duration | None = None,
    limit: int | None = None,
    start_date: Moment | None = None,
    end_date: Moment | None = None,
    tz: str | None = None,
    immediately: bool = False,
    offset: Duration | None = None,
    missed: str = "once",
    most_missed: int | None = None,
) -> Recurrence:
    """Return the checked recurrence. Raise an error that names the bad option."""
    check_bool("immediately", immediately)
    if (pattern is None) == (every is None):
        raise InvalidOption("give either pattern or every, and not both")
    if pattern is not None and offset is not None:
        raise InvalidOption("offset goes with every; write the shift into the pattern instead")
    if every is not None and tz is not None:
        raise InvalidOption("tz goes with pattern, every is the same in all zones; leave it out")
    if every is not None and immediately:
        raise InvalidOption("immediately goes with pattern, every ticks at once; leave it out")
    if immediately and start_date is not None:
        raise InvalidOption("immediately and start_date contradict each other; give one of them")
    if missed not in MISSED:
        raise InvalidOption(f"missed must be one of {', '.join(MISSED)}, not {missed!r}")
    if most_missed is not None and missed != "all":
        raise InvalidOption('most_missed goes with missed="all"; leave it out')
    if most_missed is None:
        most_missed = DEFAULT_MAX_MISSED
    zone = "UTC"
    if tz is not None or pattern is not None:
        # Imported only for a pattern: the import takes a tenth of the time of a short program.
        from .cron import check_pattern, check_zone

        zone = zone if tz is None else check_zone(tz)
        pattern = None if pattern is None else check_pattern(pattern, zone, now)
    recurrence = Recurrence(
        pattern=pattern,
        every=None if every is None else check_duration("every", every, least=1),
        limit=None if limit is None else check_int("limit", limit, 1, MAX_COUNT),
        start_date=None if start_date is None else check_moment("start_date", start_date),
        end_date=None if end_date is None else check_moment("end_date", end_date),
        tz=zone,
        immediately=immediately,
        offset=None if offset is None else check_duration("offset", offset),
        missed=missed,
        most_missed=check_int("most_missed", most_missed, 1, MAX_MISSED),
    )
    _check_bounds(recurrence, now)
    return recurrence


def _check_bounds(recurrence: Recurrence, now: int) -> None:
    every, offset = recurrence.every, recurrence.offset
    if every is not None and offset is not None and offset >= every:
        raise InvalidOption(f"offset must be less than every, {every} ms, not {offset}")
    start, end = recurrence.start_date, recurrence.end_date
    if end is not None and end < now:
        raise InvalidOption("end_date must be in the future: it has passed already")
    if start is not None and end is not None and end < start:
        raise InvalidOption("end_date must not be before start_date")


# --- next ticks ----------------------------------------------------------------------------------


def first_tick(recurrence: Recurrence, now: int) -> int | None:
    """Return the first tick of a new scheduler; a tick at its start date counts."""
    start = max(now, recurrence.start_date or now)
    if recurrence.every is not None:
        offset = start if recurrence.offset is None else recurrence.offset
        return _within(recurrence, start + (offset - start) % recurrence.every)
    if recurrence.immediately:
        return _within(recurrence, start)
    return _within(recurrence, _cron_tick(recurrence, now if start == now else start - 1))


def next_tick(recurrence: Recurrence, after: int, now: int) -> int | None:
    """Return the first tick after the tick `after` that has not passed."""
    if recurrence.every is None:
        return _within(recurrence, _cron_tick(recurrence, max(after, now - 1)))
    periods = max(1, -((after - now) // recurrence.every))
    return _within(recurrence, after + periods * recurrence.every)


def is_over(recurrence: Recurrence, iterations: int, tick: int | None) -> bool:
    """Return True if neither `tick` nor a later tick gets a job, after `iterations` jobs."""
    if recurrence.limit is not None and iterations >= recurrence.limit:
        return True
    return tick is None or _within(recurrence, tick) is None


def _cron_tick(recurrence: Recurrence, after: int) -> int | None:
    from .cron import tick_after

    assert recurrence.pattern is not None
    return tick_after(recurrence.pattern, recurrence.tz, after)


def _within(recurrence: Recurrence, tick: int | None) -> int | None:
    last = MAX_TIME if recurrence.end_date is None else recurrence.end_date
    return tick if tick is not None and tick <= last else None


# --- missed ticks --------------------------------------------------------------------------------


def tick_in_time(recurrence: Recurrence, pending: int, now: int) -> int | None:
    """Return the tick of the pending job: `pending`, or a later one that replaces it.

    With `once`, its job also serves for all ticks that have passed since. With `skip`, a missed
    tick is replaced. With `all`, only the newest `most_missed` ticks get jobs, and this is the
    first of them.
    """
    if pending > now or recurrence.missed == "once":
        return pending
    if recurrence.missed == "all":
        return _newest_ticks(recurrence, pending, now)[0]
    if pending >= now - GRACE:
        return pending
    return next_tick(recurrence, pending, now - GRACE)


def following_tick(recurrence: Recurrence, taken: int, now: int) -> int | None:
    """Return the next tick after the job of `taken` was claimed; not a passed one, except with
    `all`."""
    if recurrence.missed != "all":
        return next_tick(recurrence, taken, now + 1)
    following = next_tick(recurrence, taken, taken)
    return None if following is None else tick_in_time(recurrence, following, now)


def _newest_ticks(recurrence: Recurrence, pending: int, now: int) -> list[int]:
    most = recurrence.most_missed
    ticks = list(islice(_ticks(recurrence, pending, pending, now), most + 1))
    if len(ticks) <= most:
        return ticks

    def too_few_since(start: int) -> bool:
        return len(list(islice(_ticks(recurrence, pending, start, now), most))) < most

    # Years of ticks may have been missed: search for the first of the newest, do not step there.
    starts = range(pending, now + 1)
    enough = max(0, bisect_left(starts, True, key=too_few_since) - 1)
    return list(_ticks(recurrence, pending, starts[enough], now))


def _ticks(recurrence: Recurrence, pending: int, start: int, end: int) -> Iterator[int]:
    tick = pending if start <= pending else next_tick(recurrence, pending, start)
    while tick is not None and tick <= end:
        yield tick
        tick = next_tick(recurrence, tick, tick)
