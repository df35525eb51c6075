"""Milliseconds and the moments they mean."""

from __future__ import annotations

from datetime import UTC, datetime

from bullite.core.clock import moment_of


def test_milliseconds_since_the_epoch_are_a_moment_in_utc() -> None:
    assert moment_of(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert moment_of(1_700_000_000_123).isoformat() == "2023-11-14T22:13:20.123000+00:00"
