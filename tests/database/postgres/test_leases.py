"""Leases are kept while the process lives, whatever its writing connection is stuck in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any, Self

import psycopg
import pytest

from bullite import Job, Queue, Worker
from bullite.database.postgres import listener
from bullite.database.postgres.connections import SESSION, Connection
from tests.database.postgres.proxy import Proxy
from tests.support.helpers import state_of, until
from tests.support.postgres_database import PostgresDatabase

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
    # Until the listener has listened, its connection looks like that of a writer.
    await until(lambda: proxy.links_of("listener"))
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
    monkeypatch.setattr(listener, "HEARTBEAT", LEASE / 4000)
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
    monkeypatch.setattr(listener, "HEARTBEAT", LEASE / 4000)
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
    monkeypatch.setattr(listener, "HEARTBEAT", 3_600)
    renew = listener.Listener._renew
    rests: list[float] = []

    def renew_and_note(self: listener.Listener, connection: Connection) -> float:
        rests.append(renew(self, connection))
        return rests[-1]

    monkeypatch.setattr(listener.Listener, "_renew", renew_and_note)
    patient: dict[str, Any] = {"lock_renew_time": "1h"}

    def leases() -> list[int]:
        found = database.query("select lease_until from bullite_workers order by id")
        return [until for (until,) in found]

    async with (
        Queue("work", location) as queue,
        Worker(queue, do_nothing, lock_duration="3h", **patient) as worker,
    ):
        await worker.wait_until_ready()
        # The listener knows of the long lease alone, and would rest for an hour.
        await until(lambda: rests and rests[-1] == 3_600)
        async with Worker(queue, do_nothing, lock_duration=3_000, **patient) as hasty:
            await hasty.wait_until_ready()
            for _ in range(3):
                _, last = leases()
                await until(lambda last=last: leases()[1] > last)  # type: ignore[misc]


async def test_a_worker_of_which_nothing_is_heard_loses_its_jobs(
    location: str,
    behind_proxy: str,
    proxy: Proxy,
    database: PostgresDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It may fall silent in the middle of a transaction: then the server ends that first.
    monkeypatch.setitem(SESSION, "idle_in_transaction_session_timeout", 1_000)
    async with Pair(location, behind_proxy) as pair:
        proxy.stop()
        assert await pair.job.result(timeout="20s") == "done"
        proxy.go_on()
        assert (pair.work.runs, pair.other.runs) == (1, 1)
    assert len(database.rows("events", "kind = 'stall'")) == 1
    assert len(database.rows("events", "kind = 'complete'")) == 1


async def test_a_renewal_passes_over_a_row_that_its_engine_has_and_renews_the_others(
    location: str, database: PostgresDatabase
) -> None:
    async with two_workers(location):
        await until(lambda: have_no_more_to_write(database))
        with locked_worker(database) as locked:
            before = leases(database)
            await until(lambda: all_renewed(database, before, but=locked))
            assert database.query(WAITS_FOR_A_LOCK) == []
        await until(lambda: all_renewed(database, before))


async def test_a_row_that_was_passed_over_is_renewed_soon(
    location: str, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when leases are renewed next: that may be too late for this one."""
    monkeypatch.setattr(listener, "HEARTBEAT", 3_600)
    async with two_workers(location, lock_duration="3h", lock_renew_time="1h") as queue:
        await until(lambda: len(database.rows("workers", "seen_at > 0")) == 2)
        await until(lambda: have_no_more_to_write(database))
        with locked_worker(database):
            before = leases(database)
            queue.store.open().driver.registered()
            await until(lambda: any(now > before[w] for w, now in leases(database).items()))
        await until(lambda: all_renewed(database, before))


async def test_a_lost_connection_is_not_told_of_while_a_renewal_waits_for_its_engine(
    location: str,
    database: PostgresDatabase,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(listener, "ANSWER_WITHIN", 0.5)
    async with two_workers(location):
        await until(lambda: have_no_more_to_write(database))
        with locked_worker(database):
            await asyncio.sleep(1.5)
    assert [line for line in caplog.messages if "was lost" in line] == []


async def do_nothing(job: Job) -> None:
    pass


@asynccontextmanager
async def two_workers(location: str, **options: Any) -> AsyncIterator[Queue]:
    """Two workers of one process, with short leases unless told otherwise."""
    options = {"lock_duration": 600, **options}
    async with (
        Queue("one", location) as one,
        Queue("other", location) as other,
        Worker(one, do_nothing, **options) as worker,
        Worker(other, do_nothing, **options) as another,
    ):
        await worker.wait_until_ready()
        await another.wait_until_ready()
        yield one


def have_no_more_to_write(database: PostgresDatabase) -> bool:
    """Whether both workers have said that they are idle: their engine, when it says so, waits for
    the row of one while it has that of the other."""
    return len(database.rows("workers", "hungry = 1")) == 2


@contextmanager
def locked_worker(database: PostgresDatabase) -> Iterator[int]:
    """The second of two workers, whose row is locked meanwhile."""
    with psycopg.connect(database.location_of_libpq()) as connection:
        [worker] = connection.execute(
            "select id from bullite_workers order by id desc limit 1 for update"
        ).fetchall()
        yield worker[0]


def leases(database: PostgresDatabase) -> dict[int, int]:
    return dict(database.query("select id, lease_until from bullite_workers"))


def all_renewed(database: PostgresDatabase, before: dict[int, int], but: int = 0) -> bool:
    now = leases(database)
    return all(now[worker] > lease for worker, lease in before.items() if worker != but)


WAITS_FOR_A_LOCK = """select query from pg_stat_activity
    where wait_event_type = 'Lock' and query like '%%lease_until = greatest%%'"""
