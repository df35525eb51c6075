"""Opening, sharing and closing queues and stores."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from bullite import EventEmitter, Queue, QueueEvents, Store, Worker
from bullite.errors import InvalidOptionType, QueueOptionMismatch, StoreClosed
from tests.support.databases import Database
from tests.support.helpers import again


async def test_nothing_is_opened_before_it_is_used(database: Database) -> None:
    new = database.another()
    queue = Queue("emails", new.location)
    assert not new.exists()
    await queue.add("a")
    assert new.exists()
    await queue.close()
    assert new.problems() == []


async def test_a_queue_that_was_never_used_can_be_closed(database: Database, location: str) -> None:
    await Queue("emails", location).close()
    assert not database.exists()


async def test_async_with_opens_and_closes(database: Database, location: str) -> None:
    async with Queue("emails", location) as queue:
        assert database.exists()
        assert queue.store.is_open
    assert not queue.store.is_open


async def test_a_queue_that_cannot_be_entered_is_closed(location: str) -> None:
    async with Queue("emails", location, priority_order="low") as queue:
        await queue.add("a")
    stale = Queue("emails", location, priority_order="high")
    with pytest.raises(QueueOptionMismatch):
        async with stale:
            raise AssertionError("it was entered")
    assert not stale.store.is_open


async def test_a_closed_queue_says_so(location: str) -> None:
    queue = Queue("emails", location)
    job = await queue.add("a")
    await queue.close()
    with pytest.raises(StoreClosed):
        await queue.add("b")
    with pytest.raises(StoreClosed):
        await queue.add_bulk([{"name": "b"}])
    with pytest.raises(StoreClosed):
        await queue.get_job(job.id)
    with pytest.raises(StoreClosed):
        await queue.get_job_counts()
    with pytest.raises(StoreClosed):
        await job.result()


async def test_closing_twice_is_closing_once(queue: Queue) -> None:
    await queue.add("a")
    await queue.close()
    await queue.close()


async def test_a_queue_leaves_a_store_that_it_was_given_open(location: str) -> None:
    store = Store(location)
    async with Queue("a", store) as first:
        job = await first.add("x")
    async with Queue("a", store) as second:
        assert (await again(second, job)).name == "x"
    store.close()


async def test_adds_under_way_are_stored_before_the_queue_closes(location: str) -> None:
    queue = Queue("emails", location)
    await queue.wait_until_ready()
    adding = [asyncio.create_task(queue.add("a")) for _ in range(100)]
    await asyncio.sleep(0)
    await queue.close()
    jobs = await asyncio.gather(*adding)
    async with Queue("emails", location) as reopened:
        assert (await reopened.get_job_counts())["waiting"] == len(jobs) == 100


async def test_queues_in_one_store_keep_their_jobs_apart(location: str) -> None:
    async with Queue("a", location) as first, Queue("b", location) as second:
        await first.add("x")
        await second.add_bulk([{"name": "y"}] * 2)
        assert (await first.get_job_counts())["waiting"] == 1
        assert (await second.get_job_counts())["waiting"] == 2


async def test_a_worker_takes_jobs_of_its_own_queue_only(location: str) -> None:
    async def work(job: object) -> None: ...

    async with Queue("a", location) as first, Queue("b", location) as second:
        await second.add("x")
        async with Worker(first, work):
            await (await first.add("y")).result()
        assert (await second.get_job_counts())["waiting"] == 1


async def test_queues_in_one_store_share_one_engine(location: str) -> None:
    async with Queue("a", location) as first, Queue("b", location) as second:
        assert first.store.open() is second.store.open()


async def test_queues_in_different_stores_do_not_share(database: Database, location: str) -> None:
    other = database.another().location
    async with Queue("a", location) as first, Queue("a", other) as second:
        assert first.store.open() is not second.store.open()
        await first.add("x")
        assert await second.count() == 0


async def test_the_engine_lives_until_the_last_queue_closes(location: str) -> None:
    first, second = Queue("a", location), Queue("a", location)
    await first.wait_until_ready()
    await second.wait_until_ready()
    await first.close()
    await second.add("still works")
    await second.close()


async def test_opening_at_the_same_time_opens_once(location: str) -> None:
    queues = [Queue("a", location) for _ in range(8)]
    await asyncio.gather(*(queue.add("x") for queue in queues))
    assert len({id(queue.store.open()) for queue in queues}) == 1
    for queue in queues:
        await queue.close()


async def test_without_a_name_the_store_of_the_environment_is_used(
    database: Database, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BULLITE_URL", location)
    async with Queue("emails") as queue:
        await queue.add("a")
    assert database.exists()


def test_a_queue_lives_on_from_loop_to_loop(location: str) -> None:
    queue = Queue("emails", location)
    job = asyncio.run(queue.add("a"))
    assert asyncio.run(queue.get_job(job.id)) is not None
    asyncio.run(queue.close())


def test_loops_that_have_ended_are_not_kept(location: str) -> None:
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []
    queue = Queue("emails", location)

    async def use(closes: bool) -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await queue.add("a")
        events = QueueEvents("emails", queue.store)
        await events.wait_until_ready()
        heard = Queue("emails", queue.store, events=EventEmitter())
        await heard.get_job_counts()
        if closes:
            await events.close()
            await heard.close()

    for number in range(11):
        asyncio.run(use(closes=number % 2 == 0))
    asyncio.run(queue.add("b"))  # the last request of each thread was that of another loop
    asyncio.run(queue.get_job_counts())
    gc.collect()
    assert [number for number, loop in enumerate(loops) if loop() is not None] == []
    asyncio.run(queue.close())


@pytest.mark.parametrize("store", [5, b"jobs.db", ["jobs.db"]])
def test_a_store_must_be_a_path_or_a_store(store: object) -> None:
    with pytest.raises(InvalidOptionType, match="a store is a path, a sqlite:/// or"):
        Queue("emails", store)  # type: ignore[arg-type]


async def test_the_number_of_a_queue_is_known_once_it_is_open(queue: Queue) -> None:
    with pytest.raises(RuntimeError, match=r"is not open yet: await queue\.wait_until_ready"):
        _ = queue._pk
    await queue.wait_until_ready()
    assert queue._pk > 0


async def test_a_queue_that_many_open_at_once_is_closed_by_one_close(location: str) -> None:
    queue = Queue("emails", location)
    await asyncio.gather(*(queue.add("a") for _ in range(20)))
    engine = queue.store.open()
    await queue.close()
    assert engine.is_stopping
