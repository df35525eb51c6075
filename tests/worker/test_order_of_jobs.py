"""Which job is taken first."""

from __future__ import annotations

import pytest

from bullite import Job, Queue, QueueOptionMismatch, Worker
from bullite.errors import InvalidOption


async def order_of_runs(queue: Queue) -> list[object]:
    """What a worker that takes one job at a time makes of what is there."""
    ran: list[object] = []

    async def note(job: Job) -> None:
        ran.append(job.data)

    await queue.wait_until_ready()
    lowest = 2_097_151 if queue.priority_order == "low" else -1
    last = await queue.add("last", "last", priority=lowest)
    async with Worker(queue, note):
        await last.result()
    assert ran.pop() == "last"
    return ran


async def test_first_in_first_out(queue: Queue) -> None:
    await queue.add_bulk({"name": "a", "data": n} for n in range(50))
    assert await order_of_runs(queue) == list(range(50))


async def test_a_lifo_job_goes_in_front(queue: Queue) -> None:
    await queue.add("a", 1)
    await queue.add("a", 2, lifo=True)
    await queue.add("a", 3, lifo=True)
    assert await order_of_runs(queue) == [3, 2, 1]


async def test_lower_priorities_go_first_and_none_is_zero(queue: Queue) -> None:
    for priority in (5, 1, -3):
        await queue.add("a", priority, priority=priority)
    await queue.add("a", 0)
    await queue.add("a", "second of one", priority=1)
    assert await order_of_runs(queue) == [-3, 0, 1, "second of one", 5]


async def test_in_a_high_queue_higher_priorities_go_first(location: str) -> None:
    async with Queue("urgent", location, priority_order="high") as queue:
        for priority in (0, 5, 1):
            await queue.add("a", priority, priority=priority)
        assert await order_of_runs(queue) == [5, 1, 0]


async def test_a_lifo_job_does_not_overtake_a_better_priority(queue: Queue) -> None:
    await queue.add("a", "plain")
    await queue.add("a", "ranked", priority=1, lifo=True)
    assert await order_of_runs(queue) == ["plain", "ranked"]


async def test_the_order_of_a_queue_is_kept_in_the_database(location: str) -> None:
    async with Queue("urgent", location, priority_order="high") as queue:
        await queue.add("a", 1, priority=1)
        await queue.add("a", 2, priority=2)
    async with Queue("urgent", location) as queue:
        await queue.add("a", 3, priority=3)
        assert await order_of_runs(queue) == [3, 2, 1]


async def test_another_order_than_the_stored_one_is_refused(location: str) -> None:
    async with Queue("urgent", location, priority_order="high"):
        pass
    other = Queue("urgent", location, priority_order="low")
    with pytest.raises(
        QueueOptionMismatch, match=r"'urgent' has priority_order='high'.*open it with that"
    ):
        await other.add("a")
    await other.close()


def test_an_unknown_order_is_refused(location: str) -> None:
    with pytest.raises(InvalidOption, match=r'priority_order must be "low" or "high", not .up.'):
        Queue("urgent", location, priority_order="up")


async def test_the_order_of_names_holds_across_names(queue: Queue) -> None:
    ran: list[int] = []

    async def note(job: Job) -> None:
        ran.append(job.data)

    jobs = await queue.add_bulk({"name": "ab"[n % 2], "data": n} for n in range(20))
    async with Worker(queue, {"a": note, "b": note}):
        for job in jobs:
            await job.result()
    assert ran == list(range(20))
