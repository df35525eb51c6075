"""The log: synced apart from the commits that write it, and before anybody is answered."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bullite import Job, Queue, QueueEvents, Worker
from bullite.database.sqlite import wal_sync
from bullite.database.sqlite.sync_mark import SyncMark
from bullite.database.sqlite.wal_sync import WalFile
from bullite.errors import StoreUnsynced
from tests.support.helpers import until


def state_in(database: Path, job: str) -> str | None:
    """What another connection finds."""
    with sqlite3.connect(database) as connection:
        row = connection.execute("select state from bullite_jobs where id = ?", (job,)).fetchone()
    connection.close()
    return None if row is None else row[0]


# --- what is on the disk -------------------------------------------------------------------------


class Disk:
    """What a power cut would leave: the database as it was, and the log as it was last synced."""

    def __init__(self, database: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._cuts = folder, 0
        shutil.copy(database, folder / "kept")
        sync, one_at_a_time = os.fdatasync, threading.Lock()

        def keep(descriptor: int) -> None:
            with one_at_a_time:
                shutil.copy(f"{database}-wal", folder / "written")
                sync(descriptor)
                (folder / "written").replace(folder / "kept-wal")

        monkeypatch.setattr(wal_sync.os, "fdatasync", keep)

    def state_after_a_cut(self, job: str) -> str | None:
        self._cuts += 1
        image = self._folder / f"cut{self._cuts}"
        for suffix in ("", "-wal"):
            shutil.copy(f"{self._folder / 'kept'}{suffix}", f"{image}{suffix}")
        return state_in(image, job)


@pytest.fixture
def disk(database, tmp_path, monkeypatch) -> Disk:
    async def make() -> None:
        async with Queue("work", database) as queue:
            await queue.add("the first", {})

    asyncio.run(make())
    return Disk(database, tmp_path, monkeypatch)


def test_a_job_whose_adding_was_answered_survives_a_power_cut(database, disk):
    async def scenario() -> None:
        async with Queue("work", database) as queue:
            for number in range(20):
                job = await queue.add("job", number)
                assert disk.state_after_a_cut(job.id) == "waiting"

    asyncio.run(scenario())


def test_a_result_that_was_told_survives_a_power_cut(database, disk):
    async def nothing(job: Job) -> None:
        pass

    async def scenario() -> None:
        async with Queue("work", database) as queue, Worker(queue, nothing):
            for number in range(20):
                job = await queue.add("job", number)
                await job.result(timeout=10_000)
                assert disk.state_after_a_cut(job.id) == "completed"

    asyncio.run(scenario())


def test_an_event_that_was_read_survives_a_power_cut(database, disk):
    async def nothing(job: Job) -> None:
        pass

    async def scenario() -> None:
        async with (
            Queue("work", database) as queue,
            QueueEvents("work", database) as events,
            Worker(queue, nothing),
        ):
            ended: asyncio.Queue[str] = asyncio.Queue()
            events.on("completed", lambda payload, id: ended.put_nowait(payload["job_id"]))
            await events.wait_until_ready()
            for number in range(10):
                job = await queue.add("job", number)
                while await asyncio.wait_for(ended.get(), 10) != job.id:
                    pass
                assert disk.state_after_a_cut(job.id) == "completed"

    asyncio.run(scenario())


# --- while it is being synced --------------------------------------------------------------------


class SlowDisk:
    """Syncs nothing while it is told to wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.asked = 0
        sync = WalFile.sync

        def wait_and_sync(log: WalFile) -> None:
            self.asked += 1
            assert self.goes_on.wait(10)
            sync(log)

        monkeypatch.setattr(WalFile, "sync", wait_and_sync)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        self.goes_on.clear()
        try:
            yield
        finally:
            self.goes_on.set()


@pytest.fixture
def slow_disk(monkeypatch) -> SlowDisk:
    return SlowDisk(monkeypatch)


def test_others_see_a_job_before_it_is_synced_and_its_producer_hears_of_it_after(
    database, slow_disk
):
    async def scenario() -> None:
        async with Queue("work", database) as queue:
            first = await queue.add("job", 1)
            async with slow_disk.waiting():
                adding = asyncio.ensure_future(queue.add("job", 2))
                second = str(int(first.id) + 1)
                await until(lambda: state_in(database, second) == "waiting")
                assert not adding.done()
            assert (await adding).id == second

    asyncio.run(scenario())


def test_the_next_job_begins_while_the_last_one_is_being_synced(database, slow_disk):
    begun: list[str] = []

    async def process(job: Job) -> None:
        begun.append(job.id)
        if len(begun) == 1:
            slow_disk.goes_on.clear()

    async def scenario() -> None:
        async with Queue("work", database) as queue:
            jobs = await queue.add_bulk([{"name": "job", "data": n} for n in range(2)])
            async with Worker(queue, process):
                await until(lambda: len(begun) == 2)
                assert not slow_disk.goes_on.is_set()
                slow_disk.goes_on.set()
                for job in jobs:
                    await job.result(timeout=10_000)

    asyncio.run(scenario())


