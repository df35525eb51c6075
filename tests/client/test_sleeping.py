"""Jobs that sleep or wait for an event in the middle of their processor, without holding a slot."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from bullite import EventTimedOut, Job, JobFailed, JobSuspended, Queue, Worker
from bullite.errors import (
    IllegalMove,
    InvalidOption,
    InvalidOptionType,
    JobNotFound,
    LostLock,
    PayloadTooLarge,
    UnserializableData,
)
from tests.support.helpers import again, case, state_of, take_away, until


async def is_put_off(queue: Queue, job: Job) -> bool:
    return await state_of(queue, job) == "delayed"


# --- sleeping ------------------------------------------------------------------------------------


async def test_a_sleeping_job_is_delayed_and_goes_on_afterwards(queue: Queue) -> None:
    said: list[str] = []
    times: list[float] = []

    async def work(job: Job) -> str:
        await job.step("before", said.append, "before")
        times.append(time.monotonic())
        await job.sleep(800)
        said.append("after")
        return "rested"

    async with Worker(queue, work):
        job = await queue.add("a")
        await until(lambda: is_put_off(queue, job))
        assert await job.result(timeout="10s") == "rested"
    assert said == ["before", "after"]
    assert times[1] - times[0] >= 0.799
    done = await again(queue, job)
    assert (done.attempts_made, done.attempts_started, done.failed_reason) == (1, 2, None)


async def test_the_slot_of_a_sleeping_job_is_free(queue: Queue) -> None:
    async def work(job: Job) -> str:
        if job.name == "sleeper":
            await job.sleep("1h")
        return "done"

    async with Worker(queue, work, concurrency=1):
        sleeper = await queue.add("sleeper")
        assert await (await queue.add("other")).result(timeout="10s") == "done"
        assert await is_put_off(queue, sleeper)


async def test_each_of_several_sleeps_is_slept_once(queue: Queue) -> None:
    async def work(job: Job) -> int:
        for _ in range(3):
            await job.sleep(10)
        await job.sleep(timedelta(milliseconds=10), name="named")
        return job.attempts_started

    async with Worker(queue, work):
        assert await (await queue.add("a")).result(timeout="10s") == 5


async def test_a_named_sleep_is_not_confused_by_those_before_it(queue: Queue) -> None:
    """The second run takes another way to the same sleep."""

    async def work(job: Job) -> str:
        if job.attempts_started == 1:
            await job.sleep(0)
            await job.sleep(0)
        await job.sleep(10, name="the one")
        return "awake" if job.attempts_started == 2 else "slept again"

    async with Worker(queue, work):
        assert await (await queue.add("a")).result(timeout="10s") == "awake"


async def test_a_sleep_of_no_time_ends_no_run(queue: Queue) -> None:
    async def work(job: Job) -> int:
        await job.sleep(0)
        await job.sleep("0ms")
        return job.attempts_started

    async with Worker(queue, work):
        assert await (await queue.add("a")).result(timeout="10s") == 1


async def test_a_job_that_is_promoted_sleeps_on_for_the_rest(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.sleep("1h")

    async with Worker(queue, work):
        job = await queue.add("a")
        await until(lambda: is_put_off(queue, job))
        due = (await again(queue, job)).process_at
        await job.promote()

        async def is_put_off_again() -> bool:
            found = await again(queue, job)
            return found.attempts_started == 2 and found.state == "delayed"

        await until(is_put_off_again)
        assert (await again(queue, job)).process_at == due


async def test_a_sleep_goes_on_under_another_worker(queue: Queue) -> None:
    async def work(job: Job) -> str:
        await job.sleep(800)
        return job.processed_by or ""

    async with Worker(queue, work, name="first"):
        job = await queue.add("a")
        await until(lambda: is_put_off(queue, job))
    async with Worker(queue, work, name="second"):
        assert await job.result(timeout="10s") == "second"


async def test_except_exception_does_not_keep_a_job_awake(queue: Queue) -> None:
    caught: list[BaseException] = []

    async def work(job: Job) -> str:
        try:
            await job.sleep(20)
        except Exception as error:
            caught.append(error)
        return "rested"

    async with Worker(queue, work):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "rested"
    assert caught == []
    assert (await again(queue, job)).attempts_started == 2


async def test_a_processor_that_stops_the_suspension_has_ended_its_run_all_the_same(
    queue: Queue,
) -> None:
    async def work(job: Job) -> str:
        try:
            await job.sleep(20)
        except BaseException:
            return "does not count"
        return "rested"

    async with Worker(queue, work):
        assert await (await queue.add("a")).result(timeout="10s") == "rested"


async def test_what_else_a_suspended_run_does_is_refused(queue: Queue) -> None:
    refused: list[type] = []

    async def work(job: Job) -> str:
        try:
            await job.sleep(20)
        except JobSuspended:
            for verb in (lambda: job.step("a", lambda: 1), lambda: job.sleep(5)):
                with pytest.raises(JobSuspended):
                    await verb()
            with pytest.raises(LostLock):
                await job.update_data(1)
            refused.append(JobSuspended)
            raise
        return "rested"

    async with Worker(queue, work):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "rested"
    assert refused == [JobSuspended]
    assert [step.kind for step in await job.get_steps()] == ["sleep"]


async def test_tasks_of_a_run_may_sleep_and_do_steps_at_the_same_time(queue: Queue) -> None:
    calls: list[str] = []

    async def slow() -> str:
        await asyncio.sleep(0.02)
        calls.append("slow")
        return "step"

    async def work(job: Job) -> Any:
        return await asyncio.gather(job.sleep(30), job.step("slow", slow), job.sleep(10))

    async with Worker(queue, work):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == [None, "step", None]
    assert calls == ["slow"]


async def test_a_group_of_tasks_may_sleep(queue: Queue) -> None:
    async def work(job: Job) -> str:
        async def nap(ms: int) -> None:
            await job.sleep(ms)

        async with asyncio.TaskGroup() as group:
            group.create_task(nap(10))
            group.create_task(nap(20))
        return "rested"

    async with Worker(queue, work):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "rested"
    assert (await again(queue, job)).attempts_made == 1


async def test_a_step_that_fails_beside_a_sleep_fails_the_run(queue: Queue) -> None:
    async def work(job: Job) -> str:
        async def fail() -> None:
            await asyncio.sleep(0.01)
            raise ValueError("the step failed")

        await asyncio.gather(job.sleep("1h"), job.step("fails", fail))
        return "never"

    async with Worker(queue, work):
        with pytest.raises(JobFailed, match="the step failed"):
            await (await queue.add("a")).result(timeout="10s")


@pytest.mark.parametrize("verb", ["sleep", "wait_event"])
async def test_a_job_cannot_be_put_off_inside_of_a_step(queue: Queue, verb: str) -> None:
    async def work(job: Job) -> None:
        async def inside() -> None:
            await getattr(job, verb)("1s")

        await job.step("outer", inside)

    async with Worker(queue, work):
        with pytest.raises(JobFailed, match="inside of its step 'outer'"):
            await (await queue.add("a")).result(timeout="10s")


async def test_the_timeout_of_a_run_does_not_go_on_while_its_job_sleeps(queue: Queue) -> None:
    async def work(job: Job) -> str:
        await job.sleep(400)
        return "rested"

    def thread(job: Job) -> str:
        job.sleep(400)
        return "rested"

    async with Worker(queue, {"a": work, "b": thread}):
        jobs = [await queue.add(name, timeout=300) for name in "ab"]
        assert [await job.result(timeout="10s") for job in jobs] == ["rested"] * 2


@pytest.mark.parametrize("asks", [True, False], ids=["result()", "or not"])
async def test_a_thread_sleeps_too(queue: Queue, asks: bool) -> None:
    def work(job: Job) -> Any:
        job.step("before", lambda: 1)
        nap = job.sleep(30)
        return [job.attempts_started, nap.result() if asks else None]

    async with Worker(queue, work):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == [2, None]
    assert (await again(queue, job)).attempts_made == 1


async def test_a_run_that_lost_its_job_cannot_sleep(queue: Queue) -> None:
    lost: list[BaseException] = []

    async def work(job: Job) -> str:
        if job.stalled_count == 0:
            await take_away(queue)
            try:
                await job.sleep("1h")
            except LostLock as error:
                lost.append(error)
                raise
        return "second run"

    async with Worker(queue, work, concurrency=2):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "second run"
    assert len(lost) == 1
    assert await job.get_steps() == []


async def test_a_bad_duration_is_refused(queue: Queue) -> None:
    async def work(job: Job) -> None:
        for duration, error in [
            (-1, InvalidOption),
            (2**60, InvalidOption),
            ("soon", InvalidOption),
            (1.5, InvalidOptionType),
        ]:
            with case(duration):
                with pytest.raises(error, match="duration"):
                    await job.sleep(duration)  # type: ignore[arg-type]
                with pytest.raises(error, match="timeout"):
                    await job.wait_event("a", duration)  # type: ignore[arg-type]
        for name in ("", "x" * 256):
            with case(name):
                with pytest.raises(InvalidOption, match="name"):
                    await job.sleep(1, name=name)
                with pytest.raises(InvalidOption, match="name"):
                    await job.wait_event(name)

    async with Worker(queue, work):
        job = await queue.add("a")
        await job.result(timeout="10s")
    assert await job.get_steps() == []


async def test_nobody_hears_of_a_failure_when_a_job_sleeps(queue: Queue) -> None:
    heard: list[Any] = []

    async def work(job: Job) -> None:
        await job.sleep(10)
        await job.wait_event("go")

    async with Worker(queue, work) as worker:
        for event in ("failed", "error", "stalled"):
            worker.on(event, lambda *told: heard.append(told))
        job = await queue.add("a", attempts=1)

        async def waits() -> bool:
            return [step.kind for step in await job.get_steps()] == ["sleep", "event"]

        await until(waits)
        assert await queue.send_event(job.id, "go") is True
        await job.result(timeout="10s")
    assert heard == []


# --- waiting for events --------------------------------------------------------------------------


async def test_a_job_waits_for_an_event_and_gets_what_it_brings(queue: Queue) -> None:
    async def work(job: Job) -> Any:
        return await job.wait_event("paid")

    async with Worker(queue, work, concurrency=1):
        job = await queue.add("a")
        await until(lambda: is_put_off(queue, job))
        assert await queue.send_event(job.id, "paid", {"sum": 3}) is True
        assert await job.result(timeout="10s") == {"sum": 3}
    done = await again(queue, job)
    assert (done.attempts_made, done.attempts_started) == (1, 2)


async def test_a_thread_waits_for_an_event_too(queue: Queue) -> None:
    def work(job: Job) -> Any:
        return job.wait_event("paid").result()

    async with Worker(queue, work):
        job = await queue.add("a")
        await until(lambda: is_put_off(queue, job))
        assert await job.send_event("paid", [1]) is True
        assert await job.result(timeout="10s") == [1]


async def test_an_event_without_payload_is_an_event(queue: Queue) -> None:
    async def work(job: Job) -> Any:
        return [await job.wait_event("go", "1h"), "went"]

    async with Worker(queue, work):
        job = await queue.add("a")
        await until(lambda: is_put_off(queue, job))
        await queue.send_event(job.id, "go")
        assert await job.result(timeout="10s") == [None, "went"]


async def test_an_event_that_is_sent_too_early_is_not_lost(queue: Queue) -> None:
    async def work(job: Job) -> Any:
        return [await job.wait_event("paid"), job.attempts_started]

    job = await queue.add("a", job_id="order-7")
    assert await queue.send_event("order-7", "paid", 5) is False
    async with Worker(queue, work):
        assert await job.result(timeout="10s") == [5, 1]


async def test_a_later_run_gets_the_same_event_again(queue: Queue) -> None:
    async def work(job: Job) -> Any:
        paid = await job.wait_event("paid")
        if job.attempts_made == 0:
            raise ValueError("not yet")
        return paid

    job = await queue.add("a", attempts=2)
    await queue.send_event(job.id, "paid", 5)
    async with Worker(queue, work):
        assert await job.result(timeout="10s") == 5


async def test_a_run_may_wait_for_one_event_after_the_other(queue: Queue) -> None:
    async def work(job: Job) -> Any:
        heard = []
        while (word := await job.wait_event("word")) != "stop":
            heard.append(word)
        return heard

    async with Worker(queue, work):
        job = await queue.add("a")
        for word in ("one", "two", "three", "stop"):
            await queue.send_event(job.id, "word", word)
        assert await job.result(timeout="10s") == ["one", "two", "three"]


async def test_at_its_timeout_a_wait_raises_and_does_so_in_every_later_run(queue: Queue) -> None:
    raised: list[str] = []

    async def work(job: Job) -> str:
        try:
            await job.wait_event("paid", 20)
        except EventTimedOut as error:
            raised.append(str(error))
        if job.attempts_made == 0:
            raise ValueError("not yet")
        return "cancelled"

    async with Worker(queue, work):
        job = await queue.add("a", attempts=2)
        assert await job.result(timeout="10s") == "cancelled"
    assert len(raised) == 2
    assert issubclass(EventTimedOut, TimeoutError)
    assert "the event 'paid' did not come" in raised[0]


async def test_a_timeout_that_nobody_catches_fails_the_run(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.wait_event("paid", 5)

    async with Worker(queue, work):
        with pytest.raises(JobFailed, match="'paid' did not come"):
            await (await queue.add("a")).result(timeout="10s")


async def test_a_waiting_job_can_be_removed_and_restored(queue: Queue) -> None:
    async def work(job: Job) -> Any:
        return await job.wait_event("paid")

    async with Worker(queue, work):
        job = await queue.add("a")
        await until(lambda: is_put_off(queue, job))
        assert await queue.remove(job.id)
        with pytest.raises(JobNotFound):
            await queue.send_event(job.id, "paid")
        await queue.restore(job.id)
        assert await queue.send_event(job.id, "paid", 1) is True
        assert await job.result(timeout="10s") == 1


async def test_a_finished_job_takes_no_events(queue: Queue) -> None:
    async with Worker(queue, lambda job: None):
        job = await queue.add("a")
        await job.result(timeout="10s")
    with pytest.raises(IllegalMove, match="completed"):
        await queue.send_event(job.id, "paid")
    with pytest.raises(JobNotFound):
        await queue.send_event("unknown", "paid")


async def test_a_bad_event_is_refused(queue: Queue) -> None:
    job = await queue.add("a")
    with pytest.raises(InvalidOption, match="the name of an event"):
        await queue.send_event(job.id, "")
    with pytest.raises(InvalidOptionType, match="the name of an event"):
        await queue.send_event(job.id, 5)  # type: ignore[arg-type]
    with pytest.raises(UnserializableData, match="the payload of the event 'paid'"):
        await queue.send_event(job.id, "paid", object())
    with pytest.raises(PayloadTooLarge, match="the event 'paid'"):
        await queue.send_event(job.id, "paid", "x" * 2**20)


async def test_many_events_and_many_waits_all_meet(queue: Queue) -> None:
    """Each event races with its job's way into the wait."""

    async def work(job: Job) -> Any:
        return await job.wait_event("number", "10s")

    async with Worker(queue, work, concurrency=8):
        jobs = await queue.add_bulk([{"name": "a"} for _ in range(60)])
        await asyncio.gather(*(queue.send_event(job.id, "number", n) for n, job in enumerate(jobs)))
        assert [await job.result(timeout="10s") for job in jobs] == list(range(60))
