"""Functions that still run in their threads when their workers have been closed."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bullite import Bullite, Job, Queue, Worker
from bullite.sync import Worker as SyncWorker
from tests.crash.handlers import work
from tests.support.databases import Database
from tests.support.processes import (
    Child,
    add,
    events,
    finished,
    problems,
    registered,
    rows,
    say,
    wait_until,
)

LEASE = 1_000

EXITS = {"its end": 0, "sys.exit": 3, "os._exit": 4, "kill -9": -9}
TOLD = ("its end", "sys.exit")
"""The exits of which a server hears."""


def leave(how: str) -> None:
    match how:
        case "sys.exit":
            sys.exit(3)
        case "os._exit":
            os._exit(4)
        case "kill -9":
            threading.Event().wait()


class Stubborn:
    """Runs until a file is there, whatever it is told."""

    def __init__(self, gate: str) -> None:
        self._gate = Path(gate)
        self.started = threading.Event()

    def __call__(self, job: Job) -> str:
        say("start", job.pk)
        self.started.set()
        while not self._gate.exists():
            time.sleep(0.01)
        return "at last"


async def closes_its_worker(location: str, gate: str, how: str) -> None:
    stubborn = Stubborn(gate)
    queue = Queue("work", location)
    worker = Worker(queue, stubborn, lock_duration=LEASE)
    await asyncio.to_thread(stubborn.started.wait)
    await worker.close(timeout=50)
    await queue.close()
    say("closed")
    leave(how)


async def stops_its_application(location: str, gate: str, how: str) -> None:
    stubborn = Stubborn(gate)
    app = Bullite(location, stop_timeout=0.05)
    app.process("work", "hold", stubborn)
    await app.start()
    await asyncio.to_thread(stubborn.started.wait)
    await app.stop()
    say("closed")
    leave(how)


def closes_without_a_loop(location: str, gate: str, how: str) -> None:
    stubborn = Stubborn(gate)
    worker = SyncWorker("work", stubborn, store=location, lock_duration=LEASE)
    worker.start()
    stubborn.started.wait()
    worker.close(timeout=50)
    say("closed")
    leave(how)


async def closes_nothing(location: str, gate: str, how: str) -> None:
    stubborn = Stubborn(gate)
    worker = Worker(Queue("work", location), stubborn, lock_duration=LEASE)
    await asyncio.to_thread(stubborn.started.wait)
    assert worker.is_running
    say("closed")
    leave(how)


def assert_unharmed(location: str, job: int, runs: int) -> None:
    """It has completed, and its earlier runs have cost it nothing."""
    assert rows(
        location,
        "select state, stalled_count, attempts_made, attempts_started from bullite_jobs"
        " where id = ?",
        job,
    ) == [("completed", 0, 1, runs)]
    assert events(location, "stall") == []
    assert problems(location) == ()


def end(leaver: Child, how: str) -> float:
    """Its end, in ms since the epoch."""
    leaver.said("closed")
    if how == "kill -9":
        return leaver.kill()
    assert leaver.ended() == EXITS[how]
    return time.time() * 1000


@pytest.mark.parametrize("how", EXITS)
def test_a_function_that_outlasts_two_shutdowns_completes_in_the_third_process(
    location: str, start: Callable[..., Child], tmp_path: Path, how: str
) -> None:
    [job] = add(location, "hold")
    for _ in range(2):
        leaver = start(closes_its_worker, location, tmp_path / "gate", how)
        leaver.said(f"start {job}")
        end(leaver, how)

    start(work, location)

    wait_until(lambda: finished(location, job))
    assert_unharmed(location, job, runs=3)


@pytest.mark.parametrize(
    "program",
    [closes_its_worker, stops_its_application, closes_without_a_loop, closes_nothing],
    ids=lambda program: program.__name__,
)
@pytest.mark.parametrize("how", TOLD)
def test_the_job_of_a_closed_worker_is_back_within_a_second_of_the_end_of_its_process(
    database: Database,
    location: str,
    start: Callable[..., Child],
    tmp_path: Path,
    program: Callable[..., Any],
    how: str,
) -> None:
    [job] = add(location, "hold")
    leaver = start(program, location, tmp_path / "gate", how)
    leaver.said(f"start {job}")
    second_worker = start(work, location)
    wait_until(lambda: registered(location, second_worker))

    ended_at = end(leaver, how)

    second_worker.said(f"start {job}")
    wait_until(lambda: finished(location, job))
    [(_, released_at)] = [event for event in events(location, "release") if event[0] == job]
    assert released_at - ended_at < database.recovery_time
    assert_unharmed(location, job, runs=2)


async def lives_on(location: str, gate: str) -> None:
    """Closes worker and store, and lives on."""
    await closes_its_worker(location, gate, "its end")
    threading.Event().wait()


def test_a_function_that_outlasts_its_worker_is_run_by_nobody_else_while_its_process_lives(
    location: str, start: Callable[..., Child], tmp_path: Path
) -> None:
    [job] = add(location, "hold")
    gate = tmp_path / "gate"
    leaver = start(lives_on, location, gate)
    leaver.said("closed")
    second_worker = start(work, location, stalled_interval=50)
    wait_until(lambda: registered(location, second_worker))

    [(lease,)] = rows(location, "select lease_until from bullite_workers where pid = ?", leaver.pid)
    wait_until(lambda: lease_of(location, leaver) >= lease + 2 * LEASE)
    assert rows(location, "select state, attempts_started from bullite_jobs") == [("active", 1)]

    gate.touch()
    wait_until(lambda: finished(location, job))
    assert rows(location, "select return_value from bullite_results") == [('"at last"',)]
    assert_unharmed(location, job, runs=1)
    wait_until(lambda: not registered(location, leaver))


def lease_of(location: str, child: Child) -> int:
    found = rows(location, "select lease_until from bullite_workers where pid = ?", child.pid)
    assert found, "its worker is off the register, although it runs a job"
    return int(found[0][0])


async def crashes(location: str, gate: str) -> None:
    stubborn = Stubborn(gate)
    worker = Worker(Queue("work", location), stubborn, lock_duration=LEASE)
    await asyncio.to_thread(stubborn.started.wait)
    assert worker.is_running
    os._exit(4)


def test_the_job_of_a_process_that_was_not_told_to_stop_has_stalled(
    database: Database, location: str, start: Callable[..., Child], tmp_path: Path
) -> None:
    [job] = add(location, "hold")
    assert start(crashes, location, tmp_path / "gate").ended() == 4

    start(work, location, **database.short_lease)

    wait_until(lambda: finished(location, job))
    assert rows(location, "select stalled_count from bullite_jobs") == [(1,)]
