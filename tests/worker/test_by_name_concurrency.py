"""Processors by name, each with its own number of jobs at a time, and numbers that change."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from bullite import Job, Queue, Signal, Worker
from bullite.errors import BulliteError, InvalidOption
from tests.support.helpers import case, python, state_of, until


class Gauge:
    """How many jobs of each name run, and how many did at most."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.go_on = asyncio.Event()

    async def hold(self, job: Job) -> str:
        self._begin(job.name)
        await self.go_on.wait()
        self.running[job.name] -= 1
        return job.name

    async def pass_by(self, job: Job) -> str:
        self._begin(job.name)
        await asyncio.sleep(0.002)
        self.running[job.name] -= 1
        return job.name

    def _begin(self, name: str) -> None:
        self.running[name] += 1
        self.most[name] = max(self.most[name], self.running[name])


async def some(queue: Queue, name: str, count: int) -> list[Job]:
    return await queue.add_bulk([{"name": name, "data": number} for number in range(count)])


async def all_done(jobs: list[Job]) -> None:
    await asyncio.gather(*(job.result(timeout="15s") for job in jobs))


async def echo(job: Job) -> Any:
    return job.data


# --- by name -------------------------------------------------------------------------------------


async def test_each_name_has_a_concurrency_of_its_own(queue: Queue) -> None:
    gauge = Gauge()
    async with Worker(queue, {"a": (gauge.hold, 3), "b": (gauge.hold, 1)}):
        jobs = await some(queue, "a", 6) + await some(queue, "b", 6)
        await until(lambda: gauge.running == {"a": 3, "b": 1})
        await asyncio.sleep(0.05)
        assert gauge.running == {"a": 3, "b": 1}
        gauge.go_on.set()
        await all_done(jobs)
    assert gauge.most == {"a": 3, "b": 1}


async def test_names_without_a_number_share_the_workers(queue: Queue) -> None:
    gauge = Gauge()
    processors: Any = {"a": gauge.hold, "b": gauge.hold, "c": (gauge.hold, 4)}
    async with Worker(queue, processors, concurrency=2):
        jobs = [job for name in "abc" for job in await some(queue, name, 5)]
        await until(lambda: sum(gauge.running.values()) == 6)
        await asyncio.sleep(0.05)
        assert gauge.running["a"] + gauge.running["b"] == 2
        assert gauge.running["c"] == 4
        gauge.go_on.set()
        await all_done(jobs)


async def test_never_more_of_a_name_run_than_its_number(queue: Queue) -> None:
    gauge = Gauge()
    async with Worker(queue, {"a": (gauge.pass_by, 2), "b": (gauge.pass_by, 5)}):
        await all_done(await some(queue, "a", 60) + await some(queue, "b", 60))
    assert gauge.most == {"a": 2, "b": 5}


async def test_a_slow_name_does_not_keep_another_waiting(queue: Queue) -> None:
    gauge = Gauge()
    async with Worker(queue, {"slow": (gauge.hold, 1), "quick": (echo, 1)}):
        slow = await some(queue, "slow", 5)
        await all_done(await some(queue, "quick", 5))
        gauge.go_on.set()
        await all_done(slow)


async def test_other_names_are_left_to_others(queue: Queue) -> None:
    other = await queue.add("other")
    async with Worker(queue, {"a": (echo, 2)}):
        await all_done(await some(queue, "a", 5))
        assert await state_of(queue, other) == "waiting"


async def test_threads_and_coroutines_may_have_their_own_numbers(queue: Queue) -> None:
    gauge, together = Gauge(), threading.Barrier(2, timeout=10)

    def thread(job: Job) -> None:
        together.wait()

    async with Worker(queue, {"loop": (gauge.pass_by, 1), "thread": (thread, 2)}):
        await all_done(await some(queue, "thread", 4) + await some(queue, "loop", 20))
    assert gauge.most == {"loop": 1}


