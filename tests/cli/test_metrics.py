"""`queuectl metrics`: what queues did, minute by minute."""

from __future__ import annotations

import re

import pytest

from bullite import Queue
from tests.support.helpers import until

from .concurrent_runs import have_run
from .program import plain, run, run_well


async def did_something(queue: Queue) -> None:
    """Two completed, and one failed; it is written down."""
    await have_run(queue, "completed", "completed", "dead")

    async def is_recorded() -> bool:
        told = await queue.metrics()
        return (told.completed, told.failed, told.durations.count) == (2, 1, 3)

    await until(is_recorded)


async def test_a_row_for_each_minute_and_one_for_all(queue: Queue, location: str) -> None:
    await did_something(queue)
    rows = [line.split("\t") for line in run_well("metrics", db=location).lines]
    assert rows[-1][:3] == ["total", "2", "1"]
    assert all(len(row) == 7 for row in rows)
    assert sum(int(row[1]) for row in rows[:-1]) == 2
    assert all(row[0].endswith(":00.000Z") for row in rows[:-1])
    assert all(time.endswith("ms") for time in rows[-1][3:])


async def test_json_has_what_the_library_tells(queue: Queue, location: str) -> None:
    await did_something(queue)
    told = run_well("metrics", "--json", db=location).json
    library = await queue.metrics()
    assert list(told) == ["minutes", "completed", "failed", "durations", "waits"]
    assert told["durations"]["p95"] == library.durations.p95
    assert told["waits"]["count"] == library.waits.count
    minute = told["minutes"][-1]
    assert list(minute) == ["at", "completed", "failed", "durations", "waits"]
    assert minute["at"] == library.minutes[-1].at.isoformat().replace("+00:00", ".000Z")


async def test_queues_are_told_of_together_or_one(queue: Queue, location: str) -> None:
    other = Queue("other", queue.store)
    await did_something(queue)
    await did_something(other)
    both = run_well("metrics", "--json", db=location).json
    minutes = [minute["at"] for minute in both["minutes"]]
    assert (both["completed"], both["failed"], both["durations"]["count"]) == (4, 2, 6)
    assert minutes == sorted(set(minutes))
    assert run_well("metrics", "-q", "other", "--json", db=location).json["completed"] == 2


async def test_nothing_happened(queue: Queue, location: str) -> None:
    await queue.add("a")
    said = run_well("metrics", "--last", "5m", db=location)
    assert (said.out, said.err) == ("", "nothing happened in the last 5m\n")


@pytest.mark.parametrize("last", ["soon", "0", "-1h"])
async def test_a_time_that_is_none_is_refused(queue: Queue, location: str, last: str) -> None:
    await queue.add("a")
    said = run("metrics", f"--last={last}", db=location)
    assert (said.code, said.out) == (2, "")
    assert "--last must be" in said.err


async def test_on_a_narrow_terminal_a_minute_is_one_line(
    queue: Queue, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    await did_something(queue)
    heading, *rows = plain(run_well("metrics", db=location, terminal=True).out)
    assert heading.rstrip().endswith("WAIT P95")
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ ", row) for row in rows[:-1])
    assert rows[-1].startswith("total ")
