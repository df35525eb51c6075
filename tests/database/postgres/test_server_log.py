"""What our transactions write into the server's log: errors are rare, and say whose they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bullite import Job, Queue, Worker
from tests.support.helpers import state_of, until
from tests.support.server import UNSYNCED, Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that logs errors."""
    server = Server({**UNSYNCED, "log_min_messages": "error"})
    yield server
    server.destroy()


@pytest.fixture
def url(server: Server, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:60]
    server.make_database(name)
    return server.url(name)


def errors(server: Server) -> list[str]:
    return [line for line in server.log().splitlines() if "ERROR:" in line]


async def test_cancel_of_a_running_job_leaves_no_error_in_the_servers_log(
    server: Server, url: str
) -> None:
    begun = asyncio.Event()

    async def work(job: Job) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Queue("work", url) as queue, Worker(queue, work):
        job = await queue.add("a")
        await begun.wait()
        before = errors(server)
        await queue.cancel(job.id, "not needed")

        async def has_failed() -> bool:
            return await state_of(queue, job) == "failed"

        await until(has_failed)
    assert errors(server) == before


async def test_depends_on_a_running_job_leaves_an_error_that_says_what_is_undone(
    server: Server, url: str
) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> None:
        begun.set()
        await may_end.wait()

    async with Queue("work", url) as queue, Worker(queue, work):
        first = await queue.add("a")
        await begun.wait()
        before = len(errors(server))
        second = await queue.add("b", depends_on=[first])
        may_end.set()
        await second.result(timeout=30_000)
    [line] = errors(server)[before:]
    assert "bullite undoes a transaction: not all jobs are where they were" in line
