"""Many writers at one file: everybody gets a turn, and nobody hears that it is locked."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Timer

import pytest

from bullite import Queue, Store
from bullite.database.sqlite import connections, schema
from bullite.errors import StoreBusy
from tests.processes.test_contention import add_one_by_one
from tests.support.processes import add, rows, say, states, wait_until

JOBS = 400
"""Many, so that a process which the system does not run for a moment catches up."""


def test_processes_that_add_at_once_take_turns(database, start, tmp_path):
    """Of the first half of the jobs, each process wrote at least a third of its fair share.

    A process cannot ask for its turn while the system runs others: beside eight busy loops on two
    processors one had 0.46 of its share. Without turns, one process writes nearly all.
    """
    barrier = tmp_path / "barrier"
    adders = [start(add_one_by_one, database, barrier, f"from {n}", JOBS) for n in range(4)]
    for adder in adders:
        adder.said("ready")

    barrier.touch()

    assert [adder.ended() for adder in adders] == [0] * 4
    half = 4 * JOBS // 2
    by_name = dict(
        rows(
            database,
            "select name, count(*) from "
            "(select name from bullite_jobs order by id limit ?) group by name",
            half,
        )
    )
    assert min(by_name.get(f"from {n}", 0) for n in range(4)) > half / 4 / 3


# --- foreign writers -----------------------------------------------------------------------------


def hold_the_lock(database: str, release: str) -> None:
    """A writer that knows nothing of Bullite, and takes its time."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("begin immediate")
    connection.execute("create table of_a_stranger (id integer)")
    say("holding")
    wait_until(Path(release).exists)
    connection.execute("commit")
    connection.close()


def test_adds_wait_for_a_foreign_writer_and_succeed(database, start, tmp_path):
    release = tmp_path / "release"

    async def add_meanwhile() -> None:
        async with Queue("work", database) as queue:
            stranger = await asyncio.to_thread(start, hold_the_lock, database, release)
            await asyncio.to_thread(stranger.said, "holding")
            adding = [asyncio.ensure_future(queue.add("job", number)) for number in range(20)]
            done, _ = await asyncio.wait(adding, timeout=1.0)
            assert done == set()
            await asyncio.to_thread(release.touch)
            await asyncio.gather(*adding)

    asyncio.run(add_meanwhile())

    assert list(states(database).values()) == ["waiting"] * 20
    assert rows(database, "select count(*) from of_a_stranger") == [(0,)]


def test_opening_waits_for_a_foreign_writer_and_succeeds(database, start, tmp_path):
    release = tmp_path / "release"
    add(database, "job")
    start(hold_the_lock, database, release).said("holding")

    async def open_meanwhile() -> None:
        queue = Queue("work", database)
        opening = asyncio.ensure_future(queue.wait_until_ready())
        done, _ = await asyncio.wait({opening}, timeout=0.5)
        assert done == set()
        await asyncio.to_thread(release.touch)
        await opening
        await queue.close()

    asyncio.run(open_meanwhile())


def test_a_long_wait_for_the_lock_is_said_in_the_log(database, start, tmp_path, caplog):
    release = tmp_path / "release"

    async def add_meanwhile() -> None:
        async with Queue("work", database) as queue:
            stranger = await asyncio.to_thread(start, hold_the_lock, database, release)
            await asyncio.to_thread(stranger.said, "holding")
            adding = asyncio.ensure_future(queue.add("job"))
            await asyncio.wait({adding}, timeout=0.5)
            await asyncio.to_thread(release.touch)
            await adding

    with caplog.at_level(logging.WARNING, "bullite"):
        asyncio.run(add_meanwhile())

    assert [r for r in caplog.messages if r.startswith("waited ") and "write lock" in r]


async def test_an_add_that_waits_for_too_long_says_who_has_the_lock(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 0.05)
    async with Queue("work", database) as queue:
        with closing(sqlite3.connect(database, isolation_level=None)) as stranger:
            stranger.execute("begin immediate")
            with pytest.raises(StoreBusy, match="locked by another connection"):
                await queue.add("a")


def test_a_database_that_another_process_holds_locked_is_not_called_unwritable(
    database: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 0.1)
    monkeypatch.setattr(schema, "WARN_AFTER", 0.05)
    add(database, "job")
    with closing(sqlite3.connect(database, isolation_level=None)) as stranger:
        stranger.execute("begin exclusive")
        with pytest.raises(StoreBusy) as refused:
            Store(database).open()
    assert str(refused.value) == (
        f"another process holds {database} locked; nothing was written: try again when it has ended"
    )
    assert caplog.messages == [f"another process holds {database} locked: waiting for it"]


def test_a_database_that_is_let_go_in_time_is_opened(database, start, tmp_path, monkeypatch):
    monkeypatch.setattr(schema, "WARN_AFTER", 0.05)
    release = tmp_path / "release"
    add(database, "job")
    start(hold_the_lock, database, release).said("holding")
    Timer(0.3, release.touch).start()
    store = Store(database)
    store.open()
    store.close()
