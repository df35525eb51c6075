"""A program that uses every public name; type checkers must have nothing to say about it."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime, timedelta
from typing import Any

import bullite
from bullite import (
    BulliteError,
    Job,
    JobFailed,
    JobNotFound,
    LostLock,
    Queue,
    QueueOptionMismatch,
    Store,
    StoreError,
    UnrecoverableError,
    Verification,
    Worker,
    verify,
)


async def greet(job: Job) -> dict[str, str]:
    try:
        await job.update_progress({"percent": 50})
    except LostLock:
        raise UnrecoverableError("somebody else has it") from None
    return {"greeted": job.data["name"]}


def count(job: Job) -> int:
    job.update_progress(100).result(timeout=5)
    return len(job.data)


async def main(path: str) -> None:
    store = Store(path)
    async with Queue("typed", store, priority_order="high") as queue:
        job: Job = await queue.add(
            "greet",
            {"name": "Ada"},
            attempts=3,
            backoff={"type": "exponential", "delay": "1s", "max_delay": timedelta(minutes=1)},
            priority=2,
            delay=10,
            lifo=False,
            job_id="greet-ada",
        )
        others: list[Job] = await queue.add_bulk(
            [
                {"name": "count", "data": [1, 2, 3]},
                {
                    "name": "count",
                    "data": [],
                    "opts": {"attempts": 2, "backoff": [{"on": "OSError", "retry": False}]},
                },
            ],
            chunk=10,
            on_chunk=lambda stored: None,
        )
        async with Worker(
            queue,
            {"greet": greet, "count": count},
            concurrency=2,
            name="typed-worker",
            lock_duration="30s",
            max_stalled_count=1,
        ) as worker:
            assert worker.is_running
            assert await job.result(timeout=timedelta(seconds=10)) == {"greeted": "Ada"}
            numbers: list[Any] = [await other.result() for other in others]
            assert numbers == [3, 0]
        found: Job | None = await queue.get_job("greet-ada")
        assert found is not None
        finished: datetime | None = found.finished_at
        assert finished is not None
        assert found.opts["attempts"] == 3
        counts: dict[str, int] = await queue.get_job_counts("completed", "failed")
        assert counts == {"completed": 3, "failed": 0}
        await expect(BulliteError, JobNotFound, JobFailed, QueueOptionMismatch, StoreError)
        checked: Verification = verify(store)
        assert checked.ok, checked.problems
    store.close()
    print(bullite.__version__, checked)  # noqa: T201


async def expect(*errors: type[BulliteError]) -> None:
    assert all(issubclass(error, BulliteError) for error in errors)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
