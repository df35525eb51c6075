"""The roles of docs/postgresql.md: the script runs as it stands, and each role can do its part."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing, suppress

import psycopg
import pytest
from psycopg import sql

from bullite import Job, Queue, QueueEvents, Scheduler, Store, Worker, verify
from bullite.database.postgres import schema
from bullite.errors import StoreUnwritable
from tests.database.postgres.places import (
    Connection,
    database_of_its_own,
    guarded_server,
    role,
    url_for,
)
from tests.support.helpers import take_away, until
from tests.support.processes import ROOT
from tests.support.server import Server

ROLES = ("bullite_runtime", "bullite_migrator", "bullite_owner")


def script() -> str:
    [found] = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/postgresql.md").read_text(), re.DOTALL)
    return found


@pytest.fixture
def server() -> Server:
    return guarded_server()


@pytest.fixture
def shop(server: Server) -> Iterator[Connection]:
    """A database in which the script was run; what it made is gone afterwards."""
    with database_of_its_own(server, "shop") as connection:
        try:
            connection.execute(script())
            yield connection
        finally:
            for name in ROLES:
                with suppress(psycopg.errors.UndefinedObject):
                    connection.execute(
                        sql.SQL("drop owned by {0} cascade; drop role {0}").format(
                            sql.Identifier(name)
                        )
                    )


@pytest.fixture
def migrator(server: Server, shop: Connection) -> str:
    return url_for(server, "bullite_migrator", "change me", "shop")


@pytest.fixture
def runtime(server: Server, migrator: str) -> str:
    """The URL of programs, once the migrator has made the tables."""
    with closing(Store(migrator)) as store:
        store.open()
    return url_for(server, "bullite_runtime", "change me, too", "shop")


async def echo(job: Job) -> object:
    await job.update_progress(1)
    await job.log("a line")
    return job.data


# --- the migrator --------------------------------------------------------------------------------


def test_the_migrator_makes_the_tables_and_the_owner_owns_them(runtime, shop):
    owners = shop.execute(
        "select distinct tableowner from pg_tables where schemaname = 'bullite'"
    ).fetchall()

    assert owners == [("bullite_owner",)]


def test_the_migrator_brings_the_tables_up_to_date(runtime, migrator, shop, monkeypatch):
    scripts = [
        *schema.scripts("bullite.database.postgres"),
        "create table bullite.bullite_more (id bigint primary key)",
    ]
    monkeypatch.setattr(schema, "scripts", lambda package: scripts)

    with closing(Store(migrator)) as store:
        store.open()

    [[version]] = shop.execute("select value from bullite.bullite_meta where key = 'schema'")
    assert version == str(len(scripts))


async def test_programs_may_use_what_an_upgrade_has_made(runtime, migrator, shop, monkeypatch):
    scripts = [
        *schema.scripts("bullite.database.postgres"),
        "create table bullite.bullite_more (id bigint primary key)",
    ]
    monkeypatch.setattr(schema, "scripts", lambda package: scripts)
    with closing(Store(migrator)) as store:
        store.open()

    with closing(psycopg.connect(runtime, autocommit=True)) as connection:
        connection.execute("insert into bullite.bullite_more values (1)")


# --- programs ------------------------------------------------------------------------------------


async def test_programs_add_jobs_run_them_and_hear_of_it(runtime):
    heard: list[str] = []
    async with Queue("emails", runtime) as queue, QueueEvents("emails", runtime) as events:
        events.on("completed", lambda event: heard.append(event["job_id"]))
        jobs = await queue.add_bulk([{"name": "job", "data": number} for number in range(40)])
        async with Worker(queue, echo, concurrency=5):
            assert [await job.result() for job in jobs] == list(range(40))
        await until(lambda: len(heard) == 40)


async def test_programs_retry_delay_and_remove_jobs(runtime):
    async def fail(job: Job) -> None:
        if job.attempts_made == 0:
            raise ConnectionError("busy")

    async with Queue("emails", runtime) as queue:
        job = await queue.add("job", None, attempts=2, backoff=5, delay=5, job_id="mine")
        async with Worker(queue, fail):
            await job.result()
        found = await queue.get_job("mine")
        assert found is not None
        await found.remove()

        assert await queue.get_job("mine") is None


async def test_programs_pause_configure_and_drain_queues(runtime):
    async with Queue("emails", runtime) as queue:
        await queue.add("job")
        await queue.pause()
        await queue.configure(keep_completed={"count": 3})
        assert await queue.is_paused()
        await queue.resume()
        await queue.drain()

        assert await queue.get_job_counts("waiting") == {"waiting": 0}


async def test_programs_obliterate_queues(runtime):
    async with Queue("emails", runtime) as queue:
        await queue.add("job")
        await queue.obliterate()

        assert await queue.get_job_counts("waiting") == {"waiting": 0}


async def test_programs_verify(runtime):
    async with Queue("emails", runtime) as queue:
        await queue.add("job")

        assert verify(queue.store).problems == ()


async def test_programs_take_back_the_jobs_of_dead_workers(runtime):
    begun = asyncio.Event()

    async def hang(job: Job) -> None:
        begun.set()
        await asyncio.sleep(60)

    async with Queue("emails", runtime) as queue:
        job = await queue.add("job")
        worker = Worker(queue, hang)
        await begun.wait()
        await take_away(queue)
        found = await queue.get_job(job.id)
        await worker.close(force=True)

    assert found is not None
    assert found.stalled_count == 1


async def test_programs_do_what_is_due_by_the_clock(runtime, shop, monkeypatch):
    async with Queue("emails", runtime) as queue, Scheduler(queue.store):
        await queue.configure(keep_completed={"count": 0})
        await queue.add("job", delay=1)
        await until(lambda: in_line(queue))
        engine = queue.store.open()
        engine.driver.remove_stale_files(())
        async with Worker(queue, echo):
            await until(lambda: nothing_left(queue))


async def in_line(queue: Queue) -> bool:
    return (await queue.get_job_counts("waiting"))["waiting"] == 1


async def nothing_left(queue: Queue) -> bool:
    counts = await queue.get_job_counts("waiting", "active")
    return not any(counts.values())


@pytest.mark.parametrize(
    "statement",
    [
        "create table bullite.mine (id int)",
        "create table bullite.bullite_mine (id int)",
        "drop table bullite.bullite_jobs",
        "alter table bullite.bullite_jobs drop column name",
        "truncate bullite.bullite_jobs",
        "drop schema bullite cascade",
        "create index on bullite.bullite_jobs (name)",
    ],
)
def test_programs_cannot_change_the_tables(runtime, statement):
    with (
        closing(psycopg.connect(runtime, autocommit=True)) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement)


def test_programs_that_are_newer_than_the_tables_are_told_whom_to_ask(runtime, monkeypatch):
    scripts = [
        *schema.scripts("bullite.database.postgres"),
        "create table bullite.bullite_more (id bigint primary key)",
    ]
    monkeypatch.setattr(schema, "scripts", lambda package: scripts)

    with pytest.raises(StoreUnwritable, match="let their owner open the store once"):
        Store(runtime).open()


# --- without the grants --------------------------------------------------------------------------


def test_who_may_not_use_the_schema_is_told_so(server, runtime):
    with role(server, "ada"), pytest.raises(StoreUnwritable) as refused:
        Store(url_for(server, "ada", "secret", "shop")).open()

    assert "permission denied for schema bullite" in str(refused.value)
    assert "docs/postgresql.md" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_who_may_use_the_schema_but_no_table_is_told_so(server, runtime, shop):
    with role(server, "ada"):
        shop.execute("grant usage on schema bullite to ada")
        with pytest.raises(StoreUnwritable) as refused:
            Store(url_for(server, "ada", "secret", "shop")).open()
        shop.execute("drop owned by ada")

    assert "permission denied for table bullite_meta" in str(refused.value)
    assert "docs/postgresql.md" in str(refused.value)


def test_who_may_only_read_is_told_so(server, runtime, shop):
    with role(server, "ada"):
        shop.execute("grant usage on schema bullite to ada")
        shop.execute("grant select on all tables in schema bullite to ada")
        with pytest.raises(StoreUnwritable) as refused:
            Store(url_for(server, "ada", "secret", "shop")).open()
        shop.execute("drop owned by ada")

    assert "permission denied for table bullite_meta" in str(refused.value)
    assert "docs/postgresql.md" in str(refused.value)


async def test_add_raises_store_unwritable_if_insert_permission_is_revoked(runtime, shop):
    async with Queue("emails", runtime) as queue:
        await queue.add("job")
        shop.execute("revoke insert on bullite.bullite_jobs from bullite_runtime")

        with pytest.raises(
            StoreUnwritable, match="permission denied for table bullite_jobs"
        ) as told:
            await queue.add("job")

    assert "docs/postgresql.md" in str(told.value)
    assert "\n" not in str(told.value)
