"""A password is never shown: not by objects, not in messages, not in logs, not in tracebacks."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

import pytest

from bullite import Job, Queue, QueueEvents, Store, Worker
from bullite.database import locations
from bullite.database.locations import default_location
from bullite.errors import BulliteError, InvalidOption, StoreError, StoreUnwritable
from tests.database.postgres.places import database_of_its_own, guarded_server, role, url_for
from tests.support.helpers import until
from tests.support.server import Server

PASSWORD = "tr0ub4dor&3"
FORMS = {
    "in front of the host": "postgresql://ada:tr0ub4dor&3@{host}/shop",
    "percent-encoded": "postgresql://ada:tr0ub4dor%263@{host}/shop",
    "as an option": "postgresql://ada@{host}/shop?password=tr0ub4dor%263",
    "without a host": "postgresql:///shop?host=/nowhere&user=ada&password=tr0ub4dor%263",
    "of the listener": "postgresql://{host}/shop?listen=postgresql%3A//ada%3Atr0ub4dor%25263%40{host}/shop",
    "of the key": "postgresql://ada@{host}/shop?sslpassword=tr0ub4dor%263",
}
NOWHERE = "no-such-host.invalid"


@pytest.fixture(params=FORMS)
def url(request: pytest.FixtureRequest) -> str:
    """A database that cannot be reached, with a password in its URL."""
    return FORMS[request.param].format(host=NOWHERE)


@pytest.fixture
def server() -> Iterator[Server]:
    server = guarded_server()
    with role(server, "ada", PASSWORD), database_of_its_own(server, "shop") as connection:
        connection.execute("grant create on database shop to ada")
        yield server


def assert_no_secret(text: str) -> None:
    assert "tr0ub4dor" not in text, text


# --- objects -------------------------------------------------------------------------------------


def test_a_store_does_not_show_it(url):
    store = Store(url)

    assert_no_secret(f"{store} {store!r} {store.__dict__}")


def test_a_location_does_not_show_it(url):
    location = Store(url).location

    assert_no_secret(f"{location} {location!r}")


def test_what_libpq_needs_does_not_show_it(url):
    location = Store(url).location

    assert_no_secret(f"{location.access} {location.access!r} {location.listener!r}")


def test_a_driver_does_not_show_it(url):
    driver = Store(url).location.driver(None, lambda bits: 1)

    assert_no_secret(
        f"{driver!r} {driver.__dict__} {driver._connection.__dict__} {driver.reader()!r}"
    )


async def test_queues_workers_and_events_do_not_show_it(url):
    queue = Queue("emails", url)
    events = QueueEvents("emails", url, autorun=False)
    worker = Worker(queue, lambda job: None, autorun=False)

    assert_no_secret(f"{queue} {queue!r} {events!r} {worker!r} {queue.__dict__}")


async def test_nothing_of_a_store_at_work_shows_it(server):
    seen: list[str] = []

    async def look(job: Job) -> None:
        seen.append(f"{job!r} {job.__dict__ if hasattr(job, '__dict__') else ''}")

    async with Queue("emails", url_for(server, "ada", PASSWORD, "shop")) as queue:
        job = await queue.add("job")
        async with Worker(queue, look) as worker:
            await job.result()
            seen.append(f"{worker!r} {await queue.get_workers()}")
        driver = queue.store.open().driver
        seen.append(f"{queue!r} {driver.__dict__} {driver._connection.__dict__}")

    assert len(seen) == 3
    assert_no_secret("".join(seen))


async def test_the_server_does_not_tell_it_to_others(server):
    async with Queue("emails", url_for(server, "ada", PASSWORD, "shop")) as queue:
        await queue.add("job")
        with closing(server.connect("shop")) as connection:
            rows = connection.execute("select * from pg_stat_activity").fetchall()

    assert_no_secret(str(rows))


# --- messages and tracebacks ---------------------------------------------------------------------


def failure(url: str) -> BulliteError:
    """What a failed opening raises; the names of the caller's variables are no secret of ours."""
    store = Store(url)
    del url
    try:
        store.open()
    except StoreError as error:
        return error
    raise AssertionError("it was opened")


def with_locals(error: BaseException) -> str:
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(told.format())


def test_a_failed_opening_does_not_tell_it(url):
    error = failure(url)

    assert_no_secret(f"{error} {error!r} {error.args}")


def test_the_traceback_of_a_failed_opening_does_not_tell_it(url):
    error = failure(url)

    assert "open" in with_locals(error)
    assert_no_secret(with_locals(error))


def test_a_refused_password_is_not_told(server):
    error = failure(url_for(server, "ada", PASSWORD + "!", "shop"))

    assert type(error) is StoreUnwritable
    assert_no_secret(f"{error} {with_locals(error)}")