async def test_a_worker_by_name_is_one_worker(queue: Queue) -> None:
    async with Worker(queue, {"a": (echo, 2), "b": echo}, concurrency=3, name="w1") as worker:
        await worker.wait_until_ready()
        await until(lambda: has_concurrency(queue, 5))
        [info] = await queue.get_workers()
        assert (info.name, set(info.names or ())) == ("w1", {"a", "b"})
        assert await queue.get_workers_count() == 1
    assert await queue.get_workers() == []


async def has_concurrency(queue: Queue, number: int) -> bool:
    return [info.concurrency for info in await queue.get_workers()] == [number]


# --- named one by one ----------------------------------------------------------------------------


async def test_processors_may_be_named_one_by_one(queue: Queue) -> None:
    worker = Worker(queue, autorun=False)

    @worker.process("double")
    async def double(job: Job) -> int:
        return 2 * job.data

    @worker.process("negate")
    def negate(job: Job) -> int:
        return -job.data

    assert await double(await queue.add("x", 4)) == 8  # still the function it was
    async with worker:
        first, second = await queue.add("double", 4), await queue.add("negate", 4)
        assert await first.result(timeout="10s") == 8
        assert await second.result(timeout="10s") == -4


async def test_a_worker_begins_with_its_first_processor(queue: Queue) -> None:
    async with Worker(queue) as worker:
        worker.process("a", echo)
        assert await (await queue.add("a", 1)).result(timeout="10s") == 1


async def test_a_processor_may_be_named_while_the_worker_works(queue: Queue) -> None:
    async with Worker(queue, {"a": echo}) as worker:
        assert await (await queue.add("a", 1)).result(timeout="10s") == 1
        waits = await queue.add("b", 2)

        @worker.process("b")
        async def late(job: Job) -> int:
            return job.data + 1

        assert await waits.result(timeout="10s") == 3
        assert await (await queue.add("a", 1)).result(timeout="10s") == 1
        [info] = await queue.get_workers()
        assert set(info.names or ()) == {"a", "b"}


@pytest.mark.parametrize("early", [True, False])
async def test_a_processor_named_one_by_one_may_have_a_number_of_its_own(
    queue: Queue, early: bool
) -> None:
    gauge = Gauge()
    worker = Worker(queue, {"a": echo}, autorun=False)
    if early:
        worker.process("b", gauge.hold, concurrency=3)
    async with worker:
        await (await queue.add("a")).result(timeout="10s")
        if not early:
            worker.process("b", gauge.hold, concurrency=3)
        jobs = await some(queue, "b", 6)
        await until(lambda: gauge.running["b"] == 3)
        await asyncio.sleep(0.05)
        assert gauge.running["b"] == 3
        gauge.go_on.set()
        await all_done(jobs)


async def test_a_name_is_given_once(queue: Queue) -> None:
    worker = Worker(queue, {"a": echo}, autorun=False)
    with pytest.raises(InvalidOption, match="'a'"):
        worker.process("a", echo)
    await worker.close()


async def test_a_worker_for_all_names_takes_no_names(queue: Queue) -> None:
    worker = Worker(queue, echo, autorun=False)
    with pytest.raises(InvalidOption, match="all names"):
        worker.process("a", echo)
    await worker.close()


async def test_a_bad_number_is_refused(queue: Queue) -> None:
    for bad in [0, -1, 1.5, "2", True, 10**9]:
        with case(bad):
            with pytest.raises(BulliteError, match="concurrency"):
                Worker(queue, echo, autorun=False, concurrency=bad)
            with pytest.raises(BulliteError, match="concurrency"):
                Worker(queue, {"a": (echo, bad)}, autorun=False)
            with pytest.raises(BulliteError, match="concurrency"):
                Worker(queue, autorun=False).process("a", echo, concurrency=bad)


