"""The server restarts, is away for long, or hangs: work waits, and goes on when it is back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from bullite import Job, Queue, Worker
from bullite.database.postgres import connections, reconnecting
from bullite.errors import StoreUnavailable
from tests.database.postgres.conftest import url_of
from tests.database.postgres.listening import Starts
from tests.support.helpers import until
from tests.support.server import Server
from tests.support.slow_machine import but_for_slowness


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting, "TIMEOUT", 0.5)


@contextlib.contextmanager
def away(server: Server, how: signal.Signals = signal.SIGQUIT) -> Iterator[None]:
    """The server has crashed, or was shut down; it is started again in the end."""
    server.stop(how)
    try:
        yield
    finally:
        server.start()


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Processes of the server that do not answer, and do not hang up either."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def in_thread(call: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, call)


def backends(server: Server) -> list[int]:
    with server.connect() as connection:
        query = "select pid from pg_stat_activity where application_name = 'bullite'"
        return [pid for (pid,) in connection.execute(query)]


def names(server: Server) -> list[str]:
    with server.connect() as connection:
        rows = connection.execute("select name from bullite.bullite_jobs order by id")
        return [name for (name,) in rows]


# --- away ---


async def test_an_add_during_a_restart_waits_and_succeeds(own_server: Server) -> None:
    async with Queue("work", url_of(own_server)) as queue:
        with away(own_server):
            adding = asyncio.ensure_future(queue.add("a"))
            await asyncio.sleep(0.5)
            assert not adding.done()
        await adding
    assert names(own_server) == ["a"]


async def test_adds_under_way_when_the_server_crashes_are_all_kept_once(own_server: Server) -> None:
    async with Queue("work", url_of(own_server)) as queue:
        adding = [asyncio.ensure_future(queue.add(f"{n:03}")) for n in range(300)]
        await adding[0]
        await in_thread(own_server.restart)
        more = [asyncio.ensure_future(queue.add(f"{n:03}")) for n in range(300, 400)]
        await asyncio.gather(*adding, *more)
    assert sorted(names(own_server)) == [f"{n:03}" for n in range(400)]


@pytest.mark.usefixtures("impatient")
async def test_a_server_away_for_too_long_is_told_and_nothing_was_written(
    own_server: Server,
) -> None:
    async with Queue("work", url_of(own_server)) as queue:
        with away(own_server), pytest.raises(StoreUnavailable, match="nothing was written"):
            await queue.add("a")
        await queue.add("b")
    assert names(own_server) == ["b"]


@pytest.mark.usefixtures("impatient")
async def test_an_idle_worker_reports_that_the_server_is_away(own_server: Server) -> None:
    # Housekeeping that has just begun waits for the server first, as every transaction does.
    async def double(job: Job) -> int:
        return 2 * int(job.data)

    errors: list[BaseException] = []
    async with Queue("work", url_of(own_server)) as queue, Worker(queue, double) as worker:
        await (await queue.add("a", 1)).result(timeout="10s")
        worker.on("error", errors.append)
        with away(own_server):
            await until(lambda: errors)
        assert isinstance(errors[0], StoreUnavailable)
        assert await (await queue.add("b", 2)).result(timeout="30s") == 4


@pytest.mark.usefixtures("impatient")
async def test_reading_while_the_server_is_away_is_told_soon(own_server: Server) -> None:
    async with Queue("work", url_of(own_server)) as queue:
        await queue.get_job_counts()
        with away(own_server):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await queue.get_job_counts()
            assert time.monotonic() - began < 5
        await until(lambda: can_read(queue), 5)


async def can_read(queue: Queue) -> bool:
    try:
        await queue.get_job_counts()
    except StoreUnavailable:
        return False
    return True


@pytest.mark.usefixtures("impatient")
async def test_a_worker_goes_on_after_an_outage(own_server: Server) -> None:
    starts = Starts()
    async with Queue("work", url_of(own_server)) as queue, Worker(queue, starts):
        await starts.of(await queue.add("a"))
        with away(own_server):
            await asyncio.sleep(2)
        await starts.of(await queue.add("b"))


@pytest.mark.usefixtures("impatient")
async def test_a_result_that_cannot_be_stored_during_an_outage_is_stored_after_it(
    own_server: Server,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    async def work(job: Job) -> str:
        runs.append(job.pk)
        begun.set()
        await go_on.wait()
        return "kept"

    async with Queue("work", url_of(own_server)) as queue, Worker(queue, work):
        job = await queue.add("a")
        await begun.wait()
        with away(own_server, signal.SIGINT):
            go_on.set()
            await asyncio.sleep(1.5)
        assert await job.result(timeout="20s") == "kept"
    assert runs == [job.pk]


async def test_an_outage_of_5_seconds_is_told_of_in_few_words(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    starts = Starts()
    caplog.set_level(logging.WARNING, logger="bullite")
    async with Queue("work", url_of(own_server)) as queue, Worker(queue, starts, concurrency=5):
        await starts.of(await queue.add("a"))
        await queue.get_job_counts()
        with away(own_server):
            adding = asyncio.ensure_future(queue.add("b"))
            with contextlib.suppress(StoreUnavailable):
                await queue.get_job_counts()
            await asyncio.sleep(5)
        await starts.of(await adding)
    said = but_for_slowness(caplog.messages)
    assert len(said) <= 5, said


# --- there, and silent ---


async def test_an_add_waits_for_a_backend_that_hangs(own_server: Server) -> None:
    async with Queue("work", url_of(own_server)) as queue:
        await queue.add("a")
        with stopped(*backends(own_server)):
            adding = asyncio.ensure_future(queue.add("b"))
            await asyncio.sleep(2)
            assert not adding.done()
        await adding
    assert names(own_server) == ["a", "b"]


async def test_a_backend_that_hangs_for_too_long_is_given_up_and_nothing_happens_twice(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections.Connection, "answer_within", 1.0)
    async with Queue("work", url_of(own_server)) as queue:
        await queue.add("a")
        hanging = backends(own_server)
        with stopped(*hanging):
            await asyncio.wait_for(queue.add("b"), 10)
        await until(lambda: not set(hanging) & set(backends(own_server)))
    assert names(own_server) == ["a", "b"]


async def test_who_is_connected_does_not_notice_a_postmaster_that_hangs(own_server: Server) -> None:
    async with Queue("work", url_of(own_server)) as queue:
        await queue.add("a")
        with stopped(own_server.pid):
            await asyncio.wait_for(queue.add("b"), 5)


async def test_who_must_connect_waits_for_a_postmaster_that_hangs(own_server: Server) -> None:
    async with Queue("work", url_of(own_server)) as queue:
        await queue.add("a")
        with own_server.connect() as connection, stopped(own_server.pid):
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name = 'bullite'"
            )
            adding = asyncio.ensure_future(queue.add("b"))
            await asyncio.sleep(2)
            assert not adding.done()
        await adding
    assert names(own_server) == ["a", "b"]
