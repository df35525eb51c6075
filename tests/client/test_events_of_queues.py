"""What the listeners of a queue object are told of what is done with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from tests.support.helpers import until
from tests.support.listening import gather


async def echo(job: Job) -> Any:
    return job.data


async def test_added_and_waiting_tell_the_job(queue: Queue) -> None:
    heard = gather(queue, "added", "waiting")
    job = await queue.add("a", 7)
    assert [(event[0], event[1].id) for event in heard] == [("added", job.id), ("waiting", job.id)]
    assert (heard[0][1].name, heard[0][1].data) == ("a", 7)


async def test_a_delayed_job_does_not_wait(queue: Queue) -> None:
    heard = gather(queue, "added", "waiting", "delayed")
    job = await queue.add("a", delay="1h")
    assert [(event[0], event[1].id) for event in heard] == [("added", job.id), ("delayed", job.id)]


async def test_every_job_of_a_bulk_is_told(queue: Queue) -> None:
    heard = gather(queue, "added")
    jobs = await queue.add_bulk([{"name": "a"}] * 5)
    assert [event[1].id for event in heard] == [job.id for job in jobs]


async def test_a_job_that_exists_already_is_not_told(queue: Queue) -> None:
    await queue.add("a", job_id="x")
    heard = gather(queue, "added", "waiting")
    await queue.add("a", job_id="x")
    assert heard == []


async def test_added_is_told_before_the_job_is_begun(queue: Queue) -> None:
    order: list[str] = []

    async def work(job: Job) -> None:
        order.append("run")

    queue.on("added", lambda job: order.append("added"))
    async with Worker(queue, work):
        for _ in range(20):
            await (await queue.add("a")).result()
    assert order == ["added", "run"] * 20


async def test_progress_tells_the_id_and_how_far_it_is(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.update_progress(40)

    heard = gather(queue, "progress")
    async with Worker(queue, work):
        job = await queue.add("a")
        await job.result()
    await queue.update_job_progress(job.id, 50)
    assert heard == [("progress", job.id, 40), ("progress", job.id, 50)]


async def test_removed_tells_the_id(queue: Queue) -> None:
    heard = gather(queue, "removed")
    first, second = await queue.add_bulk([{"name": "a"}] * 2)
    await first.remove()
    assert await queue.remove(second.id)
    assert not await queue.remove(second.id)
    assert heard == [("removed", first.id), ("removed", second.id)]


@pytest.mark.parametrize("word", ["completed", "COMPLETED"])
async def test_cleaned_tells_the_ids_and_the_state(queue: Queue, word: str) -> None:
    heard = gather(queue, "cleaned")
    async with Worker(queue, echo):
        job = await queue.add("a")
        await job.result()
    await asyncio.sleep(0.005)
    await queue.clean(0, 10, word)
    assert heard == [("cleaned", [job.id], "completed")]


async def test_paused_and_resumed_are_told_when_something_changes(queue: Queue) -> None:
    heard = gather(queue, "paused", "resumed")
    await queue.resume()
    await queue.pause()
    await queue.pause()
    await queue.resume()
    assert heard == [("paused",), ("resumed",)]


async def test_a_listener_that_raises_does_not_fail_the_call(queue: Queue) -> None:
    errors: list[Exception] = []

    def bad(*arguments: Any) -> None:
        raise ValueError("bad listener")

    for event in ("added", "waiting", "removed", "paused"):
        queue.on(event, bad)
    queue.on("error", errors.append)
    job = await queue.add("a")
    await job.remove()
    await queue.pause()
    assert [str(error) for error in errors] == ["bad listener"] * 4


async def test_once_and_off_work_for_queues(queue: Queue) -> None:
    once, forgotten = list[Job](), list[Job]()
    queue.once("added", once.append).on("added", forgotten.append)
    first = await queue.add("a")
    queue.off("added", forgotten.append)
    await queue.add("b")
    assert [job.id for job in once] == [first.id]
    assert [job.id for job in forgotten] == [first.id]


async def test_a_coroutine_listener_may_use_the_queue(queue: Queue) -> None:
    counted: list[int] = []

    @queue.on("added")
    async def count(job: Job) -> None:
        counted.append(await queue.count())

    await queue.add("a")
    await until(lambda: counted)
    assert counted == [1]
