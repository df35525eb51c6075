"""Transactions that the server undoes to let others go on are run again; nobody hears of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from bullite import Job, Queue, Worker
from bullite.client.runtime import bridge
from bullite.core.states import PROMOTE
from bullite.database.locations import parse_location
from bullite.errors import StoreBusy
from bullite.operations.move import MoveJobs
from tests.support.helpers import state_of, until
from tests.support.postgres_database import PostgresDatabase

LOCK = "select from bullite_jobs where id = %s for update"


def waiting_for_locks(database: PostgresDatabase) -> int:
    [(schema,)] = database.query("select current_schema()")
    [(number,)] = database.query(
        "select count(*) from pg_stat_activity "
        "where application_name = ? and wait_event_type = 'Lock'",
        schema,
    )
    return int(number)


@contextmanager
def failing(database: PostgresDatabase, error: str, times: int, when: str) -> Iterator[None]:
    """The server undoes so many transactions that change jobs, with this SQLSTATE."""
    database.write(
        "create sequence a_test_fails; create function a_test() returns trigger as $$ begin "
        f"if nextval('a_test_fails') <= {times} then "
        f"raise exception 'a test wants this' using errcode = '{error}'; end if; return null; "
        "end $$ language plpgsql set search_path from current"
    )
    constraint, deferred = ("constraint", "deferrable initially deferred")
    if when == "at once":
        constraint = deferred = ""
    database.write(
        f"create {constraint} trigger a_test after insert or update on bullite_jobs {deferred} "
        "for each row execute function a_test()"
    )
    try:
        yield
        [(fired,)] = database.query("select last_value from a_test_fails")
        assert fired > 1
    finally:
        database.write("drop function a_test cascade; drop sequence a_test_fails")


async def test_a_deadlock_with_somebody_else_is_got_over(
    location: str, database: PostgresDatabase
) -> None:
    async with Queue("work", location) as queue:
        first, second = [await queue.add("a", delay=60_000) for _ in range(2)]
        with closing(psycopg.connect(database.location_of_libpq())) as somebody:
            # Who looks for deadlocks first is undone: that shall be us.
            somebody.execute("set deadlock_timeout = '1min'")
            somebody.execute(LOCK, [second.pk])
            promote = MoveJobs(PROMOTE, [first.pk, second.pk])
            promoting = asyncio.ensure_future(bridge.submit(queue.store, promote))
            await until(lambda: waiting_for_locks(database))
            # Now each has what the other wants.
            await asyncio.get_running_loop().run_in_executor(
                None, somebody.execute, LOCK, [first.pk]
            )
            somebody.rollback()
        assert sorted(await promoting) == [first.pk, second.pk]
        assert await state_of(queue, second) == "waiting"
    assert len(database.rows("events", "kind = 'promote'")) == 1


@pytest.mark.parametrize("when", ["at once", "at the commit"])
@pytest.mark.parametrize("error", ["40001", "40P01"], ids=["serialization failure", "deadlock"])
async def test_an_undone_transaction_is_run_again(
    location: str, database: PostgresDatabase, error: str, when: str
) -> None:
    async with Queue("work", location) as queue:
        with failing(database, error, 3, when):
            job = await queue.add("a")
            await job.remove()
    assert [row["id"] for row in database.rows("jobs")] == [job.pk]
    assert len(database.rows("events", "kind = 'add'")) == 1


async def test_a_deadlock_at_the_very_beginning_of_a_transaction_is_got_over(
    location: str, behind_proxy: str, database: PostgresDatabase
) -> None:
    """In its first message, with which a claim looks at the queue and at its worker."""
    errors: list[Exception] = []

    async def work(job: Job) -> str:
        return "done"

    async with (
        Queue("work", behind_proxy) as elsewhere,
        Queue("work", location) as queue,
        Worker(queue, work) as worker,
    ):
        worker.on("error", errors.append)
        await worker.wait_until_ready()
        await until(lambda: database.rows("workers", "hungry = 1"))
        with closing(psycopg.connect(database.location_of_libpq())) as somebody:
            somebody.execute("set deadlock_timeout = '1min'")
            somebody.execute("select from bullite_workers for update")
            job = await elsewhere.add("a")
            await until(lambda: waiting_for_locks(database))
            # The claim has the queue, and waits for the worker.
            await asyncio.to_thread(
                somebody.execute, "select from bullite_queues where name = 'work' for update"
            )
            somebody.rollback()
        assert await job.result(timeout="10s") == "done"
    assert errors == []


def test_after_a_rollback_all_statements_are_still_prepared(location: str) -> None:
    driver = parse_location(location).driver(None, random.Random(1).getrandbits)
    driver.open()
    try:
        for _ in range(5):
            # Outside of transactions, where psycopg prepares what comes often, and inside.
            driver.execute("workers", {})
            driver.begin(durable=True)
            driver.execute("queue_named", {"name": "work"})
            driver.commit()
            driver.begin(durable=True)
            driver.execute("queue_named", {"name": "work"})
            driver.rollback()
        driver.execute("workers", {})
    finally:
        driver.close()


async def test_a_transaction_that_is_undone_for_ever_is_told_in_the_end(
    location: str, database: PostgresDatabase
) -> None:
    async with Queue("work", location) as queue:
        with (
            failing(database, "40001", 1_000, "at once"),
            pytest.raises(StoreBusy, match="nothing was written"),
        ):
            await queue.add("a")
        await queue.add("b")
    assert [row["name"] for row in database.rows("jobs")] == ["b"]
