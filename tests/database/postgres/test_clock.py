"""All times are the server's, however wrong the clock of this machine is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from bullite import Job, Queue, Scheduler, Worker
from bullite.database.postgres.server_clock import ServerClock
from tests.support.helpers import state_of, until
from tests.support.postgres_database import PostgresDatabase

MINUTE = 60_000
ACCURACY = 2_000
"""Ms between what a test calls now and what is stored."""

REAL = time.time_ns


@pytest.fixture(params=[-30, -10, 10, 30], ids=lambda minutes: f"{minutes:+} minutes")
def wrong_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Ms by which the clock of this machine is wrong."""
    off = request.param * MINUTE
    monkeypatch.setattr(time, "time_ns", lambda: REAL() + off * 1_000_000)
    monkeypatch.setattr(time, "time", lambda: REAL() / 1e9 + off / 1000)
    return off


def now() -> int:
    """Ms since the epoch, really; the server runs on this machine."""
    return REAL() // 1_000_000


def row(database: PostgresDatabase, table: str = "jobs") -> dict[str, int]:
    [found] = database.rows(table)
    return found


async def nothing(job: Job) -> None: ...


def test_the_clock_starts_with_this_machines_time_and_is_set_by_the_server(wrong_by):
    clock = ServerClock()
    assert abs(clock.now() - now() - wrong_by) < ACCURACY

    clock.set(now())

    assert abs(clock.now() - now()) < ACCURACY
    assert abs(clock.lease_now() - now()) < ACCURACY


def test_the_clock_goes_on_when_this_machines_is_set(monkeypatch):
    clock = ServerClock()
    clock.set(now())
    monkeypatch.setattr(time, "time_ns", lambda: REAL() + 3600 * 10**9)

    assert abs(clock.now() - now()) < ACCURACY


async def test_a_job_is_made_at_the_servers_time(database, wrong_by):
    async with Queue("emails", database.location) as queue:
        await queue.add("job")

    assert abs(row(database)["created_at"] - now()) < ACCURACY


async def test_a_delayed_job_is_due_by_the_servers_time(database, wrong_by):
    async with Queue("emails", database.location) as queue:
        await queue.add("job", delay=MINUTE)

    assert abs(row(database)["due_at"] - now() - MINUTE) < ACCURACY


async def test_a_delayed_job_runs_when_its_time_has_come(database, wrong_by):
    async with Queue("emails", database.location) as queue:
        job = await queue.add("job", delay=200)
        began = time.monotonic()
        async with Worker(queue, nothing):
            await job.result(timeout=10_000)

    assert 0.15 < time.monotonic() - began < 3


async def test_a_delayed_job_does_not_run_too_soon(database, wrong_by):
    async with Queue("emails", database.location) as queue:
        job = await queue.add("job", delay=MINUTE)
        async with Worker(queue, nothing), Scheduler(queue.store):
            await asyncio.sleep(0.3)
            assert await state_of(queue, job) == "delayed"


async def test_a_scheduler_ticks_by_the_servers_time(database, wrong_by):
    async with Queue("emails", database.location) as queue:
        await queue.upsert_job_scheduler("hourly", pattern="0 * * * *")
        every = await queue.upsert_job_scheduler("at once", every="1h")
        async with Worker(queue, nothing), Scheduler(queue.store):
            await every.result(timeout=10_000)
            await asyncio.sleep(0.2)
            assert await queue.get_completed_count() == 1
        hourly = await queue.get_job_scheduler("hourly")

    hour = 60 * MINUTE
    assert hourly.next_run_at.timestamp() * 1000 == (now() // hour + 1) * hour


async def test_a_lease_ends_by_the_servers_time(database, wrong_by):
    queue = Queue("emails", database.location)
    async with queue, Worker(queue, nothing, lock_duration=30_000):
        await until(lambda: database.rows("workers"))
        lease = row(database, "workers")["lease_until"]

    assert abs(lease - now() - 30_000) < ACCURACY


async def test_runs_are_timed_by_the_server(database, wrong_by):
    async with Queue("emails", database.location) as queue:
        job = await queue.add("job")
        async with Worker(queue, nothing):
            await job.result()

    assert abs(row(database)["processed_at"] - now()) < ACCURACY
    assert abs(row(database)["finished_at"] - now()) < ACCURACY


async def test_nobody_who_lives_is_taken_for_dead_by_a_process_whose_clock_is_wrong(
    database, monkeypatch
):
    going_on = asyncio.Event()
    begun = asyncio.Event()

    async def work(job: Job) -> None:
        begun.set()
        await going_on.wait()

    async with Queue("emails", database.location) as queue:
        job = await queue.add("job")
        async with Worker(queue, work):
            await begun.wait()
            with monkeypatch.context() as patch:
                patch.setattr(time, "time_ns", lambda: REAL() + 3600 * 10**9)
                # Another process that does nothing but what is due by the clock.
                async with Scheduler(f"{database.location}&keepalives_idle=11"):
                    await asyncio.sleep(0.5)
            going_on.set()
            await job.result()
            found = await queue.get_job(job.id)

    assert found is not None
    assert (found.attempts_started, found.stalled_count) == (1, 0)


async def test_nothing_expires_too_soon_by_a_clock_that_is_wrong(database, monkeypatch):
    async with Queue("emails", database.location) as queue:
        job = await queue.add("job", expires="10m")
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: REAL() + 3600 * 10**9)
            async with Scheduler(f"{database.location}&keepalives_idle=11"):
                await asyncio.sleep(0.3)

        assert await state_of(queue, job) == "waiting"
