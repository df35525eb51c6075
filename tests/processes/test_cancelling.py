"""A job is cancelled by one process and stopped in another."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

import pytest

from bullite import Job, Queue, Signal, Worker
from bullite.database.postgres.driver import PostgresDriver
from bullite.database.sqlite.driver import SQLiteDriver
from tests.support.processes import (
    Child,
    add,
    finished,
    problems,
    registered,
    rows,
    say,
    states,
    wait_until,
)

AT_ONCE = 100
"""Ms that it takes, usually, when the worker is told."""
SOON = 1_000
"""Ms within which a run is stopped."""
AT_LAST = 1_500
"""The same, when nobody is told and all have to look for themselves."""


async def work(location: str, **settings: Any) -> None:
    """Work until killed; say what happens to each run, and when."""
    await Worker(Queue("work", location), {"hold": hold, "block": block}, **settings).run()


async def hold(job: Job) -> str:
    say("start", job.pk)
    if job.data == "quick":
        return "done"
    try:
        await asyncio.Event().wait()
    finally:
        say("stopped", job.pk, time.time() * 1000)
    return "never"


def block(job: Job, token: str, signal: Signal) -> None:
    say("start", job.pk)
    signal.wait_in_thread(60)
    say("stopped", job.pk, time.time() * 1000)
    raise RuntimeError(signal.reason)


def cancel(location: str, *jobs: int) -> float:
    """Cancel jobs that run; when that was done, in ms since the epoch."""

    async def cancelling() -> list[bool]:
        async with Queue("work", location) as queue:
            return [await queue.cancel(str(job), "not wanted") for job in jobs]

    assert asyncio.run(cancelling()) == [False] * len(jobs)
    return time.time() * 1000


def stopped_at(worker: Child, job: int) -> float:
    what, number, at = worker.line().split()
    assert (what, number) == ("stopped", str(job))
    return float(at)


def running(location: str, worker: Child, name: str = "hold", **options: Any) -> int:
    """A job that the worker has begun."""
    [job] = add(location, name, **options)
    worker.said(f"start {job}")
    return job


def ends(location: str) -> list[tuple[Any, ...]]:
    return rows(location, "select job, outcome, failed_reason from bullite_results order by job")


@pytest.mark.parametrize("name", ["hold", "block"])
def test_a_run_in_another_process_is_stopped_at_once(location, start, name):
    worker = start(work, location)
    job = running(location, worker, name, attempts=3)

    cancelled_at = cancel(location, job)

    assert stopped_at(worker, job) - cancelled_at < SOON
    wait_until(lambda: finished(location, job))
    assert states(location) == {job: "failed"}
    assert ends(location) == [(job, "cancelled", "not wanted")]
    assert rows(location, "select attempts_started from bullite_jobs") == [(1,)]
    assert problems(location) == ()


def test_nobody_waits_until_a_worker_looks_for_itself(location, start):
    worker = start(work, location)
    took = []
    for _ in range(7):
        job = running(location, worker)
        cancelled_at = cancel(location, job)
        took.append(stopped_at(worker, job) - cancelled_at)

    assert statistics.median(took) < AT_ONCE


def test_its_worker_takes_the_next_job(location, start):
    worker = start(work, location, concurrency=1)
    job = running(location, worker)
    [following] = add(location, "hold", data="quick")

    cancel(location, job)

    stopped_at(worker, job)
    worker.said(f"start {following}")
    wait_until(lambda: finished(location, following))
    assert states(location) == {job: "failed", following: "completed"}


def test_only_the_worker_that_runs_the_job_stops_it(location, start):
    workers = [start(work, location) for _ in range(2)]
    jobs = []
    for worker in workers:
        wait_until(lambda w=worker: registered(location, w))
    jobs = add(location, "hold", "hold")
    by_job = {int(worker.line().split()[1]): worker for worker in workers}
    assert sorted(by_job) == jobs

    cancel(location, jobs[0])

    stopped_at(by_job[jobs[0]], jobs[0])
    wait_until(lambda: finished(location, jobs[0]))
    assert states(location) == {jobs[0]: "failed", jobs[1]: "active"}


def test_jobs_that_are_cancelled_one_after_the_other_are_all_stopped(location, start):
    worker = start(work, location, concurrency=20)
    jobs = [running(location, worker) for _ in range(20)]

    cancelled_at = cancel(location, *jobs)

    stopped = [worker.line().split() for _ in jobs]
    assert sorted(int(job) for _, job, _ in stopped) == jobs
    assert max(float(at) for _, _, at in stopped) - cancelled_at < SOON
    wait_until(lambda: set(states(location).values()) == {"failed"})
    assert problems(location) == ()


def test_a_run_is_stopped_when_every_alert_is_lost(location, start, monkeypatch):
    for driver in (SQLiteDriver, PostgresDriver):
        monkeypatch.setattr(driver, "queue_cancel_notification", lambda self, queue, nonce: None)
    worker = start(work, location)
    job = running(location, worker)

    cancelled_at = cancel(location, job)

    assert stopped_at(worker, job) - cancelled_at < AT_LAST
    wait_until(lambda: finished(location, job))
    assert ends(location) == [(job, "cancelled", "not wanted")]


def test_so_it_is_by_a_worker_that_does_nobody_else_s_chores(location, start, monkeypatch):
    for driver in (SQLiteDriver, PostgresDriver):
        monkeypatch.setattr(driver, "queue_cancel_notification", lambda self, queue, nonce: None)
    worker = start(work, location, skip_stalled_check=True, skip_lock_renewal=True)
    job = running(location, worker)

    cancelled_at = cancel(location, job)

    assert stopped_at(worker, job) - cancelled_at < AT_LAST


def test_a_job_that_is_cancelled_before_its_worker_comes_never_begins(location, start):
    [job] = add(location, "hold")

    async def cancelling() -> bool:
        async with Queue("work", location) as queue:
            return await queue.cancel(str(job), "not wanted")

    assert asyncio.run(cancelling()) is True
    worker = start(work, location)
    following = running(location, worker, data="quick")
    wait_until(lambda: finished(location, following))
    assert states(location) == {job: "failed", following: "completed"}
