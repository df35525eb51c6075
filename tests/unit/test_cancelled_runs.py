"""Runners that are told to give up jobs, or to end their runs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from bullite import Job
from bullite.core.decide_outcome import Raised, Result, Returned
from bullite.errors import JobCancelled
from bullite.worker.loop_runner import LoopRunner
from bullite.worker.prefetch import PrefetchBuffer
from bullite.worker.processors import ANY, make_handler
from bullite.worker.thread_runner import ThreadRunner
from tests.support.helpers import until
from tests.support.job_rows import active_job
from tests.support.processes import wait_until

from .test_prefetch import worker_of

PATIENCE = 10.0


class Master:
    """Notes how runs ended."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, Result | None]] = []
        self.ended_one = threading.Semaphore(0)

    def check_soon(self) -> None: ...

    def returned(self, job: Job, value: Any) -> None:
        self.ended(job, Returned(value))

    def ended(self, job: Job, result: Result | None) -> None:
        self.ends.append((job.pk, result))
        self.ended_one.release()

    def ended_in_thread(self, job: Job, result: Result, is_urgent: bool) -> None:
        self.ended(job, result)

    def retry_delay(self, job: Job, error: BaseException) -> None:
        return None

    def call_later(self, seconds: float, call: Any) -> Any:
        return lambda: None


def taken_out(line: PrefetchBuffer, *numbers: int) -> list[int]:
    return [job.pk for job in line.remove(set(numbers))]


def test_remove_leaves_the_other_jobs_in_order() -> None:
    line = PrefetchBuffer()
    line.put([active_job(1), active_job(2), active_job(3), active_job(4)])
    assert taken_out(line, 2, 4, 9) == [2, 4]
    assert [job.pk for job in line.clear()] == [1, 3]


def test_no_thread_falls_asleep_while_jobs_are_removed_from_its_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The line is empty for a moment: a thread that looked just then would find nothing."""
    master, go_on, emptied = Master(), threading.Event(), threading.Event()

    def work(job: Job) -> None:
        if job.pk == 1:
            emptied.wait(PATIENCE)

    def take_out(line: PrefetchBuffer, numbers: Any) -> list[Job]:
        jobs = line.clear()
        emptied.set()
        go_on.wait(0.1)  # in which the thread would have gone to sleep
        line.put([job for job in jobs if job.pk not in numbers])
        return [job for job in jobs if job.pk in numbers]

    monkeypatch.setattr(PrefetchBuffer, "remove", take_out)
    runner = ThreadRunner({ANY: make_handler("work", work)}, 1, worker_of(master), master)
    runner.take([active_job(1), active_job(2), active_job(3)])
    wait_until(runner.running)
    assert [job.pk for job in runner.remove({2})] == [2]
    assert master.ended_one.acquire(timeout=PATIENCE)
    assert master.ended_one.acquire(timeout=PATIENCE)
    assert master.ends == [(1, Returned(None)), (3, Returned(None))]
    runner.stop(interrupt=False)


def test_a_run_that_is_cancelled_twice_is_cancelled_once() -> None:
    told = 0

    async def main() -> None:
        master, begun, go_on = Master(), asyncio.Event(), asyncio.Event()

        async def work(job: Job) -> str:
            nonlocal told
            begun.set()
            while not go_on.is_set():
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    told += 1
            return "at last"

        runner = LoopRunner({ANY: make_handler("work", work)}, 1, worker_of(master), master)
        one = active_job(1)
        runner.take([one])
        await begun.wait()
        one._run.cancellation = JobCancelled("not wanted")
        for _ in range(3):
            runner.cancel(one)
            await asyncio.sleep(0)
        go_on.set()
        await until(lambda: runner.busy() == 0)
        assert master.ends == [(1, Returned("at last"))]
        runner.take([active_job(2)])
        await until(lambda: len(master.ends) == 2)
        assert not any(consumer.cancelling() for consumer in runner._consumers)
        runner.stop(interrupt=False)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    assert told == 1


def test_a_cancelled_run_ends_as_cancelled_and_the_next_starts() -> None:
    async def main() -> None:
        master, begun = Master(), asyncio.Event()

        async def work(job: Job) -> str:
            if job.pk == 1:
                begun.set()
                await asyncio.Event().wait()
            return "done"

        runner = LoopRunner({ANY: make_handler("work", work)}, 1, worker_of(master), master)
        one = active_job(1)
        runner.take([one, active_job(2)])
        await begun.wait()
        one._run.cancellation = JobCancelled("not wanted")
        runner.cancel(one)
        await until(lambda: runner.busy() == 0)
        [(_, first), (_, second)] = master.ends
        assert isinstance(first, Raised)
        assert isinstance(first.error, asyncio.CancelledError)
        assert second == Returned("done")
        assert not any(consumer.cancelling() for consumer in runner._consumers)
        runner.stop(interrupt=False)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
