"""Tables that an older Bullite made on a server are brought up to date when they are opened.

Every frozen schema under tests/fixtures goes through the same tests, and one that is frozen now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from bullite import Job, Queue, Store, Worker, verify
from tests.database.postgres.places import Connection, database_of_its_own, guarded_server
from tests.fixtures import freeze
from tests.fixtures.freeze import STATES, Then
from tests.support.helpers import until
from tests.support.processes import ROOT

FROZEN = sorted((ROOT / "tests/fixtures").glob("postgres-schema-*.sql"))
SCHEMA = len(list((ROOT / "src/bullite/database/postgres/migrations").glob("*.sql")))
NAME = "frozen"


@pytest.fixture(scope="module")
def present(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("frozen") / "present.sql"
    freeze.main(path)
    return path


@pytest.fixture(params=[*FROZEN, None], ids=lambda path: path.stem if path else "present")
def old(request: pytest.FixtureRequest, present: Path) -> Iterator[Connection]:
    """A database with a frozen schema in it."""
    with database_of_its_own(guarded_server(), NAME) as connection:
        connection.execute((request.param or present).read_text())
        connection.execute("reset search_path")
        yield connection


@asynccontextmanager
async def opened() -> AsyncIterator[Queue]:
    """The upgraded queue, as on the day when it was frozen."""
    url = guarded_server().url(NAME, schema="bullite")
    with closing(Store(url, clock=Then(url))) as store:
        async with Queue("work", store) as queue:
            yield queue
        assert verify(store).problems == ()


def shape(connection: Connection) -> list[tuple[object, ...]]:
    """The columns and the indexes there are."""
    columns = connection.execute(
        "select table_name, column_name, data_type, is_nullable, column_default "
        "from information_schema.columns where table_schema = 'bullite' order by 1, 2"
    ).fetchall()
    indexes = connection.execute(
        "select indexdef from pg_indexes where schemaname = 'bullite' order by 1"
    ).fetchall()
    return columns + indexes


def test_there_is_a_frozen_schema_of_every_older_one() -> None:
    numbers = range(1, max(SCHEMA, len(FROZEN) + 1))
    assert [path.name for path in FROZEN] == [f"postgres-schema-{n}.sql" for n in numbers]


async def test_it_has_the_tables_and_indexes_of_a_new_one(old: Connection) -> None:
    async with opened():
        pass
    with database_of_its_own(guarded_server(), "new") as new:
        with closing(Store(guarded_server().url("new"))) as store:
            store.open()
        assert shape(old) == shape(new)


async def test_every_job_is_where_it_was_with_its_data(old: Connection) -> None:
    async with opened() as queue:
        there = {job.id: (job.state, job.data) for job in await queue.get_jobs()}
    assert there == STATES


async def test_what_ended_still_tells_how(old: Connection) -> None:
    async with opened() as queue:
        completed = await queue.get_job("the-completed-one")
        failed = await queue.get_job("the-failed-one")
    assert completed is not None
    assert failed is not None
    assert completed.return_value == {"answer": 42}
    assert (failed.failed_reason, failed.attempts_made) == ("it broke", 1)


async def test_what_waits_is_run_in_its_order_before_and_after_what_is_new(
    old: Connection,
) -> None:
    ran: list[str] = []

    async def note(job: Job) -> None:
        ran.append(job.id)

    async with opened() as queue:
        new = await queue.add("new", job_id="the-new-one")
        async with Worker(queue, note):
            await until(lambda: len(ran) == 3)
    assert ran == ["the-waiting-one", "the-new-one", "the-prioritized-one"]
    assert new.pk == 8


async def test_the_jobs_of_the_second_schema_are_found_by_their_tags() -> None:
    with database_of_its_own(guarded_server(), NAME) as connection:
        connection.execute(FROZEN[1].read_text())
        connection.execute("reset search_path")
        connection.execute(
            'update bullite.bullite_payloads set opts = \'{"tags":["x","y","x"]}\' '
            "where job in (select id from bullite.bullite_jobs where custom_id = 'the-failed-one')"
        )
        async with opened() as queue:
            assert [job.id for job in (await queue.find(tag="x")).jobs] == ["the-failed-one"]
            assert [job.id for job in (await queue.find(tag="y")).jobs] == ["the-failed-one"]
