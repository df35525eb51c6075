"""J: changing the delay, the priority and the place of jobs, from outside their runs."""

from __future__ import annotations

import pytest

from bullite import Job, JobNotFound, Queue, Worker
from bullite.errors import IllegalMove
from tests.support.helpers import again, state_of, until


async def order(queue: Queue, count: int) -> list[tuple[str, int]]:
    """The names and priorities of the next jobs, as a worker meets them."""
    seen: list[tuple[str, int]] = []

    async def work(job: Job) -> None:
        seen.append((job.name, job.priority))

    async with Worker(queue, work):
        await until(lambda: len(seen) == count)
    return seen


async def names(queue: Queue, state: str) -> list[str]:
    return [job.name for job in await queue.get_jobs(state, asc=True)]


async def test_J_044_the_delay_of_a_job_that_is_not_delayed_cannot_be_changed(
    queue: Queue,
) -> None:
    job = await queue.add("a")
    with pytest.raises(IllegalMove, match=f"{job.id} is not in the delayed state"):
        await job.change_delay(2000)
    assert await state_of(queue, job) == "waiting"


async def test_J_045_losing_its_priority_lifo_puts_a_job_at_the_head_of_the_line(
    queue: Queue,
) -> None:
    await queue.pause()
    await queue.add("test1")
    job = await queue.add("test2", priority=16)
    await job.change_priority(priority=0, lifo=True)
    assert job.priority == (await again(queue, job)).priority == 0
    assert await names(queue, "waiting") == ["test2", "test1"]
    await queue.resume()
    assert await order(queue, 2) == [("test2", 0), ("test1", 0)]


async def test_J_046_losing_its_priority_puts_a_job_at_the_end_of_the_line(queue: Queue) -> None:
    job = await queue.add("test1", priority=8)
    await queue.add("test2")
    await job.change_priority(priority=0, lifo=False)
    assert await names(queue, "waiting") == ["test2", "test1"]
    assert await order(queue, 2) == [("test2", 0), ("test1", 0)]


@pytest.mark.parametrize("paused", [False, True])
async def test_J_047_a_job_given_a_better_priority_overtakes(queue: Queue, paused: bool) -> None:
    await queue.add("test1", priority=8)
    job = await queue.add("test2", priority=16)
    if paused:
        await queue.pause()
    await job.change_priority(priority=1)
    if paused:
        await queue.resume()
    assert await order(queue, 2) == [("test2", 1), ("test1", 8)]


async def test_J_049_a_delayed_job_given_a_priority_stays_delayed(queue: Queue) -> None:
    job = await queue.add("a", delay="1h")
    await job.change_priority(priority=10)
    assert await queue.get_job_counts("prioritized", "delayed") == {"prioritized": 0, "delayed": 1}
    stored = await again(queue, job)
    assert (stored.state, stored.priority) == ("delayed", 10)


async def test_J_050_the_priority_of_a_removed_job_cannot_be_changed(queue: Queue) -> None:
    job = await queue.add("a", priority=8, job_id="gone")
    await job.remove()
    with pytest.raises(JobNotFound, match="gone"):
        await job.change_priority(priority=10)


async def test_J_051_a_promoted_job_waits_without_a_delay(queue: Queue) -> None:
    job = await queue.add("a", delay="1h")
    assert (job.delay, await job.is_delayed()) == (3_600_000, True)
    await job.promote()
    assert job.delay == (await again(queue, job)).delay == 0
    assert (await job.is_delayed(), await job.is_waiting()) == (False, True)


async def test_J_052_a_promoted_job_takes_the_place_of_its_priority(queue: Queue) -> None:
    await queue.add("a", priority=1)
    await queue.add("b", priority=2)
    await queue.add("d", priority=4)
    job = await queue.add("c", priority=3, delay="1h")
    await job.promote()
    assert [name for name, _ in await order(queue, 4)] == ["a", "b", "c", "d"]


async def test_J_054_a_job_promoted_in_a_paused_queue_waits_there(queue: Queue) -> None:
    await queue.pause()
    job = await queue.add("a", delay="1h")
    await job.promote()
    assert (await queue.get_waiting_count(), await job.get_state()) == (1, "waiting")
    await queue.resume()
    assert (await queue.get_waiting_count(), await job.get_state()) == (1, "waiting")
    assert await queue.get_delayed_count() == 0


async def test_J_055_a_job_tells_the_state_it_is_in(queue: Queue) -> None:
    seen: list[str] = []
    async with Worker(queue) as worker:
        job = await queue.add("a", delay="1h")
        seen.append(await job.get_state())
        await job.promote()
        seen.append(await job.get_state())
        held = await worker.get_next_job()
        assert held is not None
        await held.move_to_failed(ValueError("test"))
        seen.append(await job.get_state())
        other = await queue.add("b")
        held = await worker.get_next_job()
        assert held is not None
        await held.move_to_completed("done")
        seen.append(await other.get_state())
    assert seen == ["delayed", "waiting", "failed", "completed"]
