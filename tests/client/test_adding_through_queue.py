"""Adding jobs: what `add` and `add_bulk` store, refuse and give back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from bullite import BulliteError, Queue, Worker
from bullite.client.queue import add as add_module
from bullite.core.job_record import queue_position
from bullite.errors import InvalidOption, InvalidOptionType, UnserializableData
from tests.support.databases import Database
from tests.support.helpers import again, case


async def test_add_gives_back_the_stored_job(queue: Queue) -> None:
    job = await queue.add("welcome", {"to": "ada"}, attempts=3, priority=5)
    stored = await again(queue, job)
    for seen in (job, stored):
        assert (seen.name, seen.data, seen.state) == ("welcome", {"to": "ada"}, "prioritized")
        assert (seen.attempts, seen.priority, seen.attempts_made) == (3, 5, 0)
        assert seen.queue_name == "emails"
    assert job.id == stored.id == str(job.pk)
    assert job.created_at == stored.created_at


async def test_a_job_needs_no_data(queue: Queue) -> None:
    assert (await again(queue, await queue.add("tick"))).data is None


async def test_data_comes_back_as_it_went_in(queue: Queue) -> None:
    data = {"text": "ünïcödé \x1e \x00", "big": 2**63, "deep": [[{"a": [None, True, 1.5]}]]}
    assert (await again(queue, await queue.add("keep", data))).data == data


async def test_a_job_is_on_the_disk_once_add_returns(queue: Queue, location: str) -> None:
    job = await queue.add("keep", {"n": 1})
    await queue.close()
    async with Queue("emails", location) as reopened:
        assert (await again(reopened, job)).data == {"n": 1}


async def test_ids_are_never_used_twice(queue: Queue) -> None:
    jobs = [await queue.add("a"), *await queue.add_bulk([{"name": "b"}] * 3), await queue.add("c")]
    numbers = [job.pk for job in jobs]
    assert numbers == sorted(set(numbers))


async def test_a_delayed_job_tells_when_it_is_due(queue: Queue) -> None:
    job = await queue.add("later", delay="1h")
    for seen in (job, await again(queue, job)):
        assert seen.state == "delayed"
        assert seen.delay == 3_600_000
        assert seen.process_at == seen.created_at + timedelta(hours=1)


async def test_an_id_of_ones_own_names_the_job(queue: Queue) -> None:
    job = await queue.add("welcome", job_id="user-7")
    assert job.id == "user-7"
    assert (await again(queue, job)).pk == job.pk


async def test_an_id_that_is_taken_gives_back_the_existing_job(queue: Queue) -> None:
    first = await queue.add("welcome", {"n": 1}, job_id="user-7")
    second = await queue.add("other", {"n": 2}, job_id="user-7", priority=3)
    assert (second.pk, second.name, second.data) == (first.pk, "welcome", {"n": 1})
    assert sum((await queue.get_job_counts()).values()) == 1


async def test_the_existing_job_is_given_back_as_it_is_now(queue: Queue) -> None:
    async def greet(job: object) -> str:
        return "done"

    async with Worker(queue, greet):
        await (await queue.add("welcome", job_id="user-7")).result()
        again = await queue.add("welcome", job_id="user-7")
    assert (again.state, again.return_value) == ("completed", "done")


async def test_two_queues_may_use_the_same_id(queue: Queue) -> None:
    async with Queue("other", queue.store) as other:
        mine = await queue.add("a", job_id="x")
        theirs = await other.add("b", job_id="x")
    assert mine.pk != theirs.pk


async def test_adds_at_the_same_time_with_one_id_make_one_job(queue: Queue) -> None:
    jobs = await asyncio.gather(*(queue.add("a", n, job_id="x") for n in range(20)))
    assert len({job.pk for job in jobs}) == 1
    assert (await queue.get_job_counts())["waiting"] == 1


async def test_a_refused_job_is_not_stored(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match="attempts must be between 1 and"):
        await queue.add("a", attempts=0)
    with pytest.raises(
        InvalidOption, match=r"unknown job option 'delai'; the options are: .*delay"
    ):
        await queue.add("a", delai=5)  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match="the job's name must have 1 to 255 characters"):
        await queue.add("")
    with pytest.raises(UnserializableData, match=r"the data of job '?a'? cannot be stored as JSON"):
        await queue.add("a", {"when": object()})
    assert sum((await queue.get_job_counts()).values()) == 0


@pytest.mark.parametrize(
    "add",
    [
        lambda queue: queue.add("a", attempts=0),
        lambda queue: queue.add("a", delai=5),
        lambda queue: queue.add(""),
        lambda queue: queue.add("a", object()),
        lambda queue: queue.add("a", priority="high"),
        lambda queue: queue.add("a", repeat={"every": 0}),
        lambda queue: queue.add("a", object(), repeat={"cron": "@daily"}),
        lambda queue: queue.add("a", depends_on=5),
        lambda queue: queue.add("a", children=[{"name": "b", "data": object()}]),
        lambda queue: queue.add("a", children=[{"name": "b", "queue_name": "c", "opts": {"x": 1}}]),
        lambda queue: queue.add_bulk([{"name": "a"}, {"name": "b", "opts": {"attempts": 0}}]),
        lambda queue: queue.add_bulk([{"name": "a"}, {"name": "b", "data": object()}]),
        lambda queue: queue.add_bulk([{"name": "a"}, {"nam": "b"}]),
        lambda queue: queue.add_bulk(
            [{"name": "a"}, {"name": "b", "opts": {"children": [{"name": ""}]}}], chunk=1
        ),
        lambda queue: queue.upsert_job_scheduler("a", pattern="often"),
    ],
)
async def test_a_refused_job_makes_neither_queue_nor_database(
    database: Database, add: Callable[[Queue], Any]
) -> None:
    queue = Queue("emails", database.location)
    with pytest.raises(BulliteError):
        await add(queue)
    assert not queue.store.is_open
    assert not database.exists()


async def test_adding_no_jobs_makes_neither_queue_nor_database(database: Database) -> None:
    queue = Queue("emails", database.location)
    assert await queue.add_bulk([]) == []
    assert not queue.store.is_open
    assert not database.exists()


async def test_stored_queue_settings_apply_to_the_first_job_of_a_new_producer(
    queue: Queue,
) -> None:
    await queue.configure(
        default_job_options={"size_limit": 2_000_000, "attempts": 4}, priority_order="high"
    )
    big = "x" * 1_500_000
    one, many = (Queue("emails", queue.store, default_job_options={"lifo": True}) for _ in range(2))
    first = await one.add("big", big, priority=2)
    [second] = await many.add_bulk([{"name": "big", "data": big, "opts": {"priority": 2}}])
    for job in (first, second):
        assert (job.attempts, job.priority, queue_position(job)[0]) == (4, 2, -2)
        assert (await again(queue, job)).opts["lifo"] is True


# --- many at once --------------------------------------------------------------------------------


async def test_add_bulk_keeps_the_order(queue: Queue) -> None:
    jobs = await queue.add_bulk({"name": f"n{n}", "data": n} for n in range(500))
    assert [job.data for job in jobs] == list(range(500))
    assert [job.pk for job in jobs] == list(range(jobs[0].pk, jobs[0].pk + 500))
    assert (await again(queue, jobs[-1])).name == "n499"


async def test_add_bulk_takes_the_options_of_each_job(queue: Queue) -> None:
    [plain, special] = await queue.add_bulk(
        [{"name": "a"}, {"name": "b", "opts": {"delay": "1m", "job_id": "x"}}]
    )
    assert (plain.state, special.state) == ("waiting", "delayed")
    assert special.id == "x"


async def test_add_bulk_of_nothing_is_nothing(queue: Queue) -> None:
    assert await queue.add_bulk([]) == []


async def test_one_bad_job_means_that_none_is_stored(queue: Queue) -> None:
    with pytest.raises(InvalidOption):
        await queue.add_bulk([{"name": "a"}, {"name": "b", "opts": {"attempts": -1}}])
    with pytest.raises(UnserializableData):
        await queue.add_bulk([{"name": "a"}, {"name": "b", "data": float("nan")}])
    assert (await queue.get_job_counts())["waiting"] == 0


async def test_a_job_of_the_wrong_shape_is_named(queue: Queue) -> None:
    for job, problem in [
        ("a", "must be a mapping with name, data and opts"),
        ({"data": 1}, "has no name"),
        ({"name": "a", "opt": {}}, "has an unknown key 'opt'"),
    ]:
        words = rf"jobs\[1\] {problem}"
        with case(job), pytest.raises((InvalidOption, InvalidOptionType), match=words):
            await queue.add_bulk([{"name": "ok"}, job])  # type: ignore[list-item]


async def test_a_bad_option_in_a_bulk_says_which_job_has_it(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match=r"jobs\[1\].*attempts"):
        await queue.add_bulk([{"name": "a"}, {"name": "b", "opts": {"attempts": -1}}])


async def test_a_bulk_may_repeat_an_id(queue: Queue) -> None:
    first, second = await queue.add_bulk([{"name": "a", "opts": {"job_id": "x"}}] * 2)
    assert first.pk == second.pk
    assert (await queue.get_job_counts())["waiting"] == 1


async def test_too_many_at_once_are_refused_with_the_way_out(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match="at most 100000 jobs at once, not 100001; pass chunk="):
        await queue.add_bulk([{"name": "a"}] * 100_001)
    assert (await queue.get_job_counts())["waiting"] == 0


async def test_chunks_are_stored_one_after_the_other_and_reported(queue: Queue) -> None:
    reported: list[int] = []
    jobs = await queue.add_bulk(
        [{"name": "a", "data": n} for n in range(25)], chunk=10, on_chunk=reported.append
    )
    assert [job.data for job in jobs] == list(range(25))
    assert reported == [10, 20, 25]


async def test_with_chunks_there_may_be_more_than_the_most_at_once(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_module, "MAX_AT_ONCE", 10)
    assert len(await queue.add_bulk([{"name": "a"}] * 11, chunk=10)) == 11
    with pytest.raises(InvalidOption, match="chunk must be between 1 and 10"):
        await queue.add_bulk([{"name": "a"}], chunk=11)


async def test_a_cancelled_add_is_stored_all_the_same(queue: Queue) -> None:
    await queue.wait_until_ready()
    adding = asyncio.create_task(queue.add("a", job_id="x"))
    await asyncio.sleep(0)
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    await queue.add("b")  # requests are carried out in order
    assert await queue.get_job("x") is not None
