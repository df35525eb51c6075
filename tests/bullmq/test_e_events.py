"""Area E of the catalogue: what queues, workers and readers of the event log are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bullite import Job, Queue, QueueEvents, Worker
from bullite.errors import EventsAlreadyRunning
from tests.support.helpers import until


async def nothing(job: Job) -> None: ...


class Heard:
    """Everything that a reader of the event log is told of one event."""

    def __init__(self, events: QueueEvents, event: str) -> None:
        self.payloads: list[dict[str, Any]] = []
        self.ids: list[str] = []
        events.on(event, self)

    def __call__(self, payload: dict[str, Any], event_id: str) -> None:
        self.payloads.append(payload)
        self.ids.append(event_id)


@pytest.fixture
def reader(queue: Queue) -> Callable[[], QueueEvents]:
    return lambda: QueueEvents(queue.name, queue.store)


async def test_E_001_without_autorun_nothing_is_read_until_run(queue: Queue) -> None:
    events = QueueEvents(queue.name, queue.store, autorun=False)
    added = Heard(events, "added")
    await events.wait_until_ready()
    await queue.add("a")
    await asyncio.sleep(0.1)
    assert added.payloads == []
    running = asyncio.create_task(events.run())
    await until(lambda: events.running)
    await events.wait_until_ready()
    await queue.add("b")
    await until(lambda: "b" in [payload["name"] for payload in added.payloads])
    await events.close()
    await asyncio.wait_for(running, 10)


async def test_E_001_the_same_events_are_not_read_by_two_runs(queue: Queue) -> None:
    events = QueueEvents(queue.name, queue.store, autorun=False)
    await events.wait_until_ready()
    running = asyncio.create_task(events.run())
    await asyncio.sleep(0)
    with pytest.raises(EventsAlreadyRunning):
        await events.run()
    await events.close()
    await asyncio.wait_for(running, 10)


async def test_E_002_adding_a_job_is_told_on_the_queue_object_as_waiting(queue: Queue) -> None:
    told: list[Job] = []
    queue.on("waiting", told.append)
    job = await queue.add("a")
    assert [type(waiting.id) for waiting in told] == [str]
    assert told[0].id == job.id


async def test_E_002_adding_a_job_is_told_to_everybody_as_waiting(
    queue: Queue, reader: Callable[[], QueueEvents]
) -> None:
    async with reader() as events:
        waiting = Heard(events, "waiting")
        job = await queue.add("a")
        await until(lambda: waiting.payloads == [{"job_id": job.id}])


async def test_E_004_everybody_is_told_that_a_queue_is_drained(
    queue: Queue, reader: Callable[[], QueueEvents]
) -> None:
    async with reader() as events:
        drained = Heard(events, "drained")
        await queue.add_bulk([{"name": "a"}] * 2)
        async with Worker(queue, nothing, drain_delay=1000):
            await until(lambda: drained.ids)
            assert await queue.get_completed_count() in (1, 2)
    assert all(isinstance(event_id, str) for event_id in drained.ids)


async def test_E_005_a_queue_is_drained_when_the_last_of_its_jobs_is_completed(
    queue: Queue, reader: Callable[[], QueueEvents]
) -> None:
    async def work(job: Job) -> None:
        await asyncio.sleep(0.05 * (1 + job.data))

    async with reader() as events:
        drained = Heard(events, "drained")
        async with Worker(queue, work, concurrency=4):
            await queue.add_bulk({"name": "a", "data": n} for n in range(4))
            await until(lambda: drained.ids)
            assert await queue.get_completed_count() == 4


async def test_E_006_a_queue_is_told_drained_once_each_time_and_not_while_idle(
    queue: Queue, reader: Callable[[], QueueEvents]
) -> None:
    async with reader() as events:
        drained = Heard(events, "drained")
        async with Worker(queue, nothing, drain_delay=50, poll_interval=50):
            for batch in (1, 2):
                jobs = await queue.add_bulk([{"name": "a"}] * 2)
                for job in jobs:
                    await job.result()
                await asyncio.sleep(0.3)
                assert len(drained.ids) == batch


async def test_E_007_a_worker_tells_that_it_is_drained_once_its_jobs_are_stored(
    queue: Queue,
) -> None:
    counts: list[int] = []

    async def drained() -> None:
        counts.append(await queue.get_completed_count())

    await queue.add_bulk([{"name": "a"}] * 2)
    async with Worker(queue, nothing) as worker:
        worker.on("drained", drained)
        await until(lambda: counts)
    assert counts[-1] == 2


async def test_E_009_everybody_is_told_the_id_and_the_name_of_an_added_job(
    queue: Queue, reader: Callable[[], QueueEvents]
) -> None:
    async with reader() as events:
        added = Heard(events, "added")
        job = await queue.add("test")
        await until(lambda: added.payloads == [{"job_id": job.id, "name": "test"}])


async def test_E_010_adding_an_id_that_is_running_adds_nothing_and_is_told_as_duplicated(
    queue: Queue, reader: Callable[[], QueueEvents]
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> None:
        begun.set()
        await go_on.wait()

    async with reader() as events, Worker(queue, work):
        duplicated = Heard(events, "duplicated")
        first = await queue.add("a", job_id="a1")
        await begun.wait()
        second = await queue.add("a", job_id="a1")
        await until(lambda: duplicated.payloads == [{"job_id": "a1"}])
        assert second.pk == first.pk
        assert await queue.get_job_counts("active", "waiting") == {"active": 1, "waiting": 0}
        go_on.set()


async def test_E_011_a_worker_tells_of_every_job_that_it_begins(queue: Queue) -> None:
    begun: list[str] = []
    jobs = await queue.add_bulk([{"name": "a"}] * 20)
    async with Worker(queue, nothing) as worker:
        worker.on("active", lambda job, prev: begun.append(job.id))
        for job in jobs:
            await job.result()
    assert begun == [job.id for job in jobs]


async def test_E_011_jobs_added_one_by_one_are_told_as_begun_once_each(queue: Queue) -> None:
    begun: list[str] = []
    async with Worker(queue, nothing, concurrency=3) as worker:
        worker.on("active", lambda job, prev: begun.append(job.id))
        jobs = [await queue.add("a") for _ in range(20)]
        for job in jobs:
            await job.result()
    assert sorted(begun, key=int) == [job.id for job in jobs]


async def test_E_014_everybody_is_told_a_result_as_the_value_it_is(
    queue: Queue, reader: Callable[[], QueueEvents]
) -> None:
    async def work(job: Job) -> dict[str, int]:
        return {"result": 42}

    async with reader() as events, Worker(queue, work):
        completed = Heard(events, "completed")
        job = await queue.add("a")
        await until(lambda: completed.payloads)
    [told] = completed.payloads
    assert (told["job_id"], told["return_value"]) == (job.id, {"result": 42})
