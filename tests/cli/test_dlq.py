"""`queuectl dlq`: dead jobs, where they died or in a dead-letter queue."""

from __future__ import annotations

from bullite import Job, Queue
from tests.support.helpers import again

from .program import run
from .setup_jobs import cancelled, completed, dead, states


async def buried(queue: Queue) -> tuple[Job, Queue]:
    """A dead job that has moved to another queue, and that queue."""
    await queue.configure(dead_letter="graves")
    job = await dead(queue, attempts=2)
    graves = Queue("graves", queue.store)
    return await again(graves, job), graves


async def test_dead_jobs_are_listed_newest_first(queue: Queue, location: str) -> None:
    first, second = await dead(queue), await dead(Queue("other", queue.store))
    await cancelled(queue)
    await completed(queue)
    listed = run("dlq", "list", "--json", db=location).json
    assert [job["id"] for job in listed] == [second.id, first.id]
    assert {job["status"] for job in listed} == {"dead"}
    assert listed[1]["failed_reason"] == "exit code 1"
    assert [
        job["id"] for job in run("dlq", "list", "--limit", "1", "--json", db=location).json
    ] == [second.id]
    lines = run("dlq", "list", "--queue", "emails", db=location).lines
    assert [line.split("\t")[:3] for line in lines] == [[first.id, "emails", "1/1"]]


async def test_an_empty_list_is_an_empty_answer(queue: Queue, location: str) -> None:
    await queue.wait_until_ready()
    said = run("dlq", "list", db=location)
    assert (said.code, said.out, said.err) == (0, "", "no dead jobs\n")
    assert run("dlq", "list", db=location, terminal=True).out == ""
    assert run("dlq", "list", "--json", db=location).json == []


async def test_those_of_a_dead_letter_queue_belong_to_both(queue: Queue, location: str) -> None:
    job, _ = await buried(queue)
    for where in ("emails", "graves"):
        [listed] = run("dlq", "list", "--queue", where, "--json", db=location).json
        assert (listed["id"], listed["queue"]) == (job.id, "graves")
        assert listed["original_queue"] == "emails"


async def test_a_dead_job_is_shown_with_its_attempts(queue: Queue, location: str) -> None:
    job = await dead(queue, attempts=2)
    shown = run("dlq", "show", job.id, "--json", db=location).json
    assert shown["id"] == job.id
    assert [attempt["error"] for attempt in shown["attempts_log"]] == ["exit code 1"] * 2
    said = run("dlq", "show", job.id, db=location)
    assert "Command: false" in said.lines
    assert "Attempts: 2/2" in said.lines
    assert said.lines[-1].startswith("Attempt 2: ")


async def test_a_job_that_is_not_dead_is_neither_shown_nor_retried(
    queue: Queue, location: str
) -> None:
    job = await cancelled(queue)
    for what in ("show", "retry"):
        said = run("dlq", what, job.id, db=location)
        assert said.code == 1
        assert f"job {job.id} is not dead but cancelled" in said.err
    assert await states(queue, job) == ["failed"]


async def test_a_job_is_retried_in_the_queue_it_came_from(queue: Queue, location: str) -> None:
    job, _ = await buried(queue)
    said = run("dlq", "retry", job.id, "--json", db=location)
    assert said.json == [{"id": job.id, "queue": "emails", "done": "retried"}]
    now = await again(queue, job)
    assert (now.state, now.attempts_made) == ("waiting", 0)


async def test_all_are_retried_those_of_the_dead_letter_queue_too(
    queue: Queue, location: str
) -> None:
    before = await dead(queue)
    job, graves = await buried(queue)
    other = await dead(graves)
    said = run("dlq", "retry", "--all", "--queue", "emails", "--delay", "1h", db=location)
    assert (said.code, said.out) == (0, "retried 2 jobs (emails 1, graves 1)\n")
    assert await states(queue, before, job) == ["delayed", "delayed"]
    assert await states(graves, other) == ["failed"]


async def test_who_cannot_go_home_stays_and_that_is_told(queue: Queue, location: str) -> None:
    _, graves = await buried(queue)
    other = await dead(queue, job_id="x")
    await queue.add("a", job_id="x")
    said = run("dlq", "retry", "--all", db=location)
    assert (said.code, said.out) == (0, "retried 1 job\n")
    line = "1 job was not retried: `queuectl retry x --queue graves` tells why\n"
    assert said.err.endswith(line)
    assert (await again(graves, other)).state == "failed"
    told = run("retry", "x", "--queue", "graves", db=location)
    assert told.code == 1
    assert "another job is called 'x' by now" in told.err


async def test_dead_jobs_are_purged_and_others_stay(queue: Queue, location: str) -> None:
    left = [await cancelled(queue), await completed(queue)]
    before = await dead(queue)
    job, graves = await buried(queue)
    other = await dead(graves)
    said = run("dlq", "purge", "--queue", "emails", "--yes", "--json", db=location)
    assert said.json == {"done": "deleted", "jobs": 2, "queues": {"emails": 1, "graves": 1}}
    assert await states(queue, before, *left) == ["unknown", "failed", "completed"]
    assert await states(graves, job, other) == ["unknown", "failed"]


async def test_young_ones_are_not_purged(queue: Queue, location: str) -> None:
    job = await dead(queue)
    said = run("dlq", "purge", "--older-than", "1d", "--yes", db=location)
    assert said.out == "deleted 0 jobs\n"
    assert await states(queue, job) == ["failed"]


async def test_without_somebody_to_ask_nothing_is_purged(queue: Queue, location: str) -> None:
    job = await dead(queue)
    said = run("dlq", "purge", db=location)
    assert said.code == 1
    assert "--yes" in said.err
    assert await states(queue, job) == ["failed"]


def test_a_retry_of_nothing_is_not_understood(location: str) -> None:
    run("enqueue", "true", db=location)
    assert run("dlq", "retry", db=location).code == 2
    assert run("dlq", "retry", "1", "--all", db=location).code == 2
    assert run("dlq", "retry", "--all", "--delay", "x", db=location).code == 2
