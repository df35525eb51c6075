"""`queuectl retry`: jobs that have ended run again."""

from __future__ import annotations

import asyncio

import pytest

from bullite import Queue
from tests.support.helpers import again

from .program import run
from .setup_jobs import cancelled, completed, dead, running, states


async def test_a_dead_job_runs_again_with_all_its_attempts(queue: Queue, location: str) -> None:
    job = await dead(queue, attempts=2)
    said = run("retry", job.id, db=location)
    assert (said.code, said.out) == (0, f"{job.id}: retried\n")
    now = await again(queue, job)
    assert (now.state, now.attempts_made, now.failed_reason) == ("waiting", 0, None)


async def test_the_attempts_made_can_be_kept(queue: Queue, location: str) -> None:
    job = await dead(queue, attempts=2)
    assert run("retry", job.id, "--keep-attempts", db=location).code == 0
    assert (await again(queue, job)).attempts_made == 2


async def test_a_completed_job_runs_again(queue: Queue, location: str) -> None:
    job = await completed(queue)
    said = run("retry", job.id, "--json", db=location)
    assert said.json == [{"id": job.id, "queue": "emails", "done": "retried"}]
    assert await states(queue, job) == ["waiting"]


async def test_a_retry_can_be_delayed(queue: Queue, location: str) -> None:
    job = await dead(queue)
    assert run("retry", job.id, "--delay", "5m", db=location).code == 0
    now = await again(queue, job)
    assert now.state == "delayed"
    assert now.delay == 300_000


async def test_all_dead_jobs_of_all_queues_run_again(queue: Queue, location: str) -> None:
    other = Queue("other", queue.store)
    mine, theirs = await dead(queue), await dead(other)
    left = [await cancelled(queue), await completed(queue)]
    said = run("retry", "--all", "--json", db=location)
    assert said.json == {"done": "retried", "jobs": 2, "queues": {"emails": 1, "other": 1}}
    assert await states(queue, mine, *left) == ["waiting", "failed", "completed"]
    assert await states(other, theirs) == ["waiting"]


async def test_all_of_another_state_and_of_one_queue(queue: Queue, location: str) -> None:
    other = Queue("other", queue.store)
    mine, theirs, failed = await completed(queue), await completed(other), await dead(queue)
    said = run("retry", "--all", "--state", "completed", "--queue", "emails", db=location)
    assert (said.code, said.out) == (0, "retried 1 job\n")
    assert await states(queue, mine, failed) == ["waiting", "failed"]
    assert await states(other, theirs) == ["completed"]


async def test_all_can_be_delayed_and_keep_their_attempts(queue: Queue, location: str) -> None:
    job = await dead(queue, attempts=3)
    assert run("retry", "--all", "--delay", "1h", "--keep-attempts", db=location).code == 0
    now = await again(queue, job)
    assert (now.state, now.attempts_made) == ("delayed", 3)


async def test_many_are_retried_in_pieces(
    queue: Queue, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bullite.cli.bulk.BATCH", 2)
    jobs = [await cancelled(queue) for _ in range(5)]
    assert run("retry", "--all", "--state", "cancelled", "--json", db=location).json["jobs"] == 5
    assert await states(queue, *jobs) == ["waiting"] * 5


async def test_a_job_that_waits_for_its_retry_is_told_of_promote(
    queue: Queue, location: str
) -> None:
    job = await dead(queue, attempts=1)
    assert run("retry", job.id, "--delay", "1h", "--keep-attempts", db=location).code == 0
    said = run("retry", job.id, db=location)
    assert said.code == 1
    assert f"queuectl promote {job.id}" in said.err


async def test_a_job_that_has_not_ended_is_not_retried(queue: Queue, location: str) -> None:
    job = await queue.add("a")
    said = run("retry", job.id, db=location)
    assert said.code == 1
    assert said.err == (
        f"queuectl: job {job.id} is pending: "
        "only completed, dead or cancelled jobs can be retried\n"
    )


async def test_a_job_that_runs_is_not_retried(queue: Queue, location: str) -> None:
    async with running(queue) as job:
        said = await asyncio.to_thread(run, "retry", job.id, db=location)
    assert said.code == 1
    assert f"job {job.id} is processing: only completed, dead or cancelled" in said.err


@pytest.mark.parametrize(
    "bad",
    [
        ["retry"],
        ["retry", "1", "--all"],
        ["retry", "1", "--state", "dead"],
        ["retry", "1", "--delay", "soon"],
        ["retry", "--all", "--state", "pending"],
        ["retry", "--all", "--state", "odd"],
    ],
)
def test_what_is_not_understood_changes_nothing(location: str, bad: list[str]) -> None:
    run("enqueue", "true", db=location)
    said = run(*bad, db=location)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
