"""`verify` notices every promise that the tables do not keep."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from bullite import Queue, Store, Worker, verify


async def fill(database: Path) -> None:
    """A completed job (1), an active one (2) and a delayed one (3), as a kill would leave them."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def process(job: object) -> None:
        if job.name == "hold":  # type: ignore[attr-defined]
            begun.set()
            await end.wait()

    async with Queue("work", database) as queue:
        done = await queue.add("quick", job_id="quick")
        held = await queue.add("hold")
        worker = Worker(queue, process, concurrency=2)
        await done.result()
        await begun.wait()
        breaking = sqlite3.connect(":memory:")
        await queue.add("later", delay="1h")
        source = sqlite3.connect(database)
        source.backup(breaking)
        source.close()
        end.set()
        await held.result()
        await worker.close()
    for leftover in database.parent.iterdir():
        if leftover.is_file():
            leftover.unlink()
    copy = sqlite3.connect(database)
    breaking.backup(copy)
    copy.close()
    breaking.close()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.db"
    asyncio.run(fill(path))
    return path


def problems(database: Path) -> tuple[str, ...]:
    store = Store(database)
    try:
        return verify(store).problems
    finally:
        store.close()


def test_a_good_database_has_no_problems(database: Path) -> None:
    assert problems(database) == ()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (
            "update bullite_queues set active = active + 1",
            "queue work: active is kept as 2 but counts 1",
        ),
        (
            "update bullite_queues set completed = 0",
            "queue work: completed is kept as 0 but counts 1",
        ),
        ("delete from bullite_workers", "job 2 is active without a worker"),
        (
            "update bullite_jobs set lease_until = null where state = 'active'",
            "job 2 is active without a lease",
        ),
        (
            "update bullite_jobs set token = null where state = 'active'",
            "job 2 is active without a token",
        ),
        (
            "update bullite_jobs set nonce = nonce + 1 where state = 'active'",
            "job 2 is held with a token that is not its worker's",
        ),
        ("delete from bullite_payloads where job = 1", "job 1 has no payload"),
        (
            "insert into bullite_payloads values (99, '1', null)",
            "payload of job 99, which does not exist",
        ),
        (
            "insert into bullite_results (job) values (99)",
            "result of job 99, which does not exist",
        ),
        (
            "insert into bullite_attempts (job, number, ended_at, outcome) values (99, 1, 1, '')",
            "attempt of job 99, which does not exist",
        ),
        (
            "insert into bullite_logs values (99, 1, 1, 'info', 'a line')",
            "log of job 99, which does not exist",
        ),
        (
            "update bullite_jobs set ahead = 1 where state = 'delayed'",
            "job 3 is delayed and yet held ahead",
        ),
        (
            "update bullite_jobs set due_at = null where state = 'delayed'",
            "job 3 is delayed without a due time",
        ),
        (
            "update bullite_jobs set finished_at = null where state = 'completed'",
            "job 1 is completed without a finish time",
        ),
        (
            "update bullite_sequence set last = 2",
            "job 3 has a number that was not handed out yet",
        ),
    ],
)
def test_damage_is_named(database: Path, damage: str, problem: str) -> None:
    connection = sqlite3.connect(database)
    connection.execute(damage)
    connection.commit()
    connection.close()
    assert problem in problems(database)


def test_a_job_of_no_queue_is_named(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("delete from bullite_queues")
    connection.commit()
    connection.close()
    assert "job 1 belongs to queue 1, which does not exist" in problems(database)


def test_an_index_entry_that_is_missing_is_named(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.executescript(
        """
        pragma writable_schema = on;
        update sqlite_master set sql = replace(sql, 'state = ''completed''', 'state = ''failed''')
            where name = 'bullite_jobs_completed';
        """
    )
    connection.commit()
    connection.close()
    assert any("bullite_jobs_completed" in problem for problem in problems(database))


def test_two_jobs_of_one_custom_id_are_named(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("drop index bullite_jobs_custom_id")
    connection.execute("update bullite_jobs set custom_id = 'quick'")
    connection.commit()
    connection.close()
    assert "custom id quick stands for 3 jobs of one queue" in problems(database)
