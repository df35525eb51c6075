"""What becomes of the jobs of a process that is suddenly gone."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import Any

from bullite import Job, Queue, Worker
from bullite.core.decide_outcome import STALLED_TOO_OFTEN
from tests.crash.handlers import process, work
from tests.support.processes import (
    add,
    events,
    finished,
    hang,
    problems,
    registered,
    rows,
    say,
    states,
    wait_until,
)

SECOND = 1000


def test_a_job_whose_worker_is_killed_is_soon_completed_by_another(database, location, start):
    [job] = add(location, "hold")
    killed_worker = start(work, location, **database.short_lease)
    killed_worker.said(f"start {job}")
    second_worker = start(work, location, **database.short_lease)
    wait_until(lambda: registered(location, second_worker))

    killed_at = killed_worker.kill()

    wait_until(lambda: finished(location, job))
    [(_, completed_at)] = events(location, "complete")
    assert completed_at - killed_at < database.recovery_time
    [(_, stalled_at)] = events(location, "stall")
    assert stalled_at <= completed_at
    assert rows(location, "select stalled_count, attempts_made from bullite_jobs") == [(1, 1)]
    assert problems(location) == ()


def test_sigterm_by_default_ends_a_worker_like_any_program_and_its_job_comes_back(
    database, location, start
):
    [job] = add(location, "hold")
    killed_worker = start(work, location, **database.short_lease)
    killed_worker.said(f"start {job}")
    second_worker = start(work, location, **database.short_lease)
    wait_until(lambda: registered(location, second_worker))

    killed_worker.signal(signal.SIGTERM)
    asked_at = time.time() * 1000
    assert killed_worker.ended() == -signal.SIGTERM

    wait_until(lambda: finished(location, job))
    [(_, completed_at)] = events(location, "complete")
    assert completed_at - asked_at < database.recovery_time


def test_when_all_workers_are_dead_the_next_one_to_start_soon_recovers(database, location, start):
    jobs = add(location, *["hold"] * 6)
    killed_workers = [
        start(work, location, concurrency=3, **database.short_lease) for _ in range(2)
    ]
    wait_until(lambda: list(states(location).values()) == ["active"] * 6)
    for killed_worker in killed_workers:
        killed_worker.kill()

    second_worker = start(work, location, concurrency=6, **database.short_lease)

    wait_until(lambda: all(finished(location, job) for job in jobs))
    [(came_at,)] = rows(
        location, "select started_at from bullite_workers where pid = ?", second_worker.pid
    )
    assert max(at for _, at in events(location, "complete")) - came_at < database.recovery_time
    assert problems(location) == ()


# --- killed at a chosen moment -------------------------------------------------------------------


async def dies_in_a_transaction(location: str) -> None:
    """Writes a job, and stops right before the commit."""
    queue = Queue("work", location)
    await queue.wait_until_ready()

    driver = queue.store.open().driver

    def never_commit() -> None:
        assert driver.execute("counts", {"queue": queue._pk}).rows[0][0] == 2
        say("about to commit")
        hang()

    driver.commit = never_commit
    await queue.add("second")


def test_of_a_transaction_that_was_not_committed_nothing_is_there(location, start):
    [first] = add(location, "first")
    killed_worker = start(dies_in_a_transaction, location)
    killed_worker.said("about to commit")

    killed_at = killed_worker.kill()

    assert states(location) == {first: "waiting"}
    [third] = add(location, "third")
    assert time.time() * 1000 - killed_at < SECOND
    assert states(location) == {first: "waiting", third: "waiting"}
    assert problems(location) == ()


async def works_but_does_not_tell(location: str, **settings: Any) -> None:
    """Runs a job, and writes nothing any more once it ran."""
    queue = Queue("work", location)
    await queue.wait_until_ready()
    driver, ran = queue.store.open().driver, []
    begin = driver.begin

    def begin_before_it_ran(*args: Any, **kwargs: Any) -> None:
        if ran:
            say("verdict kept back")
            hang()
        begin(*args, **kwargs)

    async def run(job: Job) -> int:
        ran.append(job)
        return await process(job)

    driver.begin = begin_before_it_ran
    await Worker(queue, run, **settings).run()


def test_a_job_that_ran_but_was_not_recorded_runs_again_and_is_recorded_once(
    database, location, start
):
    [job] = add(location, "quick")
    killed_worker = start(works_but_does_not_tell, location, **database.short_lease)
    killed_worker.said(f"start {job}")
    killed_worker.said("verdict kept back")
    killed_worker.kill()

    second_worker = start(work, location, **database.short_lease)

    second_worker.said(f"start {job}")
    wait_until(lambda: finished(location, job))
    assert [number for number, _ in events(location, "complete")] == [job]
    assert rows(location, "select return_value from bullite_results") == [("2",)]
    assert rows(location, "select attempts_made from bullite_jobs") == [(1,)]


# --- not dead at all -----------------------------------------------------------------------------


def test_a_handler_that_blocks_the_loop_for_longer_than_its_lease_runs_once(location, start):
    [job] = add(location, "block the loop", data=1.2)
    busy = start(work, location, lock_duration=200)
    busy.said(f"start {job}")
    start(work, location, lock_duration=200)

    wait_until(lambda: finished(location, job))

    assert rows(location, "select state, attempts_started from bullite_jobs") == [("completed", 1)]
    assert events(location, "stall") == []


# --- too often -----------------------------------------------------------------------------------


def test_a_job_that_kills_its_process_fails_after_the_limit_and_the_others_are_done(
    database, location, start
):
    [poison] = add(location, "abort")
    others = add(location, *["quick"] * 20)
    ends = []
    while not finished(location, poison):
        worker = start(work, location, **database.short_lease)
        wait_until(lambda w=worker: w.has_ended() or finished(location, poison))
        if worker.has_ended():
            ends.append(worker.ended())

    wait_until(lambda: all(finished(location, job) for job in others))
    assert ends == [-signal.SIGABRT] * 2
    assert states(location) == {poison: "failed"} | dict.fromkeys(others, "completed")
    assert rows(location, "select stalled_count from bullite_jobs where id = ?", poison) == [(2,)]
    assert rows(location, "select failed_reason from bullite_results where job = ?", poison) == [
        (STALLED_TOO_OFTEN,)
    ]


# --- processes that end without a word -----------------------------------------------------------


async def adds_and_leaves(location: str, how: str) -> None:
    """Has 500 jobs accepted, waits for none of them, and ends."""
    queue = Queue("work", location)
    await queue.wait_until_ready()
    adding = [asyncio.ensure_future(queue.add("quick", number)) for number in range(500)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in adding)
    if how == "sys.exit":
        sys.exit(3)


def test_a_process_that_falls_off_its_end_has_written_every_job_it_accepted(location, start):
    assert start(adds_and_leaves, location, "by the end").ended() == 0

    assert list(states(location).values()) == ["waiting"] * 500
    assert problems(location) == ()


def test_a_process_that_leaves_with_sys_exit_has_written_every_job_it_accepted(location, start):
    assert start(adds_and_leaves, location, "sys.exit").ended() == 3

    assert list(states(location).values()) == ["waiting"] * 500
    assert problems(location) == ()


async def leaves_without_closing(location: str, **settings: Any) -> None:
    """Starts a worker, completes a job with it, and ends while another one runs."""
    worker = Worker(Queue("work", location), process, concurrency=2, **settings)
    running = asyncio.ensure_future(worker.run())
    await asyncio.to_thread(
        wait_until, lambda: sorted(states(location).values()) == ["active", "completed"]
    )
    running.cancel()


def test_the_running_job_of_a_process_that_ended_without_close_is_run_by_another(
    database, location, start
):
    [quick, held] = add(location, "quick", "hold")
    leaver = start(leaves_without_closing, location, **database.short_lease)
    assert leaver.ended() == 0
    assert states(location)[quick] == "completed"

    second_worker = start(work, location, **database.short_lease)

    second_worker.said(f"start {held}")
    wait_until(lambda: finished(location, held))
    assert problems(location) == ()