def test_a_database_that_does_not_exist_is_told_without_it(server):
    error = failure(url_for(server, "ada", PASSWORD, "nowhere"))

    assert "there is no database 'nowhere'" in str(error)
    assert_no_secret(f"{error} {with_locals(error)}")


async def test_the_error_of_a_queue_does_not_tell_it(server):
    queue = Queue("emails", url_for(server, "ada", PASSWORD, "nowhere"))

    with pytest.raises(StoreUnwritable) as raised:
        await queue.add("job")

    assert_no_secret(f"{raised.value} {with_locals(raised.value)}")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:tr0ub4dor@h/db?unknown=1",
        "postgresql://ada:%zztr0ub4dor@h/db",
        "postgresql://ada:tr0ub4dor%zz@h/db",
        "postgresql://ada@h/db?password=tr0ub4dor%zz",
        "postgresql:///db?password=tr0ub4dor&unknown=1",
        "postgresql://ada:tr0ub4dor@[::1/db",
        "postgresql://ada:x?tr0ub4dor@h/db?schema=x",
        "postgresql://ada:tr0ub4dor?x@h/db?schema=x",
        "postgresql://ada:tr0ub4dor#x@h/db?unknown=x",
        "postgresql://ada:x#tr0ub4dor@h/db?unknown=x",
        "postgresql://ada:tr0ub4dor/x@h/db",
        "postgresql://ada:x/tr0ub4dor@h/db",
        "postgresql://ada:12/tr0ub4dor@h/db",
        "postgresql://ada:x@tr0ub4dor@h/db",
        "postgresql://h?password=x@tr0ub4dor",
        "postgresql://ada:tr0ub4dor/db",
        "postgresql://ada:tr0ub4dor",
        "postgresql://h/db?schema=&password=tr0ub4dor",
        "postgresql://h/db?durability=x&password=tr0ub4dor",
        "postgresql://h/db?listen=postgresql://ada:tr0ub4dor%40h/db?unknown=1",
        "postgresql://h/db?listen=postgresql://ada:tr0ub4dor/x%40h/db",
        "postgresql://h/db?listen=mysql://ada:tr0ub4dor%40h/db",
        "postgresql://h/db?listen=ada:tr0ub4dor%40h/db",
    ],
)
def test_a_refused_url_does_not_give_it_away_however_it_is_broken(url):
    with pytest.raises(InvalidOption) as refused:
        Store(url)

    assert_no_secret(f"{refused.value!r}")


@pytest.mark.parametrize(
    ("character", "password"), [("#", "tr0ub4dor#3"), (":", "tr0ub4dor:3"), ("&", "tr0ub4dor&3")]
)
def test_characters_that_libpq_allows_in_a_password_are_allowed(server, character, password):
    host = quote(str(server.folder), safe="")
    with closing(server.connect()) as connection:
        connection.execute(f"alter role ada password '{password}'")

    with closing(Store(f"postgresql://ada:{password}@{host}/shop?schema=allowed")) as store:
        store.open()

        assert str(store.location) == f"postgresql://{server.folder}/shop (schema allowed)"


# --- logs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [*FORMS.values(), "postgresql://ada:tr0ub4dor/3@h/db", "postgresql://a:x#tr0ub4dor@h/db"],
)
def test_the_default_location_is_logged_without_it(broken, monkeypatch, caplog):
    monkeypatch.setenv("BULLITE_URL", broken.format(host=NOWHERE))
    monkeypatch.setattr(locations, "_logged", set())

    with caplog.at_level(logging.DEBUG):
        default_location()

    assert "using the database postgresql://" in caplog.text
    assert_no_secret(caplog.text)


def test_nothing_is_logged_of_it_when_a_store_cannot_be_opened(url, caplog):
    with caplog.at_level(logging.DEBUG):
        failure(url)

    assert_no_secret(caplog.text)


async def test_nothing_is_logged_of_it_while_the_connection_comes_and_goes(server, caplog):
    direct = url_for(server, "ada", PASSWORD, "shop")

    async def work(job: Job) -> None:
        await asyncio.sleep(0)

    caplog.set_level(logging.DEBUG)
    async with Queue("emails", direct) as queue, Worker(queue, work):
        await (await queue.add("job")).result()
        with closing(server.connect()) as connection:
            # They are locked out for a moment, so that connecting fails, too.
            connection.execute("alter role ada nologin")
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'ada'"
            )
            await until(lambda: "cannot connect" in caplog.text)
            connection.execute("alter role ada login")
        await (await queue.add("job")).result()

    assert "connection was lost" in caplog.text
    assert_no_secret(caplog.text)
    assert_no_secret("".join(str(record.__dict__) for record in caplog.records))
