"""Limits hold over processes, and nobody is idle while work is allowed."""

from __future__ import annotations

from tests.support.databases import Database
from tests.support.processes import problems, rows, say, summary_of


def test_processes_share_limits_and_use_them_up(database: Database) -> None:
    kind = "sqlite" if database.libraries == {"sqlite3"} else "postgres"
    place = ["--store", kind, "--location", database.location]
    summary = summary_of(
        "tests.support.limit_checks", "--processes", "4", "--jobs", "180", *place, timeout=100
    )

    assert summary["most at a time"] == "5"
    assert float(summary["ms below that at most"]) < 5_000
    assert summary["most in a window"] == "15"
    assert summary["windows that were not full"] == "0"
    assert float(summary["ms between windows at most"]) < 5_000
    assert summary["most of a key in a window"] == "3"
    assert float(summary["ms between windows of a key at most"]) < 5_000
    assert summary["verify"] == "ok"


async def add_what_gets_in(location: str) -> None:
    """Add jobs until the queue is full, and say how many got in."""
    from bullite import Queue, QueueFull

    let_in = 0
    async with Queue("work", location) as queue:
        for _ in range(60):
            try:
                await queue.add("a")
                let_in += 1
            except QueueFull:
                pass
    say(let_in)


async def set_quota(location: str) -> None:
    from bullite import Queue

    async with Queue("work", location, max_waiting=100):
        pass


def test_quota_max_waiting_holds_across_processes(location, start):
    assert start(set_quota, location).ended() == 0
    adders = [start(add_what_gets_in, location) for _ in range(4)]

    assert sum(int(adder.line()) for adder in adders) == 100
    assert rows(location, "select count(*) from bullite_jobs") == [(100,)]
    assert problems(location) == ()
