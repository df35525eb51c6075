"""Quotas: what a queue lets in, and how it says no."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import BulliteError, FlowNode, FlowProducer, Job, Queue, QueueFull, Worker
from tests.support.helpers import case, python


async def test_an_add_over_the_number_that_may_wait_is_refused(queue: Queue) -> None:
    await queue.configure(max_waiting=2)
    await queue.add_bulk([{"name": "a"}, {"name": "a"}])
    with pytest.raises(QueueFull, match=r"queue 'emails'.*max_waiting is 2") as raised:
        await queue.add("a")
    assert isinstance(raised.value, BulliteError)
    with pytest.raises(QueueFull):
        await queue.add_bulk([{"name": "a"}])
    assert await queue.count() == 2


async def test_there_is_room_again_when_jobs_have_run(queue: Queue) -> None:
    async def work(job: Job) -> None:
        pass

    await queue.configure(max_waiting=1)
    async with Worker(queue, work):
        for _ in range(3):
            await (await queue.add("a")).result(timeout="10s")


async def test_an_add_of_a_taken_id_is_not_refused(queue: Queue) -> None:
    await queue.configure(max_waiting=1, max_payload_bytes=10)
    first = await queue.add("a", job_id="x")
    assert (await queue.add("a", "far too much of it", job_id="x")).pk == first.pk


async def test_data_over_the_size_is_refused(queue: Queue) -> None:
    await queue.configure(max_payload_bytes=20)
    await queue.add("a", "short")
    with pytest.raises(QueueFull, match=r"max_payload_bytes is 20.*takes 32"):
        await queue.add("a", "x" * 30)
    assert await queue.count() == 1


async def test_adds_over_the_rate_are_refused(queue: Queue) -> None:
    await queue.configure(max_rate={"max": 2, "duration": 200})
    await queue.add("a")
    await queue.add("a")
    with pytest.raises(QueueFull, match=r"max_rate is 2 in 200 ms"):
        await queue.add("a")
    await asyncio.sleep(0.2)
    await queue.add("a")


async def test_a_quota_holds_for_producers_everywhere_and_none_removes_it(
    queue: Queue, location: str
) -> None:
    await queue.add("a")
    program = (
        "import asyncio, sys\n"
        "from bullite import Queue\n"
        "async def main():\n"
        "    async with Queue('emails', sys.argv[1], max_waiting=1): pass\n"
        "asyncio.run(main())\n"
    )
    python(program, location)
    with pytest.raises(QueueFull):
        await queue.add("a")
    assert (await queue.configure(max_waiting=None))["max_waiting"] is None
    await queue.add("a")


async def test_of_many_producers_at_once_no_more_get_in_than_may(queue: Queue) -> None:
    await queue.configure(max_waiting=10)
    answers = await asyncio.gather(*(queue.add("a") for _ in range(30)), return_exceptions=True)
    assert sum(isinstance(answer, QueueFull) for answer in answers) == 20
    assert await queue.count() == 10


async def test_a_failed_job_may_be_retried_in_a_full_queue(queue: Queue) -> None:
    async def work(job: Job) -> None:
        raise RuntimeError("no")

    await queue.configure(max_waiting=1)
    async with Worker(queue, work):
        job = await queue.add("a")
        with pytest.raises(BulliteError):
            await job.result(timeout="10s")
    await queue.add("b")
    await queue.retry_job(job.id)
    assert await queue.count() == 2


async def test_a_bad_quota_is_named_and_nothing_is_stored(queue: Queue) -> None:
    for setting, value in [
        ("max_waiting", -1),
        ("max_waiting", 1.5),
        ("max_waiting", True),
        ("max_waiting", 10**30),
        ("max_payload_bytes", -1),
        ("max_payload_bytes", "1k"),
        ("max_rate", 5),
        ("max_rate", {"max": 0, "duration": 1}),
        ("max_rate", {"max": 1}),
        ("max_rate", {"max": 1, "duration": 1, "per": "key"}),
    ]:
        with case((setting, value)):
            before = await queue.get_meta()
            settings: Any = {setting: value}
            with pytest.raises(BulliteError, match=setting) as raised:
                await queue.configure(**settings)
            assert isinstance(raised.value, ValueError | TypeError)
            assert await queue.get_meta() == before


async def test_a_flow_over_a_quota_of_any_of_its_queues_is_not_stored(queue: Queue) -> None:
    other = Queue("other", queue.store)
    await other.configure(max_waiting=1)
    leaf: FlowNode = {"name": "leaf", "queue_name": "other"}
    root: FlowNode = {"name": "root", "queue_name": "emails", "children": [leaf, leaf]}
    with pytest.raises(QueueFull, match="queue 'other'"):
        await FlowProducer(queue.store).add(root)
    assert await queue.count() == await other.count() == 0


async def test_a_child_at_run_time_is_held_to_the_quota_like_any_other(queue: Queue) -> None:
    refused: list[str] = []

    async def work(job: Job) -> None:
        try:
            await queue.add_bulk([{"name": "child", "opts": {"parent": job}}] * 2)
        except QueueFull as error:
            refused.append(str(error))

    await queue.configure(max_waiting=1)
    parent = await queue.add("parent")
    async with Worker(queue, work):
        await parent.result(timeout="10s")
    assert len(refused) == 1
    assert await queue.count() == 0


async def test_a_released_parent_is_never_refused(queue: Queue) -> None:
    async def work(job: Job) -> None: ...

    other = Queue("other", queue.store)
    leaf: FlowNode = {"name": "leaf", "queue_name": "other"}
    root: FlowNode = {"name": "root", "queue_name": "emails", "children": [leaf]}
    added = await FlowProducer(queue.store).add(root)
    await queue.configure(max_waiting=0)
    async with Worker(other, work), Worker(queue, work):
        await added["job"].result(timeout="10s")
