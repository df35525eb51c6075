"""Coroutines that add jobs at the same time share a request; each gets what it would have alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bullite import Job, Queue, QueueFull
from bullite.client.runtime import bridge
from bullite.engine.engine import Engine
from bullite.engine.replies import PendingRequest
from bullite.errors import RequestRefused
from bullite.operations.add import AddJobs, NewJob


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[AddJobs]:
    """What the engine is asked to add from now on."""
    requests: list[AddJobs] = []
    submit_all = Engine.submit_all

    def listen(self: Engine, asks: Sequence[PendingRequest]) -> None:
        requests.extend(ask.request for ask in asks if isinstance(ask.request, AddJobs))
        submit_all(self, asks)

    monkeypatch.setattr(Engine, "submit_all", listen)
    return requests


async def expect_a_crowd(queue: Queue) -> None:
    """As after several had their answers at the same time."""
    await queue.wait_until_ready()
    bridge.reply_target()._is_busy = True


async def at_once(queue: Queue, number: int) -> list[Any]:
    """What many get who add a job each, in one turn of the loop: the job, or the error."""
    adds = (queue.add(f"job-{index}", index) for index in range(number))
    return await asyncio.gather(*adds, return_exceptions=True)


async def names(queue: Queue) -> list[str]:
    return [job.name for job in await queue.get_jobs("waiting", asc=True)]


async def test_jobs_that_are_added_at_once_are_one_request_and_keep_their_order(
    queue: Queue, sent: list[AddJobs]
) -> None:
    await expect_a_crowd(queue)

    jobs = await at_once(queue, 20)

    assert [len(request.jobs) for request in sent] == [20]
    assert [job.name for job in jobs] == [f"job-{index}" for index in range(20)]
    for job in jobs:
        assert isinstance(found := await queue.get_job(job.id), Job)
        assert (found.name, found.data) == (job.name, job.data)
    assert await names(queue) == [f"job-{index}" for index in range(20)]


async def test_a_job_with_an_id_of_its_own_keeps_its_place_between_others(
    queue: Queue, sent: list[AddJobs]
) -> None:
    await expect_a_crowd(queue)

    await asyncio.gather(
        queue.add("a"), queue.add("b"), queue.add("c", job_id="mine"), queue.add("d")
    )

    assert [[job.name for job in request.jobs] for request in sent] == [["a", "b"], ["c"], ["d"]]
    assert await names(queue) == ["a", "b", "c", "d"]


async def test_when_there_is_no_room_for_all_as_many_are_let_in_as_there_is(
    queue: Queue, sent: list[AddJobs]
) -> None:
    await queue.configure(max_waiting=3)
    await expect_a_crowd(queue)

    found = await at_once(queue, 10)

    assert [isinstance(one, QueueFull) for one in found] == [False] * 3 + [True] * 7
    assert await names(queue) == ["job-0", "job-1", "job-2"]


async def test_new_settings_hold_for_all_that_are_added_at_once(
    queue: Queue, sent: list[AddJobs]
) -> None:
    async with Queue(queue.name, queue.store) as other:
        await other.configure(default_job_options={"attempts": 4})
        await expect_a_crowd(queue)

        jobs = await at_once(queue, 5)

    assert [job.attempts for job in jobs] == [4] * 5
    assert [(await queue.get_job(job.id)).attempts for job in jobs] == [4] * 5  # type: ignore[union-attr]


async def test_one_that_the_database_refuses_does_not_keep_its_neighbours_out(
    queue: Queue, sent: list[AddJobs]
) -> None:
    await expect_a_crowd(queue)
    good = queue._factory.new_job("good", None, queue._factory.plain)
    broken: NewJob = good._replace(name="broken", data=None)  # type: ignore[arg-type]

    def add(job: NewJob) -> asyncio.Future[Any]:
        return bridge.submit(queue.store, AddJobs(queue._pk, (job,)))

    found = await asyncio.gather(add(good), add(broken), add(good), return_exceptions=True)

    assert [isinstance(one, RequestRefused) for one in found] == [False, True, False]
    assert await names(queue) == ["good", "good"]


async def test_when_the_store_is_closed_everybody_is_told(
    queue: Queue, sent: list[AddJobs]
) -> None:
    await expect_a_crowd(queue)
    adds = [asyncio.ensure_future(queue.add("late")) for _ in range(3)]
    await asyncio.sleep(0)
    queue.store.open()._state.is_stopping = True

    found = await asyncio.gather(*adds, return_exceptions=True)

    assert len({type(one) for one in found}) == 1
    assert all(isinstance(one, Exception) for one in found)


async def test_one_caller_is_not_kept_waiting_for_others(queue: Queue, sent: list[AddJobs]) -> None:
    await expect_a_crowd(queue)

    for _ in range(3):
        await queue.add("alone")

    assert [len(request.jobs) for request in sent] == [1, 1, 1]
