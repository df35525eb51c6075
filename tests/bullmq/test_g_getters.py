"""G: looking at jobs, counts and workers."""

from __future__ import annotations

from typing import Any

import pytest

from bullite import Job, Queue, Worker
from tests.support.helpers import until


async def finish(queue: Queue, count: int, error: str | None = None) -> list[str]:
    """Let so many jobs complete, or fail, one after the other; their ids."""

    async def work(job: Job) -> None:
        if error is not None:
            raise ValueError(error)

    jobs = await queue.add_bulk([{"name": "test", "data": {"n": n}} for n in range(count)])
    async with Worker(queue, work):
        await until(lambda: has_finished(queue, count))
    return [job.id for job in jobs]


async def has_finished(queue: Queue, count: int) -> bool:
    return await queue.get_job_count_by_types("completed", "failed") == count


def ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


async def nothing(job: Job) -> None:
    pass


async def test_G_002_the_workers_of_a_queue_are_listed_by_name_and_no_others(
    queue: Queue,
) -> None:
    longer = Queue(f"{queue.name}2", queue.store)
    workers: list[Worker] = []
    counts: list[int] = []
    for served, name, autorun in (
        (longer, "other", True),
        (queue, "worker1", False),
        (queue, "worker2", True),
    ):
        workers.append(Worker(served, nothing, name=name, autorun=autorun))
        await workers[-1].wait_until_ready()
        counts.append(await queue.get_workers_count())
    names = sorted(info.name for info in await queue.get_workers())
    others = [info.name for info in await longer.get_workers()]
    for worker in workers:
        await worker.close()
    assert (counts, names, others) == ([0, 1, 2], ["worker1", "worker2"], ["other"])
    assert await queue.get_workers() == await longer.get_workers() == []


async def test_G_004_waiting_jobs_are_listed_oldest_first(queue: Queue) -> None:
    added = [(await queue.add("test", {"n": n})).id for n in range(3)]
    assert ids(await queue.get_waiting()) == added
    assert ids(await queue.get_waiting(0, -1)) == added


async def test_G_005_a_window_past_the_end_is_empty(queue: Queue) -> None:
    await queue.add_bulk([{"name": "test"}] * 3)
    assert await queue.get_jobs(["waiting"], 10, 12, True) == []


async def test_G_006_jobs_of_a_paused_queue_are_listed_as_waiting(queue: Queue) -> None:
    await queue.pause()
    added = [(await queue.add("test", {"n": n})).id for n in range(2)]
    assert ids(await queue.get_waiting()) == added


async def test_G_007_a_job_that_runs_is_the_only_active_one(queue: Queue) -> None:
    async def work(job: Job) -> tuple[str, list[str]]:
        return job.id, ids(await queue.get_active())

    async with Worker(queue, work):
        job = await queue.add("test", {"foo": "bar"})
        assert await job.result() == [job.id, [job.id]]


@pytest.mark.parametrize("count", [2, 4])
async def test_G_009_failed_jobs_are_all_listed_without_a_range_or_with_the_whole(
    queue: Queue, count: int
) -> None:
    failed = await finish(queue, count, error="forced error")
    assert sorted(ids(await queue.get_failed())) == sorted(failed)
    assert sorted(ids(await queue.get_failed(0, -1))) == sorted(failed)
    assert {job.failed_reason for job in await queue.get_failed()} == {"forced error"}
    assert await queue.get_completed() == []


async def test_G_010_jobs_with_a_priority_are_listed_apart_and_counted_with_the_rest(
    queue: Queue,
) -> None:
    priorities = [1, 2, 3, 1, 2, 3, 1, 2]
    await queue.add_bulk([{"name": "p", "opts": {"priority": n}} for n in priorities])
    await queue.add("plain")
    assert await queue.count() == 9
    assert [job.name for job in await queue.get_prioritized()] == ["p"] * 8
    assert await queue.get_prioritized_count() == 8


@pytest.mark.parametrize("state", ["completed", "failed"])
async def test_G_011_finished_jobs_tell_when_they_began_and_ended(queue: Queue, state: str) -> None:
    await finish(queue, 3, error="forced error" if state == "failed" else None)
    jobs = await queue.get_jobs(state)
    assert len(jobs) == 3
    for job in jobs:
        assert job.processed_on is not None
        assert job.finished_on is not None
        assert job.timestamp <= job.processed_on <= job.finished_on


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(1, 2, [1, 2]), (-3, -1, [0, 1, 2]), (-300, 99_999, [0, 1, 2])],
)
async def test_G_012_ranges_are_inclusive_count_from_the_end_and_are_cut_to_what_there_is(
    queue: Queue, start: int, end: int, expected: list[int]
) -> None:
    completed = await finish(queue, 3)
    found = ids(await queue.get_jobs("completed", start, end, asc=True))
    assert found == [completed[index] for index in expected]


async def test_G_014_delayed_jobs_are_not_listed_as_waiting(queue: Queue) -> None:
    later = await queue.add("later", delay="1h")
    assert await queue.get_jobs(["waiting"]) == []
    now = await queue.add("now")
    assert ids(await queue.get_jobs(["waiting"])) == [now.id]
    assert ids(await queue.get_jobs(["delayed"])) == [later.id]


async def test_G_015_a_state_named_twice_or_by_its_other_word_is_listed_once(
    queue: Queue,
) -> None:
    await queue.add_bulk([{"name": "test"}] * 3)
    once = ids(await queue.get_jobs(["wait"]))
    assert len(once) == 3
    assert ids(await queue.get_jobs(["wait", "waiting", "waiting"])) == once


async def test_G_016_an_empty_queue_has_no_jobs_of_any_type(queue: Queue) -> None:
    count: Any = await queue.get_job_count_by_types()
    assert (count, type(count)) == (0, int)


async def test_G_017_counts_without_arguments_name_every_state_and_never_paused(
    queue: Queue,
) -> None:
    async with Worker(queue) as worker:
        await queue.add_bulk([{"name": "taken"}] * 3)
        taken = [await worker.get_next_job(block=False) for _ in range(3)]
        good, bad, running = [job for job in taken if job is not None]
        await good.move_to_completed("done")
        await bad.move_to_failed(ValueError("forced error"))
        await queue.add("now")
        await queue.add("soon", priority=5)
        await queue.add("later", delay="1h")
        for pause in (True, False):
            await (queue.pause() if pause else queue.resume())
            assert await queue.get_job_counts() == {
                "active": 1,
                "completed": 1,
                "delayed": 1,
                "failed": 1,
                "prioritized": 1,
                "waiting": 1,
                "waiting-children": 0,  # nothing can wait for children yet
            }
        await running.move_to_completed()
