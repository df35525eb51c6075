"""Processes that are killed between the steps of a job, in its sleep, or while they hold a lock."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from bullite import Job, LockNotAcquired, Queue, Store, Worker
from tests.support.processes import (
    add,
    finished,
    hang,
    problems,
    rows,
    say,
    states,
    wait_until,
)


async def charges_then_mails(location: str, **settings: Any) -> None:
    """Hangs behind the first step in its first run; each step says so when it is done."""

    async def work(job: Job) -> str:
        receipt = await job.step("charge", do, "charged", job.attempts_started)
        if job.attempts_started == 1:
            say("between the steps")
            await asyncio.Event().wait()
        await job.step("mail", do, "mailed", job.attempts_started)
        return f"charged in run {receipt}"

    def do(what: str, run: int) -> int:
        say(what, "in run", run)
        return run

    await Worker(Queue("work", location), work, **settings).run()


def test_a_step_that_was_done_before_its_process_was_killed_is_not_done_again(
    database, location, start
):
    [job] = add(location, "order")
    killed_worker = start(charges_then_mails, location, **database.short_lease)
    killed_worker.said("charged in run 1")
    killed_worker.said("between the steps")
    killed_worker.kill()

    second_worker = start(charges_then_mails, location, **database.short_lease)

    second_worker.said("mailed in run 2")
    wait_until(lambda: finished(location, job))
    results = rows(location, "select return_value from bullite_results where job = ?", job)
    assert results == [('"charged in run 1"',)]
    names = rows(location, "select name from bullite_steps where job = ? order by place", job)
    assert names == [("charge",), ("mail",)]
    assert problems(location) == ()


async def kills_itself_inside_a_step(location: str, **settings: Any) -> None:
    async def work(job: Job) -> int:
        def charge() -> int:
            say("charging")
            if job.attempts_started == 1:
                hang()
            return job.attempts_started

        return await job.step("charge", charge)

    await Worker(Queue("work", location), work, **settings).run()


def test_a_step_in_whose_middle_the_process_was_killed_is_done_again(database, location, start):
    [job] = add(location, "order")
    killed_worker = start(kills_itself_inside_a_step, location, **database.short_lease)
    killed_worker.said("charging")
    killed_worker.kill()

    start(kills_itself_inside_a_step, location, **database.short_lease)

    wait_until(lambda: finished(location, job))
    assert rows(location, "select return_value from bullite_results") == [("2",)]


async def sleeps(location: str, ms: int) -> None:
    async def work(job: Job) -> int:
        say("run", job.attempts_started)
        await job.sleep(ms)
        return job.attempts_started

    await Worker(Queue("work", location), work).run()


def test_a_job_that_sleeps_while_its_process_is_killed_sleeps_no_longer_for_it(location, start):
    [job] = add(location, "sleeper")
    killed_worker = start(sleeps, location, 1_500)
    wait_until(lambda: states(location)[job] == "delayed")
    [(due,)] = rows(location, "select due_at from bullite_jobs")
    killed_worker.kill()

    start(sleeps, location, 1_500)

    wait_until(lambda: finished(location, job))
    facts = "select attempts_started, stalled_count, finished_at >= ? from bullite_jobs"
    [(started, stalled, not_early)] = rows(location, facts, due)
    assert (started, stalled, bool(not_early)) == (2, 0, True)
    assert problems(location) == ()


# --- locks ---------------------------------------------------------------------------------------


def holds_a_lock(location: str, ttl: int) -> None:
    with Store(location).lock("invoice", ttl):
        say("it is held")
        hang()


def freed_after(location: str, holder: Any) -> float:
    """Seconds from the death of the holder until somebody else has the lock."""
    store = Store(location)
    try:
        try:
            store.lock("invoice", wait=0).acquire()
        except LockNotAcquired:
            pass
        else:
            raise AssertionError("two hold the lock")
        holder.kill()
        began = time.monotonic()
        with store.lock("invoice", wait="20s") as lock:
            took = time.monotonic() - began
            assert lock.held
    finally:
        store.close()
    return took


def test_the_lock_of_a_killed_process_is_free_when_that_is_known(database, location, start):
    """On one machine the kernel tells of it; from afar, that the lease was not renewed."""
    ttl = 1_500 if database.short_lease else 600_000
    holder = start(holds_a_lock, location, ttl)
    holder.said("it is held")

    assert freed_after(location, holder) < 5
    assert problems(location) == ()


def counts_under_a_lock(location: str, file: str, times: int) -> None:
    store = Store(location)
    for _ in range(times):
        with store.lock("counter"):
            number = int(Path(file).read_text())
            os.sched_yield()
            Path(file).write_text(str(number + 1))
    store.close()


def test_a_lock_is_exclusive_over_processes(location, start, tmp_path):
    file = tmp_path / "counter"
    file.write_text("0")

    children = [start(counts_under_a_lock, location, file, 40) for _ in range(3)]

    assert [child.ended() for child in children] == [0, 0, 0]
    assert file.read_text() == "120"
    assert rows(location, "select name from bullite_locks") == []
