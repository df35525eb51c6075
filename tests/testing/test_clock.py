"""Time that passes only when a test says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bullite import Queue, Store
from bullite.errors import InvalidOption
from bullite.testing import START, Playground, VirtualClock


def test_it_begins_at_a_fixed_moment_and_stands_still() -> None:
    clock = VirtualClock()
    assert clock.time == START == datetime(2029, 1, 1, tzinfo=UTC)
    assert clock.now() == clock.now() == int(START.timestamp() * 1000)
    assert START.strftime("%A") == "Monday"


@pytest.mark.parametrize("duration", ["2h", timedelta(hours=2), 7_200_000])
def test_it_is_moved_by_a_duration_in_whatever_form(duration: str | timedelta | int) -> None:
    clock = VirtualClock()
    before = clock.lease_now()
    clock.advance(duration)
    assert clock.time == START + timedelta(hours=2)
    assert clock.lease_now() - before == 7_200_000


def test_it_never_goes_back() -> None:
    clock = VirtualClock()
    with pytest.raises(InvalidOption):
        clock.advance(-1)
    clock.move_to(0)
    assert clock.time == START


def test_a_playground_begins_when_it_is_told_to() -> None:
    start = datetime(2024, 2, 29, 12, tzinfo=UTC)
    with Playground(start=start) as play:
        assert play.add("test", "job").created_at == start == play.clock.time


def test_it_is_a_clock_for_any_store(tmp_path: object) -> None:
    store = Store(f"{tmp_path}/jobs.db", clock=VirtualClock())
    try:
        with Playground() as play:
            job = play.run(Queue("test", store).add("job"))
        assert job.created_at == START
    finally:
        store.close()
