"""The application in processes that are forked, or where it cannot start; without a server."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from bullite import Bullite, Job, Store
from bullite.errors import StoreError
from tests.processes.test_forks import fork
from tests.support.processes import rows, say


async def nothing(job: Job) -> None:
    pass


def forks_while_its_application_runs(location: str) -> None:
    """The parent works in a thread; the child stops, starts and stops the same object."""
    app, works, done = Bullite(location), threading.Event(), threading.Event()
    app.process("work", "job", nothing)

    async def work() -> None:
        async with app:
            await (await app.add("work", "job")).result(10_000)
            # In a thread: what makes those must not be imported while the process forks.
            await asyncio.to_thread(works.set)
            await asyncio.to_thread(done.wait)

    async def work_in_the_child() -> None:
        say("child works:", app.is_running)
        await app.stop()
        async with app:
            say("child works:", app.is_running)
            await (await app.add("work", "job")).result(10_000)

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    works.wait()
    child = fork()
    if not child:
        asyncio.run(work_in_the_child())
        os._exit(0)
    say("child ended with", os.waitpid(child, 0)[1])
    say("parent works:", app.is_running)
    done.set()
    thread.join()


def test_an_application_that_runs_does_not_in_a_forked_child_and_can_be_started_there(
    location, start
):
    parent = start(forks_while_its_application_runs, location)

    parent.said("child works: False")
    parent.said("child works: True")
    parent.said("child ended with 0")
    parent.said("parent works: True")
    assert parent.ended() == 0
    assert rows(location, "select state from bullite_jobs") == [("completed",)] * 2
    assert rows(location, "select 1 from bullite_workers") == []


def test_an_application_that_cannot_start_leaves_nothing_running(database, location):
    async def begin() -> None:
        app = Bullite(location, files={"bad": database.missing()})
        app.process("good", "job", nothing)
        app.process("bad", "job", nothing)
        store = app.queue("good").store
        with pytest.raises(StoreError):
            await app.start()
        assert not app.is_running
        assert not store.is_open

    asyncio.run(begin())
    assert rows(location, "select 1 from bullite_workers") == []


def test_jobs_in_threads_leave_those_of_asyncio_to_others(location):
    """Functions with hooks around them, too, which an event loop waits for."""

    async def use() -> None:
        app, done = Bullite(location, concurrency=40), threading.Event()
        app.process("work", "job", lambda job: done.wait(30))
        all_began = asyncio.Barrier(41)

        @app.before
        async def begin(job: Job) -> None:
            await all_began.wait()

        async with app:
            for _ in range(40):
                await app.add("work", "job")
            await all_began.wait()
            assert await asyncio.wait_for(asyncio.to_thread(int, "1"), 10) == 1
            done.set()

    asyncio.run(use())


def test_stopping_closes_the_store_that_nobody_named(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("BULLITE_URL", f"sqlite:///{tmp_path}/jobs.db")

    async def use() -> Store:
        async with Bullite() as app:
            await app.add("work", "job")
            return app.queue("work").store

    store = asyncio.run(use())
    assert (tmp_path / "jobs.db").exists()
    assert not store.is_open
