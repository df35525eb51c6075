"""Workers: in which order jobs are taken, and when."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from bullite.errors import BulliteError
from tests.support.helpers import python, state_of, until


async def test_W_001_jobs_added_as_last_in_first_out_run_newest_first_after_a_resume(
    queue: Queue,
) -> None:
    ran: list[int] = []

    async def work(job: Job) -> None:
        ran.append(job.data)

    await queue.pause()
    async with Worker(queue, work):
        for number in range(1, 5):
            await queue.add("a", number, lifo=True)
        await queue.resume()
        await until(lambda: len(ran) == 4)
    assert ran == [4, 3, 2, 1]


async def test_W_002_one_worker_runs_jobs_in_the_order_they_came_and_stays_up(queue: Queue) -> None:
    ran: list[int] = []

    async def work(job: Job) -> None:
        ran.append(job.data)

    async with Worker(queue, work) as worker:
        for number in range(35):
            await queue.add("a", number)
        await until(lambda: len(ran) == 35)
        assert ran == list(range(35))
        assert worker.is_running()


async def test_W_009_a_job_that_runs_is_never_given_to_a_second_worker(queue: Queue) -> None:
    go_on = asyncio.Event()
    second: list[str] = []

    async def hold(job: Job) -> str:
        await go_on.wait()
        return "first"

    async def note(job: Job) -> None:
        second.append(job.name)

    async with Worker(queue, hold):
        held = await queue.add("held")
        await until(lambda: is_active(held))
        async with Worker(queue, note, poll_interval=10):
            await queue.add("other")
            await until(lambda: second == ["other"])
            go_on.set()
            assert await held.result() == "first"
    assert second == ["other"]


async def is_active(job: Job) -> bool:
    return await job.is_active()


async def test_W_024_a_worker_whose_wake_up_never_comes_looks_for_work_by_itself(
    queue: Queue, location: str
) -> None:
    ran: list[Any] = []

    async def work(job: Job) -> None:
        ran.append(job.data)

    async with Worker(queue, work) as worker:
        await worker.wait_until_ready()
        await asyncio.to_thread(python, SILENT_PRODUCER, location)
        await until(lambda: ran == ["silent"])


SILENT_PRODUCER = """
import asyncio, sys
from bullite import Queue

async def main():
    async with Queue("emails", sys.argv[1]) as queue:
        driver = queue.store.open().driver
        driver.queue_notification = driver.send_notifications = lambda *_: None
        await queue.add("a", "silent")

asyncio.run(main())
"""


async def test_W_035_after_a_drain_a_bulk_starts_what_is_ready_now_and_what_is_delayed_in_time(
    queue: Queue,
) -> None:
    began: dict[str, float] = {}
    delays: dict[str, int] = {}
    drained = asyncio.Event()

    async def work(job: Job) -> None:
        began[job.name] = time.time() * 1000
        await asyncio.sleep(0.1)

    async with Worker(queue, work) as worker:
        worker.on("drained", drained.set)
        worker.on("completed", lambda job, *_: delays.update({job.name: job.delay}))
        await (await queue.add("first")).result()
        await drained.wait()
        _, later = await queue.add_bulk(
            [{"name": "now"}, {"name": "later", "opts": {"delay": 300}}]
        )
        assert later.delay == 300
        await until(lambda: "later" in delays)
    assert began["now"] < later.timestamp + 300
    assert began["later"] >= later.timestamp + 300
    assert delays["later"] == 0


async def test_W_036_lower_priority_numbers_run_first_whatever_the_order_of_a_bulk(
    queue: Queue,
) -> None:
    ran: list[int] = []

    async def work(job: Job) -> None:
        ran.append(job.priority)

    await queue.add_bulk(
        {"name": "a", "opts": {"priority": priority}} for priority in (2, 3, 1) * 6
    )
    async with Worker(queue, work):
        await until(lambda: len(ran) == 18)
    assert ran == [1] * 6 + [2] * 6 + [3] * 6


async def test_W_037_jobs_of_the_largest_priority_number_run_in_the_order_they_came(
    queue: Queue,
) -> None:
    ran: list[int] = []

    async def work(job: Job) -> None:
        ran.append(job.data)

    for number in range(5):
        job = await queue.add("a", number, priority=2_097_151)
        assert await state_of(queue, job) == "prioritized"
    async with Worker(queue, work):
        await until(lambda: len(ran) == 5)
    assert ran == list(range(5))


async def test_W_039_a_job_with_priority_added_by_a_running_one_follows_at_once(
    queue: Queue,
) -> None:
    added: list[Job] = []

    async def work(job: Job) -> str:
        if job.name == "first":
            added.append(await queue.add("second", priority=2))
        return job.name

    # Neither looking now and then nor waiting for a drain would find it within the test.
    async with Worker(queue, work, poll_interval="1h", drain_delay="1h"):
        first = await queue.add("first", priority=1)
        assert await first.result() == "first"
        assert await added[0].result(timeout="10s") == "second"


async def test_W_040_jobs_with_priority_and_ids_of_their_own_are_all_run(queue: Queue) -> None:
    ran: list[str] = []

    async def work(job: Job) -> None:
        ran.append(job.id)

    await queue.add("a", priority=1, job_id="custom1")
    await queue.add("a", priority=1, job_id="custom2")
    async with Worker(queue, work):
        await until(lambda: len(ran) == 2)
    assert ran == ["custom1", "custom2"]


async def test_W_041_without_autorun_nothing_runs_before_run_and_then_one_after_the_other(
    queue: Queue,
) -> None:
    ran: list[int] = []
    running = most = 0

    async def work(job: Job) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        ran.append(job.data)

    worker = Worker(queue, work, autorun=False)
    for number in range(10):
        await queue.add("a", number)
    await asyncio.sleep(0.1)
    assert ran == []
    run = asyncio.create_task(worker.run())
    await until(lambda: len(ran) == 10)
    await worker.close()
    await run
    assert (ran, most) == (list(range(10)), 1)


async def test_W_042_a_worker_without_a_processor_cannot_be_run(queue: Queue) -> None:
    worker = Worker(queue)
    with pytest.raises(BulliteError, match="no processor is defined"):
        await worker.run()
    await worker.close()


async def test_W_072_delayed_jobs_that_became_due_run_before_the_second_try_of_a_job(
    queue: Queue,
) -> None:
    ran: list[int] = []

    async def work(job: Job) -> None:
        ran.append(job.data)
        if ran == [1]:
            await asyncio.sleep(0.25)
            raise ValueError("once")

    await queue.add("a", 1, attempts=2)
    for number in (2, 3, 4):
        await queue.add("a", number, delay=200)
    async with Worker(queue, work):
        await until(lambda: len(ran) == 5)
    assert ran == [1, 2, 3, 4, 1]
