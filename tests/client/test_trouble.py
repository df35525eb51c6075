"""When the database makes trouble, or more comes in than it can take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from bullite.engine import inbox
from bullite.errors import StoreBusy, StoreUnavailable
from bullite.operations.add import AddJobs
from tests.support.databases import Database
from tests.support.helpers import again, until


@pytest.fixture
def impatient(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up on a locked database after 50 ms."""
    database.give_up_on_locks(0.05, monkeypatch)


async def test_an_add_waits_while_somebody_else_writes(queue: Queue, database: Database) -> None:
    await queue.wait_until_ready()
    with database.locked():
        adding = asyncio.create_task(queue.add("a", 1))
        _, pending = await asyncio.wait({adding}, timeout=0.1)
        assert pending
    assert (await again(queue, await adding)).data == 1


async def test_reading_does_not_wait_for_who_writes(queue: Queue, database: Database) -> None:
    job = await queue.add("a", 1)
    with database.locked():
        assert (await again(queue, job)).data == 1
        assert (await queue.get_job_counts())["waiting"] == 1


@pytest.mark.usefixtures("impatient")
async def test_an_add_that_waits_for_too_long_is_refused_and_not_stored(
    queue: Queue, database: Database
) -> None:
    await queue.wait_until_ready()
    with database.locked(), pytest.raises(StoreBusy):
        await queue.add("a")
    assert (await queue.get_job_counts())["waiting"] == 0
    await queue.add("b")  # and life goes on


@pytest.mark.usefixtures("impatient")
async def test_end_of_a_job_taken_by_hand_can_be_repeated_after_a_locked_database(
    queue: Queue, database: Database
) -> None:
    added = await queue.add("a")
    worker = Worker(queue)
    job = await worker.get_next_job()
    assert job is not None
    with database.locked(), pytest.raises(StoreBusy):
        await job.move_to_completed("done")
    assert (await again(queue, added)).state == "active"
    await job.move_to_completed("done")
    assert (await again(queue, added)).return_value == "done"
    await worker.close()


@pytest.mark.usefixtures("impatient")
async def test_a_worker_survives_a_database_that_is_locked(
    queue: Queue, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> str:
        begun.set()
        await go_on.wait()
        return "stored at last"

    async with Worker(queue, work):
        job = await queue.add("a")
        await begun.wait()
        with database.locked():
            go_on.set()
            await until(lambda: "results could not be stored, trying again" in caplog.text)
        assert await job.result(timeout="10s") == "stored at last"
        assert await (await queue.add("b")).result(timeout="10s") == "stored at last"
    assert (await again(queue, job)).attempts_made == 1


async def test_producers_wait_while_the_inbox_is_full(
    queue: Queue, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "INBOX_ROWS", 50)
    await queue.wait_until_ready()
    engine = queue.store.open()
    submitted: list[Any] = []
    submit = engine.submit

    def counting(request: Any, *rest: Any) -> None:
        if isinstance(request, AddJobs):
            submitted.append(request)
        submit(request, *rest)

    monkeypatch.setattr(engine, "submit", counting)
    with database.locked():
        adding = [asyncio.create_task(queue.add("a", n)) for n in range(300)]
        await asyncio.wait(adding, timeout=0.1)
        assert 50 <= len(submitted) <= 101  # what waits, and what the engine tries to write
    jobs = await asyncio.gather(*adding)
    assert sorted(job.data for job in jobs) == list(range(300))
    assert (await queue.get_job_counts())["waiting"] == 300


async def test_an_idle_worker_reports_that_its_database_cannot_be_reached(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[BaseException] = []
    gone = StoreUnavailable("the disk was pulled out")

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise gone

    async with Worker(queue, echo) as worker:
        await (await queue.add("a")).result(timeout="10s")
        worker.on("error", errors.append)
        driver = queue.store.open().driver
        monkeypatch.setattr(driver, "execute", fail)
        await until(lambda: errors[:1] == [gone])
        monkeypatch.undo()
        assert await (await queue.add("b", 1)).result(timeout="20s") == 1


async def echo(job: Job) -> Any:
    return job.data
