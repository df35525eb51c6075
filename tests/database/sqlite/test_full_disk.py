"""A disk without room: nothing is half-written, and all goes on once there is room again."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bullite import Job, Queue, Store, Worker, verify
from bullite.errors import StoreFull
from tests.support.processes import Child, say

#: A mount that nobody else sees and that is gone with the process; works without root, too.
OWN_MOUNTS = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)))


FEW_FILES = 30
"""How many files and folders the small disk can hold."""


def mount_small_disk(folder: Path) -> None:
    options = f"size=2m,nr_inodes={FEW_FILES}"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", os.fspath(folder)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(
            f"this test needs to mount a tmpfs, even if only in a user namespace: {done}"
        )


def fill(ballast: Path) -> None:
    """Take every byte that is left."""
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))


def leave_room_for(files: int, folder: Path) -> None:
    """Make as many files as the disk can hold but for so many."""
    folder.mkdir()
    number = 0
    with pytest.raises(OSError, match="No space"):
        while True:
            (folder / str(number)).touch()
            number += 1
    for each in range(files):
        (folder / str(number - 1 - each)).unlink()


async def counts(queue: Queue) -> str:
    """All that is not zero, as text."""
    return str({state: n for state, n in (await queue.get_job_counts()).items() if n})


# --- adding --------------------------------------------------------------------------------------


async def fills_the_disk_and_adds(folder: Path) -> None:
    async with Queue("work", folder / "jobs.db") as queue:
        jobs = [await queue.add("before", number) for number in range(20)]
        fill(folder / "ballast")
        with pytest.raises(StoreFull, match="nothing was written"):
            await queue.add("too much", "x" * 100_000)
        with pytest.raises(StoreFull):
            await queue.add_bulk([{"name": "too many", "data": "x" * 1000}] * 100)
        say("full:", await counts(queue), "-", verify(queue.store))

        (folder / "ballast").unlink()
        jobs.append(await queue.add("after", "x" * 100_000))
        say("room:", await counts(queue), "-", verify(queue.store))

        async with Worker(queue, do_nothing, concurrency=5):
            for job in jobs:
                await job.result(timeout=10_000)
        say("drained:", await counts(queue), "-", verify(queue.store))


async def do_nothing(job: Job) -> None: ...


# --- working -------------------------------------------------------------------------------------


async def fills_the_disk_and_works(folder: Path) -> None:
    """The disk is full at the moment a job is done."""
    refused = asyncio.Event()
    logging.getLogger("bullite.worker").addHandler(Refusals(refused, asyncio.get_running_loop()))

    async def fill_up(job: Job) -> str:
        say("run", job.attempts_started)
        fill(folder / "ballast")
        return "x" * 100_000

    async with Queue("work", folder / "jobs.db") as queue:
        job = await queue.add("job")
        async with Worker(queue, fill_up):
            await asyncio.wait_for(refused.wait(), 10)
            say("full:", await counts(queue))
            (folder / "ballast").unlink()
            say("result of", len(await job.result(timeout=10_000)), "characters")
        say("room:", await counts(queue), "-", verify(queue.store))


class Refusals(logging.Handler):
    """Hears the worker say that a result could not be stored."""

    def __init__(self, event: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._event, self._loop = event, loop

    def emit(self, record: logging.LogRecord) -> None:
        assert "could not be stored, trying again" in record.getMessage()
        self._loop.call_soon_threadsafe(self._event.set)


# --- making files --------------------------------------------------------------------------------


def opened(place: Path) -> str:
    """What becomes of opening a database in a folder of its own, which is then cleared away."""
    place.mkdir()
    store = Store(place / "jobs.db")
    try:
        store.open()
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace(os.fspath(place), "...")
    else:
        return "opened"
    finally:
        store.close()
        shutil.rmtree(place)


async def opens_databases_with_room_for_few_files(folder: Path) -> None:
    place = folder / "place"
    place.mkdir()  # it has to fit, too
    for files in range(10):
        ballast = folder / "ballast"
        leave_room_for(files, ballast)
        place.rmdir()
        say(opened(place))
        shutil.rmtree(ballast)
        place.mkdir()


async def opens_databases_with_room_for_few_bytes(folder: Path) -> None:
    for pages in range(0, 200, 3):
        fill(folder / "ballast")
        os.truncate(folder / "ballast", (folder / "ballast").stat().st_size - pages * 4096)
        say(opened(folder / "place"))
        (folder / "ballast").unlink()


async def starts_a_worker_with_no_room_for_a_file(folder: Path) -> None:
    errors: asyncio.Queue[Exception] = asyncio.Queue()
    async with Queue("work", folder / "jobs.db") as queue:
        job = await queue.add("job")
        leave_room_for(0, folder / "ballast")
        async with Worker(queue, do_nothing, autorun=False) as worker:
            worker.on("error", errors.put_nowait)
            say("worker:", type(await asyncio.wait_for(errors.get(), 10)).__name__)
            shutil.rmtree(folder / "ballast")
            await job.result(timeout=10_000)
        say("room:", await counts(queue))


async def takes_a_named_lock_with_no_room_for_a_file(folder: Path) -> None:
    async with Queue("work", folder / "jobs.db") as queue:
        leave_room_for(0, folder / "ballast")
        with pytest.raises(StoreFull):
            async with queue.store.lock("name"):
                pass
        shutil.rmtree(folder / "ballast")
        async with queue.store.lock("name"):
            say("locked")


# --- the tests -----------------------------------------------------------------------------------


def on_a_small_disk(scenario: str, folder: str) -> None:
    mount_small_disk(Path(folder))
    asyncio.run(globals()[scenario](Path(folder)))


@pytest.fixture
def on_small_disk(start, tmp_path):
    """Runs a scenario in a process with a disk of 2 MB; what it says."""

    def run(scenario) -> list[str]:
        child: Child = start(on_a_small_disk, scenario.__name__, tmp_path, under=OWN_MOUNTS)
        said = child.rest()
        assert child.ended() == 0
        return said

    return run


def test_adding_to_a_full_disk_fails_whole_and_the_queue_goes_on_when_there_is_room(on_small_disk):
    assert on_small_disk(fills_the_disk_and_adds) == [
        "full: {'waiting': 20} - no problems found",
        "room: {'waiting': 21} - no problems found",
        "drained: {'completed': 21} - no problems found",
    ]


def test_a_result_that_finds_the_disk_full_is_stored_once_there_is_room(on_small_disk):
    assert on_small_disk(fills_the_disk_and_works) == [
        "run 1",
        "full: {'active': 1}",
        "result of 100000 characters",
        "room: {'completed': 1} - no problems found",
    ]


def assert_full_until_opened(said: list[str]) -> None:
    first = said.index("opened")
    assert first > 2
    assert said[first:] == ["opened"] * len(said[first:])
    for line in said[:first]:
        assert line.startswith("StoreFull: no room left for "), line
        assert "nothing was written" in line


def test_a_database_for_whose_files_there_is_no_room_is_not_opened(on_small_disk):
    assert_full_until_opened(on_small_disk(opens_databases_with_room_for_few_files))


def test_a_database_for_whose_tables_there_is_no_room_is_not_opened(on_small_disk):
    assert_full_until_opened(on_small_disk(opens_databases_with_room_for_few_bytes))


def test_a_worker_that_finds_no_room_for_its_sign_of_life_tries_again(on_small_disk):
    assert on_small_disk(starts_a_worker_with_no_room_for_a_file) == [
        "worker: StoreFull",
        "room: {'completed': 1}",
    ]


def test_a_named_lock_is_refused_while_there_is_no_room_for_a_sign_of_life(on_small_disk):
    assert on_small_disk(takes_a_named_lock_with_no_room_for_a_file) == ["locked"]
