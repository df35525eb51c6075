"""J: a job's data, progress and log, and taking it out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import Job, JobNotFound, Queue
from tests.support.helpers import again


async def lines(job: Job, start: int = 0, end: int = -1, asc: bool = True) -> tuple[list[str], int]:
    """The messages in a job's log, and how many it says there are."""
    logs = await job.get_logs(start, end, asc)
    return [line["message"] for line in logs["logs"]], logs["count"]


async def logged(queue: Queue, *messages: str) -> Job:
    """A job with these lines in its log."""
    job = await queue.add("a")
    for message in messages:
        await job.log(message)
    return job


async def test_J_017_new_data_replaces_all_of_the_old(queue: Queue) -> None:
    job = await queue.add("a", {"foo": "bar"})
    await job.update_data({"baz": "qux"})
    assert (await again(queue, job)).data == job.data == {"baz": "qux"}


async def test_J_019_a_removed_job_is_not_found(queue: Queue) -> None:
    job = await queue.add("a", {"foo": "bar"})
    await job.remove()
    assert await queue.get_job(job.id) is None


async def test_J_020_thousands_of_jobs_can_be_removed_one_by_one(queue: Queue) -> None:
    waiting = await queue.add_bulk([{"name": "a", "data": n} for n in range(2000)])
    later = await queue.add_bulk([{"name": "a", "opts": {"delay": "1h"}}] * 2000)
    assert await queue.get_job_counts("waiting", "delayed") == {"waiting": 2000, "delayed": 2000}
    async with asyncio.timeout(20):
        for removal in [job.remove() for job in (*waiting, *later)]:
            await removal
    assert await queue.count() == 0


@pytest.mark.parametrize("progress", [42, {"total": 120, "done": 40}, "hello", False, True])
async def test_J_021_progress_keeps_its_value_and_type(queue: Queue, progress: Any) -> None:
    job = await queue.add("a")
    await job.update_progress(progress)
    stored = (await again(queue, job)).progress
    assert (stored, type(stored)) == (progress, type(progress))


@pytest.mark.parametrize("progress", [42, {"total": 120, "done": 40}])
async def test_J_022_progress_told_through_the_queue_is_stored_and_heard_there(
    queue: Queue, progress: Any
) -> None:
    heard: list[tuple[str, Any]] = []
    queue.on("progress", lambda job_id, value: heard.append((job_id, value)))
    job = await queue.add("a")
    await queue.update_job_progress(job.id, progress)
    assert heard == [(job.id, progress)]
    assert (await again(queue, job)).progress == progress


async def test_J_024_a_range_of_log_lines_is_inclusive_and_the_count_is_of_all(
    queue: Queue,
) -> None:
    job = await logged(queue, "first", "second")
    assert await lines(job) == (["first", "second"], 2)
    assert await lines(job, 0, 0) == (["first"], 2)
    assert await lines(job, 1, 1) == (["second"], 2)


async def test_J_025_a_log_read_backwards_has_its_ranges_counted_from_the_newest(
    queue: Queue,
) -> None:
    job = await logged(queue, "first", "second")
    assert await lines(job, asc=False) == (["second", "first"], 2)
    assert await lines(job, 0, 0, asc=False) == (["second"], 2)
    assert await lines(job, 1, 1, asc=False) == (["first"], 2)


async def test_J_026_the_log_goes_with_its_job(queue: Queue) -> None:
    job = await logged(queue, "first", "second")
    await job.remove()
    assert await queue.get_job_logs(job.id) == {"logs": [], "count": 0}


async def test_J_027_a_job_that_keeps_two_lines_loses_the_oldest(queue: Queue) -> None:
    job = await queue.add("a", keep_logs=2)
    assert [await job.log(message) for message in ("one", "two", "three")] == [1, 2, 2]
    assert await lines(job) == (["two", "three"], 2)


async def test_J_029_a_removed_job_takes_no_log_lines(queue: Queue) -> None:
    job = await queue.add("a", job_id="gone")
    await job.remove()
    with pytest.raises(JobNotFound, match="gone"):
        await job.log("too late")
    assert await lines(job) == ([], 0)


async def test_J_030_clearing_a_log_leaves_nothing_of_it(queue: Queue) -> None:
    job = await logged(queue, "first", "second")
    await job.clear_logs()
    assert await lines(job) == ([], 0)


@pytest.mark.parametrize(
    ("keep", "left"),
    [(4, ["1", "2", "3"]), (3, ["1", "2", "3"]), (2, ["2", "3"]), (0, [])],
)
async def test_J_031_clearing_a_log_can_spare_its_newest_lines(
    queue: Queue, keep: int, left: list[str]
) -> None:
    job = await logged(queue, "1", "2", "3")
    await job.clear_logs(keep)
    assert await lines(job) == (left, len(left))
