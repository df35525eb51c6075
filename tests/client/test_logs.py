"""The log of a job: lines that it, or somebody else, writes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from bullite import Job, JobNotFound, Queue, Worker
from bullite.errors import BulliteError, InvalidOption
from tests.support.helpers import case, fresh


async def messages(job: Job, *arguments: Any, **more: Any) -> list[str]:
    return [line["message"] for line in (await job.get_logs(*arguments, **more))["logs"]]


async def with_lines(queue: Queue, count: int, **options: Any) -> Job:
    job = await queue.add("a", **options)
    for number in range(count):
        await job.log(f"line {number}")
    return job


async def test_a_new_job_has_no_log(queue: Queue) -> None:
    assert await (await queue.add("a")).get_logs() == {"logs": [], "count": 0}


async def test_a_line_tells_when_what_and_how_bad(queue: Queue) -> None:
    job = await queue.add("a")
    before = int(time.time() * 1000)
    assert await job.log("hello") == 1
    assert await job.log("hm", "warn") == 2
    assert await job.log("ouch", level="error") == 3
    answer = await job.get_logs()
    assert answer["count"] == 3
    assert [(line["message"], line["level"]) for line in answer["logs"]] == [
        ("hello", "info"),
        ("hm", "warn"),
        ("ouch", "error"),
    ]
    assert all(before - 1_000 <= line["timestamp"] <= before + 60_000 for line in answer["logs"])


async def test_an_unknown_level_is_refused(queue: Queue) -> None:
    job = await queue.add("a")
    for level in ("debug", "", None, 5):
        with pytest.raises(InvalidOption, match="level"):
            await job.log("a", level)  # type: ignore[arg-type]
    assert (await job.get_logs())["count"] == 0


async def test_a_run_writes_lines_in_order(queue: Queue) -> None:
    async def work(job: Job) -> None:
        for number in range(20):
            job.log(f"line {number}")

    async with Worker(queue, work):
        job = await queue.add("a")
        await job.result(timeout="10s")
    assert await messages(job) == [f"line {number}" for number in range(20)]


async def test_a_thread_writes_lines(queue: Queue) -> None:
    def work(job: Job) -> int:
        job.log("first")
        return job.log("second").result()

    async with Worker(queue, work):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == 2
    assert await messages(job) == ["first", "second"]


async def test_lines_of_every_attempt_are_kept(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.log(f"try {job.attempts_made + 1}")
        if job.attempts_made == 0:
            raise ValueError("not yet")

    async with Worker(queue, work):
        job = await queue.add("a", attempts=2)
        await job.result(timeout="10s")
    assert await messages(job) == ["try 1", "try 2"]


async def test_somebody_else_may_write_into_the_log(queue: Queue) -> None:
    job = await queue.add("a", job_id="x")
    assert await queue.add_job_log("x", "from outside", "warn") == 1
    assert await messages(job) == ["from outside"]


async def test_many_write_at_once_and_no_line_is_lost(queue: Queue) -> None:
    job = await queue.add("a")
    counts = await asyncio.gather(*(job.log(f"{number}") for number in range(200)))
    assert sorted(counts) == list(range(1, 201))
    assert set(await messages(job)) == {str(number) for number in range(200)}


async def test_the_log_of_a_job_that_does_not_exist(queue: Queue) -> None:
    assert await queue.get_job_logs("nobody") == {"logs": [], "count": 0}
    with pytest.raises(JobNotFound):
        await queue.add_job_log("nobody", "line")


# --- ranges --------------------------------------------------------------------------------------


async def test_a_part_of_the_log(queue: Queue) -> None:
    for start, end, wanted in [
        (0, -1, [0, 1, 2, 3, 4]),
        (0, 1, [0, 1]),
        (3, 99, [3, 4]),
        (-2, -1, [3, 4]),
        (9, 12, []),
        (2, 1, []),
        (-99, 0, [0]),
    ]:
        with case((start, end, wanted)):
            queue = fresh(queue)
            job = await with_lines(queue, 5)
            assert await messages(job, start, end) == [f"line {number}" for number in wanted]
            assert (await job.get_logs(start, end))["count"] == 5


async def test_the_newest_lines_first(queue: Queue) -> None:
    job = await with_lines(queue, 4)
    assert await messages(job, asc=False) == ["line 3", "line 2", "line 1", "line 0"]
    assert await messages(job, 0, 1, asc=False) == ["line 3", "line 2"]


async def test_the_queue_reads_logs_as_the_job_does(queue: Queue) -> None:
    job = await with_lines(queue, 3)
    assert await queue.get_job_logs(job.id, 1, 1) == await job.get_logs(1, 1)


async def test_a_part_is_named_by_whole_numbers(queue: Queue) -> None:
    for bad in ["0", 1.5, None, True]:
        with case(bad):
            job = await with_lines(queue, 1)
            with pytest.raises(BulliteError, match="start and end"):
                await job.get_logs(bad)


# --- keeping -------------------------------------------------------------------------------------


async def test_a_job_may_keep_its_newest_lines_only(queue: Queue) -> None:
    job = await with_lines(queue, 5, keep_logs=2)
    assert await messages(job) == ["line 3", "line 4"]
    assert (await job.get_logs())["count"] == 2
    assert await job.log("line 5") == 2


async def test_a_job_may_keep_no_lines(queue: Queue) -> None:
    job = await with_lines(queue, 3, keep_logs=0)
    assert await job.get_logs() == {"logs": [], "count": 0}
    assert await job.log("again") == 0


async def test_a_line_from_outside_may_say_how_many_stay(queue: Queue) -> None:
    job = await with_lines(queue, 5)
    assert await queue.add_job_log(job.id, "line 5", keep_logs=3) == 3
    assert await messages(job) == ["line 3", "line 4", "line 5"]


async def test_ranges_count_what_is_kept(queue: Queue) -> None:
    job = await with_lines(queue, 6, keep_logs=3)
    assert await messages(job, 0, 0) == ["line 3"]
    assert await messages(job, -1, -1) == ["line 5"]


async def test_a_log_is_cleared(queue: Queue) -> None:
    job = await with_lines(queue, 5)
    await job.clear_logs()
    assert await job.get_logs() == {"logs": [], "count": 0}
    assert await job.log("new") == 1
    assert await messages(job) == ["new"]


async def test_a_log_is_cleared_but_for_its_newest_lines(queue: Queue) -> None:
    job = await with_lines(queue, 5)
    await job.clear_logs(2)
    assert await messages(job) == ["line 3", "line 4"]
    await job.clear_logs(9)
    assert (await job.get_logs())["count"] == 2


async def test_the_log_goes_with_its_job(queue: Queue) -> None:
    """The fixture verifies that no line is left without its job."""
    job = await with_lines(queue, 3)
    await queue.obliterate()
    assert await queue.get_job_logs(job.id) == {"logs": [], "count": 0}


# --- odd lines -----------------------------------------------------------------------------------


async def test_odd_text_is_stored_in_some_readable_form(queue: Queue) -> None:
    for text in ["a\x00b", "\ud800", "naïve ✓ 𝄞", "line\nbreak", "", "\x1e|\x1f"]:
        with case(text):
            queue = fresh(queue)
            job = await queue.add("a")
            assert await job.log(text) == 1
            [stored] = await messages(job)
            assert stored == text or ("\\" in stored and "\x00" not in stored)


async def test_an_endless_line_is_cut(queue: Queue) -> None:
    job = await queue.add("a")
    await job.log("x" * 1_000_000)
    [stored] = await messages(job)
    assert 60_000 < len(stored) < 70_000


async def test_what_is_not_text_is_written_as_text(queue: Queue) -> None:
    job = await queue.add("a")
    await job.log(ValueError("as it is"))  # type: ignore[arg-type]
    assert await messages(job) == ["as it is"]


async def test_how_many_lines_stay_is_a_whole_number(queue: Queue) -> None:
    for bad in [-1, 1.5, "3", True, 2**40]:
        with case(bad):
            job = await with_lines(queue, 2)
            with pytest.raises(BulliteError, match="keep"):
                await job.clear_logs(bad)
            with pytest.raises(BulliteError, match="keep_logs"):
                await queue.add_job_log(job.id, "line", keep_logs=bad)
            with pytest.raises(BulliteError, match="keep_logs"):
                await queue.add("a", keep_logs=bad)
            assert (await job.get_logs())["count"] == 2
