"""Lists of jobs: states, orders, ranges, streams."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from bullite.errors import BulliteError, InvalidOption
from tests.support.helpers import case, fresh, until


async def work(job: Job) -> Any:
    if job.name == "bad":
        raise ValueError("broken")
    return job.data


def data(jobs: list[Job]) -> list[Any]:
    return [job.data for job in jobs]


async def run_one_by_one(queue: Queue, name: str, count: int) -> None:
    """So that each ends in a millisecond of its own."""
    async with Worker(queue, work):
        for number in range(count):
            job = await queue.add(name, number)
            await until(lambda job=job: job_ended(queue, job))
            await asyncio.sleep(0.002)


async def job_ended(queue: Queue, job: Job) -> bool:
    return await queue.get_job_state(job.id) in ("completed", "failed")


async def test_an_empty_queue_has_empty_lists(queue: Queue) -> None:
    assert await queue.get_jobs() == []
    assert [job async for job in queue.iter_jobs()] == []
    assert await queue.get_waiting_children() == []
    assert await queue.get_waiting_children_count() == 0


async def test_waiting_jobs_come_next_first(queue: Queue) -> None:
    for number in range(3):
        await queue.add("a", number)
    await queue.add("a", "front", lifo=True)
    assert data(await queue.get_waiting()) == ["front", 0, 1, 2]
    assert data(await queue.get_jobs("waiting")) == [2, 1, 0, "front"]
    assert data(await queue.get_jobs("waiting", asc=True)) == ["front", 0, 1, 2]


async def test_prioritized_jobs_come_by_priority_then_age(queue: Queue) -> None:
    for number, priority in enumerate((5, 1, 5, -2)):
        await queue.add("a", number, priority=priority)
    await queue.add("a", "plain")
    assert data(await queue.get_prioritized()) == [3, 1, 0, 2]
    assert data(await queue.get_waiting()) == ["plain"]


async def test_delayed_jobs_come_in_the_order_of_their_time(queue: Queue) -> None:
    for number, hours in enumerate((3, 1, 2)):
        await queue.add("a", number, delay=f"{hours}h")
    assert data(await queue.get_delayed()) == [1, 2, 0]


async def test_active_jobs_come_longest_first(queue: Queue) -> None:
    for number in range(3):
        await queue.add("a", number)
    async with Worker(queue, None) as worker:
        jobs = []
        for _ in range(3):
            jobs.append(await worker.get_next_job())
            await asyncio.sleep(0.002)
        assert data(await queue.get_active()) == [0, 1, 2]
        for job in jobs:
            assert job is not None
            await job.move_to_completed()


async def test_completed_jobs_come_newest_first(queue: Queue) -> None:
    await run_one_by_one(queue, "good", 3)
    assert data(await queue.get_completed()) == [2, 1, 0]
    assert data(await queue.get_jobs("completed", asc=True)) == [0, 1, 2]


async def test_failed_jobs_come_newest_first(queue: Queue) -> None:
    await run_one_by_one(queue, "bad", 3)
    assert data(await queue.get_failed()) == [2, 1, 0]


async def test_ranges_include_both_ends_and_count_from_either_side(queue: Queue) -> None:
    for start, end, wanted in [
        (0, -1, [0, 1, 2, 3, 4]),
        (0, 0, [0]),
        (1, 3, [1, 2, 3]),
        (3, 99, [3, 4]),
        (5, 9, []),
        (3, 1, []),
        (-2, -1, [3, 4]),
        (0, -2, [0, 1, 2, 3]),
        (-99, 1, [0, 1]),
        (0, -99, []),
        (0, 10**30, [0, 1, 2, 3, 4]),
        (10**30, 10**31, []),
    ]:
        with case((start, end, wanted)):
            queue = fresh(queue)
            for number in range(5):
                await queue.add("a", number)
            assert data(await queue.get_waiting(start, end)) == wanted


async def test_a_range_of_the_newest(queue: Queue) -> None:
    await run_one_by_one(queue, "good", 4)
    assert data(await queue.get_completed(0, 1)) == [3, 2]
    assert data(await queue.get_completed(-1, -1)) == [0]


async def test_a_range_is_of_whole_numbers(queue: Queue) -> None:
    for bad in ["1", 1.5, None, True]:
        with case(bad):
            with pytest.raises(BulliteError, match="start and end"):
                await queue.get_waiting(bad)
            with pytest.raises(BulliteError, match="start and end"):
                await queue.get_jobs(end=bad)


async def test_several_states_come_together(queue: Queue) -> None:
    await queue.add("a", "waiting")
    await queue.add("a", "delayed", delay="1h")
    await queue.add("a", "prioritized", priority=3)
    assert set(data(await queue.get_jobs(["waiting", "delayed"]))) == {"waiting", "delayed"}
    assert set(data(await queue.get_jobs())) == {"waiting", "delayed", "prioritized"}
    assert await queue.get_jobs([]) == []


async def test_a_state_named_twice_is_listed_once(queue: Queue) -> None:
    await queue.add("a", 1)
    assert data(await queue.get_jobs(["waiting", "wait", "PENDING"])) == [1]


async def test_states_have_the_words_of_all_documents(queue: Queue) -> None:
    for word, state in [
        ("wait", "waiting"),
        ("PENDING", "waiting"),
        ("Waiting_Children", "waiting-children"),
        ("processing", "active"),
        ("dead", "failed"),
        (" Delayed ", "delayed"),
        ("Prioritized", "prioritized"),
    ]:
        with case((word, state)):
            queue = fresh(queue)
            assert await queue.get_job_counts(word) == {state: 0}
            assert await queue.get_jobs(word) == []


async def test_what_is_no_state_is_refused(queue: Queue) -> None:
    for word in ["removed", "stalled", "", "waiting;", "\x00", "ξ"]:
        with case(word):
            with pytest.raises(InvalidOption, match="state"):
                await queue.get_jobs(word)
            with pytest.raises(InvalidOption, match="state"):
                await queue.get_job_counts(word)
            with pytest.raises(InvalidOption, match="state"):
                await queue.clean(0, state=word)
            with pytest.raises(InvalidOption, match="state"):
                await anext(queue.iter_jobs(word))


# --- many ----------------------------------------------------------------------------------------


async def test_two_thousand_jobs_are_listed_in_order(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a", "data": number} for number in range(2_000)])
    assert data(await queue.get_waiting()) == list(range(2_000))
    assert data(await queue.get_waiting(1_990, 1_994)) == [1990, 1991, 1992, 1993, 1994]
    assert await queue.get_waiting_count() == 2_000


async def test_two_thousand_jobs_are_streamed_in_order(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a", "data": number} for number in range(2_000)])
    assert [job.data async for job in queue.iter_jobs("waiting")] == list(range(2_000))


@pytest.mark.parametrize("batch", [1, 7, 100])
async def test_a_stream_meets_every_job_once_whatever_its_batch(queue: Queue, batch: int) -> None:
    await run_one_by_one(queue, "bad", 5)
    opts: list[Any] = [{}, {"priority": 3}, {"priority": -3}, {"delay": "1h"}, {"lifo": True}]
    await queue.add_bulk([{"name": "a", "data": n, "opts": opts[n % 5]} for n in range(60)])
    met = [job.id async for job in queue.iter_jobs(batch=batch)]
    assert len(met) == 65
    assert set(met) == {job.id for job in await queue.get_jobs()}


async def test_a_stream_is_in_the_order_of_each_list(queue: Queue) -> None:
    opts: list[Any] = [{"priority": p} for p in (5, 1, 5, 3, 1)]
    await queue.add_bulk([{"name": "a", "data": n, "opts": o} for n, o in enumerate(opts)])
    assert [job.data async for job in queue.iter_jobs("prioritized", batch=2)] == [1, 4, 3, 0, 2]


async def test_a_stream_may_be_left_early(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a", "data": number} for number in range(50)])
    stream = queue.iter_jobs(batch=10)
    assert (await anext(stream)).data == 0
    await stream.aclose()  # type: ignore[attr-defined]
    assert await queue.get_waiting_count() == 50


async def test_what_is_streamed_may_be_removed_on_the_way(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a", "data": number} for number in range(50)])
    async for job in queue.iter_jobs("waiting", batch=7):
        if job.data % 2:
            await job.remove()
    assert data(await queue.get_waiting()) == list(range(0, 50, 2))


async def test_a_bad_batch_is_refused(queue: Queue) -> None:
    for batch in [0, -1, 10_001, "5", 1.5, True]:
        with case(batch), pytest.raises(BulliteError, match="batch"):
            await anext(queue.iter_jobs(batch=batch))


# --- where workers take by name ------------------------------------------------------------------


async def test_a_queue_that_is_served_by_name_is_listed_across_names(queue: Queue) -> None:
    """Its jobs stand in lanes of their names: those from before, and those from after."""
    async with Worker(queue, {"served": work}) as worker:
        await worker.wait_until_ready()
        jobs: list[Any] = [{"name": "cab"[n % 3], "data": n} for n in range(30)]
        await queue.add_bulk(jobs)
        await (await queue.add("served")).result(timeout="10s")
        for number, priority in enumerate((5, 1, -2)):
            await queue.add("cab"[number], f"p{number}", priority=priority)
        assert data(await queue.get_waiting()) == list(range(30))
        assert data(await queue.get_waiting(10, 12)) == [10, 11, 12]
        assert data(await queue.get_prioritized()) == ["p2", "p1", "p0"]
        assert [j.data async for j in queue.iter_jobs("waiting", batch=4)] == list(range(30))
        assert [j.data async for j in queue.iter_jobs("prioritized", batch=1)] == [
            "p2",
            "p1",
            "p0",
        ]
        assert await queue.get_job_counts("waiting", "prioritized") == {
            "waiting": 30,
            "prioritized": 3,
        }


async def test_jobs_from_before_a_worker_by_name_are_listed_too(queue: Queue) -> None:
    await queue.add_bulk([{"name": "cab"[n % 3], "data": n} for n in range(10)])
    async with Worker(queue, {"served": work}) as worker:
        await worker.wait_until_ready()
        await (await queue.add("served")).result(timeout="10s")
        await queue.add("d", 10)
        assert data(await queue.get_waiting()) == list(range(11))


# --- counts --------------------------------------------------------------------------------------


async def test_every_count_has_a_getter(queue: Queue) -> None:
    await run_one_by_one(queue, "good", 2)
    await run_one_by_one(queue, "bad", 1)
    await queue.add("a")
    await queue.add("a", priority=1)
    await queue.add("a", delay="1h")
    assert await queue.get_job_counts() == {
        "waiting": 1,
        "prioritized": 1,
        "delayed": 1,
        "active": 0,
        "waiting-children": 0,
        "completed": 2,
        "failed": 1,
    }
    assert await queue.get_completed_count() == 2
    assert await queue.get_failed_count() == 1
    assert await queue.get_waiting_count() == 1
    assert await queue.get_prioritized_count() == 1
    assert await queue.get_delayed_count() == 1
    assert await queue.get_active_count() == 0
    assert await queue.count() == 3
    assert await queue.get_job_count_by_types("completed", "failed") == 3
    assert await queue.get_job_count_by_types() == 6


async def test_waiting_jobs_are_counted_by_priority(queue: Queue) -> None:
    for priority in (0, 0, 5, 5, 5, -1):
        await queue.add("a", priority=priority)
    await queue.add("a", priority=5, delay="1h")
    assert await queue.get_counts_per_priority() == {-1: 1, 0: 2, 5: 3}
    assert await queue.get_counts_per_priority([5, 7]) == {5: 3, 7: 0}


async def test_a_job_says_where_it_is(queue: Queue) -> None:
    await run_one_by_one(queue, "good", 1)
    [completed] = await queue.get_completed()
    waiting, delayed = await queue.add("a"), await queue.add("a", delay="1h")
    first = await queue.add("a", priority=1)
    assert await completed.is_completed()
    assert await waiting.is_waiting()
    assert await delayed.is_delayed()
    assert await first.is_prioritized()
    assert not await first.is_waiting()
    assert not await waiting.is_active()
    assert not await waiting.is_failed()
    assert not await waiting.is_waiting_children()