async def test_a_bad_processor_of_a_name_is_refused(queue: Queue) -> None:
    for bad in [(echo,), (echo, 1, 2), (), (1, echo), 5, None]:
        with case(bad), pytest.raises(BulliteError, match="'a'"):
            Worker(queue, {"a": bad}, autorun=False)


async def test_a_bad_name_is_refused(queue: Queue) -> None:
    for bad in ["", "a\x00b", 5, None, "x" * 256]:
        with case(bad):
            with pytest.raises(BulliteError, match="name"):
                Worker(queue, {bad: echo}, autorun=False)
            with pytest.raises(BulliteError, match="name"):
                Worker(queue, autorun=False).process(bad, echo)


# --- changing the number -------------------------------------------------------------------------


async def test_more_jobs_run_once_the_number_is_raised(queue: Queue) -> None:
    gauge = Gauge()
    async with Worker(queue, gauge.hold) as worker:
        jobs = await some(queue, "a", 8)
        await until(lambda: gauge.running["a"] == 1)
        worker.concurrency = 4
        await until(lambda: gauge.running["a"] == 4)
        await asyncio.sleep(0.05)
        assert gauge.running["a"] == 4
        assert worker.concurrency == 4
        gauge.go_on.set()
        await all_done(jobs)


async def test_more_threads_run_once_the_number_is_raised(queue: Queue) -> None:
    together = threading.Barrier(3, timeout=10)
    started = threading.Event()

    def work(job: Job) -> None:
        started.set()
        together.wait()

    async with Worker(queue, work) as worker:
        jobs = await some(queue, "a", 3)
        await until(started.is_set)
        worker.concurrency = 3
        await all_done(jobs)


async def test_fewer_jobs_run_once_the_number_is_lowered(queue: Queue) -> None:
    gauge = Gauge()
    async with Worker(queue, gauge.pass_by, concurrency=6) as worker:
        first = await some(queue, "a", 60)
        await until(lambda: gauge.most["a"] == 6)
        worker.concurrency = 2
        await all_done(first)
        gauge.most.clear()
        await all_done(await some(queue, "a", 60))
    assert gauge.most["a"] <= 2


async def test_fewer_threads_run_once_the_number_is_lowered(queue: Queue) -> None:
    lock, running, most = threading.Lock(), 0, 0

    def work(job: Job) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.002)
        with lock:
            running -= 1

    async with Worker(queue, work, concurrency=6) as worker:
        await all_done(await some(queue, "a", 60))
        worker.concurrency = 2
        most = 0
        await all_done(await some(queue, "a", 60))
        assert most <= 2
        worker.concurrency = 5
        most = 0
        await all_done(await some(queue, "a", 60))
        assert 2 < most <= 5


async def test_the_number_goes_up_and_down_and_nothing_is_lost(queue: Queue) -> None:
    gauge = Gauge()
    async with Worker(queue, gauge.pass_by) as worker:
        jobs = await some(queue, "a", 400)
        for number in (5, 1, 9, 2, 30, 1):
            worker.concurrency = number
            await asyncio.sleep(0.02)
        worker.concurrency = 10
        await all_done(jobs)
    assert await queue.get_completed_count() == 400


async def test_numbers_of_names_stay_when_the_workers_changes(queue: Queue) -> None:
    gauge = Gauge()
    async with Worker(queue, {"own": (gauge.hold, 1), "shared": gauge.hold}) as worker:
        jobs = await some(queue, "own", 4) + await some(queue, "shared", 4)
        worker.concurrency = 3
        await until(lambda: gauge.running == {"own": 1, "shared": 3})
        await asyncio.sleep(0.05)
        assert gauge.running == {"own": 1, "shared": 3}
        gauge.go_on.set()
        await all_done(jobs)


async def test_others_see_the_number_that_holds_now(queue: Queue) -> None:
    async with Worker(queue, echo) as worker:
        await until(lambda: has_concurrency(queue, 1))
        worker.concurrency = 7
        await until(lambda: has_concurrency(queue, 7), limit=5)


