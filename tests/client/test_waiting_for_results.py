"""`job.result()`: waiting for what becomes of a job."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from bullite import Job, JobFailed, JobNotFound, Queue, Worker
from bullite.core.states import REMOVE
from bullite.errors import InvalidOptionType, StoreClosed
from tests.support.helpers import again, case, fresh, move_by_hand, python


async def echo(job: Job) -> object:
    if job.name == "bad":
        raise ValueError("bad")
    return job.data


async def test_the_result_is_what_the_processor_returned(queue: Queue) -> None:
    for value in [None, 0, "", False, [], {"a": [1, 2.5, None]}, 10**30]:
        with case(value):
            queue = fresh(queue)
            async with Worker(queue, echo):
                assert await (await queue.add("a", value)).result() == value


async def test_the_result_is_there_for_any_number_of_callers(queue: Queue) -> None:
    job = await queue.add("a", 5)
    waiting = [asyncio.create_task(job.result()) for _ in range(10)]
    await asyncio.sleep(0)
    async with Worker(queue, echo):
        assert await asyncio.gather(*waiting) == [5] * 10


async def test_a_finished_job_answers_at_once(queue: Queue) -> None:
    async with Worker(queue, echo):
        job, bad = await queue.add("a", 5), await queue.add("bad")
        await job.result()
        with pytest.raises(JobFailed):
            await bad.result()
    assert await (await again(queue, job)).result(timeout="5s") == 5
    with pytest.raises(JobFailed, match="bad"):
        await (await again(queue, bad)).result(timeout="5s")


async def test_after_waiting_the_job_knows_its_state(queue: Queue) -> None:
    async with Worker(queue, echo):
        job = await queue.add("a", 5)
        await job.result()
    assert (job.state, job.return_value) == ("completed", 5)


@pytest.mark.parametrize("timeout", [20, "20ms", timedelta(milliseconds=20)])
async def test_a_result_that_does_not_come_in_time_is_a_timeout(
    queue: Queue, timeout: object
) -> None:
    job = await queue.add("a")
    with pytest.raises(TimeoutError):
        await job.result(timeout=timeout)  # type: ignore[arg-type]


async def test_after_a_timeout_one_may_wait_again(queue: Queue) -> None:
    job = await queue.add("a", 5)
    with pytest.raises(TimeoutError):
        await job.result(timeout=1)
    async with Worker(queue, echo):
        assert await job.result() == 5


async def test_nobody_waits_any_more_after_a_timeout(queue: Queue) -> None:
    job = await queue.add("a", delay="1h")
    with pytest.raises(TimeoutError):
        await job.result(timeout=1)
    await queue.add("b")  # whatever was asked of the engine before is done now
    assert not queue.store.open()._poll_timer.is_needed()


async def test_the_timeout_is_a_duration(queue: Queue) -> None:
    job = await queue.add("a")
    with pytest.raises(InvalidOptionType, match="timeout must be milliseconds as a whole number"):
        await job.result(timeout=1.5)  # type: ignore[arg-type]


async def test_a_job_that_was_removed_has_no_result(queue: Queue) -> None:
    job = await queue.add("a")
    await move_by_hand(queue, job, REMOVE)
    with pytest.raises(JobNotFound, match=f"job {job.pk} does not exist any more"):
        await job.result(timeout="5s")


async def test_who_waits_hears_that_the_job_was_removed(queue: Queue) -> None:
    job = await queue.add("a")
    waiting = asyncio.create_task(job.result(timeout="5s"))
    await queue.get_job_counts()
    await move_by_hand(queue, job, REMOVE)
    with pytest.raises(JobNotFound):
        await waiting


async def test_who_waits_hears_that_the_store_was_closed(location: str) -> None:
    queue = Queue("emails", location)
    waiting = asyncio.create_task((await queue.add("a")).result())
    await asyncio.sleep(0)
    await queue.close()
    with pytest.raises(StoreClosed):
        await waiting


OTHER_PROCESS = """
import asyncio, sys
from bullite import Queue, Worker

async def work(job):
    return job.data

async def main():
    async with Queue("emails", sys.argv[1]) as queue, Worker(queue, work):
        await (await queue.get_job(sys.argv[2])).result(timeout="10s")

asyncio.run(main())
"""


async def test_a_result_from_another_process_arrives(queue: Queue, location: str) -> None:
    job = await queue.add("a", "hello")
    waiting = asyncio.create_task(job.result(timeout="15s"))
    await asyncio.to_thread(python, OTHER_PROCESS, location, job.id)
    assert await asyncio.wait_for(waiting, 1) == "hello"
