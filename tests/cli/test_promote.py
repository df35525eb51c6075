"""`queuectl promote`: jobs that need not wait for their time."""

from __future__ import annotations

from bullite import Queue

from .program import run
from .setup_jobs import states


async def test_a_delayed_job_waits_in_line_now(queue: Queue, location: str) -> None:
    job = await queue.add("a", delay="1h")
    said = run("promote", job.id, "--json", db=location)
    assert said.json == [{"id": job.id, "queue": "emails", "done": "promoted"}]
    assert await states(queue, job) == ["waiting"]


async def test_one_that_is_not_delayed_does_not_keep_others(queue: Queue, location: str) -> None:
    waiting, delayed = await queue.add("a"), await queue.add("a", delay="1h")
    said = run("promote", waiting.id, delayed.id, db=location)
    assert (said.code, said.out) == (1, f"{delayed.id}: promoted\n")
    assert (
        f"job {waiting.id} is pending: only jobs that wait for their time or for a retry"
        in said.err
    )
    assert await states(queue, delayed) == ["waiting"]
