"""The event log is read in one order by everybody, although writers commit in any."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from bullite import Job, Queue, QueueEvents, Store, Worker
from bullite.core.event_log import UNCOUNTED
from bullite.database.postgres.reader import PostgresReader
from tests.support.harness import open_store
from tests.support.helpers import until
from tests.support.postgres_database import PostgresDatabase
from tests.support.server import Server

Adder = Callable[[], psycopg.Connection[Any]]


@pytest.fixture
def adder(database: PostgresDatabase) -> Iterator[Adder]:
    """Gives writers whose transactions a test ends; each has a connection of its own."""
    with closing(Store(database.location)) as store:
        store.open()
    database.write(
        "insert into bullite_queues (name, priority_order, created_at) values ('work', 'low', 1)"
    )
    writers: list[psycopg.Connection[Any]] = []

    def connect() -> psycopg.Connection[Any]:
        writers.append(psycopg.connect(database.location_of_libpq()))
        return writers[-1]

    yield connect
    for writer in writers:
        writer.close()


@pytest.fixture
def reader(database: PostgresDatabase, adder: Adder) -> Iterator[PostgresReader]:
    with closing(Store(database.location)) as store:
        reader = store.location.driver(None, lambda bits: 1).reader()
    yield reader
    reader.close()


def write(writer: psycopg.Connection[Any], kind: str) -> None:
    """Log an event; the transaction stays open."""
    writer.execute(
        "insert into bullite_events (queue, kind, jobs, size, at) "
        "select id, %s, '[1]', 1, 1 from bullite_queues",
        (kind,),
    )


def told(reader: PostgresReader, after: int = 0) -> list[str]:
    """The kinds of events that a reader who stands there is told."""
    params = {"after": after, "queue": None, "most": 100, **UNCOUNTED}
    return [row[2] for row in reader.read("events_after", params).rows]


def test_events_of_a_transaction_that_is_under_way_are_not_told(adder, reader):
    write(adder(), "first")

    assert told(reader) == []


def test_nothing_is_told_beyond_an_event_that_may_still_come(adder, reader):
    first, second = adder(), adder()
    write(first, "first")
    write(second, "second")
    second.commit()

    assert told(reader) == []
    assert told(reader) == []


def test_events_are_told_in_the_order_of_their_numbers_once_all_are_there(adder, reader):
    first, second = adder(), adder()
    write(first, "first")
    write(second, "second")
    second.commit()
    told(reader)

    first.commit()

    assert told(reader) == ["first", "second"]


def test_what_is_undone_holds_nobody_up(adder, reader):
    first, second = adder(), adder()
    write(first, "first")
    write(second, "second")
    second.commit()
    told(reader)

    first.rollback()

    assert told(reader) == ["second"]


def test_what_was_there_before_somebody_began_is_told_at_once(adder, reader):
    first, second = adder(), adder()
    write(first, "first")
    first.commit()
    assert told(reader) == ["first"]
    write(second, "second")

    assert told(reader) == ["first"]


def test_writers_who_always_overlap_do_not_hold_readers_up_for_ever(adder, reader):
    writers = [adder(), adder()]
    write(writers[0], "event 0")
    seen: list[str] = []
    for number in range(1, 20):
        # Before one ends, the next has begun: at no moment is nobody writing.
        write(writers[number % 2], f"event {number}")
        writers[(number - 1) % 2].commit()
        seen = told(reader)

    assert len(seen) >= 15
    assert seen == [f"event {number}" for number in range(len(seen))]


def test_a_reader_that_is_new_tells_nothing_too_soon_either(database, adder):
    first, second = adder(), adder()
    write(first, "first")
    write(second, "second")
    second.commit()

    with closing(Store(database.location)) as store:
        newcomer = store.location.driver(None, lambda bits: 1).reader()
        assert told(newcomer) == []
        first.commit()
        assert told(newcomer) == ["first", "second"]
        newcomer.close()


def test_the_end_of_the_log_is_where_events_are_settled(adder, reader):
    first, second = adder(), adder()
    write(first, "first")
    write(second, "second")
    second.commit()

    [row] = reader.read("log_position", {"after": 0, "queue": None}).rows
    assert row[2:4] == (0, 0)

    first.commit()

    [row] = reader.read("log_position", {"after": 0, "queue": None}).rows
    assert row[2] == 2


def test_readers_miss_nothing_while_many_write(adder, reader):
    """Each writer takes a while between taking a number and committing."""
    each, writing = 30, 6
    barrier = threading.Barrier(writing)

    def work(name: int) -> None:
        writer = adder()
        barrier.wait()
        for number in range(each):
            write(writer, f"{name} {number}")
            time.sleep(0.001 * ((name * number) % 7))
            writer.commit()

    threads = [threading.Thread(target=work, args=[name]) for name in range(writing)]
    for thread in threads:
        thread.start()
    seen: list[str] = []
    after = 0
    ends = time.monotonic() + 15
    while len(seen) < each * writing and time.monotonic() < ends:
        params = {"after": after, "queue": None, "most": 7, **UNCOUNTED}
        rows = reader.read("events_after", params).rows
        assert [row[0] for row in rows] == sorted(row[0] for row in rows)
        seen += [row[2] for row in rows]
        after = rows[-1][0] if rows else after
    for thread in threads:
        thread.join()

    assert sorted(seen) == sorted(f"{name} {n}" for name in range(writing) for n in range(each))


async def test_listeners_hear_everything_although_somebody_takes_long_to_commit(database, adder):
    heard: list[str] = []

    async def nothing(job: Job) -> None: ...

    queue, events = (kind("work", database.location) for kind in (Queue, QueueEvents))
    async with queue, events:
        events.on("completed", lambda event: heard.append(event["job_id"]))
        slow = adder()
        write(slow, "progress-that-nobody-knows")
        async with Worker(queue, nothing, concurrency=4):
            jobs = await queue.add_bulk([{"name": "job"} for _ in range(20)])
            for job in jobs:
                await job.result()
        assert heard == []

        slow.rollback()

        await until(lambda: len(heard) == 20)

    assert sorted(heard, key=int) == [job.id for job in jobs]


# --- numbers -------------------------------------------------------------------------------------


def test_event_ids_skip_ahead_when_a_process_connects(database):
    with open_store(database) as store:
        store.home.add()
        [before] = [max(row["id"] for row in database.rows("events"))]
        store.process().add()
        after = max(row["id"] for row in database.rows("events"))

    assert after - before > 50_000


def test_numbers_of_events_never_go_back_while_many_connect(database):
    with closing(Store(database.location)) as store:
        store.open()
    stop = threading.Event()
    backwards: list[tuple[int, int]] = []

    def watch() -> None:
        with closing(psycopg.connect(database.location_of_libpq(), autocommit=True)) as connection:
            last = 0
            while not stop.is_set():
                for [number] in connection.execute(
                    "select nextval('bullite_events_id_seq') from generate_series(1, 20)"
                ):
                    if number <= last:
                        backwards.append((last, number))
                    last = number

    def connect(number: int) -> None:
        driver = store.location.driver(None, lambda bits: number + 1)
        driver.open()
        connection = driver._connection.connect()
        for _ in range(500):
            driver._backend = None  # else it would end itself, as one that it left behind
            driver._welcome(connection)
        driver.close()

    watching = threading.Thread(target=watch)
    watching.start()
    connecting = [threading.Thread(target=connect, args=[number]) for number in range(8)]
    for thread in connecting:
        thread.start()
    for thread in connecting:
        thread.join()
    stop.set()
    watching.join()

    assert backwards == []


def test_numbers_of_events_that_a_crash_lost_are_not_handed_out_again():
    # Commits that are not waited for are written out by nobody for ten seconds.
    server = Server({"wal_writer_delay": "10s", "fsync": "on"})
    location = f"{server.url()}&durability=relaxed"
    read_before: set[tuple[int, str]] = set()
    try:
        with closing(Store(location)) as store:
            driver = store.location.driver(None, lambda bits: 7)
            driver.open()
            reader = driver.reader()
            page = {"after": 0, "queue": None, **UNCOUNTED}
            add_events(driver, "before", 50)
            read_before = {
                (row[0], row[2]) for row in reader.read("events_after", {**page, "most": 99}).rows
            }
            assert len(read_before) == 50

            server.restart()

            add_events(driver, "after", 50)
            after = {
                (row[0], row[2]) for row in reader.read("events_after", {**page, "most": 199}).rows
            }
            reader.close()
            driver.close()
    finally:
        server.destroy()

    new = {number for number, kind in after if kind == "after"}
    assert len(new) == 50
    assert min(new) > max(number for number, _ in read_before)


def add_events(driver: Any, kind: str, many: int) -> None:
    """Log events, each in a transaction of its own that nobody waits for."""
    driver.begin(durable=True)
    queues = (
        driver.execute("queue_named", {"name": "work"}).rows
        or driver.execute("insert_queue", {"name": "work", "priority_order": "low", "now": 1}).rows
    )
    queue = queues[0][0]
    driver.commit()
    for number in range(many):
        driver.begin(durable=False)
        driver.execute("insert_events", [(queue, kind, json.dumps([number]), 1, 1)])
        driver.commit()


def test_a_reader_that_counts_learns_how_many_events_there_were(adder, reader):
    writer = adder()
    for kind in "abcd":
        write(writer, kind)
    writer.commit()
    page = {"queue": None, "most": 2}

    def totals(after: int, counted: int, seen: int) -> list[int]:
        params = {**page, "after": after, "counted": counted, "seen": json.dumps({queue: seen})}
        return [row[4] for row in reader.read("events_after", params).rows]

    [first, second] = reader.read("events_after", {**page, "after": 0, **UNCOUNTED}).rows
    queue = first[1]
    assert totals(0, 0, 0) == [1, 2]
    assert totals(second[0], second[0], 2) == [3, 4]
    # A row that was told in part is counted already.
    assert totals(first[0], second[0], 2) == [2, 3]
    # More was trimmed than the reader has seen.
    writer.execute("update bullite_queues set events_trimmed = 9")
    writer.commit()
    assert totals(second[0], second[0], 2) == [10, 11]
