"""Many jobs at a time: all of them or none, and none twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from bullite.client.queue.settings import check_settings
from bullite.client.runtime import bridge
from bullite.errors import BulliteError, InvalidOption
from bullite.operations.queues import Configure
from tests.support.helpers import again, case, until


async def echo(job: Job) -> Any:
    return job.data


async def test_ten_thousand_jobs_run_once_each(queue: Queue) -> None:
    ran: Counter[int] = Counter()

    async def work(job: Job) -> None:
        ran[job.data] += 1

    async with Worker(queue, work, concurrency=10), Worker(queue, work, concurrency=3):
        await queue.add_bulk([{"name": "a", "data": n} for n in range(10_000)])
        await until(lambda: completed(queue, 10_000), limit=25)
    assert len(ran) == 10_000
    assert set(ran.values()) == {1}


async def completed(queue: Queue, number: int) -> bool:
    return await queue.get_completed_count() == number


async def test_one_bad_job_in_a_later_chunk_means_that_no_chunk_is_stored(queue: Queue) -> None:
    jobs: list[Any] = [{"name": "a"}] * 10 + [{"name": "a", "data": float("nan")}]
    with pytest.raises(BulliteError, match=r"jobs\[10\]"):
        await queue.add_bulk(jobs, chunk=3)
    assert await queue.count() == 0


async def test_chunks_tell_how_far_they_are(queue: Queue) -> None:
    told: list[int] = []
    jobs = await queue.add_bulk([{"name": "a"}] * 10, chunk=4, on_chunk=told.append)
    assert told == [4, 8, 10]
    assert len({job.id for job in jobs}) == 10


async def test_what_is_stored_of_a_bulk_that_was_broken_off_is_whole_chunks(queue: Queue) -> None:
    def stop(stored: int) -> None:
        if stored == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await queue.add_bulk([{"name": "a"}] * 10, chunk=3, on_chunk=stop)
    assert await queue.count() == 6


async def test_settings_that_change_between_chunks_hold_for_the_next(
    queue: Queue, location: str
) -> None:
    async with Queue("emails", location) as other:
        await other.wait_until_ready()
        await queue.wait_until_ready()
        changes: list[asyncio.Future[Any]] = []

        def change(stored: int) -> None:
            if stored == 3:
                # Asked for at once, so that it is carried out before the next chunk.
                settings = check_settings({"default_job_options": {"attempts": 7}}, "emails")
                changes.append(bridge.submit(queue.store, Configure(queue._pk, settings)))

        jobs: list[Any] = [{"name": "a", "data": n} for n in range(12)]
        stored = await other.add_bulk(jobs, chunk=3, on_chunk=change)
        await asyncio.gather(*changes)
        attempts = [(await again(queue, job)).attempts for job in stored]
        assert attempts == [1] * 3 + [7] * 9
        assert [job.attempts for job in stored] == attempts
        assert [job.data for job in await queue.get_waiting()] == list(range(12))


async def test_settings_that_change_before_a_bulk_hold_for_all_of_it(
    queue: Queue, location: str
) -> None:
    async with Queue("emails", location) as other:
        await other.add("first", priority=1)
        await queue.configure(default_job_options={"attempts": 7}, priority_order="high")
        jobs: list[Any] = [{"name": "a", "opts": {"priority": n}} for n in (2, 3)]
        assert [job.attempts for job in await other.add_bulk(jobs)] == [7, 7]
        assert [job.priority for job in await other.get_prioritized()] == [3, 2, 1]


async def test_bulks_at_the_same_time_while_settings_change(queue: Queue, location: str) -> None:
    """Every job is stored once, under the old settings or the new ones."""
    others = [Queue("emails", location) for _ in range(4)]
    for other in others:
        await other.wait_until_ready()

    async def settle() -> None:
        for number in range(2, 12):
            await queue.configure(default_job_options={"attempts": number})

    async def fill(other: Queue, name: str) -> None:
        for number in range(10):
            await other.add_bulk([{"name": name, "data": number}] * 5)

    await asyncio.gather(settle(), *(fill(o, str(n)) for n, o in enumerate(others)))
    stored = Counter([(job.name, job.data) async for job in queue.iter_jobs("waiting")])
    assert len(stored) == 40
    assert set(stored.values()) == {5}
    for other in others:
        await other.close()


async def test_a_bulk_with_ids_that_are_there_gives_back_those_jobs(queue: Queue) -> None:
    first = await queue.add("old", 1, job_id="x")
    jobs: list[Any] = [{"name": "new", "opts": {"job_id": id}} for id in ("w", "x", "y")]
    stored = await queue.add_bulk(jobs)
    assert [job.name for job in stored] == ["new", "old", "new"]
    assert stored[1].pk == first.pk
    assert await queue.count() == 3


async def test_a_bulk_of_all_kinds_goes_where_each_belongs(queue: Queue) -> None:
    opts: list[Any] = [{}, {"priority": 3}, {"delay": "1h"}, {"run_at": 4_102_444_800_000}]
    await queue.add_bulk([{"name": "a", "opts": o} for o in opts])
    assert await queue.get_job_counts("waiting", "prioritized", "delayed") == {
        "waiting": 1,
        "prioritized": 1,
        "delayed": 2,
    }


async def test_a_bulk_may_come_from_any_iterable(queue: Queue) -> None:
    stored = await queue.add_bulk({"name": "a", "data": n} for n in range(3))
    assert [job.data for job in stored] == [0, 1, 2]


async def test_several_bulks_at_once_do_not_mix(queue: Queue) -> None:
    await asyncio.gather(
        *(queue.add_bulk([{"name": name, "data": n} for n in range(200)]) for name in "abc")
    )
    jobs = await queue.get_waiting()
    names = [job.name for job in jobs]
    assert [job.data for job in jobs] == list(range(200)) * 3
    assert len(set(names[:200])) == 1


async def test_a_bulk_wakes_as_many_as_there_are(queue: Queue) -> None:
    together = asyncio.Barrier(4)

    async def work(job: Job) -> None:
        await together.wait()

    async with Worker(queue, work, concurrency=2), Worker(queue, work, concurrency=2):
        jobs = await queue.add_bulk([{"name": "a"}] * 4)
        await asyncio.gather(*(job.result(timeout="10s") for job in jobs))


async def test_a_bad_chunk_is_refused(queue: Queue) -> None:
    for bad in [0, -1, 1.5, "10", True, 100_001]:
        with case(bad):
            with pytest.raises(BulliteError, match="chunk"):
                await queue.add_bulk([{"name": "a"}], chunk=bad)
            assert await queue.count() == 0


async def test_a_bad_job_is_named_and_the_good_ones_are_not_stored(queue: Queue) -> None:
    for bad in [
        [{}],
        [{"data": 1}],
        [{"name": "a", "options": {}}],
        ["a"],
        [None],
        [{"name": ""}],
        [{"name": 5}],
        [{"name": "a", "opts": {"attempts": 0}}],
        [{"name": "a", "opts": {"colour": 1}}],
        [{"name": "a", "opts": [1]}],
        [{"name": "a", "opts": 5}],
    ]:
        with case(bad):
            with pytest.raises(BulliteError, match=r"jobs\[1\]"):
                await queue.add_bulk([{"name": "good"}, *bad])
            assert await queue.count() == 0


@pytest.mark.parametrize("bad", [None, 5])
async def test_a_bulk_is_a_list(queue: Queue, bad: Any) -> None:
    with pytest.raises(BulliteError, match="jobs"):
        await queue.add_bulk(bad)


async def test_a_bulk_of_too_many_names_the_way_out(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match="chunk="):
        await queue.add_bulk([{"name": "a"}] * 100_001)
    assert await queue.count() == 0
