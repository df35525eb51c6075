"""Opening a database: ours are made and brought up to date, others' are left as they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bullite import Job, Queue, Store, Worker, verify
from bullite.database.postgres import connections, schema
from bullite.errors import NotABulliteDatabase, SchemaTooNew, StoreBusy, StoreError
from tests.database.postgres.places import (
    Connection,
    database_of_its_own,
    guarded_server,
    role,
    url_for,
)
from tests.support.processes import ROOT, problems, say, wait_until
from tests.support.server import Server

SCHEMA = len(list((ROOT / "src/bullite/database/postgres/migrations").glob("*.sql")))
AT_ONCE = 16


@pytest.fixture
def server() -> Server:
    return guarded_server()


@pytest.fixture
def shop(server: Server) -> Iterator[Connection]:
    """A database with nothing in it."""
    with database_of_its_own(server, "shop") as connection:
        yield connection


@pytest.fixture
def location(server: Server, shop: Connection) -> str:
    return server.url("shop")


def open_once(location: str) -> None:
    with closing(Store(location)) as store:
        store.open()


def open_when(barrier: str, location: str) -> None:
    """Open a store together with others; say what came of it."""
    say("ready")
    wait_until(Path(barrier).exists)
    try:
        open_once(location)
    except StoreError as error:
        say(f"{type(error).__name__}: {error}")
    else:
        say("opened")


def everything(connection: Connection) -> list[Any]:
    """All relations outside of the system, with their columns and how many rows they have."""
    return connection.execute(
        """
        select n.nspname, c.relname, c.relkind, string_agg(a.attname, ',' order by a.attnum)
        from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
            join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0
        where n.nspname !~ '^(pg_|information_schema)' group by 1, 2, 3 order by 1, 2
        """
    ).fetchall()


def version(connection: Connection) -> object:
    [[value]] = connection.execute("select value from bullite.bullite_meta where key = 'schema'")
    return value


# --- making --------------------------------------------------------------------------------------


def test_a_new_schema_is_made_with_the_newest_version(location, shop):
    open_once(location)

    assert version(shop) == str(SCHEMA)


def test_naming_a_store_makes_nothing(location, shop):
    Store(location)

    assert everything(shop) == []


def test_a_schema_that_is_there_already_and_empty_is_used(location, shop):
    shop.execute("create schema bullite")

    open_once(location)

    assert version(shop) == str(SCHEMA)


def test_everything_of_ours_is_in_the_schema(location, shop):
    open_once(location)

    assert {row[0] for row in everything(shop)} == {"bullite"}
    assert {row[1].startswith("bullite_") for row in everything(shop)} == {True}


def test_opening_again_changes_nothing(location, shop):
    open_once(location)
    before = everything(shop)

    open_once(location)

    assert everything(shop) == before


def test_sixteen_processes_open_a_new_schema_at_once_and_it_is_made_once(
    location, shop, start, tmp_path
):
    barrier = tmp_path / "barrier"
    children = [start(open_when, barrier, location) for _ in range(AT_ONCE)]
    for child in children:
        child.said("ready")

    barrier.touch()

    assert [child.line() for child in children] == ["opened"] * AT_ONCE
    assert version(shop) == str(SCHEMA)
    assert problems(location) == ()


def test_sixteen_threads_open_a_new_schema_at_once_and_it_is_made_once(location, shop):
    errors: list[BaseException] = []
    barrier = threading.Barrier(AT_ONCE)

    def connect(number: int) -> None:
        barrier.wait()
        try:
            # Each has an engine of its own: what differs is part of where a database is.
            open_once(f"{location}&keepalives_idle={number + 10}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=connect, args=[number]) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert version(shop) == str(SCHEMA)


def test_a_migration_that_fails_leaves_nothing_behind(location, shop, monkeypatch):
    scripts = [
        *schema.scripts("bullite.database.postgres"),
        "create table bullite.bullite_more (id nonsense)",
    ]
    monkeypatch.setattr(schema, "scripts", lambda package: scripts)

    with pytest.raises(StoreError):
        Store(location).open()

    assert everything(shop) == []


def test_an_older_schema_is_brought_up_to_date_with_what_is_in_it(location, shop, monkeypatch):
    open_once(location)
    shop.execute(
        "insert into bullite.bullite_queues (name, priority_order, created_at) "
        "values ('q', 'low', 1)"
    )
    scripts = [
        *schema.scripts("bullite.database.postgres"),
        "create table bullite.bullite_more (id bigint primary key)",
    ]
    monkeypatch.setattr(schema, "scripts", lambda package: scripts)

    open_once(location)

    assert version(shop) == str(SCHEMA + 1)
    assert shop.execute("select name from bullite.bullite_queues").fetchall() == [("q",)]


def test_a_migration_may_take_longer_than_any_other_statement(location, shop, monkeypatch):
    open_once(location)
    scripts = [*schema.scripts("bullite.database.postgres"), "select pg_sleep(2.5)"]
    monkeypatch.setattr(schema, "scripts", lambda package: scripts)
    monkeypatch.setattr(connections.Connection, "answer_within", 2.0)

    open_once(location)

    assert version(shop) == str(SCHEMA + 1)


def test_a_migration_that_waits_for_a_lock_of_another_session_says_so(location, shop, monkeypatch):
    open_once(location)
    scripts = [
        *schema.scripts("bullite.database.postgres"),
        "create table bullite.bullite_more (id int)",
    ]
    monkeypatch.setattr(schema, "scripts", lambda package: scripts)
    monkeypatch.setattr(schema, "_MIGRATE_WITHIN", "set local lock_timeout = 100")

    with shop.transaction(), pytest.raises(StoreBusy, match="another session holds a lock on them"):
        shop.execute("lock table bullite.bullite_meta in share mode")
        open_once(location)

    assert version(shop) == str(SCHEMA)


# --- refusing ------------------------------------------------------------------------------------


def test_a_newer_schema_is_refused_and_left_as_it_is(location, shop):
    open_once(location)
    shop.execute(f"update bullite.bullite_meta set value = '{SCHEMA + 1}' where key = 'schema'")

    with pytest.raises(SchemaTooNew) as refused:
        Store(location).open()

    assert f"has schema {SCHEMA + 1}, this Bullite knows {SCHEMA}; upgrade it" in str(refused.value)
    assert version(shop) == str(SCHEMA + 1)


@pytest.mark.parametrize(
    "table",
    [
        "bullite_jobs (mine text)",
        "bullite_meta (mine text)",
        "bullite_meta (key text, value text)",
        "bullite_meta (key int, value int)",
        "bullite_somebody (mine text)",
    ],
)
def test_tables_that_are_not_ours_are_refused_and_left_as_they_are(location, shop, table):
    shop.execute("create schema bullite")
    shop.execute(f"create table bullite.{table}")
    before = everything(shop)

    with pytest.raises(NotABulliteDatabase, match="name another schema"):
        Store(location).open()

    assert everything(shop) == before


def test_a_version_that_is_no_number_is_not_ours(location, shop):
    open_once(location)
    shop.execute("update bullite.bullite_meta set value = 'soon' where key = 'schema'")

    with pytest.raises(NotABulliteDatabase):
        Store(location).open()


async def test_other_tables_are_left_alone(location, shop):
    shop.execute("create schema bullite")
    for table in ("bullite.accounts", "public.accounts", "public.bullite_jobs", "public.jobs"):
        shop.execute(f"create table {table} (name text)")
        shop.execute(f"insert into {table} values ('ada')")

    async with Queue("emails", location) as queue:
        await queue.add("job")
        await queue.obliterate()

    for table in ("bullite.accounts", "public.accounts", "public.bullite_jobs", "public.jobs"):
        assert shop.execute(f"select * from {table}").fetchall() == [("ada",)]


async def test_tables_of_the_same_name_in_the_search_path_are_not_mistaken_for_ours(location, shop):
    shop.execute("create table public.bullite_jobs (mine text)")
    shop.execute("create table public.bullite_meta (key text, value text)")
    shop.execute("insert into public.bullite_meta values ('schema', '99')")

    async with Queue("emails", location) as queue:
        assert (await queue.add("job")).id == "1"


def test_a_search_path_of_the_database_does_not_matter(location, shop):
    shop.execute("alter database shop set search_path = nowhere")

    open_once(location)

    assert version(shop) == str(SCHEMA)


# --- who may only use it -------------------------------------------------------------------------


async def test_a_schema_that_is_up_to_date_is_opened_by_who_may_make_nothing(
    server, location, shop
):
    open_once(location)
    with role(server, "ada"):
        shop.execute("revoke create, temporary on database shop from public")
        shop.execute("grant usage on schema bullite to ada")
        shop.execute("grant select, insert, update, delete on all tables in schema bullite to ada")
        shop.execute("grant all on all sequences in schema bullite to ada")
        async with Queue("emails", url_for(server, "ada", "secret", "shop")) as queue:
            job = await queue.add("job")
            found = await queue.get_job(job.id)
        shop.execute("drop owned by ada")

    assert found is not None


# --- other versions of the server ----------------------------------------------------------------


@pytest.fixture(scope="module")
def newest() -> Iterator[Server]:
    server = Server(version=18)
    yield server
    server.destroy()


async def test_postgresql_18_works(newest):
    async def double(job: Job) -> int:
        await job.update_progress(10)
        if job.attempts_made == 0 and job.name == "twice":
            raise ConnectionError("busy")
        return 2 * job.data

    with closing(newest.connect()) as connection:
        assert connection.info.server_version // 10_000 == 18
    async with Queue("emails", newest.url()) as queue:
        jobs = await queue.add_bulk([{"name": "job", "data": number} for number in range(100)])
        twice = await queue.add("twice", 4, attempts=2, backoff=5, delay=5)
        async with Worker(queue, double, concurrency=10):
            assert [await job.result() for job in jobs] == [2 * number for number in range(100)]
            assert await twice.result() == 8

        assert await queue.get_job_counts("completed") == {"completed": 101}
        assert verify(queue.store).problems == ()


def test_the_other_tests_run_on_postgresql_16(server):
    with closing(server.connect()) as connection:
        assert connection.info.server_version // 10_000 == 16
