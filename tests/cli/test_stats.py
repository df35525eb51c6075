"""`queuectl stats`: the sections of the document, and what is in them."""

from __future__ import annotations

import asyncio
from typing import Any

from bullite import Job, Queue, Worker
from tests.support.databases import PATIENCE, Database
from tests.support.helpers import until

from .concurrent_runs import RETRIED, fail_or_not, have_run, settled
from .program import run_well

EXAMPLE = """\
--- Queue Statistics ---
Total Jobs: 150
Completed: 120 (80.00%)
Failed: 15 (10.00%)
Dead: 5 (3.33%)
Pending: 10 (6.67%)

--- Execution Time Statistics ---
Average: 1234.56ms
Median: 987ms
Min: 123ms
Max: 5678ms
P95: 3456ms

--- Top 5 Slowest Jobs ---
1. abc12345: long-task.sh - 5678ms
2. def67890: report.sh - 4321ms
3. task-122: task.sh - 3800ms
4. task-121: task.sh - 3700ms
5. task-120: task.sh - 3600ms

--- Priority Distribution ---
Priority 10: 25 jobs (16.67%)
Priority 5: 40 jobs (26.67%)
Priority 0: 85 jobs (56.67%)

--- Jobs with Timeout ---
Total: 35 (23.33%)
Average Timeout: 120s

--- Throughput (last hour) ---
"""

DURATIONS = [
    *(123, *[500] * 61, 987, *[1721] * 55),
    *(3456, 3500, 3600, 3700, 3800, 4321, 5678),
]
"""Of the 125 jobs that ended: their mean is 1234.56."""

NAMES = {123: ("def67890-long-id", "report.sh"), 124: ("abc12345-long-id", "long-task.sh")}


async def the_example(queue: Queue, database: Database) -> None:
    """The 150 jobs that the document tells of."""
    ended = ["completed"] * 120 + ["dead"] * 5
    await queue.add_bulk(
        [_one(n, fate) for n, fate in enumerate([*ended, *["failed"] * 15, *["pending"] * 10])]
    )
    async with Worker(queue, fail_or_not, concurrency=20):
        await until(lambda: settled(queue))
    for number, ms in enumerate(DURATIONS):
        database.write(
            f"update bullite_jobs set processed_at = finished_at - {ms} where custom_id = ?",
            _id(number),
        )


def _one(number: int, fate: str) -> Any:
    data = {"command": NAMES.get(number, ("", "task.sh"))[1], "fate": fate}
    options: dict[str, Any] = {**RETRIED, "job_id": _id(number)}
    options["priority"] = 10 if number < 25 else 5 if number < 65 else 0
    if number < 20:
        data["timeout"] = 120
    elif number < 35:
        options["timeout"] = 120_000
    if fate == "pending":
        options["delay"] = "1h"
    return {"name": "shell", "data": data, "opts": options}


def _id(number: int) -> str:
    return NAMES.get(number, (f"task-{number}",))[0]


async def test_the_example_of_the_document(queue: Queue, location: str, database: Database) -> None:
    await the_example(queue, database)
    said = run_well("stats", db=location)
    assert said.out[: len(EXAMPLE)] == EXAMPLE


async def test_the_same_in_json(queue: Queue, location: str, database: Database) -> None:
    await the_example(queue, database)
    told = run_well("stats", "--json", db=location).json
    assert list(told) == [
        *("total", "by_status", "durations", "slowest", "priorities", "timeouts"),
        *("throughput", "waits", "workers"),
    ]
    assert told["total"] == 150
    assert told["by_status"]["failed"] == 15
    assert told["durations"] == {
        "count": 125,
        "average_ms": 1234.56,
        "median_ms": 987,
        "min_ms": 123,
        "max_ms": 5678,
        "p95_ms": 3456,
    }
    assert told["slowest"][0] == {
        "id": "abc12345-long-id",
        "queue": "emails",
        "command": "long-task.sh",
        "duration_ms": 5678,
    }
    assert told["priorities"][0] == {"priority": 10, "jobs": 25, "share": 25 / 1.5}
    assert told["timeouts"] == {"total": 35, "share": 35 / 1.5, "average_s": 120.0}


