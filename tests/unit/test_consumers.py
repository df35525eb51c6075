"""Coroutines run on the loop, by consumers that outlive their jobs."""

from __future__ import annotations

import asyncio
from typing import Any

from bullite import Job
from bullite.errors import JobSuspended
from bullite.worker.control_errors import is_suspension
from bullite.worker.loop_runner import LoopRunner
from bullite.worker.processors import ANY, Handler
from tests.support.job_rows import active_job

from .test_prefetch import worker_of


class Master:
    """Hears how runs end."""

    def __init__(self) -> None:
        self.ended_jobs: list[int] = []

    def returned(self, job: Job, value: Any) -> None:
        self.ended_jobs.append(job.pk)

    def retry_delay(self, job: Job, error: BaseException) -> None:
        return None


def test_a_job_that_comes_while_a_cancelled_consumer_ends_is_run_by_another() -> None:
    master = Master()

    async def run() -> None:
        done = asyncio.Event()

        async def work(job: Job) -> None:
            if job.pk == 1:
                consumer = asyncio.current_task()
                assert consumer is not None
                consumer.cancel()
                # When this is called the consumer has not ended, but will.
                asyncio.get_running_loop().call_soon(runner.take, [second])
            else:
                done.set()

        runner = LoopRunner({ANY: Handler(work, in_loop=True)}, 1, worker_of(master), master)  # type: ignore[arg-type]
        runner.take([active_job(1)])
        await asyncio.wait_for(done.wait(), 10)
        runner.stop(interrupt=True)

    second = active_job(2)
    asyncio.run(run())

    assert master.ended_jobs == [1, 2]


def test_is_suspension_looks_through_a_group_that_is_held_often_once() -> None:
    suspended: BaseException = JobSuspended("sleeps")
    for _ in range(60):
        suspended = BaseExceptionGroup("group", [suspended, suspended])
    assert is_suspension(suspended)
    mixed = BaseExceptionGroup("group", [suspended, BaseExceptionGroup("g", [ValueError()])])
    assert not is_suspension(mixed)


def test_is_suspension_looks_into_groups_however_deep() -> None:
    error: BaseException = ValueError()
    for _ in range(5_000):
        error = BaseExceptionGroup("group", [error])
    assert not is_suspension(error)


def test_a_consumer_whose_loop_is_gone_is_thrown_away() -> None:
    """GeneratorExit is no failure of its job then."""
    master = Master()
    loop = asyncio.new_event_loop()
    started = asyncio.Event()

    async def work(job: Job) -> None:
        started.set()
        await asyncio.Event().wait()

    runner = LoopRunner({ANY: Handler(work, in_loop=True)}, 1, worker_of(master), master)  # type: ignore[arg-type]

    async def begin() -> None:
        runner.take([active_job(1)])
        await started.wait()

    loop.run_until_complete(begin())
    loop.close()
    [consumer] = runner._consumers
    coroutine = consumer.get_coro()
    assert coroutine is not None
    coroutine.close()
    assert (master.ended_jobs, len(runner.running())) == ([], 1)
    consumer._log_destroy_pending = False  # type: ignore[attr-defined]
