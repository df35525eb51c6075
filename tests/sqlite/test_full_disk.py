"""A disk without room: nothing is half-written, and all goes on once there is room again."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from pathlib import Path

import pytest

from bullite import Job, Queue, Worker, verify
from bullite.errors import StoreFull
from tests.crash.processes import Child, say

#: A mount that nobody else sees and that is gone with the process; works without root, too.
OWN_MOUNTS = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)))


def mount_small_disk(folder: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", os.fspath(folder)]
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
