"""`queuectl drain`: what waits is removed."""

from __future__ import annotations

from bullite import Queue

from .program import run, run_well
from .setup_jobs import completed, states


async def test_what_waits_is_removed(queue: Queue, location: str) -> None:
    ended = await completed(queue)
    waiting, urgent = await queue.add("a"), await queue.add("a", priority=5)
    later = await queue.add("a", delay="1h")
    said = run("drain", "emails", "--yes", "--json", db=location)
    assert said.json == {"done": "removed", "jobs": 2, "queues": {"emails": 2}}
    assert await states(queue, waiting, urgent) == ["unknown", "unknown"]
    assert await states(queue, ended, later) == ["completed", "delayed"]


async def test_what_is_delayed_is_removed_when_asked_for(queue: Queue, location: str) -> None:
    later = await queue.add("a", delay="1h")
    assert run("drain", "emails", "--delayed", "--yes", db=location).out == "removed 1 job\n"
    assert await states(queue, later) == ["unknown"]
    assert run("restore", later.id, db=location).code == 0
    assert await states(queue, later) == ["delayed"]


async def test_without_somebody_to_ask_nothing_is_removed(queue: Queue, location: str) -> None:
    job = await queue.add("a")
    said = run("drain", "emails", db=location)
    assert said.code == 1
    assert "Remove the 1 job that waits in 'emails'?" in said.err
    assert await states(queue, job) == ["waiting"]


async def test_many_are_removed(queue: Queue, location: str) -> None:
    await queue.add_bulk([{"name": "a"}] * 3_000)
    assert run("drain", "emails", "--yes", "--json", db=location).json["jobs"] == 3_000
    assert await queue.count() == 0


def test_of_an_empty_queue_nobody_is_asked(location: str) -> None:
    run_well("enqueue", "true", db=location)
    run_well("drain", "--yes", db=location)
    assert run_well("drain", db=location).out == "removed 0 jobs\n"
