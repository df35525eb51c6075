"""`queuectl cleanup`: old jobs are deleted for good."""

from __future__ import annotations

import pytest

from bullite import Queue

from .program import run
from .setup_jobs import cancelled, completed, dead, states


async def test_completed_jobs_are_deleted_for_good(queue: Queue, location: str) -> None:
    job, other = await completed(queue), await dead(queue)
    said = run("cleanup", "--older-than", "0", "--yes", "--json", db=location)
    assert said.json == {"done": "deleted", "jobs": 1, "queues": {"emails": 1}}
    assert await states(queue, job, other) == ["unknown", "failed"]
    assert run("restore", job.id, db=location).code == 1


async def test_young_jobs_stay(queue: Queue, location: str) -> None:
    job = await completed(queue)
    said = run("cleanup", "--older-than", "7d", "--yes", db=location)
    assert (said.code, said.out) == (0, "deleted 0 jobs\n")
    assert await states(queue, job) == ["completed"]


async def test_the_document_s_example_is_understood(queue: Queue, location: str) -> None:
    await completed(queue)
    said = run("cleanup", "--older-than", "7d", "--state", "completed", "--yes", db=location)
    assert said.code == 0


async def test_dead_ones_go_and_cancelled_ones_stay(queue: Queue, location: str) -> None:
    gone, stays = await dead(queue), await cancelled(queue)
    said = run("cleanup", "--older-than", "0", "--state", "dead", "--yes", db=location)
    assert said.code == 0
    assert await states(queue, gone, stays) == ["unknown", "failed"]
    said = run("cleanup", "--older-than", "0", "--state", "cancelled", "--yes", db=location)
    assert said.out == "deleted 1 job\n"
    assert await states(queue, stays) == ["unknown"]


async def test_only_the_queue_that_is_named(queue: Queue, location: str) -> None:
    other = Queue("other", queue.store)
    mine, theirs = await completed(queue), await completed(other)
    run("cleanup", "--older-than", "0", "--queue", "emails", "--yes", db=location)
    assert await states(queue, mine) == ["unknown"]
    assert await states(other, theirs) == ["completed"]


async def test_without_somebody_to_ask_nothing_is_deleted(queue: Queue, location: str) -> None:
    job = await completed(queue)
    said = run("cleanup", "--older-than", "0", db=location)
    assert said.code == 1
    assert "--yes" in said.err
    assert await states(queue, job) == ["completed"]


@pytest.mark.parametrize(
    "bad",
    [
        ["cleanup", "--yes"],
        ["cleanup", "--older-than", "long", "--yes"],
        ["cleanup", "--older-than", "0", "--state", "pending", "--yes"],
        ["cleanup", "--older-than", "0", "--state", "failed", "--yes"],
        ["cleanup", "--older-than", "0", "--state", "active", "--yes"],
        ["cleanup", "--older-than", "0", "--state", "odd", "--yes"],
    ],
)
async def test_bad_input_deletes_nothing(queue: Queue, location: str, bad: list[str]) -> None:
    jobs = [await completed(queue), await dead(queue), await queue.add("a")]
    said = run(*bad, db=location)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert await states(queue, *jobs) == ["completed", "failed", "waiting"]
