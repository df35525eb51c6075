"""Behind a pooler in transaction mode nothing is left to a session; wake-ups go around it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from bullite import Job, Queue, QueueEvents, Scheduler, Store, Worker, verify
from bullite.database.postgres import connections
from bullite.database.postgres.location import ServerLocation
from tests.support.helpers import until
from tests.support.postgres_database import PostgresDatabase, server_url, with_options

Sent = list[tuple[str, str, bool]]
"""The name of the application, what was sent, and whether a transaction was open."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    """Whatever any connection of the store sends."""
    found: Sent = []
    execute = connections.Connection.execute

    def spy(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        text = query.decode() if isinstance(query, bytes) else str(query)
        is_inside = self.info.transaction_status.name != "IDLE"
        found.append((self.info.get_parameters().get("application_name", ""), text, is_inside))
        cursor = execute(self, query, *args, **kwargs)
        # psycopg may prepare statements by itself, too.
        found.extend(("", f"prepare {name!r}", False) for name in self._prepared._names.values())
        return cursor

    monkeypatch.setattr(connections.Connection, "execute", spy)
    return found


@pytest.fixture
def pooled(database: PostgresDatabase) -> str:
    """The database as if a pooler stood in front of it."""
    return f"{database.location}&pooler=transaction"


def listening(database: PostgresDatabase, pooled: str) -> str:
    """The same, with a way around the pooler."""
    direct = with_options(server_url(), application_name="direct")
    return with_options(pooled, listen=direct)


async def echo(job: Job) -> object:
    await job.update_progress(1)
    if job.name == "again" and job.attempts_made == 0:
        raise ConnectionError("busy")
    return job.data


async def use_everything(location: str) -> None:
    """A little of all that a program does."""
    heard: list[str] = []
    async with Queue("emails", location) as queue, QueueEvents("emails", location) as events:
        events.on("completed", lambda event: heard.append(event["job_id"]))
        async with Scheduler(queue.store), Worker(queue, echo, concurrency=5):
            job = await queue.add("again", "it's", attempts=2, backoff=5, job_id="mine")
            many = await queue.add_bulk([{"name": "job", "data": n} for n in range(60)])
            assert await job.result() == "it's"
            assert [await one.result() for one in many] == list(range(60))
            await queue.pause()
            await queue.configure(keep_completed={"count": 10})
            await queue.resume()
            await until(lambda: len(heard) == 61)
        assert verify(queue.store).problems == ()


def statements(text: str) -> list[str]:
    """The first words of each statement."""
    parts = re.split(r";\n", text.strip().lower())
    return [part.strip() for part in parts if part.strip()]


# --- nothing is left in a session ----------------------------------------------------------------


async def test_nothing_is_prepared(pooled, sent):
    await use_everything(pooled)

    prepared = [
        text
        for _, message, _ in sent
        for text in statements(message)
        if text.startswith(("prepare", "execute", "deallocate"))
    ]
    assert prepared == []


async def test_nobody_listens(pooled, sent):
    await use_everything(pooled)

    assert [text for _, text, _ in sent if "listen" in text.lower().split()] == []


async def test_settings_last_as_long_as_a_transaction(pooled, sent):
    await use_everything(pooled)

    settings = [
        text
        for _, message, _ in sent
        for text in statements(message)
        if re.match(r"(re)?set\b", text)
    ]
    assert settings
    assert [text for text in settings if not text.startswith("set local")] == []


async def test_settings_are_set_inside_of_transactions(pooled, sent):
    await use_everything(pooled)

    outside = [
        message
        for _, message, is_inside in sent
        if "set local" in message.lower()
        and not is_inside
        and len(statements(message)) == 1
        and not message.lower().startswith("begin")
    ]
    assert outside == [], "several statements of one message are one transaction"


async def test_nothing_is_looked_up_by_the_search_path_of_a_session(pooled, sent):
    await use_everything(pooled)

    beginnings = [text.partition("commit;\n")[2] for _, text, _ in sent if "commit;\n" in text]
    beginnings += [text for _, text, is_inside in sent if not is_inside]
    first = {" ".join(statements(text)[0].split()[:4]) for text in beginnings}
    assert first == {"begin isolation level read", "set local search_path ="}


async def test_no_lock_outlives_a_transaction(pooled, sent):
    await use_everything(pooled)

    assert [text for _, text, _ in sent if re.search(r"pg_(try_)?advisory_lock", text)] == []


async def test_no_connection_asks_for_settings_when_it_is_made(pooled):
    location = Store(pooled).location
    assert isinstance(location, ServerLocation)
    connection = connections.Connection.open(location.access, pooled=True)
    with closing(connection):
        assert "options" not in connection.info.get_parameters()


async def test_transactions_run_under_the_same_settings_as_without_a_pooler(pooled):
    location = Store(pooled).location
    with closing(connections.Connection.open(location.access, pooled=False)) as connection:
        wanted = settings_of(connection)
    driver = location.driver(None, lambda bits: 5)
    driver.open()
    driver.begin(durable=True)
    found = settings_of(driver._inside)
    driver.rollback()
    driver.close()

    assert found == wanted
    assert found["enable_seqscan"] == "off"


def settings_of(connection: Any) -> dict[str, str]:
    return {
        name: connection.execute(f"show {name}".encode()).fetchone()[0]
        for name in connections.SESSION
    }


async def test_without_a_pooler_statements_are_prepared(database, sent):
    await use_everything(database.location)

    assert [text for _, message, _ in sent for text in statements(message) if text[:7] == "prepare"]


# --- waking --------------------------------------------------------------------------------------


async def start_after(queue: Queue, elsewhere: str) -> float:
    """Seconds from when another process adds a job until an idle worker has begun it."""
    begun: list[float] = []

    async def note(job: Job) -> None:
        begun.append(time.monotonic())

    async with Worker(queue, note), Queue("emails", elsewhere) as other:
        await other.wait_until_ready()
        await asyncio.sleep(0.6)
        added = time.monotonic()
        await other.add("job")
        await until(lambda: begun)
    return begun[0] - added


async def test_idle_workers_find_jobs_soon_without_wake_ups(pooled):
    async with Queue("emails", pooled) as queue:
        assert await start_after(queue, f"{pooled}&keepalives_idle=11") < 0.6


async def test_with_a_way_around_the_pooler_the_ear_uses_it(database, pooled, sent):
    await use_everything(listening(database, pooled))

    listens = {name for name, text, _ in sent if text.lower().startswith("listen")}
    assert listens == {"direct"}


async def test_nothing_but_the_ear_goes_around_the_pooler(database, pooled, sent):
    await use_everything(listening(database, pooled))

    around = {statements(text)[-1].split()[0] for name, text, _ in sent if name == "direct"}
    assert around <= {"listen", "with"}, "it listens, and renews leases"


async def test_with_a_way_around_the_pooler_workers_are_woken(database, pooled):
    location = listening(database, pooled)
    async with Queue("emails", location) as queue:
        took = await start_after(queue, f"{pooled}&keepalives_idle=11")

    assert took < 0.2


async def test_a_way_around_that_leads_nowhere_does_not_stop_the_work(pooled, tmp_path):
    nowhere = with_options(pooled, listen=f"postgresql:///postgres?host={tmp_path}")
    async with Queue("emails", nowhere) as queue:
        assert await start_after(queue, f"{pooled}&keepalives_idle=11") < 0.6
