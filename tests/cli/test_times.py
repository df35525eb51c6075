"""Times and durations, as they are typed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from bullite.cli import times
from bullite.cli.console import InvalidInput

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90", 90_000),
        ("0", 0),
        ("1.5", 1_500),
        ("250ms", 250),
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("2w", 1_209_600_000),
        (" 30s ", 30_000),
    ],
)
def test_a_duration_is_a_number_with_a_unit_or_of_seconds(text: str, ms: int) -> None:
    assert times.duration("--delay", text) == ms


@pytest.mark.parametrize(
    "text", ["", "s", "-1", "+5", "5y", "1e3", "nan", "inf", "1h30m", "999999w", "٣s"]
)
def test_what_is_no_duration_is_refused_by_the_name_of_its_option(text: str) -> None:
    with pytest.raises(InvalidInput, match="--delay must be a time such as"):
        times.duration("--delay", text)


def test_seconds_are_whole_where_they_can_be() -> None:
    assert repr(times.seconds("--timeout", "30s")) == "30"
    assert times.seconds("--timeout", "0.5") == 0.5


@pytest.mark.parametrize(
    ("text", "later"),
    [("+30s", 30_000), ("+5m", 300_000), ("+2h", 7_200_000), ("+1d", 86_400_000), ("+10", 10_000)],
)
def test_a_moment_may_be_counted_from_now(text: str, later: int) -> None:
    assert times.moment("--run-at", text, NOW) == NOW + later


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("2030-01-31T08:00:00Z", 8),
        ("2030-01-31T08:00:00+02:00", 6),
        ("2030-01-31T08:00", 8),
        ("2030-01-31 08:00:00", 8),
        ("2030-01-31", 0),
    ],
)
def test_a_date_without_a_zone_is_meant_in_utc(text: str, hour: int) -> None:
    expected = datetime(2030, 1, 31, hour, tzinfo=UTC).timestamp() * 1000
    assert times.moment("--run-at", text, NOW) == expected


@pytest.mark.parametrize(
    "text",
    ["", "+", "+x", "++5s", "+-5s", "tomorrow", "30s", "2030-13-01", "2030-01-31T25:00"],
)
def test_what_is_no_moment_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--run-at must be such as \+30s"):
        times.moment("--run-at", text, NOW)


def test_looking_back_a_duration_is_that_long_ago() -> None:
    assert times.since("--since", "2h", NOW) == NOW - 7_200_000
    assert times.since("--since", "2020-01-01T00:00:00Z", NOW) == 1_577_836_800_000


@pytest.mark.parametrize("text", ["yesterday", "+1h", "", "-2h"])
def test_looking_back_nonsense_is_refused_with_what_looks_back(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        times.since("--since", text, NOW)
    assert refused.value.message == (
        f"--since must be such as 2h or 7d, or a date such as 2025-01-31, not {text!r}"
    )


def test_times_are_shown_in_utc_with_milliseconds() -> None:
    zone = timezone(timedelta(hours=2))
    when = datetime(2025, 11, 8, 12, 30, 45, 123_456, zone)
    assert times.iso(when) == "2025-11-08T10:30:45.123Z"
    assert times.iso(None) is None


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "-"),
        (0, "0ms"),
        (999, "999ms"),
        (2_000, "2s"),
        (2_333, "2.3s"),
        (60_000, "1m"),
        (90_000, "1m 30s"),
        (3_660_000, "1h 1m"),
        (90_000_000, "1d 1h"),
    ],
)
def test_durations_are_shown_short(ms: float | None, text: str) -> None:
    assert times.lasted(ms) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [(6, "6ms"), (12.345, "12.35ms"), (10_000, "10000ms"), (11_202.0, "11.2s"), (90_000, "90.0s")],
)
def test_what_was_measured_is_shown_in_seconds_when_it_is_long(ms: float, text: str) -> None:
    assert times.took(ms) == text
