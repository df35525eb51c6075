"""Compares cron ticks with a walk over every minute of the clocks.

The walk looks at a clock once a minute and knows nothing of how clocks change. Walked are the days
within two days of each change of the clocks from 2020 to 2040, and days chosen at random:

    python -m tests.support.cron_brute_force               the twelve zones with the oddest rules
    python -m tests.support.cron_brute_force --all-zones   zones with the same clocks only once
    python -m tests.support.cron_brute_force --cronsim     judge what the library answers by itself
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim

from bullite.core.cron import tick_after

MINUTE, HOUR, DAY = 60, 3600, 86_400
BEGIN, END = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2020, 2041))
LEAD = 4 * HOUR
"""A walk begins so much before the first day asked for: longer than clocks are ever put back."""

ODDEST_ZONES = (
    "Africa/Casablanca",  # back for Ramadan and then forward, by the moon
    "America/Havana",  # from midnight to one o'clock
    "America/New_York",
    "America/Nuuk",  # other rules each year from 2022 to 2024
    "Antarctica/Casey",  # by three hours, several times
    "Antarctica/Troll",  # by two hours
    "Asia/Gaza",  # up to four times a year
    "Asia/Tehran",  # at midnight of a zone with half an hour, until 2022
    "Australia/Lord_Howe",  # by half an hour
    "Europe/Berlin",
    "Pacific/Apia",  # until 2021
    "Pacific/Chatham",  # at a quarter to three
)

PATTERNS = (
    "30 2 * * *",
    "0 0 * * *",
    "0,20,40 0-4,23 * * *",
    "15 1 * * 0",
    "5 0 1-7 * 0",
    "*/20 * * * *",
    "40 * * * *",
    "*/15 5 * * *",
    "10 */2 * * *",
    "* 23 25-31 3,10 *",
)


class Span(NamedTuple):
    """From one moment up to another, in seconds since the epoch."""

    begin: int
    end: int


class Times:
    """The times of a pattern, read by a parser that shares nothing with the one used."""

    def __init__(self, pattern: str) -> None:
        second, minute, hour, *days = ["0", *pattern.split()][-6:]
        self.of_a_day = {
            h * HOUR + m * MINUTE + s
            for h in numbers(hour, 0, 23)
            for m in numbers(minute, 0, 59)
            for s in numbers(second, 0, 59)
        }
        self.day_of_month, self.month, self.day_of_week = days
        self.follow_the_clock = "*" in (minute[0], hour[0])
        self.on = cache(self._on)

    def include(self, clock: int) -> bool:
        return clock % DAY in self.of_a_day and self.on(clock // DAY)

    def _on(self, day: int) -> bool:
        that = date.fromordinal(date(1970, 1, 1).toordinal() + day)
        in_month = that.day in numbers(self.day_of_month, 1, 31)
        in_week = that.isoweekday() % 7 in {n % 7 for n in numbers(self.day_of_week, 0, 7)}
        if "*" in (self.day_of_month[0], self.day_of_week[0]):
            in_month = in_week = in_month and in_week
        return that.month in numbers(self.month, 1, 12) and (in_month or in_week)


def numbers(field: str, least: int, most: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = (f"{least}-{most}" if span == "*" else span).partition("-")
        found.update(range(int(low), int(high or low) + 1, int(step or 1)))
    return found


# --- the walk ------------------------------------------------------------------------------------


def clocks(zone: ZoneInfo, span: Span, step: int) -> list[tuple[int, int]]:
    """Each moment with what clocks show at it, as the seconds since they showed 1970."""
    return [(at, at + offset(zone, at)) for at in range(span.begin - LEAD, span.end, step)]


def walk(times: Times, shown: Sequence[tuple[int, int]], step: int) -> list[int]:
    """The moments of ticks: by the clock, or whenever it gets further than it ever was."""
    if times.follow_the_clock:
        return [at for at, clock in shown if times.include(clock)]
    ticks = []
    furthest = shown[0][1] - step
    for at, clock in shown:
        if clock > furthest:
            if any(map(times.include, range(furthest + step, clock + 1, step))):
                ticks.append(at)
            furthest = clock
    return ticks


def offset(zone: ZoneInfo, at: int) -> int:
    ahead = datetime.fromtimestamp(at, zone).utcoffset()
    assert ahead is not None
    return int(ahead.total_seconds())


# --- where to walk -------------------------------------------------------------------------------


def changes(zone: ZoneInfo) -> list[int]:
    """The moments of clock changes; no zone has two in a day."""
    found = []
    before = offset(zone, BEGIN)
    for day in range(BEGIN, END, DAY):
        after = offset(zone, day + DAY)
        if after != before:
            found.append(_first_with(zone, after, range(day, day + DAY + 1)))
        before = after
    return found


def _first_with(zone: ZoneInfo, ahead: int, moments: range) -> int:
    return moments[bisect_left(moments, True, key=lambda at: offset(zone, at) == ahead)]


def days_around(change: int) -> Span:
    day = change - change % DAY
    return Span(day - 2 * DAY, day + 3 * DAY)


def random_days(dice: random.Random, number: int) -> list[Span]:
    days = (dice.randrange(BEGIN, END, DAY) for _ in range(number))
    return [Span(day, day + DAY) for day in days]


def zones_with_other_clocks() -> list[str]:
    """All zones, but one name only for those that agree from 2020 to 2040."""
    names: dict[tuple[int, ...], str] = {}
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        moments = [BEGIN, *changes(zone)]
        names.setdefault((*moments, *(offset(zone, moment) for moment in moments)), name)
    return sorted(names.values())


# --- the comparison ------------------------------------------------------------------------------


class Comparison:
    """Asks for ticks, and keeps count of the answers that the walk contradicts."""

    def __init__(
        self, seed: int, answer: Callable[[str, str, int], int | None] = tick_after
    ) -> None:
        self.answer = answer
        self.dice = random.Random(seed)
        self.days = self.ticks = self.questions = 0
        self.wrong: list[str] = []
        self.wrong_in: Counter[str] = Counter()

    def compare(
        self, zone: ZoneInfo, span: Span, patterns: Iterable[str] = PATTERNS, step: int = MINUTE
    ) -> None:
        """Ask for the tick after each tick, and after some moments in between."""
        shown = clocks(zone, span, step)
        self.days += (span.end - span.begin) // DAY
        for pattern in patterns:
            ticks = [at for at in walk(Times(pattern), shown, step) if at >= span.begin]
            self.ticks += len(ticks)
            between = [self.dice.randrange(*span) for _ in range(5)]
            for moment in (span.begin - 1, *ticks, *between):
                following = ticks[bisect_right(ticks, moment) :]
                self._ask(pattern, zone.key, moment, following[0] if following else None, span.end)

    def _ask(self, pattern: str, tz: str, after: int, expected: int | None, end: int) -> None:
        self.questions += 1
        answer = self.answer(pattern, tz, after * 1000)
        tick = None if answer is None or answer >= end * 1000 else answer / 1000
        if tick != expected:
            self.wrong_in[tz] += 1
            self.wrong.append(
                f"{pattern:20} {tz:20} after {_text(after)}: {_text(tick)}, not {_text(expected)}"
            )


def _text(at: float | None) -> str:
    return "none" if at is None else datetime.fromtimestamp(at, UTC).isoformat(" ")[:19]


def what_the_library_answers(pattern: str, tz: str, after: int) -> int | None:
    moment = datetime.fromtimestamp(after / 1000, ZoneInfo(tz))
    return int(next(CronSim(pattern, moment)).timestamp() * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all-zones", action="store_true")
    parser.add_argument("--cronsim", action="store_true")
    parser.add_argument("--days", type=int, default=1000, help="chosen at random in each zone")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.process_time()
    answer = what_the_library_answers if options.cronsim else tick_after
    comparison = Comparison(options.seed, answer)
    zones = zones_with_other_clocks() if options.all_zones else ODDEST_ZONES
    changed = 0
    for zone in map(ZoneInfo, zones):
        around = [days_around(change) for change in changes(zone)]
        changed += len(around)
        for span in (*around, *random_days(comparison.dice, options.days)):
            comparison.compare(zone, span)
    for line in comparison.wrong[:20]:
        sys.stdout.write(f"{line}\n")
    for tz, number in comparison.wrong_in.most_common():
        sys.stdout.write(f"{tz:32} {number:,} wrong\n")
    sys.stdout.write(
        f"{len(zones)} zones, {changed:,} clock changes, {len(PATTERNS)} patterns, "
        f"{comparison.days:,} days, {comparison.ticks:,} ticks, {comparison.questions:,} questions"
        f": {len(comparison.wrong):,} wrong answers; {time.process_time() - began:.0f} s of CPU\n"
    )
    sys.exit(bool(comparison.wrong))


if __name__ == "__main__":
    main()
