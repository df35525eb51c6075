"""Workers: what a run reports, returns or raises, and who hears of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import Job, Queue, QueueEvents, Worker
from bullite.core.job_options import JobOptions
from tests.support.helpers import again, until


@pytest.mark.parametrize("value", [42, {"percentage": 42}, "almost there", True])
async def test_W_004_progress_reaches_readers_of_the_log_with_its_type(
    queue: Queue, value: Any
) -> None:
    told: list[dict[str, Any]] = []

    async def work(job: Job) -> None:
        await job.update_progress(value)

    async with QueueEvents("emails", queue.store) as events, Worker(queue, work):
        events.on("progress", lambda payload, _: told.append(payload))
        job = await queue.add("a")
        await until(lambda: told)
    assert told == [{"job_id": job.id, "data": value}]
    assert type(told[0]["data"]) is type(value)


async def test_W_005_a_worker_that_is_run_by_hand_tells_its_listeners_of_progress(
    queue: Queue,
) -> None:
    told: list[tuple[Job, Any]] = []

    async def work(job: Job) -> None:
        await job.update_progress({"percentage": 42})

    worker = Worker(queue, work, autorun=False)
    worker.on("progress", lambda job, progress: told.append((job, progress)))
    run = asyncio.create_task(worker.run())
    added = await queue.add("a")
    await until(lambda: told)
    await worker.close()
    await run
    [(job, progress)] = told
    assert (job.id, progress) == (added.id, {"percentage": 42})


@pytest.mark.parametrize("value", [37, "a text", None, 0, ""])
async def test_W_006_a_result_is_stored_before_the_listeners_of_completed_hear_of_it(
    queue: Queue, value: Any
) -> None:
    told: list[tuple[Any, Any, str]] = []

    async def work(job: Job) -> Any:
        return value

    async def hear(job: Job, result: Any, prev: str) -> None:
        stored = await again(queue, job)
        told.append((result, stored.return_value, stored.state))

    async with Worker(queue, work) as worker:
        worker.on("completed", hear)
        await queue.add("a")
        await until(lambda: told)
    assert told == [(value, value, "completed")]


async def test_W_007_a_text_is_told_and_read_back_as_that_very_text(queue: Queue) -> None:
    told: list[dict[str, Any]] = []

    async def work(job: Job) -> str:
        return 'say "hello"'

    async with QueueEvents("emails", queue.store) as events, Worker(queue, work):
        events.on("completed", lambda payload, _: told.append(payload))
        job = await queue.add("a")
        await until(lambda: told)
    assert (told[0]["job_id"], told[0]["return_value"]) == (job.id, 'say "hello"')
    assert (await again(queue, job)).return_value == 'say "hello"'


@pytest.mark.parametrize("in_thread", [False, True])
async def test_W_010_listeners_of_failed_get_the_job_and_the_very_error_that_was_raised(
    queue: Queue, in_thread: bool
) -> None:
    told: list[tuple[Job, Exception]] = []
    error = ValueError("no such customer")

    async def on_the_loop(job: Job) -> None:
        await asyncio.sleep(0)
        raise error

    def in_a_thread(job: Job) -> None:
        raise error

    processor: Any = in_a_thread if in_thread else on_the_loop
    async with Worker(queue, processor) as worker:
        worker.on("failed", lambda job, error, prev: told.append((job, error)))
        added = await queue.add("a", {"customer": 7})
        await until(lambda: told)
    [(job, heard)] = told
    assert heard is error
    assert (job.id, job.data) == (added.id, {"customer": 7})
    assert isinstance(job.finished_on, int)


async def test_W_011_a_result_that_contains_itself_fails_the_job(queue: Queue) -> None:
    told: list[str] = []

    async def work(job: Job) -> list[Any]:
        circle: list[Any] = []
        circle.append(circle)
        return circle

    async with Worker(queue, work) as worker:
        worker.on("completed", lambda *_: told.append("completed"))
        worker.on("failed", lambda *_: told.append("failed"))
        job = await queue.add("a")
        await until(lambda: told)
    assert told == ["failed"]
    assert (await again(queue, job)).state == "failed"


async def test_W_012_jobs_know_the_name_of_the_worker_that_runs_them(queue: Queue) -> None:
    names: list[str | None] = []

    async def work(job: Job) -> None:
        names.append(job.processed_by)

    async with Worker(queue, work, name="foobar"):
        for _ in range(3):
            await queue.add("a")
        await until(lambda: len(names) == 3)
    assert set(names) == {"foobar"}


async def test_W_025_a_job_that_is_to_go_when_complete_is_gone_when_its_listeners_hear_of_it(
    queue: Queue,
) -> None:
    tokens: list[Any] = []
    told: list[tuple[Any, ...]] = []

    async def work(job: Job, token: str) -> None:
        tokens.append(token)

    async def hear(job: Job, *_: Any) -> None:
        counted = await queue.get_completed_count()
        told.append((await queue.get_job(job.id), counted, job.finished_on))

    async with Worker(queue, work) as worker:
        worker.on("completed", hear)
        await queue.add("a", remove_on_complete=True)
        await until(lambda: told)
    [(stored, counted, finished_on)] = told
    assert (stored, counted) == (None, 0)
    assert isinstance(finished_on, int)
    assert isinstance(tokens[0], str)


@pytest.mark.parametrize("event", ["completed", "failed"])
async def test_W_026_a_queues_default_makes_jobs_go_before_their_listeners_hear_of_it(
    queue: Queue, event: str
) -> None:
    told: list[Job | None] = []
    defaults: JobOptions = {"remove_on_complete": True, "remove_on_fail": True}
    tidy = Queue("emails", queue.store, default_job_options=defaults)

    async def work(job: Job) -> None:
        if event == "failed":
            raise ValueError("as the test wants it")

    async def hear(job: Job, *_: Any) -> None:
        told.append(await queue.get_job(job.id))

    async with Worker(tidy, work) as worker:
        worker.on(event, hear)
        await tidy.add("a")
        await until(lambda: told)
    assert told == [None]
    assert await queue.get_job_count_by_types() == 0
