"""What `remove_on_complete` and the like mean."""

from __future__ import annotations

from typing import Any

import pytest

from bullite.core.retention import MOST_REMOVED, Keep, keep_of


@pytest.mark.parametrize(
    ("option", "keep"),
    [
        (True, Keep(0)),
        (False, None),
        (None, None),
        (0, Keep(0)),
        (3, Keep(3)),
        (-1, None),
        ({}, None),
        ({"count": 5}, Keep(5)),
        ({"age": 2}, Keep(None, 2_000)),
        ({"age": 2, "count": 5}, Keep(5, 2_000)),
        ({"age": 2, "limit": 7}, Keep(None, 2_000, 7)),
        ({"limit": 7}, None),
    ],
    ids=str,
)
def test_an_option_says_what_stays(option: Any, keep: Keep | None) -> None:
    assert keep_of(option) == keep


def test_nothing_stays_of_no_jobs() -> None:
    assert Keep(0).nothing
    assert Keep(0, age=5_000).nothing
    assert not Keep(1).nothing
    assert not Keep(age=0).nothing


def test_one_end_removes_a_bounded_number() -> None:
    assert Keep(1).limit == MOST_REMOVED
