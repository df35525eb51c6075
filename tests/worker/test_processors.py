"""What may be a processor, and under which conditions it runs."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import time
from typing import Any

import pytest

from bullite import Job, JobFailed, Queue, Worker
from bullite.errors import InvalidOption, InvalidOptionType
from tests.support.helpers import case, fresh, until


async def in_loop(job: Job) -> Any:
    return ["loop", job.data]


def in_thread(job: Job) -> Any:
    return ["thread", job.data]


class AsyncCallable:
    async def __call__(self, job: Job) -> Any:
        return await in_loop(job)

    async def method(self, job: Job) -> Any:
        return await in_loop(job)


class PlainCallable:
    def __call__(self, job: Job) -> Any:
        return in_thread(job)


async def with_extra(extra: object, job: Job) -> Any:
    return await in_loop(job)


def plain_with_extra(extra: object, job: Job) -> Any:
    return in_thread(job)


async def test_anything_that_can_be_called_is_a_processor(queue: Queue) -> None:
    for kind, processor, where in [
        ("coroutine function", in_loop, "loop"),
        ("function", in_thread, "thread"),
        ("async callable object", AsyncCallable(), "loop"),
        ("async method", AsyncCallable().method, "loop"),
        ("callable object", PlainCallable(), "thread"),
        ("partial coroutine function", functools.partial(with_extra, 1), "loop"),
        ("partial function", functools.partial(plain_with_extra, 1), "thread"),
        ("partial async callable", functools.partial(AsyncCallable()), "loop"),
        ("lambda", lambda job: in_thread(job), "thread"),
    ]:
        with case(kind):
            queue = fresh(queue)
            async with Worker(queue, processor):
                assert await (await queue.add("a", 7)).result() == [where, 7]


async def test_a_coroutine_runs_on_the_workers_loop(queue: Queue) -> None:
    seen = []

    async def work(job: Job) -> None:
        seen.append((asyncio.get_running_loop(), threading.current_thread()))

    async with Worker(queue, work):
        await (await queue.add("a")).result()
    assert seen == [(asyncio.get_running_loop(), threading.current_thread())]


async def test_a_function_runs_in_a_thread_without_a_loop(queue: Queue) -> None:
    def work(job: Job) -> bool:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return threading.current_thread() is threading.main_thread()

    async with Worker(queue, work):
        assert await (await queue.add("a")).result() is False


async def test_a_function_that_blocks_does_not_block_the_loop(queue: Queue) -> None:
    released = threading.Event()

    def work(job: Job) -> bool:
        return released.wait(10)

    async with Worker(queue, work):
        job = await queue.add("a")
        released.set()  # the loop is free to get here
        assert await job.result() is True


async def test_a_function_that_returns_a_coroutine_fails_with_the_fix(queue: Queue) -> None:
    def work(job: Job) -> Any:
        return in_loop(job)

    async with Worker(queue, work):
        with pytest.raises(JobFailed, match="returned an awaitable: make it an async def"):
            await (await queue.add("a")).result()


# --- by name -------------------------------------------------------------------------------------


async def test_a_mapping_sends_each_name_to_its_processor(queue: Queue) -> None:
    async with Worker(queue, {"here": in_loop, "there": in_thread}, concurrency=4):
        jobs = await queue.add_bulk(
            {"name": name, "data": n} for n in range(20) for name in ("here", "there")
        )
        results = [await job.result() for job in jobs]
    assert results == [[where, n] for n in range(20) for where in ("loop", "thread")]


@pytest.mark.parametrize("processor", [in_loop, in_thread])
async def test_only_the_names_of_the_mapping_are_taken(queue: Queue, processor: Any) -> None:
    ignored = await queue.add_bulk([{"name": "other"}] * 5)
    async with Worker(queue, {"mine": processor}, concurrency=10):
        await (await queue.add("mine")).result()
        assert await queue.get_job_counts("waiting", "active") == {
            "waiting": len(ignored),
            "active": 0,
        }


async def test_workers_by_name_and_for_all_names_share_a_queue(queue: Queue) -> None:
    async with Worker(queue, {"mine": in_loop}), Worker(queue, in_thread):
        jobs = await queue.add_bulk({"name": name} for name in ("mine", "other") * 10)
        results = [(await job.result())[0] for job in jobs]
    assert set(results[1::2]) == {"thread"}


async def test_what_cannot_be_called_is_refused(queue: Queue) -> None:
    for processor, problem in [
        ("work", "processor must be a function or a mapping of names to functions, not 'work'"),
        ({"a": "work"}, "the processor of 'a' must be callable, not 'work'"),
        ({1: in_loop}, "a processor's name must be text, not 1"),
    ]:
        with case((processor, problem)), pytest.raises(InvalidOptionType, match=problem):
            Worker(queue, processor)


async def test_an_empty_mapping_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match="processor must name at least one job name"):
        Worker(queue, {})


async def test_a_bad_option_of_a_worker_is_named(queue: Queue) -> None:
    for options, problem in [
        ({"concurrency": 0}, "concurrency must be between 1 and"),
        ({"concurrency": "5"}, "concurrency must be a whole number"),
        ({"lock_duration": 50}, "lock_duration must be between 100 and"),
        ({"lock_renew_time": -1}, "lock_renew_time must be between 0 and"),
        ({"max_stalled_count": -1}, "max_stalled_count must be between 0 and"),
        ({"autorun": "no"}, "autorun must be True or False"),
        ({"name": "a\nb"}, "the worker's name must not contain control characters"),
    ]:
        with case(options), pytest.raises((InvalidOption, InvalidOptionType), match=problem):
            Worker(queue, in_loop, **options)


async def test_a_worker_needs_a_queue() -> None:
    with pytest.raises(InvalidOptionType, match="a worker needs a Queue, or the name of one"):
        Worker(7, in_loop)  # type: ignore[arg-type]


# --- how many at a time --------------------------------------------------------------------------


async def test_concurrency_coroutines_run_at_a_time(queue: Queue) -> None:
    barrier = asyncio.Barrier(100)

    async def meet(job: Job) -> None:
        await barrier.wait()

    async with Worker(queue, meet, concurrency=100):
        for job in await queue.add_bulk([{"name": "a"}] * 200):
            await job.result(timeout="10s")


async def test_concurrency_threads_run_at_a_time(queue: Queue) -> None:
    barrier = threading.Barrier(20, timeout=10)

    def meet(job: Job) -> None:
        barrier.wait()

    async with Worker(queue, meet, concurrency=20):
        for job in await queue.add_bulk([{"name": "a"}] * 40):
            await job.result(timeout="10s")


class Crowd:
    """How many are in at a time, at most."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self.now -= 1


