"""What `remove_on_complete` and the like mean."""

from __future__ import annotations

from typing import Any

import pytest

from bullite.core.retention import MAX_REMOVED, Retention, retention_of


@pytest.mark.parametrize(
    ("option", "keep"),
    [
        (True, Retention(0)),
        (False, None),
        (None, None),
        (0, Retention(0)),
        (3, Retention(3)),
        (-1, None),
        ({}, None),
        ({"count": 5}, Retention(5)),
        ({"age": 2}, Retention(None, 2_000)),
        ({"age": 2, "count": 5}, Retention(5, 2_000)),
        ({"age": 2, "limit": 7}, Retention(None, 2_000, 7)),
        ({"limit": 7}, None),
    ],
    ids=str,
)
def test_an_option_says_what_stays(option: Any, keep: Retention | None) -> None:
    assert retention_of(option) == keep


def test_nothing_stays_of_no_jobs() -> None:
    assert Retention(0).nothing
    assert Retention(0, age=5_000).nothing
    assert not Retention(1).nothing
    assert not Retention(age=0).nothing


def test_one_end_removes_a_bounded_number() -> None:
    assert Retention(1).limit == MAX_REMOVED
