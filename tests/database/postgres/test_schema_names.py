"""A schema may be called anything that PostgreSQL allows, and knows nothing of its neighbours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from bullite import Job, Queue, QueueEvents, Store, Worker, verify
from bullite.database.postgres import listener
from bullite.database.postgres.location import DEFAULT_SCHEMA
from tests.database.postgres.places import database_of_its_own, guarded_server, plain, schema_called
from tests.support.helpers import until

NAMES = [
    'we"ird; drop',
    "it's",
    "a name with spaces",
    "100%",
    "%s %(now)s %%",
    "{} {source}",
    "Upper Case",
    "UPPER",
    "select",
    "bullite.bullite_jobs",
    "'bullite.",
    "a :now :bigint[] $1",
    "(a) values (b)",
    "back\\slash",
    "größe_漢字_🐂",
    "x" * 63,
]


@pytest.fixture(scope="module", params=NAMES)
def location(request: pytest.FixtureRequest) -> Iterator[str]:
    """One for each name: every test has a queue of its own in it."""
    with schema_called(request.param) as location:
        yield location


async def echo(job: Job) -> object:
    await job.update_progress(50)
    await job.log("a line")
    return job.data


def test_without_a_name_it_is_called_bullite():
    assert DEFAULT_SCHEMA == "bullite"
    server = guarded_server()
    with database_of_its_own(server, "shop") as connection:
        with closing(Store(server.url("shop"))) as store:
            store.open()

        made = connection.execute(
            "select distinct schemaname from pg_tables where tablename like 'bullite%'"
        ).fetchall()

    assert made == [("bullite",)]


async def test_jobs_are_added_run_and_read_in_it(location):
    async with Queue("emails", location) as queue:
        jobs = [
            await queue.add("one", {"n": "%s'"}),
            *await queue.add_bulk([{"name": "two", "data": 2}] * 3),
        ]
        many = await queue.add_bulk([{"name": "many", "data": n} for n in range(50)])
        delayed = await queue.add("later", None, delay=20, priority=3, job_id="it's %s")
        async with Worker(queue, echo, concurrency=10):
            results = [await job.result() for job in [*jobs, many[-1], delayed]]
        counts = await queue.get_job_counts("completed", "waiting", "delayed")
        found = await queue.get_job("it's %s")
        store = queue.store
        problems = verify(store).problems

    assert results == [{"n": "%s'"}, 2, 2, 2, 49, None]
    assert counts == {"completed": 55, "waiting": 0, "delayed": 0}
    assert found is not None
    assert found.state == "completed"
    assert problems == ()


async def test_it_is_found_again(location):
    async with Queue("found again", location) as queue:
        await queue.add("job", 1)

    async with Queue("found again", location) as queue:
        assert [job.data for job in await queue.get_waiting()] == [1]


async def test_its_events_are_read(location):
    heard: list[str] = []
    async with Queue("heard", location) as queue, QueueEvents("heard", location) as events:
        events.on("completed", lambda event: heard.append(event["job_id"]))
        job = await queue.add("job", 1)
        async with Worker(queue, echo):
            await job.result()
        await until(lambda: heard)

    assert heard == [job.id]


async def test_its_workers_are_woken_by_other_processes(location):
    async with Queue("woken", location) as queue, Worker(queue, echo, poll_interval="1h"):
        await until(lambda: is_idle(location))
        await asyncio.sleep(0.05)
        with closing(Store(location)) as store:
            assert store.open() is queue.store.open()
        job = await added_elsewhere(queue, location)
        await until(lambda: is_completed(queue, job), limit=5)


async def added_elsewhere(queue: Queue, location: str) -> str:
    """The id of a job that another process adds."""
    # Another name for the same place: it has an engine, and so a connection, of its own.
    other = f"{location}&keepalives_idle=11"
    async with Queue(queue.name, other) as elsewhere:
        assert elsewhere.store.open() is not queue.store.open()
        return (await elsewhere.add("job", 1)).id


async def is_completed(queue: Queue, job: str) -> bool:
    found = await queue.get_job(job)
    return found is not None and found.state == "completed"


async def is_idle(location: str) -> bool:
    with closing(Store(location)) as store:
        reader = store.open().driver.reader()
        try:
            schema = store.location.schema.replace('"', '""')
            query = f'select count(*) from "{schema}".bullite_workers where hungry = 1'
            connection = reader._reconnecting.connect()
            return connection.execute(query.encode()).fetchone() == (1,)
        finally:
            reader.close()


# --- two in one database -------------------------------------------------------------------------


async def test_two_schemas_do_not_see_each_others_jobs():
    with schema_called("one") as one, schema_called("two") as two:
        async with Queue("emails", one) as first, Queue("emails", two) as second:
            job = await first.add("job", 1)

            assert await second.get_job(job.id) is None
            assert await second.get_job_counts("waiting") == {"waiting": 0}
            assert await first.get_job_counts("waiting") == {"waiting": 1}


async def test_two_schemas_do_not_hear_each_others_events():
    with schema_called("one") as one, schema_called("two") as two:
        heard: list[object] = []
        first, second = Queue("emails", one), Queue("emails", two)
        async with first, second, QueueEvents("emails", two) as events:
            events.on("added", lambda event: heard.append(event["name"]))
            await first.add("not for you")
            await second.add("for you")
            await until(lambda: heard)

    assert heard == ["for you"]


def test_two_schemas_have_channels_of_their_own():
    channels = {listener.Listener.channel(name, queue) for name in NAMES for queue in (1, 2)}

    assert len(channels) == 2 * len(NAMES)
    assert all(len(channel.encode()) <= 63 for channel in channels)


async def test_two_schemas_do_not_wake_each_other():
    with schema_called("one") as one, schema_called("two") as two, closing(plain()) as stranger:
        first, second = Queue("emails", one), Queue("emails", two)
        async with first, second, Worker(first, echo), Worker(second, echo):
            await until(lambda: is_idle(one))
            await until(lambda: is_idle(two))
            [other] = {listener.Listener.channel("two", second._pk)}
            stranger.execute(f'listen "{other}"')
            await added_elsewhere(first, one)
            woken_for_one = list(stranger.notifies(timeout=0.2, stop_after=1))
            await until(lambda: is_idle(two))
            await added_elsewhere(second, two)
            ends = time.monotonic() + 5
            while not (woken := list(stranger.notifies(timeout=0.1, stop_after=1))):
                assert time.monotonic() < ends

    assert woken_for_one == []
    assert [notify.channel for notify in woken] == [other]
