"""What becomes of the jobs of a process that is suddenly gone."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bullite import Job, Queue, Store, Worker
from bullite.outcome import STALLED_TOO_OFTEN
from bullite.sqlite.driver import SQLiteDriver
from tests.crash.handlers import process, work
from tests.crash.processes import (
    add,
    events,
    hang,
    problems,
    registered,
    rows,
    say,
    states,
    wait_until,
)

SECOND = 1000


def finished(database: Path, job: int) -> bool:
    return states(database)[job] in ("completed", "failed")


def test_a_job_whose_worker_is_killed_is_completed_by_another_within_a_second(database, start):
    [job] = add(database, "hold")
    victim = start(work, database)
    victim.said(f"start {job}")
    heir = start(work, database)
    wait_until(lambda: registered(database, heir))

    killed_at = victim.kill()

    wait_until(lambda: finished(database, job))
    [(_, completed_at)] = events(database, "complete")
    assert completed_at - killed_at < SECOND
    [(_, stalled_at)] = events(database, "stall")
    assert stalled_at <= completed_at
    assert rows(database, "select stalled_count, attempts_made from bullite_jobs") == [(1, 1)]
    assert problems(database) == ()


def test_sigterm_by_default_ends_a_worker_like_any_program_and_its_job_comes_back(database, start):
    [job] = add(database, "hold")
    victim = start(work, database)
    victim.said(f"start {job}")
    heir = start(work, database)
    wait_until(lambda: registered(database, heir))

    victim.signal(signal.SIGTERM)
    asked_at = time.time() * 1000
    assert victim.ended() == -signal.SIGTERM

    wait_until(lambda: finished(database, job))
    [(_, completed_at)] = events(database, "complete")
    assert completed_at - asked_at < SECOND


def test_when_all_workers_are_dead_the_next_one_to_start_recovers_at_once(database, start):
    jobs = add(database, *["hold"] * 6)
    victims = [start(work, database, concurrency=3) for _ in range(2)]
    wait_until(lambda: list(states(database).values()) == ["active"] * 6)
    for victim in victims:
        victim.kill()

    heir = start(work, database, concurrency=6)

    wait_until(lambda: all(finished(database, job) for job in jobs))
    [(came_at,)] = rows(database, "select started_at from bullite_workers where pid = ?", heir.pid)
    assert max(at for _, at in events(database, "complete")) - came_at < SECOND
    assert problems(database) == ()


def test_what_a_killed_worker_left_beside_the_database_is_cleared_away(database, start):
    [job] = add(database, "hold")
    victim = start(work, database)
    victim.said(f"start {job}")
    side_folder = database.with_name("jobs.db.bullite")
    left = {path for path in side_folder.iterdir() if path.name != "gate"}
    assert {path.suffix for path in left} == {".alive", ".sock"}

    victim.kill()
    start(work, database).said(f"start {job}")

    start(work, database)  # every worker tidies up when it starts, and then every ten seconds
    wait_until(lambda: not any(path.exists() for path in left))


# --- killed at a chosen moment -------------------------------------------------------------------


async def dies_in_a_transaction(database: str) -> None:
    """Writes a job, and stops right before the commit."""
    queue = Queue("work", database)
    await queue.wait_until_ready()

    def never_commit(driver: SQLiteDriver, *args: Any) -> None:
        assert driver.execute("counts", {"queue": queue.key}).rows[0][0] == 2
        say("about to commit")
        hang()

    SQLiteDriver.commit = never_commit
    await queue.add("second")


def test_of_a_transaction_that_was_not_committed_nothing_is_there(database, start):
    [first] = add(database, "first")
    victim = start(dies_in_a_transaction, database)
    victim.said("about to commit")

    killed_at = victim.kill()

    assert states(database) == {first: "waiting"}
    [third] = add(database, "third")
    assert time.time() * 1000 - killed_at < SECOND
    assert states(database) == {first: "waiting", third: "waiting"}
    assert problems(database) == ()


async def dies_in_a_checkpoint(database: str) -> None:
    """Moves the log into the database, and stops while it holds the write lock."""
    driver = Store(database).open().driver
    driver._writer.set_trace_callback(stop_before_rollback)
    driver.checkpoint()


def stop_before_rollback(statement: str) -> None:
    if statement == "rollback":
        say("about to let go")
        hang()


def test_after_a_checkpoint_that_was_cut_short_others_write_on_at_once(database, start):
    add(database, *["first"] * 50)
    victim = start(dies_in_a_checkpoint, database)
    victim.said("about to let go")

    killed_at = victim.kill()

    add(database, "second")
    assert time.time() * 1000 - killed_at < SECOND
    assert list(states(database).values()) == ["waiting"] * 51
    assert problems(database) == ()


async def works_but_does_not_tell(database: str) -> None:
    """Runs a job, and writes nothing any more once it ran."""
    begin, ran = SQLiteDriver.begin, []

    def begin_before_it_ran(driver: SQLiteDriver, *args: Any, **kwargs: Any) -> None:
        if ran:
            say("verdict kept back")
            hang()
        begin(driver, *args, **kwargs)

    async def run(job: Job) -> int:
        ran.append(job)
        return await process(job)

    SQLiteDriver.begin = begin_before_it_ran
    await Worker(Queue("work", database), run).run()


def test_a_job_that_ran_but_was_not_recorded_runs_again_and_is_recorded_once(database, start):
    [job] = add(database, "quick")
    victim = start(works_but_does_not_tell, database)
    victim.said(f"start {job}")
    victim.said("verdict kept back")
    victim.kill()

    heir = start(work, database)

    heir.said(f"start {job}")
    wait_until(lambda: finished(database, job))
    assert [number for number, _ in events(database, "complete")] == [job]
    assert rows(database, "select return_value from bullite_results") == [("2",)]
    assert rows(database, "select attempts_made from bullite_jobs") == [(1,)]


# --- not dead at all -----------------------------------------------------------------------------


def test_a_stopped_worker_is_never_taken_for_dead_and_completes_when_it_goes_on(
    database, start, tmp_path
):
    [job] = add(database, "wait for", data=str(tmp_path / "go"))
    frozen = start(work, database, lock_duration=200)
    frozen.said(f"start {job}")
    other = start(work, database, lock_duration=200)
    wait_until(lambda: registered(database, other))

    frozen.signal(signal.SIGSTOP)
    wait_until(lambda: lease(database, other) > lease(database, frozen) + 2 * SECOND)

    assert states(database) == {job: "active"}
    (tmp_path / "go").touch()
    frozen.signal(signal.SIGCONT)
    wait_until(lambda: finished(database, job))
    assert rows(database, "select state, attempts_started, stalled_count from bullite_jobs") == [
        ("completed", 1, 0)
    ]


def lease(database: Path, child) -> int:
    [(until,)] = rows(
        database, "select max(lease_until) from bullite_workers where pid = ?", child.pid
    )
    return until


def test_a_handler_that_blocks_the_loop_for_longer_than_its_lease_runs_once(database, start):
    [job] = add(database, "block the loop", data=1.2)
    busy = start(work, database, lock_duration=200)
    busy.said(f"start {job}")
    start(work, database, lock_duration=200)

    wait_until(lambda: finished(database, job))

    assert rows(database, "select state, attempts_started from bullite_jobs") == [("completed", 1)]
    assert events(database, "stall") == []


def test_a_handler_that_holds_the_interpreter_for_longer_than_its_lease_runs_once(database, start):
    [job] = add(database, "hold the GIL", data=40_000_000)
    busy = start(work, database, lock_duration=100)
    busy.said(f"start {job}")
    start(work, database, lock_duration=100)

    wait_until(lambda: finished(database, job))

    [(took, started)] = rows(
        database, "select finished_at - processed_at, attempts_started from bullite_jobs"
    )
    assert took > 2 * 100
    assert started == 1
    assert events(database, "stall") == []


# --- given up on purpose -------------------------------------------------------------------------


async def is_closed_by_force(database: str, gate: str) -> None:
    """Closes its worker while a thread, which nothing can interrupt, runs a job."""
    logging.basicConfig(stream=sys.stdout, format="%(message)s")

    started = threading.Event()

    def stubborn(job: Job) -> str:
        say("start", job.pk)
        started.set()
        wait_until(lambda: Path(gate).exists())
        return "too late"

    worker = Worker(Queue("work", database), stubborn, lock_duration=1000)
    running = asyncio.ensure_future(worker.run())
    await asyncio.to_thread(started.wait)
    await worker.close(force=True)
    await running
    say("closed")
    await asyncio.Event().wait()


def test_after_a_forced_close_only_the_lease_protects_the_job(database, start, tmp_path):
    [job] = add(database, "stubborn")
    gate = tmp_path / "gate"
    closed = start(is_closed_by_force, database, gate)
    closed.said(f"start {job}")
    closed.said("closed")
    assert rows(database, "select registered from bullite_workers") == [(0,)]

    heir = start(work, database)
    heir.said(f"start {job}")
    wait_until(lambda: finished(database, job))

    gate.touch()
    closed.said(f"job {job} was no longer held when its run ended; nothing was recorded")
    assert [number for number, _ in events(database, "complete")] == [job]
    assert rows(
        database, "select return_value, stalled_count from bullite_results, bullite_jobs"
    ) == [("2", 1)]
    assert problems(database) == ()


def test_a_job_that_kills_its_process_fails_after_the_limit_and_the_others_are_done(
    database, start
):
    [poison] = add(database, "abort")
    others = add(database, *["quick"] * 20)
    ends = []
    while not finished(database, poison):
        worker = start(work, database)
        wait_until(lambda w=worker: w.has_ended() or finished(database, poison))
        if worker.has_ended():
            ends.append(worker.ended())

    wait_until(lambda: all(finished(database, job) for job in others))
    assert ends == [-signal.SIGABRT] * 2
    assert states(database) == {poison: "failed"} | dict.fromkeys(others, "completed")
    assert rows(database, "select stalled_count from bullite_jobs where id = ?", poison) == [(2,)]
    assert rows(database, "select failed_reason from bullite_results where job = ?", poison) == [
        (STALLED_TOO_OFTEN,)
    ]


# --- processes that end without a word -----------------------------------------------------------


async def adds_and_leaves(database: str, how: str) -> None:
    """Has 500 jobs accepted, waits for none of them, and ends."""
    queue = Queue("work", database)
    await queue.wait_until_ready()
    adding = [asyncio.ensure_future(queue.add("quick", number)) for number in range(500)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in adding)
    if how == "sys.exit":
        sys.exit(3)


def test_a_process_that_falls_off_its_end_has_written_every_job_it_accepted(database, start):
    assert start(adds_and_leaves, database, "by the end").ended() == 0

    assert list(states(database).values()) == ["waiting"] * 500
    assert problems(database) == ()


def test_a_process_that_leaves_with_sys_exit_has_written_every_job_it_accepted(database, start):
    assert start(adds_and_leaves, database, "sys.exit").ended() == 3

    assert list(states(database).values()) == ["waiting"] * 500
    assert problems(database) == ()


async def leaves_without_closing(database: str) -> None:
    """Starts a worker, completes a job with it, and ends while another one runs."""
    worker = Worker(Queue("work", database), process, concurrency=2)
    running = asyncio.ensure_future(worker.run())
    await asyncio.to_thread(
        wait_until, lambda: sorted(states(Path(database)).values()) == ["active", "completed"]
    )
    running.cancel()


def test_the_running_job_of_a_process_that_ended_without_close_is_run_by_another(database, start):
    [quick, held] = add(database, "quick", "hold")
    leaver = start(leaves_without_closing, database)
    assert leaver.ended() == 0
    assert states(database)[quick] == "completed"

    heir = start(work, database)

    heir.said(f"start {held}")
    wait_until(lambda: finished(database, held))
    assert problems(database) == ()
