"""What is called around every job: before it, after it, and around it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from bullite import Bullite, BulliteError, Job, JobFailed, Queue, Signal, current_job
from bullite.app.middleware import Next
from bullite.errors import InvalidOptionType
from tests.support.helpers import state_of, until

KINDS = pytest.mark.parametrize("in_thread", [False, True], ids=["coroutine", "thread"])
word: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="nothing")


def task_of(app: Bullite, function: Callable[..., Any], in_thread: bool, **options: Any) -> Any:
    """The function as a task that runs in a thread, or on the loop."""
    if in_thread:
        return app.task(name="mine", **options)(function)

    async def in_loop() -> Any:
        return function()

    return app.task(name="mine", **options)(in_loop)


@KINDS
async def test_hooks_are_called_in_the_order_they_were_given(app: Bullite, in_thread: bool) -> None:
    said: list[str] = []

    @app.before
    def plainly(job: Job) -> None:
        said.append(f"before {job.name}")

    @app.around
    async def around(job: Job, call_next: Next) -> Any:
        said.append("in")
        result = await call_next()
        said.append("out")
        return result

    @app.before
    async def awaited(job: Job) -> None:
        await asyncio.sleep(0)
        said.append("before, awaited")

    @app.after
    async def after(job: Job, result: Any, error: Exception | None) -> None:
        said.append(f"after {result} {error}")

    task = task_of(app, lambda: said.append("run") or "done", in_thread)
    async with app:
        assert await (await task.enqueue()).result("10s") == "done"
    assert said == ["before mine", "in", "before, awaited", "run", "after done None", "out"]


@KINDS
async def test_after_a_failure_the_error_is_told(app: Bullite, in_thread: bool) -> None:
    said: list[tuple[Any, str]] = []

    @app.after
    def after(job: Job, result: Any, error: Exception | None) -> None:
        said.append((result, repr(error)))

    task = task_of(app, lambda: 1 // 0, in_thread)
    async with app:
        with pytest.raises(JobFailed, match="division"):
            await (await task.enqueue()).result("10s")
    assert [(result, "ZeroDivisionError" in error) for result, error in said] == [(None, True)]


@KINDS
async def test_a_hook_before_that_fails_keeps_the_task_from_running(
    app: Bullite, in_thread: bool
) -> None:
    ran: list[int] = []

    @app.before
    def refuse(job: Job) -> None:
        raise PermissionError("not now")

    task = task_of(app, lambda: ran.append(1), in_thread)
    async with app:
        with pytest.raises(JobFailed, match="not now"):
            await (await task.enqueue()).result("10s")
    assert ran == []


@KINDS
async def test_a_hook_after_that_fails_fails_the_job(app: Bullite, in_thread: bool) -> None:
    @app.after
    def refuse(job: Job, result: Any, error: Exception | None) -> None:
        raise PermissionError("not so")

    task = task_of(app, lambda: 1, in_thread)
    async with app:
        with pytest.raises(JobFailed, match="not so"):
            await (await task.enqueue()).result("10s")


@KINDS
async def test_what_surrounds_a_job_may_change_its_result(app: Bullite, in_thread: bool) -> None:
    @app.around
    async def negate(job: Job, call_next: Next) -> Any:
        return -await call_next()

    @app.around
    async def catch(job: Job, call_next: Next) -> Any:
        try:
            return await call_next()
        except ZeroDivisionError:
            return 7

    task = task_of(app, lambda: 1 // 0, in_thread)
    async with app:
        assert await (await task.enqueue()).result("10s") == -7


@KINDS
async def test_what_surrounds_a_job_may_do_without_it(app: Bullite, in_thread: bool) -> None:
    ran: list[int] = []

    @app.around
    async def instead(job: Job, call_next: Next) -> Any:
        return "cached"

    task = task_of(app, lambda: ran.append(1), in_thread)
    async with app:
        assert await (await task.enqueue()).result("10s") == "cached"
    assert ran == []


@KINDS
async def test_hooks_and_the_task_share_their_context(app: Bullite, in_thread: bool) -> None:
    @app.around
    async def speak(job: Job, call_next: Next) -> Any:
        assert current_job() is job
        word.set(f"hello {job.id}")
        return await call_next()

    task = task_of(app, lambda: (word.get(), current_job().id), in_thread)
    async with app:
        for job in await task.map([()] * 5):
            assert await job.result("10s") == [f"hello {job.id}", job.id]
    assert word.get() == "nothing"


async def test_plain_hooks_run_in_the_thread_of_a_plain_function(app: Bullite) -> None:
    seen: list[int] = []

    @app.before
    def begin(job: Job) -> None:
        seen.append(threading.get_ident())

    @app.after
    def end(job: Job, result: Any, error: Exception | None) -> None:
        seen.append(threading.get_ident())

    task = app.task(name="mine")(lambda: threading.get_ident())
    async with app:
        where = await (await task.enqueue()).result("10s")
    assert seen == [where, where]
    assert where != threading.get_ident()


async def test_hooks_that_block_do_not_block_the_loop(app: Bullite) -> None:
    seen: dict[str, int] = {}

    @app.before
    def plainly(job: Job) -> None:
        seen["plain"] = threading.get_ident()
        word.set("heard")

    @app.before
    async def awaited(job: Job) -> None:
        seen["coroutine"] = threading.get_ident()

    @app.task(name="mine")
    async def mine() -> str:
        return word.get()

    async with app:
        assert await (await mine.enqueue()).result("10s") == "heard"
    assert seen["coroutine"] == threading.get_ident() != seen["plain"]


def test_what_is_no_hook_is_refused_by_the_name_of_its_kind(app: Bullite) -> None:
    refused: list[tuple[Any, Any, str]] = [
        (app.before, 5, r"before must be a function that takes \(job\), not 5"),
        (app.before, lambda: None, r"before must be a function that takes \(job\)"),
        (app.after, lambda job: None, r"after must .* takes \(job, result, error\)"),
        (app.around, None, r"around must be a function that takes \(job, call_next\)"),
        (app.around, lambda job, call_next: 1, "around must be an `async def`"),
    ]
    for add, hook, problem in refused:
        with pytest.raises(InvalidOptionType, match=problem):
            add(hook)


@KINDS
async def test_a_hook_that_only_looks_plain_fails_the_job_and_says_so(
    app: Bullite, in_thread: bool
) -> None:
    app.before(lambda job: asyncio.sleep(0))
    task = task_of(app, lambda: 1, in_thread)
    async with app:
        with pytest.raises(JobFailed, match="gives something to await: write it as an `async def`"):
            await (await task.enqueue()).result("10s")


async def test_a_coroutine_that_exits_does_not_end_the_program(app: Bullite) -> None:
    @app.task
    async def leave() -> None:
        raise SystemExit(3)

    async with app:
        with pytest.raises(JobFailed, match="SystemExit: 3"):
            await (await leave.enqueue()).result("10s")


async def test_as_many_threads_run_as_the_concurrency_says_whatever_asyncio_has(
    location: str,
) -> None:
    app = Bullite(location, concurrency=40)
    everybody = threading.Barrier(40)

    @app.around
    async def nothing(job: Job, call_next: Next) -> Any:
        return await call_next()

    @app.task
    def meet() -> None:
        everybody.wait(timeout=20)

    async with app:
        for job in await meet.map([()] * 40):
            await job.result("20s")


async def test_processors_and_worker_classes_have_hooks_too(app: Bullite) -> None:
    said: list[str] = []

    @app.before
    def note(job: Job) -> None:
        said.append(f"{job.queue_name} {job.name}")

    class Fetcher:
        queue_name = "fetch"

        def handle(self, payload: Any, job: Job) -> Any:
            return current_job() is job

    def with_all(job: Job, token: str, signal: Signal) -> list[bool]:
        return [token == job.token, isinstance(signal, Signal)]

    app.register(Fetcher)
    app.process("plain", "shout", with_all)
    async with app:
        assert await (await app.add("fetch", "any")).result("10s") is True
        assert await (await app.add("plain", "shout")).result("10s") == [True, True]
    assert said == ["fetch any", "plain shout"]


async def test_a_hook_comes_too_late_when_the_application_runs(app: Bullite) -> None:
    async with app:
        for add in (app.before, app.after, app.around):
            with pytest.raises(BulliteError, match="a hook came too late"):
                add(lambda *given: None)  # type: ignore[operator]


async def test_a_thread_that_takes_too_long_is_waited_for_with_hooks_as_without(
    app: Bullite,
) -> None:
    go, ends = threading.Event(), list[str]()

    @app.around
    async def nothing(job: Job, call_next: Next) -> Any:
        return await call_next()

    @app.task(timeout=20)
    def slow(job: Job) -> None:
        assert job.signal.wait_in_thread(10)
        ends.append(str(job.signal.reason))
        go.wait(10)
        ends.append("ended")

    async with app:
        job = await slow.enqueue()
        await until(lambda: len(ends) == 1)
        assert await state_of(app.queue(), job) == "active"
        go.set()
        with pytest.raises(JobFailed, match="took longer than its timeout"):
            await job.result("10s")
    assert "its timeout of 20 ms" in ends[0]
    assert ends[1:] == ["ended"]


async def test_a_thread_that_is_cancelled_may_complete_with_hooks_as_without(app: Bullite) -> None:
    begun = threading.Event()

    @app.around
    async def nothing(job: Job, call_next: Next) -> Any:
        return await call_next()

    @app.task
    def heed(job: Job, obey: bool) -> str:
        signal = job.signal
        begun.set()
        assert signal.wait_in_thread(10)
        if obey:
            signal.throw_if_aborted()
        return "all the same"

    async def cancelled(queue: Queue, obey: bool) -> Any:
        begun.clear()
        job = await heed.enqueue(obey)
        await until(begun.is_set)
        assert not await queue.cancel(job.id, "not wanted")
        return await job.result("10s")

    async with app:
        assert await cancelled(app.queue(), obey=False) == "all the same"
        with pytest.raises(JobFailed, match="not wanted"):
            await cancelled(app.queue(), obey=True)


async def test_a_thread_that_exits_does_not_end_the_loop(app: Bullite) -> None:
    @app.around
    async def nothing(job: Job, call_next: Next) -> Any:
        return await call_next()

    @app.task
    def leave() -> None:
        raise SystemExit(3)

    @app.task
    def stop_iterating() -> None:
        raise StopIteration

    async with app:
        with pytest.raises(JobFailed, match="SystemExit: 3"):
            await (await leave.enqueue()).result("10s")
        with pytest.raises(JobFailed, match="StopIteration"):
            await (await stop_iterating.enqueue()).result("10s")


@KINDS
async def test_a_job_that_sleeps_is_taken_out_through_hooks(app: Bullite, in_thread: bool) -> None:
    runs: list[int] = []

    @app.around
    async def around(job: Job, call_next: Next) -> Any:
        return await call_next()

    @app.task(name="thread")
    def sleep_in_thread(job: Job) -> str:
        runs.append(1)
        job.sleep(10).result()
        return "rested"

    @app.task(name="loop")
    async def sleep(job: Job) -> str:
        runs.append(1)
        await job.sleep(10)
        return "rested"

    async with app:
        job = await (sleep_in_thread if in_thread else sleep).enqueue()
        assert await job.result("10s") == "rested"
    assert len(runs) == 2