async def test_what_happened_of_late(queue: Queue, location: str) -> None:
    await have_run(queue, *["completed"] * 6, *["dead"] * 3)
    await until(lambda: _are_recorded(location, 6))
    said = run_well("stats", db=location)
    late = said.out.partition("--- Throughput (last hour) ---\n")[2].splitlines()
    assert late[:4] == [
        "Completed: 0.10 per minute",
        "Failed: 0.05 per minute",
        "",
        "--- Waits (last hour) ---",
    ]
    assert [line.partition(":")[0] for line in late[4:8]] == ["Mean", "P50", "P95", "P99"]
    assert late[8:11] == ["", "--- Workers ---", "Workers: 0 processes (0 busy, 0 lost)"]


def _are_recorded(location: str, number: int) -> bool:
    told = run_well("stats", "--json", db=location).json
    return bool(told["throughput"]["completed"] == number)


async def test_a_queue_where_nothing_has_ended(queue: Queue, location: str) -> None:
    await queue.add("a")
    said = run_well("stats", db=location)
    assert "--- Execution Time Statistics ---\nNo finished jobs yet\n" in said.out
    assert "--- Jobs with Timeout ---\nTotal: 0 (0.00%)\n\n" in said.out
    assert "--- Waits (last hour) ---\nNo jobs were taken\n" in said.out


async def test_jobs_that_run_or_were_cancelled_are_told_when_there_are_any(
    queue: Queue, location: str
) -> None:
    await queue.cancel((await queue.add("a")).id)
    said = run_well("stats", db=location)
    numbers = said.out.partition("\n\n")[0].splitlines()
    assert numbers[-2:] == ["Pending: 0 (0.00%)", "Cancelled: 1 (100.00%)"]
    assert "Processing" not in said.out
    assert "Expired" not in said.out


async def test_all_queues_are_told_of_together_or_one(queue: Queue, location: str) -> None:
    other = Queue("other", queue.store)
    await queue.add("a", priority=1)
    await other.add_bulk([{"name": "a", "opts": {"priority": 1}}, {"name": "a"}])

    both = run_well("stats", "--json", db=location).json
    assert both["total"] == 3
    assert [one["jobs"] for one in both["priorities"]] == [2, 1]
    assert run_well("stats", "--queue", "other", "--json", db=location).json["total"] == 2


async def test_a_job_that_never_ran_has_no_duration(queue: Queue, location: str) -> None:
    first = await queue.add("a")
    await queue.add("b", {"fate": "good"}, depends_on=first.id, on_dependency_failure="fail")
    await queue.cancel(first.id)
    [ran] = await have_run(queue, "dead")
    assert await queue.get_failed_count() == 3
    told = run_well("stats", "--json", db=location).json
    assert told["durations"]["count"] == 1
    assert [job["id"] for job in told["slowest"]] == [ran.id]


async def test_a_job_that_was_cancelled_while_it_ran_has_a_duration(
    queue: Queue, location: str
) -> None:
    began = asyncio.Event()

    async def wait(job: Job) -> None:
        began.set()
        await asyncio.Event().wait()

    job = await queue.add("a")
    async with Worker(queue, wait):
        await asyncio.wait_for(began.wait(), PATIENCE)
        await queue.cancel(job.id)
        await until(queue.get_failed_count)
    assert run_well("stats", "--json", db=location).json["durations"]["count"] == 1


async def test_a_timeout_in_data_counts_only_for_commands(queue: Queue, location: str) -> None:
    await queue.add("mine", {"timeout": 9})
    await queue.add("shell", {"command": "a", "timeout": "soon"})
    await queue.add("shell", ["timeout"])
    await queue.add("shell", {"command": "a", "env": {"timeout": 9}})
    await queue.add("http-webhook", {"url": "http://a", "body": "\x00\\", "timeout": 2.5})
    await queue.add("mine", {}, timeout=3_500)
    told = run_well("stats", "--json", db=location).json["timeouts"]
    assert told == {"total": 2, "share": 100 / 3, "average_s": 3.0}


async def test_control_bytes_of_slow_jobs_are_spelled_out(queue: Queue, location: str) -> None:
    async def quick(job: Job) -> None:
        pass

    await queue.add("shell", {"command": "a\x1b[2J"})
    async with Worker(queue, quick):
        await until(queue.get_completed_count)
    said = run_well("stats", db=location)
    assert "\x1b" not in said.out
    assert "a\\x1b[2J - " in said.out
