"""Schedulers that many processes share: one row, one pending job, each tick once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bullite import Queue
from tests.support.processes import problems, rows, say, summary_of, wait_until

PROCESSES, UPSERTS = 16, 20


def test_scheduler_makes_each_tick_once_across_processes(location):
    numbers = ["--processes", "4", "--ticks", "300", "--limit", "60"]
    summary = summary_of(
        "tests.support.scheduler_checks", *numbers, "--location", location, timeout=120
    )

    assert int(summary["ticks"]) >= 300
    assert int(summary["processes that ran some"]) > 1
    assert summary["made twice"] == "0"
    assert summary["lost"] == "0"
    assert summary["pending jobs"] == summary["schedulers"]
    assert summary["verify"] == "ok"


async def upsert_again_and_again(location: str, barrier: str, number: int) -> None:
    async with Queue("work", location) as queue:
        say("ready")
        await asyncio.to_thread(wait_until, Path(barrier).exists)
        for n in range(UPSERTS):
            every = 600_000 + (n + number) % 3
            await queue.upsert_job_scheduler("one", every=every, template={"data": number})


def test_sixteen_processes_upsert_one_scheduler_and_it_is_one(location, start, tmp_path):
    barrier = tmp_path / "barrier"
    children = [start(upsert_again_and_again, location, barrier, n) for n in range(PROCESSES)]
    for child in children:
        child.said("ready")

    barrier.touch()

    assert [child.ended() for child in children] == [0] * PROCESSES
    assert rows(location, "select key, iterations from bullite_schedulers") == [("one", 1)]
    assert rows(location, "select state from bullite_jobs") == [("waiting",)]
    assert problems(location) == ()