def test_a_job_does_not_begin_before_its_producer_has_heard_of_it(database, slow_disk):
    begun: list[str] = []

    async def process(job: Job) -> None:
        begun.append(job.id)

    async def scenario() -> None:
        async with Queue("work", database) as queue, Worker(queue, process) as worker:
            await worker.wait_until_ready()
            await (await queue.add("job", 1)).result(timeout=10_000)
            asked = slow_disk.asked
            async with slow_disk.waiting():
                adding = asyncio.ensure_future(queue.add("job", 2))
                await until(lambda: slow_disk.asked > asked)
                await asyncio.sleep(0.05)
                assert len(begun) == 1
            await (await adding).result(timeout=10_000)

    asyncio.run(scenario())


def test_a_result_that_is_found_is_synced_before_it_is_told(database, slow_disk):
    async def nothing(job: Job) -> None:
        pass

    async def scenario() -> None:
        async with Queue("work", database) as queue:
            job = await queue.add("job", 1)
            async with Worker(queue, nothing):
                await job.result(timeout=10_000)
            asked = slow_disk.asked
            async with slow_disk.waiting():
                waiting = asyncio.ensure_future(job.result(timeout=10_000))
                await until(lambda: slow_disk.asked > asked)
                assert not waiting.done()
            await waiting

    asyncio.run(scenario())


def test_with_relaxed_durability_nothing_is_synced(database, slow_disk):
    async def scenario() -> None:
        async with Queue("work", f"sqlite:///{database}?durability=relaxed") as queue:
            await queue.add("job", 1)

    asyncio.run(scenario())
    assert slow_disk.asked == 0


# --- when it fails -------------------------------------------------------------------------------


def test_a_disk_that_fails_to_sync_ends_the_store(database, monkeypatch):
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def scenario() -> None:
        async with Queue("work", database) as queue:
            await queue.add("job", 1)
            with monkeypatch.context() as failing:
                failing.setattr(wal_sync.os, "fdatasync", fail)
                with pytest.raises(StoreUnsynced, match=r"could not be synced: .* reopen"):
                    await queue.add("job", 2)
            # The system would call the lost data safe now.
            with pytest.raises(StoreUnsynced):
                await queue.add("job", 3)
        async with Queue("work", database) as queue:
            await queue.add("job", 4)

    asyncio.run(scenario())


# --- where it comes from -------------------------------------------------------------------------


@pytest.fixture
def log_of_connection(database) -> Iterator[Path]:
    """The log that a connection of this process has open."""
    connection = sqlite3.connect(database)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table things (id integer)")
    yield Path(f"{database}-wal")
    connection.close()


def test_the_log_is_the_one_that_sqlite_has_open(log_of_connection):
    log = WalFile.of(log_of_connection, SyncMark(log_of_connection.with_name("mark")))
    assert log is not None
    assert os.path.samestat(os.fstat(log._descriptor), os.stat(log_of_connection))
    log.sync()
    log.close()


def test_the_log_is_kept_when_another_thread_reuses_the_number_of_a_descriptor(
    log_of_connection, monkeypatch
):
    decoy, nothing, fstat = (
        os.open(log_of_connection, os.O_RDONLY),
        os.open("/dev/null", 0),
        os.fstat,
    )

    def fstat_and_reuse(number: int) -> os.stat_result:
        """Another thread closes that descriptor of the log and opens another file."""
        status = fstat(number)
        if number == decoy:
            os.dup2(nothing, decoy)
        return status

    monkeypatch.setattr(wal_sync.os, "fstat", fstat_and_reuse)
    monkeypatch.setattr(wal_sync.os, "listdir", lambda folder: [str(decoy)])
    log = WalFile.of(log_of_connection, SyncMark(log_of_connection.with_name("mark")))
    assert log is not None
    assert os.path.samestat(fstat(log._descriptor), os.stat(log_of_connection))
    log.close()
    os.close(decoy)
    os.close(nothing)


def test_the_descriptor_of_the_log_is_no_duplicate_of_one_of_sqlite(log_of_connection):
    """Each open file is told of a failed write-back once: neither may use up the other's report."""
    log = WalFile.of(log_of_connection, SyncMark(log_of_connection.with_name("mark")))
    assert log is not None
    os.lseek(log._descriptor, 8, os.SEEK_SET)  # what duplicates have in common
    others = [number for number in numbers_of(log_of_connection) if number != log._descriptor]
    assert [os.lseek(number, 0, os.SEEK_CUR) for number in others] == [0] * len(others)
    assert others
    log.close()


def numbers_of(path: Path) -> list[int]:
    """The descriptors that this process has of a file."""
    wanted, found = os.stat(path), []
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(int(name)), wanted):
                found.append(int(name))
    return found


def test_a_log_that_is_not_there_is_not_made(tmp_path):
    assert WalFile.of(tmp_path / "none", SyncMark(tmp_path / "mark")) is None
    assert list(tmp_path.iterdir()) == []
