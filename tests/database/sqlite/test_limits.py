"""What SQLite itself will not take."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from bullite import Job, JobFailed, Queue, Worker
from tests.support.processes import problems


async def test_a_result_that_is_too_big_fails_its_job_and_no_other(database: Path) -> None:
    """Else it would be sent for ever, and its worker could never close."""
    together = asyncio.Barrier(2)

    async def work(job: Job) -> str:
        await together.wait()
        return "x" * job.data

    async with Queue("work", database) as queue:
        driver = queue.store.open().driver
        driver._writer.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)  # type: ignore[attr-defined]
        huge, small = await queue.add_bulk([{"name": "a", "data": size} for size in (60_000, 10)])
        async with Worker(queue, work, concurrency=2):
            with pytest.raises(JobFailed, match=r"its result was refused: .*too big"):
                await huge.result(timeout="10s")
            assert await small.result(timeout="10s") == "x" * 10
    assert problems(database) == ()