async def test_a_number_may_be_changed_before_the_worker_begins(queue: Queue) -> None:
    gauge = Gauge()
    worker = Worker(queue, gauge.hold, autorun=False)
    worker.concurrency = 3
    async with worker:
        jobs = await some(queue, "a", 5)
        await until(lambda: gauge.running["a"] == 3)
        gauge.go_on.set()
        await all_done(jobs)


async def test_a_bad_new_number_is_refused_and_the_old_stays(queue: Queue) -> None:
    for bad in [0, -1, 1.5, "2", True, None]:
        with case(bad):
            async with Worker(queue, echo, concurrency=2) as worker:
                with pytest.raises(BulliteError, match="concurrency"):
                    worker.concurrency = bad
                assert worker.concurrency == 2
                assert await (await queue.add("a", 1)).result(timeout="10s") == 1


# --- what a processor takes ----------------------------------------------------------------------


async def test_a_processor_may_take_the_token(queue: Queue) -> None:
    async def work(job: Job, token: str) -> bool:
        return token == job.token

    def thread(job: Job, token: str) -> bool:
        return token == job.token

    async with Worker(queue, {"loop": work, "thread": thread}):
        for name in ("loop", "thread"):
            assert await (await queue.add(name)).result(timeout="10s") is True


async def test_a_processor_may_take_the_signal(queue: Queue) -> None:
    async def work(job: Job, token: str, signal: Signal) -> bool:
        return isinstance(signal, Signal) and not signal.aborted

    def thread(job: Job, token: str, signal: Signal) -> bool:
        return isinstance(signal, Signal) and not signal.aborted

    async with Worker(queue, {"loop": work, "thread": thread}):
        for name in ("loop", "thread"):
            assert await (await queue.add(name)).result(timeout="10s") is True


async def test_every_run_has_a_token_of_its_own(queue: Queue) -> None:
    tokens: list[str] = []

    async def work(job: Job, token: str) -> None:
        tokens.append(token)
        if len(tokens) == 1:
            raise ValueError("again")

    async with Worker(queue, work):
        await (await queue.add("a", attempts=2)).result(timeout="10s")
    assert len(set(tokens)) == 2


def takes_none() -> None: ...


def takes_four(job: Job, token: str, signal: Signal, more: int) -> None: ...


def takes_keywords(*, job: Job) -> None: ...


async def test_a_processor_that_takes_something_else_is_refused(queue: Queue) -> None:
    for processor in [takes_none, takes_four, takes_keywords]:
        with case(processor), pytest.raises(BulliteError, match=r"\(job, token, signal\)"):
            Worker(queue, processor, autorun=False)


async def test_defaults_and_stars_are_left_alone(queue: Queue) -> None:
    async def with_default(job: Job, colour: str = "red") -> str:
        return colour

    async def with_star(job: Job, *more: Any) -> int:
        return len(more)

    async with Worker(queue, {"default": with_default, "star": with_star}):
        assert await (await queue.add("default")).result(timeout="10s") == "red"
        assert await (await queue.add("star")).result(timeout="10s") == 0


async def test_workers_of_other_processes_are_seen(queue: Queue, location: str) -> None:
    program = """
import asyncio, sys
from bullite import Queue

async def main():
    async with Queue("emails", sys.argv[1]) as queue:
        for info in await queue.get_workers():
            print(info.name, info.concurrency, info.active, info.names, info.pid)

asyncio.run(main())
"""
    gauge = Gauge()
    async with Worker(queue, gauge.hold, concurrency=2, name="w1") as worker:
        await worker.wait_until_ready()
        jobs = await some(queue, "a", 1)
        await until(lambda: gauge.running["a"] == 1)
        told = (await asyncio.to_thread(python, program, location)).split()
        assert told[:4] == ["w1", "2", "1", "None"]
        gauge.go_on.set()
        await all_done(jobs)
