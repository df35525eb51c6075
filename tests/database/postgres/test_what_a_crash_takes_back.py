"""A crash of the server takes back the last commits that were not durable: nobody is left behind.

Those are the ones of claims and of workers that come, go and live on. Here the server flushes them
only when somebody else's commit is durable.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator

import pytest

from bullite import Job, Queue, Worker
from tests.database.postgres.conftest import assert_verified, url_of
from tests.database.postgres.listening import Starts, seconds_to_start, sleeper
from tests.database.postgres.proxy import Proxy
from tests.support.helpers import state_of, until
from tests.support.processes import Child, hang, say
from tests.support.server import UNSYNCED, Server

WOKEN_WITHIN = 5.0
"""Seconds after a fault in which wake-ups work again."""


@pytest.fixture(scope="module")
def lazy() -> Iterator[Server]:
    server = Server({**UNSYNCED, "wal_writer_delay": "10s"})
    yield server
    server.destroy()


@pytest.fixture
def lazy_server(lazy: Server) -> Iterator[Server]:
    yield lazy
    try:
        assert_verified(url_of(lazy))
    finally:
        with lazy.connect() as connection:
            connection.execute("drop schema bullite cascade")


def count(server: Server, what: str) -> int:
    with server.connect() as connection:
        [number] = connection.execute(f"select count(*) from bullite.{what}".encode()).fetchone()
    return number


async def restart(server: Server) -> None:
    await asyncio.get_running_loop().run_in_executor(None, server.restart)


async def test_a_worker_that_the_crash_forgot_is_woken_again(lazy_server: Server) -> None:
    starts = Starts()
    with Proxy(lazy_server.url()) as proxy:
        location = url_of(lazy_server)
        async with Queue("work", location) as queue, sleeper(proxy.url(location), starts):
            await until(lambda: count(lazy_server, "bullite_workers where hungry = 1"))
            await restart(lazy_server)
            await asyncio.sleep(WOKEN_WITHIN - 1)
            assert await seconds_to_start(queue, starts) < 1


async def test_idle_worker_is_notified_again_after_a_crash_lost_its_idle_state(
    lazy_server: Server,
) -> None:
    starts = Starts()
    with Proxy(lazy_server.url()) as proxy:
        location = url_of(lazy_server)
        async with Queue("work", location) as queue, sleeper(proxy.url(location), starts):
            await until(lambda: count(lazy_server, "bullite_workers where hungry = 1"))
            # What is lost would be found by nobody: it is not the worker that is unknown.
            with lazy_server.connect() as connection:
                connection.execute("update bullite.bullite_workers set hungry = 0")
            await restart(lazy_server)
            await asyncio.sleep(WOKEN_WITHIN - 1)
            assert await seconds_to_start(queue, starts) < 1


async def forgotten(location: str) -> None:
    """Take a job with a registration that is lost, and never finish it."""

    async def work(job: Job) -> None:
        say("begun", job.pk)
        hang()

    worker = Worker("work", work, store=location, poll_interval=100, lock_duration=60_000)
    say("here", os.getpid())
    await worker.run()


async def test_what_a_worker_that_the_crash_forgot_takes_is_taken_back_when_it_dies(
    lazy_server: Server, start: Callable[..., Child]
) -> None:
    location, starts = url_of(lazy_server), Starts()
    async with Queue("work", location) as queue:
        child = start(forgotten, location)
        await until(lambda: count(lazy_server, "bullite_workers where hungry = 1"))
        await restart(lazy_server)
        job = await queue.add("a")
        await asyncio.get_running_loop().run_in_executor(None, child.said, f"begun {job.pk}")
        child.kill()
        with lazy_server.connect() as connection:
            # As if its lease had run out.
            connection.execute("update bullite.bullite_workers set lease_until = 0")
            connection.execute("update bullite.bullite_jobs set lease_until = 0")
        async with Worker(queue, starts, stalled_interval=100, max_stalled_count=5):
            await starts.of(job, 5)
            await until(lambda: is_completed(queue, job))


async def is_completed(queue: Queue, job: Job) -> bool:
    return await state_of(queue, job) == "completed"


async def test_a_job_whose_claim_the_crash_took_back_is_recorded_once(lazy_server: Server) -> None:
    runs: list[int] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> int:
        runs.append(job.pk)
        begun.set()
        await go_on.wait()
        return len(runs)

    async with Queue("work", url_of(lazy_server)) as queue, Worker(queue, work, concurrency=5):
        job = await queue.add("a")
        await begun.wait()
        await restart(lazy_server)
        await asyncio.sleep(0.2)
        go_on.set()
        await job.result(timeout="10s")
    assert count(lazy_server, "bullite_jobs where state = 'completed'") == 1
    assert count(lazy_server, "bullite_events where kind = 'complete'") == 1
