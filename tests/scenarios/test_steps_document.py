"""The steps document's examples, written for this library and run: all that need no children."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from bullite import (
    DelayedError,
    Job,
    JobDelayedError,
    JobFailed,
    LostLock,
    Queue,
    Store,
    Worker,
    verify,
)
from tests.support.helpers import again, state_of, until

Main = Callable[[Queue], Coroutine[Any, Any, None]]

DEFAULTS: dict[str, Any] = {"attempts": 3, "backoff": {"type": "exponential", "delay": 1000}}


def run(tmp_path: Path, main: Main, **options: Any) -> None:
    path = tmp_path / "wiz.db"

    async def running() -> None:
        async with Queue("agents", path, **options) as queue:
            await main(queue)

    asyncio.run(asyncio.wait_for(running(), 30))
    with closing(Store(path)) as store:
        assert verify(store).problems == ()


def now() -> int:
    return time.time_ns() // 1_000_000


# --- 1.1, 1.2: queues with default options, and jobs that have their own -------------------------


def test_a_queue_has_default_options_for_its_jobs(tmp_path: Path) -> None:
    async def main(queue: Queue) -> None:
        job = await queue.add("plan", {"foo": "bar"})
        assert job.attempts == 3
        assert job.opts["backoff"] == {"type": "exponential", "delay": 1000}

    run(tmp_path, main, default_job_options=DEFAULTS)


def test_the_options_of_a_job_beat_those_of_its_queue(tmp_path: Path) -> None:
    async def main(queue: Queue) -> None:
        job = await queue.add("plan", {"foo": "bar"}, attempts=5)
        assert job.attempts == 5
        assert job.opts["backoff"] == {"type": "exponential", "delay": 1000}

    run(tmp_path, main, default_job_options=DEFAULTS)


# --- 1.3, 1.4: processors by queue and name, and the job they are given --------------------------


def test_a_processor_belongs_to_a_queue_and_a_name(tmp_path: Path) -> None:
    ran: list[tuple[str, str]] = []

    async def process(job: Job) -> str:
        ran.append((job.queue_name, job.name))
        return "resultado"

    async def main(queue: Queue) -> None:
        other = Queue("other", queue.store)
        mine = await queue.add("plan", {})
        unserved = await queue.add("unserved", {})
        elsewhere = await other.add("plan", {})
        async with Worker(queue, {"plan": process}, concurrency=1):
            assert await mine.result(timeout="10s") == "resultado"
        assert ran == [("agents", "plan")]
        assert await state_of(queue, unserved) == "waiting"
        assert await state_of(other, elsewhere) == "waiting"

    run(tmp_path, main)


def test_what_a_processor_changes_is_in_the_database(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def main(queue: Queue) -> None:
        async def process(job: Job) -> None:
            assert (job.queue_name, job.name, job.data) == ("agents", "plan", {"foo": "bar"})
            await job.update_data({"foo": "baz"})
            await job.update_progress(50)
            await job.log("half of it")
            stored = await again(queue, job)
            seen.append((stored.data, stored.progress, await stored.get_logs()))

        async with Worker(queue, process):
            await (await queue.add("plan", {"foo": "bar"})).result(timeout="10s")

    run(tmp_path, main)
    [(data, progress, logs)] = seen
    assert (data, progress) == ({"foo": "baz"}, 50)
    assert [entry["message"] for entry in logs["logs"]] == ["half of it"]


# --- 1.5: steps in the job's data ----------------------------------------------------------------


class Step(StrEnum):
    INITIAL = "initial"
    SECOND = "second"
    FINISH = "finish"


@pytest.mark.parametrize("in_thread", [False, True], ids=["coroutine", "thread"])
def test_a_job_goes_through_its_steps_and_a_retry_goes_on_where_it_was(
    tmp_path: Path, in_thread: bool
) -> None:
    done: list[str] = []

    def do(job: Job, step: str) -> None:
        done.append(step)
        if step == Step.SECOND and job.attempts_made == 0:
            raise ConnectionError("not now")

    async def process(job: Job) -> str:
        step = job.data["step"]
        while step != Step.FINISH:
            do(job, step)
            step = Step.SECOND if step == Step.INITIAL else Step.FINISH
            await job.update_data({"step": step})
        return step

    def process_in_thread(job: Job) -> str:
        step = job.data["step"]
        while step != Step.FINISH:
            do(job, step)
            step = Step.SECOND if step == Step.INITIAL else Step.FINISH
            job.update_data({"step": step}).result()
        return str(step)

    async def main(queue: Queue) -> None:
        async with Worker(queue, process_in_thread if in_thread else process):
            job = await queue.add("plan", {"step": Step.INITIAL}, attempts=3, backoff=10)
            assert await job.result(timeout="10s") == Step.FINISH
        assert done == [Step.INITIAL, Step.SECOND, Step.SECOND]
        assert (await again(queue, job)).data == {"step": Step.FINISH}

    run(tmp_path, main)


def test_the_same_with_steps_that_the_library_remembers(tmp_path: Path) -> None:
    done: list[str] = []

    async def process(job: Job) -> list[str]:
        first = await job.step(Step.INITIAL, lambda: done.append("initial") or "planned")
        if job.attempts_made == 0:
            raise ConnectionError("not now")
        return [first, await job.step(Step.SECOND, lambda: done.append("second") or "built")]

    async def main(queue: Queue) -> None:
        async with Worker(queue, process):
            job = await queue.add("plan", {}, attempts=3)
            assert await job.result(timeout="10s") == ["planned", "built"]

    run(tmp_path, main)
    assert done == ["initial", "second"]


# --- 1.6: a job that puts itself off -------------------------------------------------------------


def test_a_job_puts_itself_off_and_says_so_with_an_error(tmp_path: Path) -> None:
    async def main(queue: Queue) -> None:
        began: list[float] = []

        async def process(job: Job, token: str) -> str:
            began.append(time.monotonic())
            if job.data["step"] == Step.INITIAL:
                await job.update_data({"step": Step.SECOND})
                await job.move_to_delayed(now() + 200, token)
                raise JobDelayedError
            return job.data["step"]

        async with Worker(queue, process):
            job = await queue.add("plan", {"step": Step.INITIAL}, attempts=1)
            assert await job.result(timeout="10s") == Step.SECOND
        assert began[1] - began[0] > 0.19
        done = await again(queue, job)
        assert (done.attempts_made, done.attempts_started, done.failed_reason) == (1, 2, None)

    run(tmp_path, main)


def test_the_documents_name_of_the_error_is_an_alias() -> None:
    assert JobDelayedError is DelayedError


def test_an_error_of_that_name_from_elsewhere_says_the_same(tmp_path: Path) -> None:
    class Foreign(Exception):
        pass

    Foreign.__name__ = "DelayedError"

    async def process(job: Job) -> str:
        if job.attempts_started == 1:
            await job.move_to_delayed(now() + 20)
            raise Foreign
        return "later"

    async def main(queue: Queue) -> None:
        errors: list[Any] = []
        async with Worker(queue, process) as worker:
            worker.on("error", errors.append)
            assert await (await queue.add("plan")).result(timeout="10s") == "later"
        assert errors == []

    run(tmp_path, main)


def test_such_an_error_without_the_move_is_named_as_the_mistake_it_is(tmp_path: Path) -> None:
    async def process(job: Job) -> None:
        raise JobDelayedError

    async def main(queue: Queue) -> None:
        async with Worker(queue, process):
            with pytest.raises(JobFailed, match=r"without job\.move_to_delayed"):
                await (await queue.add("plan")).result(timeout="10s")

    run(tmp_path, main)


def test_only_the_run_that_holds_a_job_can_put_it_off(tmp_path: Path) -> None:
    async def process(job: Job, token: str) -> str:
        with pytest.raises(LostLock):
            await job.move_to_delayed(now() + 1000, token + "0")
        return "still mine"

    async def main(queue: Queue) -> None:
        async with Worker(queue, process):
            assert await (await queue.add("plan")).result(timeout="10s") == "still mine"

    run(tmp_path, main)


# --- 1.8: the life of a job ----------------------------------------------------------------------


def test_the_states_of_the_document_are_those_a_job_goes_through(tmp_path: Path) -> None:
    async def main(queue: Queue) -> None:
        gate = asyncio.Event()

        async def process(job: Job) -> None:
            await gate.wait()
            if job.name == "fails":
                raise ValueError("no")

        good, bad = await queue.add("works"), await queue.add("fails")
        delayed = await queue.add("later", delay="1h")
        assert await state_of(queue, good) == "waiting"
        assert await state_of(queue, delayed) == "delayed"
        async with Worker(queue, process, concurrency=2):
            await until(lambda: good.is_active())
            gate.set()
            await good.result(timeout="10s")
            with pytest.raises(JobFailed):
                await bad.result(timeout="10s")
        assert await state_of(queue, good) == "completed"
        assert await state_of(queue, bad) == "failed"
        assert await queue.get_jobs(["waiting_children"]) == []

    run(tmp_path, main)
