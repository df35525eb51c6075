"""When the ticks of a job scheduler are."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullite.core import cron
from bullite.core.checks import MAX_TIME
from bullite.core.cron import NICKNAMES, tick_after
from bullite.core.recurrence import (
    DEFAULT_MAX_MISSED,
    GRACE,
    MISSED,
    Recurrence,
    check_recurrence,
    first_tick,
    following_tick,
    is_over,
    next_tick,
    tick_in_time,
)
from bullite.errors import InvalidOption, InvalidOptionType

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def ms(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)


NOW = ms("2026-05-06 07:08:09.100")


def recurring(**options: Any) -> Recurrence:
    return check_recurrence(NOW, **options)


def ticks(recurrence: Recurrence, number: int, now: int = NOW) -> list[int]:
    """The first ones, each made on time."""
    found: list[int] = []
    tick = first_tick(recurrence, now)
    while tick is not None and len(found) < number:
        found.append(tick)
        tick = next_tick(recurrence, tick, tick)
    return found


# --- every ---------------------------------------------------------------------------------------


def test_an_interval_ticks_at_once_and_then_every_so_often() -> None:
    assert ticks(recurring(every=1000), 3) == [NOW, NOW + 1000, NOW + 2000]


def test_an_interval_begins_at_its_start_date() -> None:
    start = NOW + 5 * DAY
    assert ticks(recurring(every="2h", start_date=start), 2) == [start, start + 2 * HOUR]


def test_a_start_date_that_has_passed_is_now() -> None:
    assert first_tick(recurring(every=1000, start_date=NOW - DAY), NOW) == NOW
    past = recurring(pattern="0 * * * *", start_date="1066-10-14T09:00:00+00:00")
    assert first_tick(past, NOW) == ms("2026-05-06 08:00")


@pytest.mark.parametrize(
    ("offset", "first"),
    [(0, "07:10:00"), (MINUTE, "07:11:00"), ("9s", "07:10:09"), (9 * MINUTE, "07:09:00")],
)
def test_an_offset_places_the_slots_of_an_interval(offset: Any, first: str) -> None:
    recurrence = recurring(every=10 * MINUTE, offset=offset)
    expected = ms(f"2026-05-06 {first}")
    assert ticks(recurrence, 2) == [expected, expected + 10 * MINUTE]
    assert first_tick(recurrence, expected) == expected


def test_an_offset_counts_from_the_start_date() -> None:
    recurrence = recurring(every=HOUR, offset=MINUTE, start_date="2026-05-08T10:30:00+00:00")
    assert first_tick(recurrence, NOW) == ms("2026-05-08 11:01")


def test_an_interval_that_is_late_goes_on_in_its_own_slots() -> None:
    recurrence = recurring(every=1000)
    assert next_tick(recurrence, NOW, NOW + 999) == NOW + 1000
    assert next_tick(recurrence, NOW, NOW + 1000) == NOW + 1000
    assert next_tick(recurrence, NOW, NOW + 1001) == NOW + 2000
    assert next_tick(recurrence, NOW, NOW + DAY + 1) == NOW + DAY + 1000


def test_an_interval_goes_on_when_the_clock_is_put_back() -> None:
    assert next_tick(recurring(every=1000), NOW, NOW - DAY) == NOW + 1000
    assert next_tick(recurring(pattern="* * * * *"), ms("2026-05-06 07:09"), NOW - DAY) == ms(
        "2026-05-06 07:10"
    )


@given(
    every=st.integers(1, 10 * DAY),
    after=st.integers(0, 10**14),
    delays=st.lists(st.integers(0, 30 * DAY), max_size=20),
)
def test_an_interval_never_leaves_its_slots_nor_skips_one_to_come(
    every: int, after: int, delays: list[int]
) -> None:
    recurrence, start = Recurrence(every=every), after
    for delay in delays:
        now = after + delay
        tick = next_tick(recurrence, after, now)
        assert tick is not None
        assert tick > after
        assert tick >= now
        assert (tick - start) % every == 0
        assert tick - every <= after or tick - every < now
        after = tick


# --- pattern -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("30 9 * * *", ["2026-05-06 09:30", "2026-05-07 09:30"]),
        ("*/15 * * * *", ["2026-05-06 07:15", "2026-05-06 07:30"]),
        ("*/30 * * * * *", ["2026-05-06 07:08:30", "2026-05-06 07:09"]),
        ("0 0 9 * * MON-FRI", ["2026-05-06 09:00", "2026-05-07 09:00", "2026-05-08 09:00"]),
        ("0 0 L * *", ["2026-05-31", "2026-06-30"]),
        ("0 0 * * fri#2", ["2026-05-08", "2026-06-12"]),
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29"]),
        ("0 0 13 * FRI", ["2026-05-08", "2026-05-13", "2026-05-15"]),
        ("\t0  12 * *\t* ", ["2026-05-06 12:00"]),
        ("@hourly", ["2026-05-06 08:00", "2026-05-06 09:00"]),
        ("@daily", ["2026-05-07", "2026-05-08"]),
        ("@Weekly", ["2026-05-10", "2026-05-17"]),
        ("@monthly", ["2026-06-01", "2026-07-01"]),
        ("@yearly", ["2027-01-01", "2028-01-01"]),
    ],
)
def test_a_pattern_ticks_where_it_matches(pattern: str, expected: list[str]) -> None:
    assert ticks(recurring(pattern=pattern), len(expected)) == [ms(text) for text in expected]


def test_every_nickname_is_a_pattern() -> None:
    for nickname, pattern in NICKNAMES.items():
        assert ticks(recurring(pattern=nickname), 5) == ticks(recurring(pattern=pattern), 5)


def test_a_pattern_is_read_in_its_zone() -> None:
    recurrence = recurring(pattern="0 9 * * *", tz="America/New_York")
    assert first_tick(recurrence, NOW) == ms("2026-05-06 09:00:00-04:00")


def test_a_tick_at_this_very_moment_is_over_but_one_at_the_start_date_counts() -> None:
    at = ms("2026-05-06 08:00")
    assert first_tick(recurring(pattern="@hourly"), at) == at + HOUR
    assert first_tick(recurring(pattern="@hourly", start_date=at), NOW) == at
    assert first_tick(recurring(pattern="@hourly", start_date=at + 1), NOW) == at + HOUR


def test_a_pattern_may_tick_immediately_first() -> None:
    recurrence = recurring(pattern="@hourly", immediately=True)
    assert ticks(recurrence, 2) == [NOW, ms("2026-05-06 08:00")]


def test_a_pattern_that_is_late_goes_on_with_the_next_match() -> None:
    recurrence = recurring(pattern="@hourly")
    eight = ms("2026-05-06 08:00")
    assert next_tick(recurrence, eight, eight + 5) == eight + HOUR
    assert next_tick(recurrence, eight, eight + 2 * HOUR) == eight + 2 * HOUR
    assert next_tick(recurrence, eight, eight + 2 * HOUR + 1) == eight + 3 * HOUR


# --- clock changes -------------------------------------------------------------------------------

PARIS_LEAVES_OUT_2_TO_3 = "2026-03-29 00:00+01:00"
PARIS_SHOWS_2_TO_3_TWICE = "2026-10-25 00:00+02:00"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("30 2 * * *", ["29 03:00+02:00", "30 02:30+02:00"]),
        ("0,30 2 * * *", ["29 03:00+02:00", "30 02:00+02:00"]),
        ("0 2,3 * * *", ["29 03:00+02:00", "30 02:00+02:00"]),
        ("0 30 2 * * *", ["29 03:00+02:00", "30 02:30+02:00"]),
        ("30 2 29 * *", ["29 03:00+02:00"]),
        ("30 * * * *", ["29 00:30+01:00", "29 01:30+01:00", "29 03:30+02:00"]),
        ("0 */2 * * *", ["29 04:00+02:00", "29 06:00+02:00"]),
        ("*/30 2 * * *", ["30 02:00+02:00", "30 02:30+02:00"]),
    ],
)
def test_a_time_that_is_left_out_ticks_right_after(pattern: str, expected: list[str]) -> None:
    recurrence = recurring(pattern=pattern, tz="Europe/Paris")
    found = ticks(recurrence, len(expected), ms(PARIS_LEAVES_OUT_2_TO_3))
    assert found == [ms(f"2026-03-{text}") for text in expected]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("30 2 * * *", ["25 02:30+02:00", "26 02:30+01:00"]),
        ("0 30 2 * * *", ["25 02:30+02:00", "26 02:30+01:00"]),
        ("0 2,3 * * *", ["25 02:00+02:00", "25 03:00+01:00", "26 02:00+01:00"]),
        ("*/30 2 * * *", ["25 02:00+02:00", "25 02:30+02:00", "25 02:00+01:00", "25 02:30+01:00"]),
        ("0 */2 * * *", ["25 02:00+02:00", "25 02:00+01:00", "25 04:00+01:00"]),
        ("0 * * * *", ["25 01:00+02:00", "25 02:00+02:00", "25 02:00+01:00", "25 03:00+01:00"]),
    ],
)
def test_a_time_that_is_shown_twice_ticks_once_unless_it_has_a_star(
    pattern: str, expected: list[str]
) -> None:
    recurrence = recurring(pattern=pattern, tz="Europe/Paris")
    found = ticks(recurrence, len(expected), ms(PARIS_SHOWS_2_TO_3_TWICE))
    assert found == [ms(f"2026-10-{text}") for text in expected]


def test_no_tick_is_ever_before_the_moment_it_was_asked_at() -> None:
    second_time = ms("2026-10-25 02:10+01:00")
    assert tick_after("30 2 * * *", "Europe/Paris", second_time) == ms("2026-10-26 02:30+01:00")


def test_a_day_that_is_left_out_ticks_once_when_it_is_over() -> None:
    eve = ms("2011-12-29 22:00-10:00")
    expected = [ms("2011-12-31 00:00+14:00"), ms("2011-12-31 06:00+14:00")]
    assert tick_after("0 6,12 * * *", "Pacific/Apia", eve) == expected[0]
    assert tick_after("0 6,12 * * *", "Pacific/Apia", expected[0]) == expected[1]


# --- how it ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"every": HOUR, "offset": 0}, {"pattern": "@hourly"}], ids=str)
def test_a_tick_at_the_end_date_is_the_last(options: dict[str, Any]) -> None:
    recurrence = recurring(**options, end_date="2026-05-06T09:00:00+00:00")
    assert ticks(recurrence, 9) == [ms("2026-05-06 08:00"), ms("2026-05-06 09:00")]
    assert first_tick(recurrence, ms("2026-05-06 09:00:00.001")) is None


def test_a_scheduler_is_over_at_its_limit_or_its_end() -> None:
    recurrence = recurring(every=1000, limit=2, end_date=NOW + 5000)
    assert not is_over(recurrence, 0, NOW)
    assert not is_over(recurrence, 1, NOW + 5000)
    assert is_over(recurrence, 2, NOW + 1000)
    assert is_over(recurrence, 1, NOW + 5001)
    assert is_over(recurrence, 1, None)
    assert not is_over(recurring(every=1000), 10**9, MAX_TIME)


@pytest.mark.parametrize("options", [{"every": DAY}, {"pattern": "@daily", "tz": "Asia/Tokyo"}])
@pytest.mark.parametrize("left", [0, HOUR, 3 * DAY])
def test_time_ends_with_the_year_9999(options: dict[str, Any], left: int) -> None:
    assert len(ticks(recurring(**options, start_date=MAX_TIME - left), 9)) <= 4


# --- ticks that were missed ----------------------------------------------------------------------

EIGHT = ms("2026-05-06 08:00")


def catch_up(recurrence: Recurrence, pending: int, now: int) -> tuple[list[int], int | None]:
    """What workers that are there again at `now` make up for, and the tick to wait for then."""
    made: list[int] = []
    tick = tick_in_time(recurrence, pending, now)
    while tick is not None and tick <= now:
        made.append(tick)
        tick = following_tick(recurrence, tick, now)
    return made, tick


@pytest.mark.parametrize("missed", MISSED)
@pytest.mark.parametrize("options", [{"every": HOUR}, {"pattern": "@hourly"}], ids=str)
def test_a_tick_on_time_is_made_whatever_the_rule(options: dict[str, Any], missed: str) -> None:
    recurrence = recurring(**options, missed=missed)
    assert catch_up(recurrence, EIGHT, EIGHT - 1) == ([], EIGHT)
    for late in (0, 5, GRACE):
        assert catch_up(recurrence, EIGHT, EIGHT + late) == ([EIGHT], EIGHT + HOUR)


@pytest.mark.parametrize(("missed", "hours"), [("skip", []), ("once", [0]), ("all", [0, 1, 2, 3])])
@pytest.mark.parametrize("options", [{"every": HOUR}, {"pattern": "@hourly"}], ids=str)
def test_the_rule_says_what_becomes_of_missed_ticks(
    options: dict[str, Any], missed: str, hours: list[int]
) -> None:
    recurrence = recurring(**options, missed=missed)
    due = catch_up(recurrence, EIGHT, EIGHT + 3 * HOUR + 20 * MINUTE)
    assert due == ([EIGHT + hour * HOUR for hour in hours], EIGHT + 4 * HOUR)


def test_skipping_still_makes_the_tick_that_is_not_too_late() -> None:
    recurrence = recurring(every=HOUR, missed="skip")
    now = EIGHT + 3 * HOUR
    assert catch_up(recurrence, EIGHT, now) == ([now], now + HOUR)
    assert catch_up(recurrence, EIGHT, now + GRACE) == ([now], now + HOUR)
    assert catch_up(recurrence, EIGHT, now + GRACE + 1) == ([], now + HOUR)


@pytest.mark.parametrize("missed", ["skip", "once"])
def test_the_tick_to_wait_for_is_always_in_the_future(missed: str) -> None:
    recurrence = recurring(every=1000, missed=missed)
    assert catch_up(recurrence, NOW, NOW + 2000) == ([NOW], NOW + 3000)


@pytest.mark.parametrize(
    ("options", "step"),
    [({"every": 7}, 7), ({"pattern": "* * * * * *"}, 1000), ({"pattern": "@hourly"}, HOUR)],
    ids=str,
)
def test_of_very_many_missed_ticks_the_newest_are_made(options: dict[str, Any], step: int) -> None:
    recurrence = recurring(**options, missed="all")
    last = EIGHT + 10**6 * step
    due = catch_up(recurrence, EIGHT, last)
    expected = [last - step * back for back in reversed(range(DEFAULT_MAX_MISSED))]
    assert due == (expected, last + step)


@given(
    every=st.integers(1, 50),
    most=st.integers(1, 20),
    late=st.integers(0, 500),
    end=st.none() | st.integers(0, 500),
)
def test_all_missed_ticks_are_made_up_to_the_most(
    every: int, most: int, late: int, end: int | None
) -> None:
    recurrence = Recurrence(
        every=every, missed="all", most_missed=most, end_date=None if end is None else NOW + end
    )
    slots = [NOW + slot for slot in range(0, late + every + 1, every) if end is None or slot <= end]
    past = [slot for slot in slots if slot <= NOW + late]
    to_come = [slot for slot in slots if slot > NOW + late]
    expected = (past[-most:], to_come[0] if to_come else None)
    assert catch_up(recurrence, NOW, NOW + late) == expected


@pytest.mark.parametrize("missed", MISSED)
def test_ticks_missed_before_the_end_are_not_followed_by_others(missed: str) -> None:
    recurrence = recurring(pattern="@hourly", end_date=EIGHT + HOUR, missed=missed)
    due = catch_up(recurrence, EIGHT, EIGHT + 2 * DAY)
    made = {"skip": [], "once": [EIGHT], "all": [EIGHT, EIGHT + HOUR]}
    assert due == (made[missed], None)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either pattern or every"),
        ({"pattern": "@daily", "every": 1}, "give either pattern or every"),
        ({"every": 0}, "every must be between 1"),
        ({"every": "soon"}, "every must look like"),
        ({"every": 1000, "tz": "UTC"}, "tz goes with pattern"),
        ({"every": 1000, "immediately": True}, "immediately goes with pattern"),
        ({"every": 1000, "offset": 1000}, "offset must be less than every, 1000 ms, not 1000"),
        ({"every": 1000, "offset": -1}, "offset must be between 0"),
        ({"pattern": "@daily", "offset": 5}, "offset goes with every"),
        ({"pattern": "@daily", "immediately": True, "start_date": NOW}, "contradict each other"),
        ({"every": 1000, "limit": 0}, "limit must be between 1"),
        ({"every": 1000, "end_date": NOW - 1}, "end_date must be in the future"),
        ({"every": 1000, "start_date": NOW + 2, "end_date": NOW + 1}, "must not be before start"),
        ({"every": 1000, "start_date": "2026-05-06"}, "start_date must have a time zone"),
        ({"every": 1000, "missed": "some"}, "missed must be one of skip, once, all"),
        ({"every": 1000, "most_missed": 5}, 'most_missed goes with missed="all"'),
        ({"every": 1000, "missed": "all", "most_missed": 0}, "most_missed must be between 1"),
        ({"pattern": ""}, "pattern must have 1 to 255 characters"),
        ({"pattern": "1" * 5000}, "pattern must have 1 to 255 characters"),
        ({"pattern": "* * * *"}, "pattern must have 5 fields"),
        ({"pattern": "* * * * * * *"}, "pattern must have 5 fields"),
        ({"pattern": "60 * * * *"}, "pattern must have a good minute, not '60'"),
        ({"pattern": "* 24 * * *"}, "pattern must have a good hour, not '24'"),
        ({"pattern": "* * * * */0"}, "pattern must have a good day of week, not '*/0'"),
        ({"pattern": "each * * * *"}, "pattern must have a good minute, not 'each'"),
        ({"pattern": "0 0 31 2 *"}, "pattern must have a good day of month, not '31'"),
        ({"pattern": "77 0 0 * * *"}, "pattern must have a good second, not '77'"),
        ({"pattern": "0 0 */31 * MON#5"}, "pattern must match some time"),
        ({"pattern": "*/10 2 * 3 7L", "tz": "Europe/Paris"}, "pattern must match some time"),
        ({"pattern": "@reboot"}, "pattern must be one of @yearly"),
        ({"pattern": "@daily", "tz": "Mars/Olympus"}, "tz must be a zone of the IANA database"),
        ({"pattern": "@daily", "tz": "Europe"}, "tz must be a zone of the IANA database"),
        ({"pattern": "@daily", "tz": "../UTC"}, "tz must be a zone of the IANA database"),
        ({"pattern": "@daily", "tz": ""}, "tz must be a zone of the IANA database"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_bad_option_is_named_with_the_fix(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message.replace("*", r"\*")):
        recurring(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"every": 1.5},
        {"every": True},
        {"pattern": 5},
        {"pattern": "@daily", "tz": UTC},
        {"pattern": "@daily", "immediately": 1},
        {"every": 1000, "limit": "2"},
        {"every": 1000, "end_date": 1.5},
    ],
    ids=str,
)
def test_an_option_of_the_wrong_type_is_named(options: dict[str, Any]) -> None:
    name = list(options)[-1]
    with pytest.raises(InvalidOptionType, match=f"^{name} must be"):
        recurring(**options)


# --- what is stored ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"every": timedelta(hours=1), "offset": "5m", "limit": 3},
        {"every": 1000, "start_date": datetime(2030, 1, 1, tzinfo=UTC)},
        {"pattern": "0 9 * * MON", "tz": "Europe/Paris", "immediately": True},
        {"pattern": "@daily", "end_date": NOW, "missed": "all", "most_missed": 7},
    ],
    ids=str,
)
def test_a_recurrence_survives_being_stored(options: dict[str, Any]) -> None:
    recurrence = recurring(**options)
    assert Recurrence.from_json(recurrence.to_json()) == recurrence


def test_moments_and_durations_are_stored_in_milliseconds() -> None:
    recurrence = recurring(every="1h", offset="5m", start_date="2030-01-01T00:00:00+00:00")
    assert recurrence.every == HOUR
    assert recurrence.offset == 5 * MINUTE
    assert recurrence.start_date == ms("2030-01-01")


# --- what it costs to look for a tick ------------------------------------------------------------


RARE = (
    "* * 29 2 *",
    "0 0 29 2 *",
    "* * * 2 MON#5",  # once in 28 years
    "*/7 2 * 3 0L",  # in Europe always in the hour that is left out
    "59 59 23 31 12 *",
    "* * * * * *",
)


@pytest.mark.parametrize("tz", ["UTC", "Europe/Paris", "Africa/Casablanca", "Australia/Lord_Howe"])
@pytest.mark.parametrize("pattern", RARE)
def test_a_tick_far_away_is_not_walked_to(
    monkeypatch: pytest.MonkeyPatch, pattern: str, tz: str
) -> None:
    looks = 0
    look = cron._offset

    def counted(zone: tzinfo, at: int) -> int:
        nonlocal looks
        looks += 1
        return look(zone, at)

    monkeypatch.setattr(cron, "_offset", counted)
    tick_after(pattern, tz, NOW)
    assert looks < 50 * 25  # a look for a change in each year, and no look at each day


def test_a_time_that_clocks_always_leave_out_is_none_at_all() -> None:
    assert tick_after("*/7 2 * 3 0L", "Europe/Paris", NOW) is None
    assert tick_after("*/7 2 * 3 0L", "UTC", NOW) is not None


WORDS = (
    *(
        "*",
        "*/5",
        "0",
        "1-5",
        "*/99999999",
        "1/0",
        "MON",
        "JAN",
        "L",
        "60",
        "-1",
        "5-1",
        "0-999999",
    ),
    *("7", "29", "2", "1,2,3", "MON#5", "5L", "LW", "?", "*/", ",", "x", "99999999999999999999"),
)
LETTERS = "0123456789*/-,#LWMON? @\t\x00é"


def garbled(dice: random.Random) -> str:
    if dice.random() < 0.3:
        return "".join(dice.choices(LETTERS, k=dice.randrange(20)))
    fields = dice.choices(("*", "0", "1-5"), k=dice.choice((4, 5, 5, 5, 5, 6, 6, 7)))
    return " ".join(dice.choice(WORDS) if dice.random() < 0.4 else field for field in fields)


def test_a_garbled_pattern_is_refused_by_name_and_any_other_ticks() -> None:
    dice = random.Random(7)
    wrong: list[tuple[str, object]] = []
    good, slowest = 0, 0.0
    for _ in range(100_000):
        pattern, began = garbled(dice), time.thread_time()
        try:
            tick = first_tick(check_recurrence(NOW, pattern=pattern, tz="Europe/Paris"), NOW)
            good += 1
            if tick is None or tick <= NOW:
                wrong.append((pattern, tick))
        except InvalidOption as refused:
            if not str(refused).startswith("pattern must"):
                wrong.append((pattern, refused))
        slowest = max(slowest, time.thread_time() - began)
    assert wrong == []
    assert good > 1_000
    assert slowest < 2


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "* * * *", "* * * * * * *", "0 0 31 2 *", "*/0 * * * *", "*/1e9 * * * *", "@never"),
        *("61 * * * *", "* 24 * * *", "* * * * 8", "* * * 13 *", "5-1 * * * *", "a b c d e"),
        "* " * 200,
    ],
)
def test_a_pattern_that_no_cron_would_take_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidOption, match="pattern must"):
        check_recurrence(NOW, pattern=pattern)
