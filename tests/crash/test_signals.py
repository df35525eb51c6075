"""Signals that hit a process while it takes, runs and finishes jobs."""

from __future__ import annotations

import asyncio
import collections
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from tests.support.databases import Database
from tests.support.processes import Child, add, events, problems, rows, say, states, wait_until

JOBS = 200


async def in_loop(job: Job) -> str:
    await job.log("begun")
    job.update_progress(50)
    await asyncio.sleep(0.001)
    return "done"


def in_thread(job: Job) -> str:
    job.log("begun").result(timeout=10)
    job.update_progress(50)
    time.sleep(0.001)
    return "done"


PROCESSORS = {"coroutine": in_loop, "thread": in_thread}


async def works(location: str, kind: str, **settings: Any) -> None:
    """Until it is ended. A job that is hit twice is to be run once more all the same."""
    settings |= {"max_stalled_count": 9}
    await Worker(Queue("work", location), PROCESSORS[kind], concurrency=4, **settings).run()


async def works_until_told(location: str, kind: str) -> None:
    """Closes its worker when it gets SIGTERM, as programs should."""
    worker = Worker(Queue("work", location), PROCESSORS[kind], concurrency=4)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: loop.create_task(worker.close()))
    await worker.run()
    await worker.close()
    await worker.queue.close()


def completed(location: str) -> int:
    [(number,)] = rows(location, "select count(*) from bullite_jobs where state = 'completed'")
    return int(number)


def assert_each_was_completed_once(location: str, jobs: list[int]) -> None:
    recorded = collections.Counter(job for job, _ in events(location, "complete"))
    assert recorded == dict.fromkeys(jobs, 1)
    values = rows(location, "select job, return_value from bullite_results order by job")
    assert values == [(job, '"done"') for job in jobs]
    assert problems(location) == ()


@pytest.mark.parametrize("kind", PROCESSORS)
def test_sigterm_amid_claims_and_runs_loses_nothing(
    database: Database, location: str, start: Callable[..., Child], kind: str
) -> None:
    jobs = add(location, *["nap"] * JOBS)
    for enough in (20, 120):
        killed_worker = start(works, location, kind, **database.short_lease)
        wait_until(lambda enough=enough: completed(location) >= enough)
        killed_worker.signal(signal.SIGTERM)
        assert killed_worker.ended() == -signal.SIGTERM
        assert problems(location) == ()

    start(works, location, kind, **database.short_lease)
    wait_until(lambda: completed(location) == JOBS)
    assert_each_was_completed_once(location, jobs)


@pytest.mark.parametrize("kind", PROCESSORS)
def test_a_worker_that_is_closed_on_sigterm_leaves_nothing_begun(
    location: str, start: Callable[..., Child], kind: str
) -> None:
    jobs = add(location, *["nap"] * JOBS)
    leaver = start(works_until_told, location, kind)
    wait_until(lambda: completed(location) >= 20)
    leaver.signal(signal.SIGTERM)
    assert leaver.ended() == 0

    assert rows(location, "select distinct state from bullite_jobs order by 1") == [
        ("completed",),
        ("waiting",),
    ]
    assert rows(location, "select count(*) from bullite_workers") == [(0,)]
    start(works, location, kind)
    wait_until(lambda: completed(location) == JOBS)
    assert_each_was_completed_once(location, jobs)
    # A job that was handed over to begin, and given back instead, has been started twice.
    assert rows(location, "select max(attempts_made), max(stalled_count) from bullite_jobs") == [
        (1, 0)
    ]


async def works_among_signals(location: str, kind: str, over: str) -> None:
    """Has handlers that interrupt system calls, and a timer that rings every few milliseconds."""
    heard = collections.Counter[int]()

    def hear(number: int, frame: object) -> None:
        heard[number] += 1

    for number in (signal.SIGUSR1, signal.SIGALRM):
        signal.signal(number, hear)
        signal.siginterrupt(number, True)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
    say("ready")
    async with Queue("work", location) as queue:
        more = await queue.add_bulk([{"name": "nap"}] * 50)
        async with Worker(queue, PROCESSORS[kind], concurrency=4):
            for job in more:
                await job.result(timeout="20s")
    signal.setitimer(signal.ITIMER_REAL, 0)
    say("heard both", heard[signal.SIGUSR1] > 0 and heard[signal.SIGALRM] > 0)
    # An interpreter that ends has no handlers any more.
    wait_until(Path(over).exists)


@pytest.mark.parametrize("kind", PROCESSORS)
def test_a_storm_of_signals_does_not_disturb_a_worker(
    location: str, start: Callable[..., Child], tmp_path: Path, kind: str
) -> None:
    add(location, *["nap"] * JOBS)
    over = tmp_path / "over"
    worker = start(works_among_signals, location, kind, over)
    worker.said("ready")
    ends = time.monotonic() + 15
    while completed(location) < JOBS + 50 and time.monotonic() < ends:
        for _ in range(50):
            worker.signal(signal.SIGUSR1)
            time.sleep(0.0002)
    over.touch()

    worker.said("heard both True")
    assert worker.ended() == 0
    jobs = list(states(location))
    assert len(jobs) == JOBS + 50
    assert_each_was_completed_once(location, jobs)
    assert rows(location, "select max(attempts_started), max(stalled_count) from bullite_jobs") == [
        (1, 0)
    ]
