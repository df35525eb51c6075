"""Coroutines run on the loop, by consumers that outlive their jobs."""

from __future__ import annotations

import asyncio
from typing import Any

from bullite import Job
from bullite.processors import ANY, Handler
from bullite.runner import LoopRunner

from .test_runners import job


class Master:
    """Hears how runs end."""

    def __init__(self) -> None:
        self.ended_jobs: list[int] = []

    def returned(self, job: Job, value: Any) -> None:
        self.ended_jobs.append(job.pk)


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

        runner = LoopRunner({ANY: Handler(work, in_loop=True)}, 1, master)  # type: ignore[arg-type]
        runner.take([job(1)])
        await asyncio.wait_for(done.wait(), 10)
        runner.stop(interrupt=True)

    second = job(2)
    asyncio.run(run())

    assert master.ended_jobs == [1, 2]
