"""Many processes may open a database that does not exist yet, at the same instant."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bullite import Queue
from tests.crash.processes import ROOT, problems, rows, say, wait_until

PROCESSES, JOBS = 16, 25
SCHEMA = len(list((ROOT / "src/bullite/sqlite/migrations").glob("*.sql")))


def open_and_add(database: str, barrier: str) -> None:
    say("ready")
    wait_until(Path(barrier).exists)
    asyncio.run(add_jobs(database))


async def add_jobs(database: str) -> None:
    async with Queue("work", database) as queue:
        for number in range(JOBS):
            await queue.add("job", number)


def test_sixteen_processes_open_a_new_file_at_once_and_every_job_is_there(
    database, start, tmp_path
):
    barrier = tmp_path / "barrier"
    children = [start(open_and_add, database, barrier) for _ in range(PROCESSES)]
    for child in children:
        child.said("ready")

    barrier.touch()

    assert [child.ended() for child in children] == [0] * PROCESSES
    assert rows(database, "select count(*), count(distinct id) from bullite_jobs") == [
        (PROCESSES * JOBS, PROCESSES * JOBS)
    ]
    assert rows(database, "select name from bullite_queues") == [("work",)]
    assert rows(database, "select value from bullite_meta where key = 'schema'") == [(str(SCHEMA),)]
    assert problems(database) == ()
