"""What queues and workers tell of what they did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from bullite import Job, Metrics, Queue, Store, Worker
from bullite.client import directory
from bullite.engine import maintenance
from bullite.errors import BulliteError
from tests.support.databases import Database
from tests.support.helpers import case, python, until

LENGTH = 0.03


@pytest.fixture
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured is written down at every opportunity."""
    monkeypatch.setattr(maintenance, "WRITE_METRICS_EVERY", 1)


async def on_the_loop(job: Job) -> None:
    await asyncio.sleep(LENGTH)
    if job.name == "bad":
        raise ValueError("broken")


def in_a_thread(job: Job) -> None:
    time.sleep(LENGTH)
    if job.name == "bad":
        raise ValueError("broken")


async def run_some(queue: Queue, work: Any, good: int = 3, bad: int = 2) -> None:
    async with Worker(queue, work, concurrency=2):
        await queue.add_bulk([{"name": "good"}] * good + [{"name": "bad"}] * bad)
        await until(lambda: have_ended(queue, good + bad))


async def have_ended(queue: Queue, number: int) -> bool:
    return await queue.get_job_count_by_types("completed", "failed") == number


async def test_a_queue_that_did_nothing(queue: Queue) -> None:
    nothing: Metrics = await queue.metrics()
    assert (nothing.minutes, nothing.completed, nothing.failed) == ([], 0, 0)
    assert (nothing.durations.count, nothing.durations.mean, nothing.waits.p95) == (0, None, None)


@pytest.mark.parametrize("work", [on_the_loop, in_a_thread])
async def test_what_ended_how_long_it_ran_and_waited(
    queue: Queue, work: Callable[[Job], Any]
) -> None:
    began = datetime.now(UTC)
    await run_some(queue, work)
    found = await queue.metrics()
    assert (found.completed, found.failed) == (3, 2)
    assert found.durations.count == 5
    assert found.durations.least is not None
    assert found.durations.p50 is not None
    assert LENGTH * 1e3 * 0.9 < found.durations.least <= found.durations.p50
    assert found.waits.count == 5
    assert sum(minute.completed for minute in found.minutes) == 3
    assert sum(minute.durations.count for minute in found.minutes) == 5
    assert (began - found.minutes[0].at).total_seconds() < 60


async def test_it_is_written_down_while_a_worker_works(queue: Queue, talkative: None) -> None:
    async with Worker(queue, on_the_loop):
        await (await queue.add("good")).result(timeout="10s")
        await until(lambda: tells_of(queue, 1))
        await (await queue.add("good")).result(timeout="10s")
        await until(lambda: tells_of(queue, 2))


async def tells_of(queue: Queue, completed: int) -> bool:
    found = await queue.metrics()
    return (found.completed, found.durations.count) == (completed, completed)


async def test_what_was_measured_is_written_when_the_store_is_closed(
    location: str, database: Database
) -> None:
    store = Store(location)
    worker = Worker("emails", None, store=store)
    await worker.queue.add("a")
    job = await worker.get_next_job()
    assert job is not None
    await job.move_to_completed()
    # It is not closed: the store is, under it.
    await asyncio.to_thread(store.close)
    [row] = database.rows("minutes")
    assert (row["completed"], row["failed"]) == (1, 0)


async def test_the_minutes_of_several_processes_add_up(queue: Queue, location: str) -> None:
    program = """
import asyncio, sys
from bullite import Queue, Worker
async def nothing(job): pass
async def main():
    async with Queue("emails", sys.argv[1]) as queue, Worker(queue, nothing):
        jobs = await queue.add_bulk([{"name": "here"}] * 20)
        for job in jobs: await job.result(timeout="10s")
asyncio.run(main())
"""
    await queue.wait_until_ready()
    await asyncio.gather(*(asyncio.to_thread(python, program, location) for _ in range(2)))
    found = await queue.metrics()
    assert (found.completed, found.failed, found.durations.count) == (40, 0, 40)


async def test_only_as_much_as_was_asked_for(queue: Queue, database: Database) -> None:
    await run_some(queue, on_the_loop, good=2, bad=0)
    database.write("update bullite_minutes set minute = minute - 10")
    assert (await queue.metrics("5m")).completed == 0
    assert (await queue.metrics("15m")).completed == 2
    assert (await queue.metrics(last=15 * 60_000)).completed == 2


async def test_a_bad_argument_is_named(queue: Queue) -> None:
    for last in (0, -1, "soon", None, 1.5):
        with case(last), pytest.raises(BulliteError, match="last"):
            await queue.metrics(last)  # type: ignore[arg-type]


# --- workers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("work", [on_the_loop, in_a_thread])
async def test_workers_tell_what_they_do(
    queue: Queue, talkative: None, work: Callable[[Job], Any]
) -> None:
    assert await directory.workers(queue.store) == []
    async with Worker(queue, {"good": work, "bad": work}, concurrency=3, name="a worker"):
        await queue.add_bulk([{"name": "good"}, {"name": "bad"}, {"name": "good"}])
        await until(lambda: has_told(queue, 3))
        [told] = await directory.workers(queue.store)
        assert (told.queue, told.name, told.concurrency) == ("emails", "a worker", 3)
        assert sorted(told.names or ()) == ["bad", "good"]
        assert (told.runs, told.failed, told.jobs) == (3, 1, ())
        assert told.busy_ms >= 3 * LENGTH * 900
        assert 0 < told.busy_share <= 1
        assert told.lock_waits >= 0
        assert told.lock_wait_ms >= told.lock_waits
        assert told.started_at <= told.seen_at
        assert abs((datetime.now(UTC) - told.seen_at).total_seconds()) < 15
    assert await directory.workers(queue.store) == []


async def has_told(queue: Queue, runs: int) -> bool:
    return sum(worker.runs for worker in await directory.workers(queue.store)) == runs


async def test_a_worker_names_the_jobs_that_it_runs(queue: Queue) -> None:
    worker = Worker(queue, None, name="by hand")
    await queue.add("a", job_id="order-7")
    numbered = await queue.add("a")
    held = [await worker.get_next_job(), await worker.get_next_job()]
    [told] = await directory.workers(queue.store)
    assert sorted(told.jobs) == sorted(["order-7", numbered.id])
    assert (told.runs, told.busy_share, told.names) == (0, 0.0, None)
    for job in held:
        assert job is not None
        await job.move_to_completed()
    await worker.close()


async def test_a_worker_that_has_not_told_anything_is_seen_since_it_began(queue: Queue) -> None:
    async with Worker(queue, on_the_loop):
        await until(lambda: queue.get_workers_count())
        [told] = await directory.workers(queue.store)
        assert told.seen_at >= told.started_at
        assert told.busy_share == 0.0
