"""Deleting finished jobs for good."""

from __future__ import annotations

from typing import Any

import pytest

from bullite import Job, JobNotFound, Queue, Worker
from bullite.client.runtime import bridge
from bullite.core.states import State
from bullite.errors import InvalidOption, InvalidOptionType
from bullite.operations.retention import Purge
from tests.support.helpers import case, state_of, until


async def work(job: Job) -> Any:
    if job.name == "bad":
        raise ValueError("broken")
    return job.data


async def run_all(queue: Queue) -> None:
    """Let everything that waits run."""

    async def nothing_left() -> bool:
        return await queue.get_job_count_by_types("waiting", "prioritized", "active") == 0

    async with Worker(queue, work):
        await until(nothing_left)


async def test_purged_jobs_are_gone_for_good(queue: Queue) -> None:
    good, bad = await queue.add("good"), await queue.add("bad")
    await run_all(queue)
    assert await queue.purge(0) == 1
    assert await queue.get_job(good.id) is None
    assert await state_of(queue, bad) == "failed"
    assert await queue.get_completed_count() == 0
    with pytest.raises(JobNotFound):
        await queue.restore(good.id)


async def test_young_jobs_stay(queue: Queue) -> None:
    job = await queue.add("good")
    await run_all(queue)
    assert await queue.purge("1h") == 0
    assert await state_of(queue, job) == "completed"


async def test_the_oldest_go_first_up_to_a_limit(queue: Queue) -> None:
    jobs = []
    for _ in range(3):
        jobs.append(await queue.add("good"))
        await run_all(queue)
    assert await queue.purge(0, limit=2) == 2
    assert [job.id for job in await queue.get_completed()] == [jobs[2].id]


async def test_an_outcome_can_be_meant(queue: Queue) -> None:
    cancelled, bad = await queue.add("good"), await queue.add("bad")
    await queue.cancel(cancelled.id)
    await run_all(queue)
    assert await queue.purge(0, "cancelled") == 1
    assert await queue.get_job(cancelled.id) is None
    assert await queue.purge(0, "TIMED_OUT") == 0
    assert await queue.purge(0, "error") == 1
    assert await queue.get_job(bad.id) is None


async def test_dead_and_failed_mean_all_that_failed(queue: Queue) -> None:
    for word in ("failed", "dead"):
        await queue.cancel((await queue.add("good")).id)
        await queue.add("bad")
        await run_all(queue)
        with case(word):
            assert await queue.purge(0, word) == 2


async def test_only_those_that_fit(queue: Queue) -> None:
    await queue.add_bulk([{"name": "good", "data": number} for number in range(6)])
    await run_all(queue)
    assert await queue.purge(0, fits=lambda job: job.data % 2 == 0) == 3
    assert sorted(job.data for job in await queue.get_completed()) == [1, 3, 5]


async def test_it_is_told_how_many_are_gone(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bullite.client.queue.bulk_moves.MOVED_AT_ONCE", 2)
    await queue.add_bulk([{"name": "good"}] * 5)
    await run_all(queue)
    told: list[int] = []
    assert await queue.purge(0, on_piece=told.append) == 5
    assert told == [2, 4, 5]


async def test_what_a_job_still_waits_for_stays(queue: Queue) -> None:
    needed = await queue.add("bad")
    waits = await queue.add("good", depends_on=[needed.id])
    other = await queue.add("bad")
    await run_all(queue)
    assert await state_of(queue, waits) == "waiting-children"
    assert await queue.purge(0, "failed", limit=2) == 1
    assert await queue.get_job(other.id) is None
    assert await state_of(queue, needed) == "failed"


async def test_a_job_that_was_retried_meanwhile_stays(queue: Queue) -> None:
    job = await queue.add("good")
    await run_all(queue)
    await queue.retry_job(job.id)
    # It was chosen before that, and only now its turn comes.
    assert await bridge.submit(queue.store, Purge(queue._pk, State.COMPLETED, [job.pk])) == 0
    assert await state_of(queue, job) == "waiting"


async def test_what_has_not_ended_cannot_be_purged(queue: Queue) -> None:
    await queue.add("good")
    for word in ("waiting", "delayed", "active", "waiting-children", "prioritized", "paused"):
        with case(word), pytest.raises(InvalidOption, match="completed, failed"):
            await queue.purge(0, word)
    assert await queue.count() == 1


async def test_bad_arguments_are_refused(queue: Queue) -> None:
    for bad in ((-1,), ("old",), (0, "odd"), (0, "failed", -1)):
        with case(bad), pytest.raises(InvalidOption):
            await queue.purge(*bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionType):
        await queue.purge(0, 5)  # type: ignore[arg-type]
