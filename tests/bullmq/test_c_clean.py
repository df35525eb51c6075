"""Area C of the catalogue: cleaning out jobs by state and age."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from bullite import Job, JobFailed, Queue, Worker


async def nothing(job: Job) -> None: ...


async def fail(job: Job) -> None:
    raise ValueError("broken")


async def complete(queue: Queue, number: int) -> list[Job]:
    """Jobs that are completed."""
    jobs = await queue.add_bulk([{"name": "a"}] * number)
    async with Worker(queue, nothing):
        for job in jobs:
            await job.result()
    return jobs


def note_cleaned(queue: Queue) -> list[tuple[Any, ...]]:
    told: list[tuple[Any, ...]] = []
    queue.on("cleaned", lambda *arguments: told.append(arguments))
    return told


async def test_C_001_cleaning_an_empty_queue_finds_nothing_and_says_so(queue: Queue) -> None:
    told = note_cleaned(queue)
    assert await queue.clean(0, 0) == []
    assert told == [([], "completed")]


async def test_C_002_a_limit_of_zero_cleans_without_limit(queue: Queue) -> None:
    jobs = await complete(queue, 2)
    assert sorted(await queue.clean(0, 0)) == [job.id for job in jobs]
    assert await queue.get_completed_count() == 0


async def test_C_004_only_jobs_that_ended_before_the_grace_period_are_cleaned(
    queue: Queue,
) -> None:
    old = await complete(queue, 2)
    await asyncio.sleep(0.6)
    [new] = await complete(queue, 1)
    [young] = await queue.get_completed(0, 0)
    assert young.finished_on is not None
    grace = round(time.time() * 1000) - young.finished_on + 300
    assert sorted(await queue.clean(grace, 100)) == [job.id for job in old]
    assert [job.id for job in await queue.get_completed()] == [new.id]


async def test_C_005_waiting_jobs_within_the_grace_period_are_left_alone(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a"}] * 2)
    for _ in range(2):
        assert await queue.clean(5000, 2, "wait") == []
    assert await queue.count() == 2


async def test_C_006_failed_jobs_can_be_cleaned(queue: Queue) -> None:
    jobs = await queue.add_bulk([{"name": "a"}] * 2)
    async with Worker(queue, fail):
        for job in jobs:
            with pytest.raises(JobFailed):
                await job.result()
    assert len(await queue.clean(0, 0, "failed")) == 2
    assert await queue.get_failed_count() == await queue.count() == 0


async def test_C_009_prioritized_jobs_can_be_cleaned(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a", "opts": {"priority": n}} for n in (1, 2)])
    assert len(await queue.clean(0, 1000, "prioritized")) == 2
    assert await queue.count() == 0


async def test_C_009_a_limit_holds_for_prioritized_jobs_too(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a", "opts": {"priority": n}} for n in (1, 2, 3)])
    assert len(await queue.clean(0, 1, "prioritized")) == 1
    assert await queue.get_prioritized_count() == await queue.count() == 2


async def test_C_017_wait_and_waiting_name_the_same_jobs_to_clean(queue: Queue) -> None:
    told = note_cleaned(queue)
    await queue.add_bulk([{"name": "a"}] * 3)
    first = await queue.clean(0, 2, "wait")
    assert len(first) == 2
    await queue.add_bulk([{"name": "a"}] * 2)
    second = await queue.clean(0, 10, "waiting")
    assert len(second) == 3
    assert await queue.count() == 0
    assert told == [(first, "waiting"), (second, "waiting")]
