"""Files that are taken away under a running store: never silence."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bullite import Job, Queue, Worker
from bullite.errors import StoreReplaced
from tests.support.processes import add, problems, states, wait_until


def remove(database: Path) -> None:
    database.unlink()


def move_away(database: Path) -> None:
    database.rename(database.with_name("moved.db"))


def put_another_in_its_place(database: Path) -> None:
    other = database.with_name("other.db")
    add(other, "job")
    os.replace(other, database)


def remove_the_log(database: Path) -> None:
    database.with_name("jobs.db-wal").unlink()


ACCIDENTS = pytest.mark.parametrize(
    "accident", [remove, move_away, put_another_in_its_place, remove_the_log]
)


@ACCIDENTS
def test_the_next_add_says_that_the_files_were_replaced(database, accident):
    async def scenario() -> None:
        async with Queue("work", database) as queue:
            await queue.add("before")
            await asyncio.to_thread(accident, database)
            with pytest.raises(StoreReplaced, match=str(database)):
                await queue.add("after")
            with pytest.raises(StoreReplaced, match=str(database)):
                await queue.add("and again")

    asyncio.run(scenario())


@ACCIDENTS
def test_those_who_wait_for_a_result_are_told(database, accident: Callable[[Path], None]):
    async def scenario() -> None:
        async with Queue("work", database) as queue:
            job = await queue.add("before")
            waiting = asyncio.ensure_future(job.result(timeout=10_000))
            await asyncio.sleep(0)
            await asyncio.to_thread(accident, database)
            with pytest.raises(StoreReplaced):
                await queue.add("after")
            with pytest.raises(StoreReplaced):
                await waiting

    asyncio.run(scenario())


@ACCIDENTS
def test_a_worker_that_only_waits_says_so_in_the_log_and_can_be_closed(database, accident, caplog):
    async def do_nothing(job: Job) -> None: ...

    async def scenario() -> None:
        async with Queue("work", database) as queue:
            worker = Worker(queue, do_nothing, lock_duration=200)
            await (await queue.add("job")).result(timeout=10_000)
            await asyncio.to_thread(accident, database)
            await asyncio.to_thread(
                wait_until, lambda: "was deleted or replaced while it was in use" in caplog.text
            )
            with contextlib.suppress(StoreReplaced):
                await asyncio.wait_for(worker.close(), 5)
            assert not worker.is_running

    asyncio.run(scenario())


def test_a_store_opened_anew_uses_the_file_that_is_there_now(database):
    async def scenario() -> None:
        async with Queue("work", database) as queue:
            await queue.add("before")
            await asyncio.to_thread(put_another_in_its_place, database)
            with pytest.raises(StoreReplaced):
                await queue.add("after")

    asyncio.run(scenario())
    # The WAL of the old file is still beside the new one; an operator must delete it.
    database.with_name("jobs.db-wal").unlink(missing_ok=True)
    database.with_name("jobs.db-shm").unlink(missing_ok=True)

    add(database, "in the new file")

    assert len(states(database)) == 2
    assert problems(database) == ()
