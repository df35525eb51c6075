"""The scheduler service in a process of its own: what is due happens, once, without a worker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import bullite
from bullite import Queue, Scheduler, Store
from tests.support.databases import Database
from tests.support.helpers import python, until
from tests.support.listening import names_of, payloads, told


async def is_in(queue: Queue, job_id: str, state: str) -> bool:
    return await queue.get_job_state(job_id) == state


PREPARING = """
import asyncio, os, sys
from bullite import Queue, Worker

async def main():
    queue = Queue("emails", sys.argv[1], **eval(sys.argv[3]))

    async def work(job):
        if job.name == "die":
            os._exit(0)
        if job.name == "bad":
            raise ValueError("no")

    await queue.wait_until_ready()
    for name in sys.argv[2].split():
        await queue.add(name, job_id=name)
    async with Worker(queue, work, **eval(sys.argv[4])):
        while await queue.count() + await queue.get_active_count():
            await asyncio.sleep(0.01)
    if "trash_age" in sys.argv[3]:
        await queue.clean(0)
    await queue.close()

asyncio.run(main())
"""
"""Runs jobs in a process that has ended when the scheduler begins."""


async def prepare(database: Database, names: str, **settings: Any) -> None:
    arguments = (database.location, names, settings, dict(database.short_lease))
    await asyncio.to_thread(python, PREPARING, *arguments)


# --- what it does --------------------------------------------------------------------------------


async def test_without_a_scheduler_or_a_worker_nothing_is_promoted(queue: Queue) -> None:
    await queue.add("a", job_id="x", delay=10)
    await asyncio.sleep(0.1)
    assert await is_in(queue, "x", "delayed")


async def test_it_promotes_jobs_whose_time_has_come_and_runs_none(queue: Queue) -> None:
    await queue.add("a", job_id="soon", delay=50)
    await queue.add("a", job_id="late", delay="1h")
    async with Scheduler(queue.store):
        await until(lambda: is_in(queue, "soon", "waiting"))
    assert await is_in(queue, "late", "delayed")
    assert names_of(await told(queue), "soon") == ["added", "delayed", "promoted", "waiting"]


async def test_it_serves_every_queue_of_its_database(queue: Queue) -> None:
    queues = [Queue(name, queue.store) for name in ("mails", "texts")]
    for one in queues:
        await one.add("a", job_id="x", delay=20)
    async with Scheduler(queue.store):
        for one in queues:
            await until(lambda one=one: is_in(one, "x", "waiting"))


async def test_scheduler_fails_expired_jobs(queue: Queue) -> None:
    await queue.add("a", job_id="waits", expires=20)
    await queue.add("a", job_id="delayed", expires=20, delay="1h")
    await queue.add("a", job_id="has time", expires="1h")
    async with Scheduler(queue.store):
        for job_id in ("waits", "delayed"):
            await until(lambda job_id=job_id: is_in(queue, job_id, "failed"))
            job = await queue.get_job(job_id)
            assert job is not None
            assert job.outcome == "expired"
    assert await is_in(queue, "has time", "waiting")


async def test_it_takes_back_the_jobs_of_workers_that_died(
    queue: Queue, database: Database
) -> None:
    await prepare(database, "die")
    assert await is_in(queue, "die", "active")
    async with Scheduler(queue.store):
        await until(lambda: is_in(queue, "die", "waiting"))
    job = await queue.get_job("die")
    assert job is not None
    assert (job.stalled_count, job.attempts_made) == (1, 0)
    assert await queue.get_workers() == []


@pytest.mark.parametrize(
    ("names", "settings"), [("good", {"keep_completed": 1}), ("bad", {"keep_failed": 1})]
)
async def test_it_deletes_what_was_kept_long_enough(
    queue: Queue, database: Database, names: str, settings: dict[str, Any]
) -> None:
    await prepare(database, names, **settings)
    assert await queue.get_job(names) is not None
    async with Scheduler(queue.store):
        await until(lambda: is_in(queue, names, "unknown"))


async def test_it_keeps_what_is_to_be_kept(queue: Queue, database: Database) -> None:
    await prepare(database, "one two bad", keep_completed={"count": 1})
    async with Scheduler(queue.store):
        await until(lambda: is_in(queue, "one", "unknown"))
    assert await is_in(queue, "two", "completed")
    assert await is_in(queue, "bad", "failed")


async def test_it_deletes_removed_jobs_when_they_can_no_longer_be_restored(
    queue: Queue, database: Database
) -> None:
    await prepare(database, "good", trash_age=1)
    assert rows_of(database, "good") == 1
    async with Scheduler(queue.store):
        await until(lambda: rows_of(database, "good") == 0)


async def test_it_leaves_removed_jobs_that_can_be_restored(
    queue: Queue, database: Database
) -> None:
    await prepare(database, "good old", trash_age=3_600_000)
    await queue.add("a", job_id="soon", delay=10)
    async with Scheduler(queue.store):
        await until(lambda: is_in(queue, "soon", "waiting"))
    assert (await queue.restore("good")).state == "completed"


def rows_of(database: Database, job_id: str) -> int:
    return len(database.rows("jobs", f"custom_id = '{job_id}'"))


# --- two at once ---------------------------------------------------------------------------------

SCHEDULING = """
import asyncio, sys
import bullite
asyncio.run(bullite.scheduler.run(sys.argv[1]))
"""


@pytest.fixture
def two_schedulers(location: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-W", "error", "-c", SCHEDULING, location]
    processes = [subprocess.Popen(command) for _ in range(2)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


async def test_two_at_once_do_each_thing_once(
    queue: Queue, database: Database, two_schedulers: list[subprocess.Popen[bytes]]
) -> None:
    await prepare(database, "die")
    opts: Any = [{"delay": 10 * n} for n in range(1, 101)]
    opts += [{"expires": 10 * n} for n in range(1, 51)]
    await queue.add_bulk({"name": "a", "opts": one} for one in opts)
    await until(lambda: is_everything_done(queue))
    heard = await told(queue)
    assert [process.poll() for process in two_schedulers] == [None, None]
    for event, wanted in (("promoted", 100), ("failed", 50), ("stalled", 1)):
        times = Counter(payload["job_id"] for payload in payloads(heard, event))
        assert len(times) == wanted
        assert set(times.values()) == {1}


async def is_everything_done(queue: Queue) -> bool:
    counts = await queue.get_job_counts("waiting", "delayed", "active", "failed")
    return counts == {"waiting": 101, "delayed": 0, "active": 0, "failed": 50}


# --- its life ------------------------------------------------------------------------------------


async def test_run_ends_when_it_is_cancelled(queue: Queue, location: str) -> None:
    await queue.add("a", job_id="x", delay=20)
    running = asyncio.create_task(bullite.scheduler.run(location))
    await until(lambda: is_in(queue, "x", "waiting"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await is_at_rest(queue)


async def is_at_rest(queue: Queue) -> None:
    """Nobody looks at the clock any more."""
    await queue.add("a", job_id="later", delay=10)
    await asyncio.sleep(0.1)
    assert not queue.store.open()._maintenance.is_needed()
    assert await is_in(queue, "later", "delayed")


async def test_a_scheduler_rests_when_it_is_closed_however_often_it_was_started(
    queue: Queue,
) -> None:
    scheduler = Scheduler(queue.store)
    await scheduler.start()
    await scheduler.start()
    await scheduler.close()
    await scheduler.close()
    await is_at_rest(queue)


async def test_one_scheduler_goes_on_when_another_is_closed(queue: Queue) -> None:
    async with Scheduler(queue.store):
        async with Scheduler(queue.store):
            pass
        await queue.add("a", job_id="x", delay=20)
        await until(lambda: is_in(queue, "x", "waiting"))


async def test_a_closed_scheduler_can_be_started_again(queue: Queue) -> None:
    scheduler = Scheduler(queue.store)
    for job_id in ("x", "y"):
        async with scheduler:
            await queue.add("a", job_id=job_id, delay=20)
            await until(lambda job_id=job_id: is_in(queue, job_id, "waiting"))


async def test_a_scheduler_closes_the_store_it_opened_and_no_other(location: str) -> None:
    async with Scheduler(location) as own:
        assert own.store.is_open
    assert not own.store.is_open
    store = Store(location)
    async with Scheduler(store):
        pass
    assert store.is_open
    store.close()


async def test_a_scheduler_makes_a_database_that_does_not_exist_yet(database: Database) -> None:
    new = database.another()
    async with Scheduler(new.location):
        await until(new.exists)
    assert new.problems() == []
