"""Features that meet: quotas with schedulers, keys and flows; steps under global concurrency."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import DelayedError, FlowProducer, Job, Queue, QueueFull, WaitingChildrenError, Worker
from bullite.client.runtime import bridge
from tests.support.helpers import until


async def nothing(job: Job) -> None:
    pass


# --- quotas and keys -----------------------------------------------------------------------------


async def test_an_add_that_is_deduplicated_is_not_refused(queue: Queue) -> None:
    await queue.configure(max_waiting=1)
    first = await queue.add("a", deduplication={"id": "k"})
    assert (await queue.add("a", deduplication={"id": "k"})).id == first.id
    [again] = await queue.add_bulk([{"name": "a", "opts": {"deduplication": {"id": "k"}}}])
    assert again.id == first.id
    with pytest.raises(QueueFull):
        await queue.add("a", deduplication={"id": "another"})
    assert await queue.get_deduplication_job_id("another") is None
    assert await queue.count() == 1


async def test_a_flow_that_is_deduplicated_is_not_refused(queue: Queue) -> None:
    await queue.configure(max_waiting=1)
    first = await queue.add("a", deduplication={"id": "k"})
    node: Any = {"name": "a", "queue_name": "emails", "opts": {"deduplication": {"id": "k"}}}
    flows = FlowProducer(queue.store)
    assert (await flows.add(node))["job"].id == first.id
    with pytest.raises(QueueFull):
        await flows.add({"name": "a", "queue_name": "emails"})
    assert await queue.count() == 1


async def test_what_is_refused_leaves_its_key_free(queue: Queue) -> None:
    await queue.configure(max_waiting=0)
    keyed: Any = {"name": "a", "opts": {"deduplication": {"id": "k"}}}
    with pytest.raises(QueueFull):
        await FlowProducer(queue.store).add({**keyed, "queue_name": "emails"})
    with pytest.raises(QueueFull):
        await queue.add_bulk([keyed, {"name": "r", "opts": {"repeat": {"every": "1h"}}}])
    assert await bridge.query(queue.store, "verify_deduplication", {}) == []
    assert await queue.get_deduplication_job_id("k") is None
    await queue.configure(max_waiting=None)
    assert (await queue.add("a", deduplication={"id": "k"})).state == "waiting"


async def test_an_add_that_is_deduplicated_does_not_count_for_the_rate(queue: Queue) -> None:
    await queue.configure(max_rate={"max": 2, "duration": "1h"})
    for _ in range(3):
        await queue.add("a", deduplication={"id": "k"})
    await queue.add("a")
    with pytest.raises(QueueFull):
        await queue.add("a")


async def test_a_job_that_was_kept_for_its_key_is_not_refused_later(queue: Queue) -> None:
    worker = Worker(queue, nothing, autorun=False)
    rule: Any = {"id": "k", "keep_last_if_active": True}
    await queue.add("a", deduplication=rule)
    held = await worker.get_next_job()
    assert held is not None
    await queue.configure(max_waiting=1)
    await queue.add("in the way")
    await queue.add("kept", deduplication=rule)
    await held.move_to_completed()
    assert [job.name for job in await queue.get_waiting()] == ["in the way", "kept"]
    await worker.close()


# --- quotas and flows ----------------------------------------------------------------------------


async def test_a_flow_over_the_quota_of_one_queue_is_stored_nowhere(queue: Queue) -> None:
    other = Queue("others", queue.store)
    await queue.configure(max_rate={"max": 2, "duration": "1h"})
    await other.configure(max_waiting=1, max_rate={"max": 2, "duration": "1h"})
    children: Any = [{"name": "c", "queue_name": "others"}] * 2
    with pytest.raises(QueueFull, match="queue 'others'"):
        await queue.add("p", children=children)
    with pytest.raises(QueueFull, match="queue 'others'"):
        await FlowProducer(queue.store).add_bulk(
            [{"name": "p", "queue_name": "emails", "children": children[:1]}] * 2
        )
    assert [await queue.count(), await other.count()] == [0, 0]
    # Nothing of it counts for the rate of any queue.
    await queue.add("p", children=children[:1])
    await queue.add("p")
    assert [await queue.count(), await other.count()] == [2, 1]


async def test_a_child_at_run_time_over_the_quota_is_refused_and_its_parent_runs_on(
    queue: Queue,
) -> None:
    other = Queue("others", queue.store)
    await other.configure(max_waiting=1)

    async def work(job: Job) -> str:
        await other.add("c", parent=job)
        try:
            await other.add("c", parent=job)
        except QueueFull:
            child = (await other.get_waiting())[0]
            await child.remove()
            return "one was refused"
        return "none was refused"

    async with Worker(queue, work):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "one was refused"


# --- quotas and schedulers -----------------------------------------------------------------------


async def test_the_ticks_of_a_scheduler_are_never_refused(queue: Queue) -> None:
    await queue.upsert_job_scheduler("s", every=50)
    await queue.configure(max_waiting=1, max_rate={"max": 1, "duration": "1h"})
    await queue.pause()
    ran: list[str] = []

    async def work(job: Job) -> None:
        ran.append(job.id)

    with pytest.raises(QueueFull):
        await queue.add("a")
    async with Worker(queue, work):
        await queue.resume()
        await until(lambda: len(ran) >= 3)
    scheduler = await queue.get_job_scheduler("s")
    assert scheduler is not None
    assert scheduler.enabled
    assert await queue.count() == 1


async def test_a_scheduler_is_made_and_changed_in_a_full_queue(queue: Queue) -> None:
    await queue.configure(max_waiting=1)
    await queue.add("a")
    await queue.upsert_job_scheduler("s", every="1h", offset="1m")
    await queue.upsert_job_scheduler("s", every="2h", offset="1m")
    await queue.run_job_scheduler("s")
    assert await queue.get_job_schedulers_count() == 1


async def test_a_repeat_among_others_lets_the_others_not_over_the_quota(queue: Queue) -> None:
    await queue.configure(max_waiting=2)
    jobs: Any = [
        {"name": "a"},
        {"name": "r", "opts": {"repeat": {"every": "1h", "key": "k"}}},
        {"name": "b"},
        {"name": "c"},
    ]
    with pytest.raises(QueueFull, match="max_waiting is 2"):
        await queue.add_bulk(jobs)
    assert await queue.count() == 0
    assert await queue.get_job_schedulers_count() == 0
    added = await queue.add_bulk(jobs[:3])
    assert [job.name for job in await queue.get_waiting()] == ["a", "r", "b"]
    assert [job.name for job in added] == ["a", "r", "b"]
    with pytest.raises(QueueFull):
        await queue.add_bulk(jobs[:2])


async def test_the_others_of_a_repeat_count_for_the_rate(queue: Queue) -> None:
    await queue.configure(max_rate={"max": 1, "duration": "1h"})
    await queue.add_bulk(
        [{"name": "a"}, {"name": "r", "opts": {"repeat": {"every": "1h", "key": "k"}}}]
    )
    with pytest.raises(QueueFull, match="max_rate is 1"):
        await queue.add("a")


async def test_the_data_of_a_scheduler_must_not_be_larger_than_the_queue_allows(
    queue: Queue,
) -> None:
    await queue.configure(max_payload_bytes=20)
    with pytest.raises(QueueFull, match="max_payload_bytes is 20"):
        await queue.upsert_job_scheduler("s", every="1h", template={"data": "x" * 30})
    assert await queue.get_job_schedulers_count() == 0
    await queue.upsert_job_scheduler("s", every="1h", template={"data": "x"})


# --- global concurrency and runs that are put off ------------------------------------------------


@pytest.mark.parametrize("way", ["sleeps", "waits for an event", "puts itself off", "has children"])
async def test_a_job_that_is_put_off_frees_its_slot(queue: Queue, way: str) -> None:
    await queue.set_global_concurrency(1)
    ended: list[str] = []

    async def work(job: Job) -> None:
        if job.name == "first":
            await put_off(queue, job, way)
        ended.append(job.name)

    first = await queue.add("first")
    await queue.add("second")
    async with Worker(queue, work, concurrency=3, poll_interval=60_000):
        await until(lambda: "second" in ended)
        if way == "waits for an event":
            await queue.send_event(first.id, "go")
        await first.result(timeout="10s")
    assert ended[-1] == "first"
    assert not await queue.is_maxed()


async def put_off(queue: Queue, job: Job, way: str) -> None:
    if way == "sleeps":
        await job.sleep(100)
    elif way == "waits for an event":
        await job.wait_event("go")
    elif job.attempts_started > 1:
        return
    elif way == "puts itself off":
        await job.move_to_delayed(job.timestamp + 200)
        raise DelayedError
    else:
        await queue.add("child", parent=job, delay=50)
        assert await job.move_to_waiting_children()
        raise WaitingChildrenError


# --- limits of keys and schedulers, flows, steps -------------------------------------------------


async def test_children_count_for_the_limit_of_their_key(queue: Queue) -> None:
    await queue.set_rate_limit("tenant", 1, "1h")
    limited: Any = {"name": "c", "opts": {"limit_key": "tenant"}}
    parent = await queue.add("p", children=[limited, limited, {"name": "c"}])
    async with Worker(queue, nothing, concurrency=3):
        await until(lambda: two_completed(queue))
        await asyncio.sleep(0.05)
    counts = await parent.get_dependencies_count()
    assert (counts["processed"], counts["unprocessed"]) == (2, 1)


async def two_completed(queue: Queue) -> bool:
    return await queue.get_completed_count() == 2


async def test_a_scheduler_makes_jobs_that_sleep_and_wait_for_events(queue: Queue) -> None:
    async def work(job: Job) -> str:
        await job.sleep(20)
        word: str = await job.wait_event("word")
        return word

    async with Worker(queue, work):
        job = await queue.upsert_job_scheduler("s", every="1h")
        await queue.send_event(job.id, "word", "hello")
        assert await job.result(timeout="10s") == "hello"


async def test_a_job_that_sleeps_holds_its_deduplication_key(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.wait_event("go")

    first = await queue.add("a", deduplication={"id": "k"})
    async with Worker(queue, work):
        await until(lambda: one_delayed(queue))
        assert (await queue.add("a", deduplication={"id": "k"})).id == first.id
        await queue.send_event(first.id, "go")
        await first.result(timeout="10s")
        assert (await queue.add("a", deduplication={"id": "k"})).id != first.id


async def one_delayed(queue: Queue) -> bool:
    return await queue.get_delayed_count() == 1
