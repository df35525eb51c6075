"""Jobs that are cancelled and whose worker is killed before it could stop them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from tests.support.processes import (
    add,
    events,
    finished,
    problems,
    rows,
    say,
    states,
    wait_until,
)


async def work(location: str, **settings: Any) -> None:
    """Work until killed."""
    await Worker(Queue("work", location), process, **settings).run()


async def process(job: Job) -> None:
    say("start", job.pk)
    if job.attempts_started == 1 and job.name == "deaf":
        time.sleep(60)  # noqa: ASYNC251 - nothing reaches what runs on this loop meanwhile
    if job.attempts_started == 1 and job.name == "hold":
        await asyncio.Event().wait()


def cancel(location: str, *jobs: int) -> list[bool]:
    async def cancelling() -> list[bool]:
        async with Queue("work", location) as queue:
            return [await queue.cancel(str(job), "not wanted") for job in jobs]

    return asyncio.run(cancelling())


@pytest.mark.parametrize("settings", [{}, {"stalled_backoff": True}], ids=["", "with a back-off"])
def test_a_cancelled_job_whose_worker_is_killed_is_cancelled_and_never_run_again(
    database, location, start, settings: dict[str, Any]
):
    [job] = add(location, "deaf", backoff=50, attempts=5)
    killed_worker = start(work, location, **database.short_lease, **settings)
    killed_worker.said(f"start {job}")

    assert cancel(location, job) == [False]
    killed_worker.kill()
    second_worker = start(work, location, **database.short_lease, **settings)

    wait_until(lambda: finished(location, job))
    [following] = add(location, "quick")
    assert second_worker.line() == f"start {following}"
    ends = "select outcome, failed_reason from bullite_results where job = ?"
    assert rows(location, ends, job) == [("cancelled", "not wanted")]
    assert [number for number, _ in events(location, "cancel")] == [job]
    assert rows(location, "select attempts_started from bullite_jobs where id = ?", job) == [(1,)]
    wait_until(lambda: finished(location, following))
    assert problems(location) == ()


def test_of_many_jobs_of_a_killed_worker_only_the_cancelled_ones_are_not_run_again(
    database, location, start
):
    *jobs, deaf = add(location, *["hold"] * 6, "deaf")
    killed_worker = start(work, location, concurrency=7, **database.short_lease)
    killed_worker.said(f"start {deaf}")

    assert cancel(location, *jobs[::2]) == [False] * 3
    killed_worker.kill()
    start(work, location, concurrency=7, **database.short_lease)

    wait_until(lambda: all(finished(location, job) for job in (*jobs, deaf)))
    ended = dict.fromkeys(jobs[::2], "failed") | dict.fromkeys(jobs[1::2], "completed")
    assert states(location) == ended | {deaf: "completed"}
    assert problems(location) == ()


def test_a_job_that_is_cancelled_after_its_worker_was_killed_ends(database, location, start):
    [job] = add(location, "hold")
    killed_worker = start(work, location, **database.short_lease)
    killed_worker.said(f"start {job}")
    killed_worker.kill()

    cancel(location, job)
    second_worker = start(work, location, **database.short_lease)

    wait_until(lambda: finished(location, job))
    [following] = add(location, "quick")
    assert second_worker.line() == f"start {following}"
    assert states(location)[job] == "failed"
    assert problems(location) == ()