async def test_never_more_coroutines_run_than_concurrency(queue: Queue) -> None:
    crowd = Crowd()

    async def work(job: Job) -> None:
        with crowd:
            await asyncio.sleep(0.001)

    async with Worker(queue, work, concurrency=5):
        for job in await queue.add_bulk([{"name": "a"}] * 200):
            await job.result()
    assert crowd.most == 5


async def test_never_more_threads_run_than_concurrency(queue: Queue) -> None:
    crowd = Crowd()

    def work(job: Job) -> None:
        with crowd:
            time.sleep(0.001)

    async with Worker(queue, work, concurrency=5):
        for job in await queue.add_bulk([{"name": "a"}] * 200):
            await job.result()
    assert crowd.most == 5


async def test_coroutines_and_threads_of_one_worker_share_its_number(queue: Queue) -> None:
    crowd = Crowd()

    async def in_loop(job: Job) -> None:
        with crowd:
            await asyncio.sleep(0.001)

    def in_thread(job: Job) -> None:
        with crowd:
            time.sleep(0.001)

    async with Worker(queue, {"a": in_loop, "b": in_thread}, concurrency=4):
        for job in await queue.add_bulk({"name": "ab"[n % 2]} for n in range(200)):
            await job.result()
    assert crowd.most == 4


@pytest.mark.parametrize("concurrency", [1, 500])
async def test_handlers_that_never_suspend_leave_the_loop_to_others(
    queue: Queue, concurrency: int
) -> None:
    ran = 0
    in_a_row: list[int] = []

    async def watch() -> None:
        while True:
            before = ran
            await asyncio.sleep(0)
            in_a_row.append(ran - before)

    async def hog(job: Job) -> None:
        nonlocal ran
        ran += 1
        ends = time.perf_counter() + 0.001
        while time.perf_counter() < ends:
            pass

    jobs = await queue.add_bulk([{"name": "a"}] * 500)
    watching = asyncio.create_task(watch())
    async with Worker(queue, hog, concurrency=concurrency):
        for job in jobs:
            await job.result()
    watching.cancel()
    assert sum(in_a_row) == 500
    assert max(in_a_row) < 50


async def test_two_workers_share_the_jobs(queue: Queue) -> None:
    barrier = asyncio.Barrier(2)

    async def meet(job: Job) -> str | None:
        await barrier.wait()
        return job.locked_by

    async with Worker(queue, meet, name="one"), Worker(queue, meet, name="two"):
        jobs = await queue.add_bulk([{"name": "a"}] * 10)
        names = [await job.result() for job in jobs]
    assert names.count("one") == names.count("two") == 5


# --- context variables ---------------------------------------------------------------------------

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="untouched")


@pytest.mark.parametrize("concurrency", [1, 7])
async def test_a_coroutine_does_not_see_what_another_job_has_set(
    queue: Queue, concurrency: int
) -> None:
    async def work(job: Job) -> str:
        seen = variable.get()
        variable.set(job.id)
        await asyncio.sleep(0)
        assert variable.get() == job.id
        return seen

    async with Worker(queue, work, concurrency=concurrency):
        jobs = await queue.add_bulk([{"name": "a"}] * 50)
        assert {await job.result() for job in jobs} == {"untouched"}


async def test_a_thread_does_not_see_what_another_job_has_set(queue: Queue) -> None:
    def work(job: Job) -> str:
        seen = variable.get()
        variable.set(job.id)
        return seen

    async with Worker(queue, work):
        jobs = await queue.add_bulk([{"name": "a"}] * 10)
        assert {await job.result() for job in jobs} == {"untouched"}


async def test_coroutines_see_the_context_the_worker_was_started_in(queue: Queue) -> None:
    async def work(job: Job) -> str:
        return variable.get()

    token = variable.set("outer")
    async with Worker(queue, work):
        assert await (await queue.add("a")).result() == "outer"
    variable.reset(token)


async def test_a_job_that_cancels_its_own_task_does_not_hurt_the_next(queue: Queue) -> None:
    async def work(job: Job) -> str:
        if job.name == "suicidal":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        else:
            await asyncio.sleep(0)
        return job.name

    first, second = await queue.add_bulk([{"name": "suicidal"}, {"name": "innocent"}])
    async with Worker(queue, work):
        await until(lambda: is_finished(queue, first))
        assert await second.result() == "innocent"


async def is_finished(queue: Queue, job: Job) -> bool:
    found = await queue.get_job(job.id)
    return found is not None and found.finished_at is not None
