"""Leases are kept while the process lives, whatever its writing connection is stuck in."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any, Self

import psycopg
import pytest

from bullite import Job, Queue, Worker
from bullite.postgres import ear
from tests.api.helpers import state_of, until
from tests.crash.processes import wait_until
from tests.postgres.proxy import Proxy
from tests.postgres_database import PostgresDatabase

LEASE = 2_000
"""Ms."""

HABITS: dict[str, Any] = {"lock_duration": LEASE, "stalled_interval": 100, "max_stalled_count": 5}


class Long:
    """A processor whose runs end when they are told to."""

    def __init__(self) -> None:
        self.runs = 0
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, job: Job) -> str:
        self.runs += 1
        self.begun.set()
        await self.go_on.wait()
        return "done"


class Pair:
    """A worker behind the proxy that runs a long job, and one beside it that would take it over."""

    def __init__(self, location: str, behind_proxy: str) -> None:
        self.work, self.other = Long(), Long()
        self.other.go_on.set()
        self._queue = Queue("work", location)
        self.theirs = Queue("work", behind_proxy)
        self._worker = Worker(self.theirs, self.work, autorun=False, **HABITS)
        self._successor = Worker(self._queue, self.other, autorun=False, **HABITS)

    async def __aenter__(self) -> Self:
        await self._queue.wait_until_ready()
        await self._worker.__aenter__()
        self.job = await self._queue.add("a")
        await self.work.begun.wait()
        await self._successor.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.work.go_on.set()
        await self._worker.close()
        await self._successor.close()
        await self.theirs.close()
        await self._queue.close()

    async def state(self) -> str:
        return await state_of(self._queue, self.job)

    async def ends_well(self) -> None:
        """The run goes on, and its result is taken."""
        self.work.go_on.set()
        assert await self.job.result(timeout="10s") == "done"
        assert (self.work.runs, self.other.runs) == (1, 0)


async def outlasts(lease: int = LEASE) -> None:
    await asyncio.sleep(2 * lease / 1000)


async def hang_the_writer(pair: Pair, proxy: Proxy) -> None:
    links = proxy.links_of("writer")
    for link in links:
        link.stop()
    try:
        await outlasts()
        assert await pair.state() == "active"
    finally:
        for link in links:
            link.go_on()


async def test_a_worker_whose_writer_hangs_keeps_its_jobs(
    location: str, behind_proxy: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ear, "HEARTBEAT", LEASE / 4000)
    async with Pair(location, behind_proxy) as pair:
        await hang_the_writer(pair, proxy)
        await pair.ends_well()


async def test_a_worker_with_a_short_lease_whose_writer_hangs_keeps_its_jobs(
    location: str, behind_proxy: str, proxy: Proxy
) -> None:
    async with Pair(location, behind_proxy) as pair:
        await hang_the_writer(pair, proxy)
        await pair.ends_well()


async def test_a_worker_whose_writer_waits_for_a_lock_keeps_its_jobs(
    location: str, behind_proxy: str, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ear, "HEARTBEAT", LEASE / 4000)
    async with Pair(location, behind_proxy) as pair:
        delayed = await pair.theirs.add("b", delay=60_000)
        with closing(psycopg.connect(database.location_of_libpq())) as somebody:
            somebody.execute("select from bullite_jobs where id = %s for update", [delayed.pk])
            removing = asyncio.ensure_future(delayed.remove())
            await outlasts()
            assert await pair.state() == "active"
            assert not removing.done()
        await removing
        await pair.ends_well()


async def test_the_lease_of_a_newcomer_is_renewed_beside_a_longer_one(
    location: str, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by its engine, which has an hour for that."""
    monkeypatch.setattr(ear, "HEARTBEAT", 3_600)
    patient: dict[str, Any] = {"lock_renew_time": "1h"}

    def leases() -> list[int]:
        found = database.query("select lease_until from bullite_workers order by id")
        return [until for (until,) in found]

    async with (
        Queue("work", location) as queue,
        Worker(queue, do_nothing, lock_duration="3h", **patient) as worker,
    ):
        await worker.wait_until_ready()
        await until(lambda: database.rows("workers", "seen_at > 0"))
        async with Worker(queue, do_nothing, lock_duration=3_000, **patient) as hasty:
            await hasty.wait_until_ready()
            for _ in range(3):
                _, last = leases()
                await until(lambda last=last: leases()[1] > last)  # type: ignore[misc]


async def test_a_worker_of_which_nothing_is_heard_loses_its_jobs(
    location: str, behind_proxy: str, proxy: Proxy, database: PostgresDatabase
) -> None:
    async with Pair(location, behind_proxy) as pair:
        proxy.stop()
        assert await pair.job.result(timeout="10s") == "done"
        proxy.go_on()
        assert (pair.work.runs, pair.other.runs) == (1, 1)
    assert len(database.rows("events", "kind = 'stall'")) == 1
    assert len(database.rows("events", "kind = 'complete'")) == 1


async def test_a_renewal_that_the_server_undoes_is_made_again_on_the_same_connection(
    location: str, database: PostgresDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine of the same process may change the same rows in another order."""
    async with (
        Queue("one", location) as one,
        Queue("other", location) as other,
        Worker(one, do_nothing, lock_duration=600) as worker,
        Worker(other, do_nothing, lock_duration=600) as another,
    ):
        for started in (worker, another):
            await started.wait_until_ready()
        for order in ("", "desc"):  # in one of them it has the first when it waits for the second
            await asyncio.to_thread(collide_with_the_ear, database, order)
        leases = database.query("select id, lease_until from bullite_workers order by id")

        def renewed() -> bool:
            now = database.query("select id, lease_until from bullite_workers order by id")
            return all(later > before for (_, later), (_, before) in zip(now, leases, strict=True))

        await asyncio.to_thread(wait_until, renewed)
    assert [line for line in caplog.messages if "was lost" in line] == []


async def do_nothing(job: Job) -> None:
    pass


def collide_with_the_ear(database: PostgresDatabase, order: str) -> None:
    """Wait for what it has locked, while it waits for what we have: the server undoes it."""
    wait_until(lambda: len(database.query("select 1 from bullite_workers")) == 2)
    with psycopg.connect(database.location_of_libpq(), autocommit=True) as connection:
        connection.execute("set deadlock_timeout = '60s'")
        with connection.transaction():
            first, second = connection.execute(
                f"select id from bullite_workers order by id {order}"
            )
            lock = "select 1 from bullite_workers where id = %s for update"
            connection.execute(lock, second)
            wait_until(lambda: bool(database.query(WAITS_FOR_A_ROW)))
            connection.execute(lock, first)


WAITS_FOR_A_ROW = """select 1 from pg_stat_activity
    where wait_event_type = 'Lock' and query like 'update %%lease_until = greatest%%'"""
