"""Durable steps: done once in the life of a job, whatever happens to its runs."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bullite import (
    DelayedError,
    Job,
    JobFailed,
    JobSuspended,
    LostLock,
    Queue,
    UnrecoverableError,
    Worker,
)
from bullite.core.decide_outcome import MAX_RESULT_LENGTH
from bullite.errors import (
    IllegalMove,
    InvalidOption,
    InvalidOptionType,
    PayloadTooLarge,
    UnserializableData,
)
from tests.support.helpers import again, case, take_away


class Till:
    """Counts what it is asked to do."""

    def __init__(self) -> None:
        self.charged: list[Any] = []

    def charge(self, amount: Any = 1, *, currency: str = "EUR") -> dict[str, Any]:
        self.charged.append(amount)
        return {"receipt": len(self.charged), "amount": amount, "currency": currency}

    async def charge_slowly(self, amount: Any = 1) -> dict[str, Any]:
        await asyncio.sleep(0)
        return self.charge(amount)


async def run(queue: Queue, work: Any, **options: Any) -> Any:
    """What a job comes to that is run like this."""
    async with Worker(queue, work):
        return await (await queue.add("a", **options)).result(timeout="10s")


async def test_a_step_is_done_once_over_all_attempts(queue: Queue) -> None:
    till = Till()

    async def work(job: Job) -> Any:
        receipt = await job.step("charge", till.charge, 5, currency="USD")
        if job.attempts_made < 2:
            raise ValueError("the mail server is down")
        return receipt

    receipt = {"receipt": 1, "amount": 5, "currency": "USD"}
    assert await run(queue, work, attempts=3) == receipt
    assert till.charged == [5]


async def test_a_step_may_be_a_coroutine_function(queue: Queue) -> None:
    till = Till()

    async def work(job: Job) -> Any:
        receipt = await job.step("charge", till.charge_slowly, 5)
        if job.attempts_made == 0:
            raise ValueError("not yet")
        return receipt["amount"]

    assert await run(queue, work, attempts=2) == 5
    assert till.charged == [5]


async def test_a_thread_does_its_steps_by_the_same_words(queue: Queue) -> None:
    till = Till()

    def work(job: Job) -> Any:
        receipt = job.step("charge", till.charge, 5).result()
        awaited = job.step("slowly", till.charge_slowly, 6).result()
        if job.attempts_made == 0:
            raise ValueError("not yet")
        return [receipt["amount"], awaited["amount"]]

    assert await run(queue, work, attempts=2) == [5, 6]
    assert till.charged == [5, 6]


async def test_the_step_of_a_thread_is_run_by_that_thread(queue: Queue) -> None:
    def work(job: Job) -> Any:
        def inside() -> bool:
            # A step may have an event loop of its own.
            return asyncio.run(asyncio.sleep(0, threading.current_thread() is here))

        here = threading.current_thread()
        return job.step("where", inside).result()

    assert await run(queue, work) is True


async def test_after_a_stall_the_stored_result_comes_back(queue: Queue) -> None:
    till = Till()

    async def work(job: Job) -> Any:
        receipt = await job.step("charge", till.charge)
        if job.stalled_count == 0:
            await take_away(queue)
            await asyncio.Event().wait()
        return receipt["receipt"]

    worker = Worker(queue, work, concurrency=2)
    job = await queue.add("a")
    assert await job.result(timeout="10s") == 1
    await worker.close(force=True)
    assert till.charged == [1]


async def test_a_result_of_nothing_is_remembered_too(queue: Queue) -> None:
    calls: list[Any] = []

    async def work(job: Job) -> Any:
        got = await job.step("quiet", lambda: calls.append(job.data) or job.data)
        if job.attempts_made == 0:
            raise ValueError("not yet")
        return [got]

    nothings: list[Any] = [None, 0, "", False, [], {}]
    async with Worker(queue, work):
        for value in nothings:
            with case(value):
                job = await queue.add("a", value, attempts=2)
                assert await job.result(timeout="10s") == [value]
    assert calls == nothings


async def test_a_result_is_the_same_json_in_the_first_run_as_in_the_next(queue: Queue) -> None:
    seen: list[Any] = []

    async def work(job: Job) -> None:
        seen.append(await job.step("pair", lambda: (1, {2: 3})))
        if job.attempts_made == 0:
            raise ValueError("not yet")

    await run(queue, work, attempts=2)
    assert seen == [[1, {"2": 3}]] * 2


async def test_a_step_that_raises_is_not_remembered(queue: Queue) -> None:
    calls: list[int] = []

    def flaky() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("try again")
        return "done"

    async def work(job: Job) -> Any:
        return await job.step("flaky", flaky)

    async with Worker(queue, work):
        job = await queue.add("a", attempts=2)
        assert await job.result(timeout="10s") == "done"
    assert (await again(queue, job)).failed_reason == "try again"
    assert len(calls) == 2


async def test_the_same_name_in_one_run_is_the_same_step(queue: Queue) -> None:
    till = Till()

    async def work(job: Job) -> Any:
        first = await job.step("charge", till.charge, 1)
        second = await job.step("charge", till.charge, 2)
        together = await asyncio.gather(
            job.step("late", till.charge_slowly, 3), job.step("late", till.charge_slowly, 4)
        )
        return [first["amount"], second["amount"], *(each["amount"] for each in together)]

    assert await run(queue, work) == [1, 1, 3, 3]
    assert till.charged == [1, 3]


async def test_steps_may_be_done_at_the_same_time(queue: Queue) -> None:
    both = asyncio.Barrier(2)

    async def meet(name: str) -> str:
        await both.wait()
        return name

    async def work(job: Job) -> Any:
        got = await asyncio.gather(*(job.step(name, meet, name) for name in "ab"))
        if job.attempts_made == 0:
            raise ValueError("not yet")
        return got

    assert await run(queue, work, attempts=2) == ["a", "b"]


async def test_a_step_may_be_made_of_steps(queue: Queue) -> None:
    async def work(job: Job) -> Any:
        async def outer() -> Any:
            return [await job.step("inner", lambda: 1), 2]

        return await job.step("outer", outer)

    assert await run(queue, work) == [1, 2]


@pytest.mark.parametrize("bad", [object(), float("nan"), {"deep": {1j}}])
async def test_a_result_that_json_cannot_hold_fails_the_step(queue: Queue, bad: Any) -> None:
    errors: list[BaseException] = []

    async def work(job: Job) -> None:
        try:
            await job.step("odd", lambda: bad)
        except UnserializableData as error:
            errors.append(error)
        assert await job.get_steps() == []

    await run(queue, work)
    assert "the result of the step 'odd'" in str(errors[0])


async def test_a_result_over_the_size_limit_fails_the_step(queue: Queue) -> None:
    async def work(job: Job) -> None:
        with pytest.raises(PayloadTooLarge, match="the step 'long' takes"):
            await job.step("long", lambda: "x" * MAX_RESULT_LENGTH)
        assert await job.get_steps() == []
        await job.step("just", lambda: "x" * (MAX_RESULT_LENGTH - 2))

    await run(queue, work)


async def test_a_run_that_lost_its_job_records_no_step(queue: Queue) -> None:
    lost: list[BaseException] = []

    async def work(job: Job) -> Any:
        if job.stalled_count == 0:
            await take_away(queue)
            try:
                await job.step("charge", lambda: "first run")
            except LostLock as error:
                lost.append(error)
                raise
        return await job.step("charge", lambda: "second run")

    async with Worker(queue, work, concurrency=2):
        assert await (await queue.add("a")).result(timeout="10s") == "second run"
    assert len(lost) == 1


async def test_steps_mix_with_data_and_with_putting_off(queue: Queue) -> None:
    till = Till()

    async def work(job: Job) -> Any:
        receipt = await job.step("charge", till.charge)
        if "seen" not in job.data:
            await job.update_data({"seen": receipt["receipt"]})
            await job.move_to_delayed(datetime.now(UTC) + timedelta(milliseconds=20))
            raise DelayedError
        return [job.data, await job.step("mail", lambda: "sent")]

    async with Worker(queue, work):
        job = await queue.add("a", {}, attempts=1)
        assert await job.result(timeout="10s") == [{"seen": 1}, "sent"]
    assert till.charged == [1]


async def test_the_steps_of_a_job_can_be_read_in_their_order(queue: Queue) -> None:
    async def work(job: Job) -> None:
        for name in ("z", "a", "m"):
            await job.step(name, lambda n=name: {"of": n})
        await job.sleep(1, name="short")

    async with Worker(queue, work):
        job = await queue.add("a")
        await job.result(timeout="10s")
    steps = await (await again(queue, job)).get_steps()
    assert [(step.kind, step.name) for step in steps] == [
        *(("step", name) for name in "zam"),
        ("sleep", "short"),
    ]
    assert steps[0].value == {"of": "z"}
    assert all(step.ended_at is not None for step in steps)
    assert steps[3].until is not None
    assert steps[3].until - steps[3].started_at == timedelta(milliseconds=1)


async def test_a_retry_by_hand_keeps_steps_unless_attempts_are_reset(queue: Queue) -> None:
    till = Till()

    async def work(job: Job) -> Any:
        receipt = await job.step("charge", till.charge)
        raise UnrecoverableError(str(receipt["receipt"]))

    async with Worker(queue, work):
        job = await queue.add("a")
        for reset in (False, True):
            with pytest.raises(JobFailed, match="1"):
                await job.result(timeout="10s")
            await job.retry(reset_attempts=reset)
        with pytest.raises(JobFailed, match="2"):
            await job.result(timeout="10s")
    assert len(till.charged) == 2


@pytest.mark.parametrize("how", ["remove_on_complete", "obliterate"])
async def test_steps_go_with_their_job(queue: Queue, how: str) -> None:
    async def work(job: Job) -> None:
        await job.step("a", lambda: 1)

    await run(queue, work, remove_on_complete=how == "remove_on_complete")
    if how == "obliterate":
        await queue.obliterate()
    async with Worker(queue, work):
        job = await queue.add("a")
        await job.result(timeout="10s")
    assert len(await job.get_steps()) == 1


async def test_a_step_has_a_name_like_an_id(queue: Queue) -> None:
    async def work(job: Job) -> None:
        for name in ["", "x" * 256, "a\nb"]:
            with case(name), pytest.raises(InvalidOption, match="the name of a step"):
                await job.step(name, lambda: 1)

    await run(queue, work)


async def test_a_step_is_given_a_function(queue: Queue) -> None:
    async def work(job: Job) -> None:
        with pytest.raises(InvalidOptionType, match="the step 'a' must be given a function"):
            await job.step("a", 5)  # type: ignore[call-overload]
        with pytest.raises(InvalidOptionType, match="the name of a step must be text"):
            await job.step(5, print)  # type: ignore[call-overload]

    await run(queue, work)


async def test_there_are_no_steps_outside_of_a_processor(queue: Queue) -> None:
    for verb in ["step", "sleep", "wait_event"]:
        with case(verb):
            arguments: tuple[Any, ...] = {
                "step": ("a", print),
                "sleep": (5,),
                "wait_event": ("a",),
            }[verb]
            job = await queue.add("a")
            with pytest.raises(
                IllegalMove, match=f"job.{verb} works in the processor that runs the job"
            ):
                await getattr(job, verb)(*arguments)
            assert await job.get_steps() == []
            assert await job.get_state() == "waiting"


async def test_a_job_without_steps_asks_the_database_nothing_for_them(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    await queue.wait_until_ready()
    reading = queue.store.open().read_thread

    def listen(statement: str, *rest: Any) -> None:
        read.append(statement)
        original(statement, *rest)

    original = reading.read
    monkeypatch.setattr(reading, "read", listen)

    async def work(job: Job) -> None:
        if job.name == "with":
            await job.step("a", lambda: 1)
            if job.attempts_made == 0:
                raise ValueError("again")
            await job.step("b", lambda: 1)

    async with Worker(queue, work):
        await (await queue.add("without")).result(timeout="10s")
        assert read.count("steps") == 0
        await (await queue.add("with", attempts=2)).result(timeout="10s")
    assert read.count("steps") == 1


async def test_a_job_taken_by_hand_has_steps_too(queue: Queue) -> None:
    await queue.add("a")
    worker = Worker(queue)
    job = await worker.get_next_job()
    assert job is not None
    assert await job.step("a", lambda: 5) == 5
    with pytest.raises(JobSuspended):
        await job.sleep("1h")
    assert job.state == "delayed"
    assert await job.get_state() == "delayed"
    await worker.close()


async def test_one_batch_of_verdicts_may_be_of_jobs_with_steps_and_without(queue: Queue) -> None:
    async def work(job: Job) -> Any:
        return await job.step("double", lambda: 2 * job.data) if job.data % 2 else job.data

    async with Worker(queue, work, concurrency=20):
        jobs = await queue.add_bulk([{"name": "a", "data": n} for n in range(40)])
        results = [await job.result(timeout="10s") for job in jobs]
    assert results == [2 * n if n % 2 else n for n in range(40)]
