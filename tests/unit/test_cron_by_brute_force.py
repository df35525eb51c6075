"""Cron ticks are where a walk over every minute finds them.

All of the days, of which these are a sample: python -m tests.support.cron_brute_force
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.support.cron_brute_force import (
    HOUR,
    ODDEST_ZONES,
    Comparison,
    Span,
    changes,
    days_around,
    random_days,
    what_the_library_answers,
)

SEED = 1


@pytest.mark.parametrize("tz", ODDEST_ZONES)
def test_ticks_are_where_a_walk_finds_them(tz: str) -> None:
    zone, dice = ZoneInfo(tz), random.Random(SEED)
    comparison = Comparison(SEED)
    for change in dice.sample(changes(zone), 2):
        comparison.compare(zone, days_around(change))
    for day in random_days(dice, 1):
        comparison.compare(zone, day)
    assert comparison.wrong == []
    assert comparison.ticks > 100


@pytest.mark.parametrize("tz", ["Australia/Lord_Howe", "Europe/Dublin"])
@pytest.mark.parametrize("forward", [True, False], ids=["forward", "back"])
def test_ticks_in_seconds_are_where_a_walk_finds_them(tz: str, forward: bool) -> None:
    zone = ZoneInfo(tz)
    change = next(change for change in changes(zone) if _goes_forward(zone, change) is forward)
    comparison = Comparison(SEED)
    patterns = ("30 */10 * * * *", "*/20 59 1 * * *", "15,45 0,30 0-3 * * *", "7 45 1 * * 0")
    comparison.compare(zone, Span(change - HOUR, change + 2 * HOUR), patterns, step=1)
    assert comparison.wrong == []
    assert comparison.ticks > 20


def _goes_forward(zone: ZoneInfo, change: int) -> bool:
    before, after = (datetime.fromtimestamp(change + near, zone).utcoffset() for near in (-1, 0))
    assert before is not None
    assert after is not None
    return after > before


@pytest.mark.parametrize(
    ("tz", "change"),
    [
        ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),  # to the day after next
        ("Africa/Monrovia", datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC)),  # from -0:44:30 to UTC
        ("Asia/Pyongyang", datetime(2015, 8, 14, 15, tzinfo=UTC)),  # back by half an hour
        ("Asia/Kathmandu", datetime(1985, 12, 31, 18, 30, tzinfo=UTC)),  # by a quarter
        ("America/St_Johns", datetime(2010, 11, 7, 2, 31, tzinfo=UTC)),  # back over midnight
    ],
)
def test_ticks_at_famous_changes_are_where_a_walk_finds_them(tz: str, change: datetime) -> None:
    at = int(change.timestamp())
    zone = ZoneInfo(tz)
    comparison = Comparison(SEED)
    patterns = ("20 0 * * *", "*/10 0 * * *", "0,59 0,23 * * 5,6", "45 * * * *")
    comparison.compare(zone, Span(at - 2 * HOUR, at + 2 * HOUR), patterns, step=1)
    assert comparison.wrong == []
    assert comparison.ticks > 5


def test_the_walk_finds_what_the_library_gets_wrong() -> None:
    zone = ZoneInfo("Australia/Lord_Howe")
    comparison = Comparison(SEED, what_the_library_answers)
    comparison.compare(zone, days_around(changes(zone)[0]))
    assert comparison.wrong != []
