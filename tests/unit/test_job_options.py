"""What users may ask of a job, and how a mistake is told."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullite import Queue
from bullite.client.queue.settings import check_defaults
from bullite.client.runtime.blocking import run_blocking
from bullite.core.backoff import MAX_DELAY
from bullite.core.checks import MAX_COUNT, check_duration
from bullite.core.job_options import MAX_PRIORITY, CheckedOptions, check_options
from bullite.core.names import check_name
from bullite.errors import BulliteError, InvalidOption, InvalidOptionType


def test_without_options_a_job_runs_once_and_at_once() -> None:
    assert check_options({}) == CheckedOptions(
        priority=0, delay=0, attempts=1, lifo=False, job_id=None, stored=None
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("priority", -MAX_PRIORITY),
        ("priority", MAX_PRIORITY),
        ("attempts", 1),
        ("attempts", MAX_COUNT),
        ("delay", 0),
        ("delay", MAX_DELAY),
        ("lifo", True),
        ("job_id", "a"),
        ("job_id", "ü" * 255),
        ("job_id", "7-of-9"),
        ("job_id", None),
    ],
)
def test_a_good_option_is_taken(option: str, value: object) -> None:
    assert getattr(check_options({option: value}), option) == value


@pytest.mark.parametrize("value", [1.0, "1", None, True, [1]])
@pytest.mark.parametrize("option", ["priority", "attempts"])
def test_a_number_must_be_a_whole_number(option: str, value: object) -> None:
    with pytest.raises(InvalidOptionType, match=f"^{option} must be a whole number, not "):
        check_options({option: value})


@pytest.mark.parametrize(
    ("option", "value", "least", "most"),
    [
        ("priority", MAX_PRIORITY + 1, -MAX_PRIORITY, MAX_PRIORITY),
        ("priority", -MAX_PRIORITY - 1, -MAX_PRIORITY, MAX_PRIORITY),
        ("attempts", 0, 1, MAX_COUNT),
        ("attempts", -1, 1, MAX_COUNT),
        ("attempts", MAX_COUNT + 1, 1, MAX_COUNT),
        ("delay", -1, 0, MAX_DELAY),
        ("delay", MAX_DELAY + 1, 0, MAX_DELAY),
    ],
)
def test_a_number_out_of_range_is_told_the_range(
    option: str, value: int, least: int, most: int
) -> None:
    with pytest.raises(
        InvalidOption, match=f"^{option} must be between {least} and {most}.*{value}"
    ):
        check_options({option: value})


@pytest.mark.parametrize("value", [1, "yes", None])
def test_lifo_is_true_or_false(value: object) -> None:
    with pytest.raises(InvalidOptionType, match="lifo must be True or False, not "):
        check_options({"lifo": value})


def test_an_unknown_option_is_told_those_there_are() -> None:
    with pytest.raises(
        InvalidOption,
        match=r"unknown job option 'delai'; the options are: attempts, backoff, .* timestamp",
    ):
        check_options({"delai": 5})


# --- ids and names -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["7", "007", "٣", "9" * 255])
def test_an_id_of_digits_is_refused_with_the_fix(value: str) -> None:
    with pytest.raises(InvalidOption, match=r"job_id must not be all digits.*add a letter"):
        check_options({"job_id": value})


@pytest.mark.parametrize("value", ["", "a" * 256])
def test_an_id_has_1_to_255_characters(value: str) -> None:
    with pytest.raises(InvalidOption, match="job_id must have 1 to 255 characters"):
        check_options({"job_id": value})


@pytest.mark.parametrize("value", ["a\n", "\x00", "a\x7fb", "\x85", "a\u2028b", "\ud800"])
def test_a_name_has_no_control_characters(value: str) -> None:
    with pytest.raises(InvalidOption, match="the name must not contain control characters"):
        check_name("the name", value)


@pytest.mark.parametrize("value", [5, None, b"a", ["a"]])
def test_a_name_is_text(value: object) -> None:
    with pytest.raises(InvalidOptionType, match="the name must be text, not "):
        check_name("the name", value)


@pytest.mark.parametrize("value", ["a", "../../etc", "名前", "a b", "🐂", "' or 1=1 --"])
def test_a_name_may_be_any_other_text(value: str) -> None:
    assert check_name("the name", value) == value


# --- durations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (0, 0),
        (1500, 1500),
        (timedelta(seconds=2), 2000),
        (timedelta(microseconds=1999), 1),
        ("500ms", 500),
        ("30s", 30_000),
        ("1.5s", 1500),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        (" 30 s ", 30_000),
    ],
)
def test_a_duration_may_be_given_in_many_ways(value: Any, milliseconds: int) -> None:
    assert check_duration("delay", value) == milliseconds


@pytest.mark.parametrize("value", [1.5, None, True, [1], b"30s"])
def test_a_duration_of_the_wrong_type_is_told_what_to_pass(value: object) -> None:
    with pytest.raises(InvalidOptionType, match=r"delay must be milliseconds.*timedelta.*30s"):
        check_duration("delay", value)


@pytest.mark.parametrize("value", ["", "30", "s", "30 seconds", "-5s", "1h30m", "30S", "1e3s"])
def test_a_duration_that_cannot_be_read_is_told_how_to_write_it(value: str) -> None:
    with pytest.raises(InvalidOption, match='delay must look like "500ms", "30s", "5m"'):
        check_duration("delay", value)


@pytest.mark.parametrize(
    "value", [-1, timedelta(seconds=-1), timedelta(days=4000), timedelta.max, "4000d"]
)
def test_a_duration_out_of_range_is_told_the_range(value: Any) -> None:
    with pytest.raises(InvalidOption, match="delay must be between 0 and"):
        check_duration("delay", value)


@pytest.mark.parametrize("digits", [30, 400])
def test_a_duration_beyond_all_measure_is_out_of_range_too(digits: int) -> None:
    with pytest.raises(InvalidOption, match="delay must be between 0 and"):
        check_duration("delay", "9" * digits + "d")


def test_a_number_beyond_all_measure_is_out_of_range_too() -> None:
    with pytest.raises(InvalidOption, match="priority must be between"):
        check_options({"priority": 10**5000})


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.timedeltas(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(["priority", "delay", "attempts", "backoff", "lifo", "job_id"]), anything)
def test_whatever_is_passed_is_taken_or_refused_by_name(option: str, value: object) -> None:
    refused = ""
    try:
        checked = check_options({option: value})
    except BulliteError as error:
        checked, refused = CheckedOptions(), str(error)
    assert not refused or option in refused
    assert 0 <= checked.delay <= MAX_DELAY
    assert 1 <= checked.attempts <= MAX_COUNT


# --- back-off ------------------------------------------------------------------------------------


def stored_backoff(backoff: object) -> object:
    stored = check_options({"backoff": backoff}).stored
    return None if stored is None else json.loads(stored)["backoff"]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (None, None),
        (500, {"type": "fixed", "delay": 500}),
        ("2s", {"type": "fixed", "delay": 2000}),
        (timedelta(seconds=2), {"type": "fixed", "delay": 2000}),
        ({}, {"type": "fixed", "delay": 0}),
        ({"type": "linear", "delay": "1s"}, {"type": "linear", "delay": 1000}),
        (
            {"type": "exponential", "delay": 100, "max_delay": "1m", "jitter": 1},
            {"type": "exponential", "delay": 100, "max_delay": 60_000, "jitter": 1.0},
        ),
        (
            {"type": "polynomial", "delay": 1, "exponent": 3},
            {"type": "polynomial", "delay": 1, "exponent": 3.0},
        ),
        (
            [{"on": "KeyError", "retry": False}, {"delay": 5}],
            [{"on": "KeyError", "retry": False}, {"type": "fixed", "delay": 5}],
        ),
        (({"delay": 5},), [{"type": "fixed", "delay": 5}]),
    ],
)
def test_backoff_is_stored_in_one_form(given: object, stored: object) -> None:
    assert stored_backoff(given) == stored


@pytest.mark.parametrize(
    ("backoff", "problem"),
    [
        ({"typ": "fixed"}, "backoff has an unknown key 'typ'; the keys are: .*max_delay"),
        ({"type": ""}, "backoff type"),
        ({"delay": -1}, "backoff delay must be between 0 and"),
        ({"delay": "x"}, "backoff delay must look like"),
        ({"max_delay": 1.5}, "backoff max_delay must be milliseconds"),
        ({"jitter": 1.1}, "backoff jitter must be between 0 and 1, not 1.1"),
        ({"jitter": "1"}, "backoff jitter must be a number"),
        ({"jitter": float("nan")}, "backoff jitter must be between 0 and 1"),
        ({"exponent": float("inf")}, "backoff exponent must be between 0 and 100"),
        ({"exponent": True}, "backoff exponent must be a number"),
        ({"on": ValueError}, "backoff on must be text"),
        ({"retry": 0}, "backoff retry must be True or False"),
        ([5], "backoff must be a delay, a mapping or a list of mappings, not 5"),
        (True, "backoff must be milliseconds"),
        (-1, "backoff must be between 0 and"),
        (lambda attempts, error: 5, "backoff must be milliseconds"),
    ],
)
def test_a_bad_backoff_is_told_what_is_wrong_with_it(backoff: object, problem: str) -> None:
    with pytest.raises((InvalidOption, InvalidOptionType), match=problem):
        check_options({"backoff": backoff})


OWN = {
    "job_id": "a",
    "run_at": 1,
    "timestamp": 1,
    "repeat": {"every": 1_000},
    "deduplication": {"id": "a"},
    "parent": ("q", "1"),
    "parent_id": "1",
    "children": [{"name": "a"}],
    "depends_on": ["1"],
    "depends_on_job_ids": ["1"],
}


@pytest.mark.parametrize("option", OWN)
def test_what_is_one_jobs_own_holds_for_no_others(option: str, tmp_path: Path) -> None:
    options: Any = {option: OWN[option]}
    with pytest.raises(InvalidOption, match=f"default_job_options cannot hold {option}:"):
        check_defaults(options)
    queue = Queue("q", tmp_path / "jobs.db")
    with pytest.raises(InvalidOption, match=f"the opts of a template cannot hold {option}:"):
        run_blocking(queue.upsert_job_scheduler("x", every="1m", template={"opts": options}))
    assert list(tmp_path.iterdir()) == []
