"""`queuectl cancel`: jobs that end before their time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bullite import Queue
from tests.support.helpers import again, until

from .program import program, run
from .setup_jobs import cancelled, running, states


async def test_a_job_that_waits_is_cancelled_at_once(queue: Queue, location: str) -> None:
    job = await queue.add("shell", {"command": "true"})
    said = run("cancel", job.id, "--reason", "not wanted", db=location)
    assert (said.code, said.out) == (0, f"{job.id}: cancelled\n")
    ended = await again(queue, job)
    assert (ended.outcome, ended.failed_reason) == ("cancelled", "not wanted")


async def test_a_job_that_runs_is_told_to_end(queue: Queue, location: str) -> None:
    async with running(queue) as job:
        said = await asyncio.to_thread(run, "cancel", job.id, "--json", db=location)
        assert said.json == [{"id": job.id, "queue": "emails", "done": "told to end"}]

        async def is_over() -> bool:
            return (await again(queue, job)).outcome == "cancelled"

        await until(is_over)


async def test_several_are_cancelled_and_all_problems_told(queue: Queue, location: str) -> None:
    first, ended, last = (
        await queue.add("a"),
        await cancelled(queue),
        await queue.add("a", job_id="mine"),
    )
    said = run("cancel", first.id, "999", ended.id, last.id, db=location)
    assert said.code == 1
    assert said.lines == [f"{first.id}: cancelled", "mine: cancelled"]
    assert "no job 999" in said.err
    assert f"job {ended.id} is cancelled already" in said.err
    assert said.err.count("\n") == 1
    assert await states(queue, first, last) == ["failed", "failed"]


async def test_an_id_in_several_queues_needs_the_queue(queue: Queue, location: str) -> None:
    other = Queue("other", queue.store)
    mine, theirs = await queue.add("a", job_id="same"), await other.add("a", job_id="same")
    said = run("cancel", "same", db=location)
    assert said.code == 2
    assert "emails, other" in said.err
    assert "--queue" in said.err
    assert run("cancel", "same", "--queue", "other", db=location).code == 0
    assert (await again(queue, mine)).state == "waiting"
    assert (await again(other, theirs)).state == "failed"


def test_an_absent_database_is_not_made(tmp_path: Path) -> None:
    db = tmp_path / "none.db"
    for verb in (
        ["cancel", "1"],
        ["retry", "--all"],
        ["promote", "1"],
        ["pause"],
        ["resume"],
        ["remove", "1", "--yes"],
        ["restore", "1"],
        ["cleanup", "--older-than", "1d", "--yes"],
        ["drain", "--yes"],
        ["dlq", "list"],
        ["dlq", "purge", "--yes"],
        ["schedule", "list"],
        ["schedule", "remove", "x", "--yes"],
        ["template", "list"],
        ["template", "remove", "x", "--yes"],
        ["config", "unset", "max_retries"],
        ["queues", "list"],
        ["queues", "show", "x"],
    ):
        said = run(*verb, db=str(db))
        assert (said.code, said.out) == (1, ""), verb
        assert "there is no database" in said.err, verb
    assert list(tmp_path.iterdir()) == []


def test_control_bytes_of_an_id_are_spelled_out(location: str) -> None:
    run("enqueue", "true", db=location)
    said = run("cancel", "\x1b[31mred", db=location)
    assert said.code == 1
    assert "\x1b" not in said.err
    assert "\\x1b[31mred" in said.err


def test_the_program_itself_cancels(location: str) -> None:
    job_id = program("enqueue", "true", db=location).out.strip()
    said = program("cancel", job_id, db=location)
    assert (said.code, said.out, said.err) == (0, f"{job_id}: cancelled\n", "")
