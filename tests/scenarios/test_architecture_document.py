"""The architecture document's usage examples, written for this library and run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bullite import Job, Priority, Queue, Store, Worker, verify
from bullite.errors import QueueOptionMismatch
from tests.support.helpers import again, state_of, until

Main = Callable[[Queue], Coroutine[Any, Any, None]]

ANSWER = "Of course. What are you building?"


def run(tmp_path: Path, main: Main, **options: Any) -> None:
    """The queue of the document: higher numbers come first."""
    path = tmp_path / "jobs.db"

    async def running() -> None:
        async with Queue("llm-processing", path, priority_order="high", **options) as queue:
            await main(queue)

    asyncio.run(asyncio.wait_for(running(), 30))
    with closing(Store(path)) as store:
        assert verify(store).problems == ()


async def is_in(queue: Queue, job: Job, state: str) -> bool:
    return await state_of(queue, job) == state


# --- basic job processing ------------------------------------------------------------------------


def test_a_message_is_processed_with_progress_and_a_result(tmp_path: Path) -> None:
    saved: dict[str, str] = {}

    async def process(job: Job) -> dict[str, Any]:
        await job.update_progress(25)
        await asyncio.sleep(0)  # here a language model thinks about job.data["message"]
        await job.update_progress(75)
        saved[job.data["conversation_id"]] = ANSWER
        await job.update_progress(100)
        return {"response": ANSWER, "timestamp": time.time_ns() // 1_000_000}

    async def main(queue: Queue) -> None:
        job = await queue.add(
            "process-message",
            {
                "user_id": "user123",
                "message": "Hello, can you help me with coding?",
                "conversation_id": "conv456",
            },
            priority=100,
            attempts=3,
            backoff={"type": "exponential", "delay": 2000},
        )
        worker = Worker(
            "llm-processing", process, store=queue.store, concurrency=2, poll_interval=500
        )
        running = asyncio.create_task(worker.run())
        result = await job.result()
        await worker.close()
        await running
        assert result["response"] == ANSWER
        assert saved == {"conv456": ANSWER}
        done = await again(queue, job)
        assert (done.state, done.progress, done.attempts_made) == ("completed", 100, 1)

    run(tmp_path, main)


def test_higher_priorities_come_first(tmp_path: Path) -> None:
    async def main(queue: Queue) -> None:
        ran: list[str] = []

        async def process(job: Job) -> None:
            ran.append(job.name)

        for name, priority in (("low", -100_000), ("normal", 0), ("high", 100_000)):
            await queue.add(name, priority=priority)
        critical = await queue.add("critical", priority=Priority.CRITICAL)
        assert critical.priority == 1_000_000
        async with Worker(queue, process):
            await until(lambda: len(ran) == 4)
        assert ran == ["critical", "high", "normal", "low"]

    run(tmp_path, main)


def test_the_order_of_priorities_is_the_queues_for_good(tmp_path: Path) -> None:
    async def main(queue: Queue) -> None:
        with pytest.raises(QueueOptionMismatch):
            await Queue("llm-processing", queue.store, priority_order="low").wait_until_ready()
        same = Queue("llm-processing", queue.store)
        await same.wait_until_ready()
        assert same.priority_order == "high"

    run(tmp_path, main)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        ({"type": "fixed", "delay": 2000}, [2000, 2000]),
        ({"type": "exponential", "delay": 2000}, [2000, 4000]),
        ({"type": "exponential", "delay": 2000, "settings": {"jitter": True}}, [2100, 4200]),
        ({"type": "exponential", "delay": 2000, "settings": {"jitter": False}}, [2000, 4000]),
    ],
)
def test_tries_wait_as_long_as_the_backoff_says(
    tmp_path: Path, backoff: Any, delays: list[int]
) -> None:
    async def process(job: Job) -> None:
        raise ConnectionError("the model is overloaded")

    async def main(queue: Queue) -> None:
        job = await queue.add("process-message", attempts=3, backoff=backoff)
        waited = []
        async with Worker(queue, process):
            for number in range(1, 3):
                await until(lambda number=number: has_failed(queue, job, number))
                waited.append((await again(queue, job)).delay)
                await (await again(queue, job)).promote()
            await until(lambda: is_in(queue, job, "failed"))
        assert waited == delays
        assert (await again(queue, job)).failed_reason == "the model is overloaded"

    run(tmp_path, main, random=lambda: 0.5)


async def has_failed(queue: Queue, job: Job, times: int) -> bool:
    now = await again(queue, job)
    return now.attempts_made == times and now.state == "delayed"


# --- event handling ------------------------------------------------------------------------------


def test_what_happens_is_printed(tmp_path: Path) -> None:
    printed: list[str] = []

    async def process(job: Job) -> str:
        await job.update_progress(50)
        if job.name == "bad":
            raise ValueError("out of tokens")
        return "fine"

    async def main(queue: Queue) -> None:
        worker = Worker("llm-processing", process, store=queue.store, autorun=False)
        queue.on("added", lambda job: printed.append(f"Job {job.id} added to queue"))
        worker.on("active", lambda job, *_: printed.append(f"Processing job {job.id}"))
        worker.on(
            "completed",
            lambda job, result, *_: printed.append(f"Job {job.id} completed: {result}"),
        )
        worker.on("failed", lambda job, error, *_: printed.append(f"Job {job.id} failed: {error}"))
        worker.on(
            "progress",
            lambda job, progress: printed.append(f"Job {job.id} progress: {progress}%"),
        )
        async with worker:
            for name in ("good", "bad"):
                job = await queue.add(name, job_id=name)
                await until(lambda job=job: is_finished(queue, job))
            await until(lambda: len(printed) == 8)

    run(tmp_path, main)
    assert printed == [
        "Job good added to queue",
        "Processing job good",
        "Job good progress: 50%",
        "Job good completed: fine",
        "Job bad added to queue",
        "Processing job bad",
        "Job bad progress: 50%",
        "Job bad failed: out of tokens",
    ]


async def is_finished(queue: Queue, job: Job) -> bool:
    return await state_of(queue, job) in ("completed", "failed")


# --- queue management ----------------------------------------------------------------------------


def test_counts_are_told_by_state(tmp_path: Path) -> None:
    async def main(queue: Queue) -> None:
        await queue.add_bulk([{"name": "a"}] * 5)
        await queue.add("a", delay="1h")
        words = ("waiting", "active", "completed", "failed", "delayed", "paused")
        wanted = {
            "waiting": 5,
            "active": 0,
            "completed": 0,
            "failed": 0,
            "delayed": 1,
            "paused": 0,
        }
        assert await queue.get_job_counts(*words) == wanted
        await queue.pause()
        assert (await queue.get_job_counts(*words))["paused"] == 5

    run(tmp_path, main)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("waiting", "waiting"),
        ("active", "active"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("delayed", "delayed"),
        ("paused", "paused"),
        ("waiting-children", "waiting-children"),
        ("WAITING_CHILDREN", "waiting-children"),
        ("processing", "active"),
        ("dead", "failed"),
    ],
)
def test_the_documents_words_for_states_are_understood(
    tmp_path: Path, word: str, state: str
) -> None:
    async def main(queue: Queue) -> None:
        assert await queue.get_jobs([word]) == []
        assert await queue.get_job_counts(word) == {state: 0}
        assert await queue.clean(0, 100, word) == []

    run(tmp_path, main)


def test_old_jobs_are_cleaned_and_failed_ones_shown(tmp_path: Path) -> None:
    async def process(job: Job) -> None:
        if job.name == "bad":
            raise ValueError("out of tokens")

    async def main(queue: Queue) -> None:
        jobs = [await queue.add(name) for name in ("good", "bad", "good")]
        async with Worker(queue, process):
            for job in jobs:
                await until(lambda job=job: is_finished(queue, job))
        assert await queue.clean(24 * 60 * 60 * 1000, 100, "completed") == []
        await asyncio.sleep(0.005)
        assert await queue.clean(0, 100, "completed") == [jobs[0].id, jobs[2].id]
        shown = [
            f"Failed job: {job.name} - {job.failed_reason}"
            for job in await queue.get_jobs(["failed"], 0, 10)
        ]
        assert shown == ["Failed job: bad - out of tokens"]

    run(tmp_path, main)


def test_a_removed_job_is_only_hidden_and_a_failed_one_may_run_again(tmp_path: Path) -> None:
    async def process(job: Job) -> str:
        if not job.attempts_made:
            raise ValueError("out of tokens")
        return "fine"

    async def main(queue: Queue) -> None:
        job = await queue.add("a")
        async with Worker(queue, process):
            await until(lambda: is_in(queue, job, "failed"))
            await (await again(queue, job)).remove()
            assert await queue.get_job(job.id) is None
            await queue.restore(job.id)
            failed = await again(queue, job)
            assert await failed.get_state() == "failed"
            await failed.retry()
            assert await failed.result() == "fine"

    run(tmp_path, main)
