"""`queuectl doctor` and `queuectl verify`: what needs help, and whether the books are right."""

from __future__ import annotations

import os
import socket
import sqlite3
from pathlib import Path

from bullite import Queue, Worker
from bullite.cli.worker_groups import GROUPS
from bullite.client.key_values import set_value
from bullite.client.runtime.blocking import run_blocking
from bullite.processes.group_lock import entry_of_this_process
from tests.support.databases import Database
from tests.support.helpers import until

from .concurrent_runs import have_run
from .program import run, run_well


async def kinds(location: str) -> list[str]:
    """What the doctor finds; it must end accordingly."""
    said = run("doctor", "--json", db=location)
    told = said.json
    assert told["ok"] is not bool(told["findings"])
    assert said.code == (0 if told["ok"] else 1)
    return [found["kind"] for found in told["findings"]]


async def test_nothing_needs_help(queue: Queue, location: str) -> None:
    await have_run(queue, "completed")
    said = run_well("doctor", db=location)
    assert said.out == "ok: nothing needs help\n"
    assert said.err.startswith("database: ")


async def test_jobs_that_wait_without_a_worker_need_one(queue: Queue, location: str) -> None:
    await queue.add("a")
    said = run("doctor", db=location)
    assert said.code == 1
    assert said.lines == [
        "emails: 1 job waits, and no worker serves it: start one with "
        "`queuectl worker start --queue emails`"
    ]


async def test_jobs_that_are_due_need_a_worker(
    queue: Queue, location: str, database: Database
) -> None:
    await queue.add_bulk([{"name": "a", "opts": {"delay": "1h"}}] * 3)
    assert await kinds(location) == []
    database.write(
        "update bullite_jobs set due_at = 1000 where id < (select max(id) from bullite_jobs)"
    )
    [line] = run("doctor", db=location).lines
    assert line.startswith("emails: 2 jobs wait, and no worker serves it: ")


async def test_jobs_of_a_worker_that_is_lost_need_another(
    queue: Queue, location: str, database: Database
) -> None:
    await queue.add("a")
    worker = Worker(queue, None, skip_stalled_check=True)
    assert await worker.get_next_job() is not None
    assert await kinds(location) == []

    async def needs_another() -> bool:
        database.write("update bullite_workers set started_at = 1, seen_at = 1")
        return await kinds(location) == ["no-worker", "lost-worker"]

    await until(needs_another)
    await worker.close(force=True)


async def test_where_a_group_runs_already_a_worker_is_started_in_another(
    queue: Queue, location: str
) -> None:
    await queue.add("a")
    await set_value(queue.store, GROUPS, "default", entry_of_this_process("default"))
    [line] = run("doctor", db=location).lines
    assert line.endswith("start one with `queuectl worker start --queue emails --group NAME`")


async def test_a_group_that_is_lost_needs_help(queue: Queue, location: str) -> None:
    await queue.wait_until_ready()
    await set_value(queue.store, GROUPS, "main", {**entry_of_this_process("main"), "began": 1})
    assert await kinds(location) == ["lost-group"]
    where = f"pid {os.getpid()} on {socket.gethostname()}"
    assert run("doctor", db=location).lines == [
        f"group main: its supervisor ({where}) is gone without a word: start it again with "
        "`queuectl worker start --group main`, or forget it with `queuectl worker stop "
        "--group main`"
    ]


async def test_a_paused_queue_with_jobs_needs_help(queue: Queue, location: str) -> None:
    await queue.pause()
    assert await kinds(location) == []
    await queue.add_bulk([{"name": "a"}, {"name": "a", "opts": {"priority": 1}}])
    async with Worker(queue, lambda job: None):
        await until(queue.get_workers_count)
        said = run("doctor", db=location)
    assert said.code == 1
    assert said.lines == [
        "emails: it is paused, and 2 jobs wait: let it go on with `queuectl resume emails`"
    ]


async def test_jobs_that_wait_for_what_failed_need_help(queue: Queue, location: str) -> None:
    [bad] = await have_run(queue, "dead")
    await queue.add("a", depends_on=[bad.id])
    assert await kinds(location) == ["stuck"]
    assert "which failed (it is broken): retry that" in run("doctor", db=location).out


async def test_workers_that_are_not_heard_of_need_help(
    queue: Queue, location: str, database: Database
) -> None:
    async def is_lost() -> bool:
        # Again and again: a worker that has just begun renews its lease once more.
        database.write("update bullite_workers set started_at = 1, seen_at = 1")
        return await kinds(location) == ["lost-worker"]

    async with Worker(queue, lambda job: None, name="mine"):
        await until(queue.get_workers_count)
        await until(is_lost)
        database.write("update bullite_workers set started_at = 1, seen_at = 1")
        said = run("doctor", db=location)
    assert "emails: worker mine (pid " in said.out
    assert len(said.lines) == 1


async def test_json_tells_what_was_looked_at(queue: Queue, location: str) -> None:
    await queue.get_job_counts()
    told = run_well("doctor", "--json", db=location).json
    is_file = "://" not in location
    assert told["durability"] == "full"
    assert told["database"] == str(queue.store.location)
    assert told["store"] == ("sqlite" if is_file else "postgresql")
    assert told["sqlite_version"] == (sqlite3.sqlite_version if is_file else None)


async def test_full_durability_is_told(queue: Queue, location: str) -> None:
    await queue.wait_until_ready()
    said = run_well("doctor", db=location)
    assert "durability is full: what is acknowledged is on the disk" in said.err


def test_relaxed_durability_is_told(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    queue = Queue("emails", str(path))
    run_blocking(queue.wait_until_ready())
    said = run_well("doctor", db=f"sqlite:///{path}?durability=relaxed")
    queue.store.close()
    assert "durability is relaxed" in said.err


async def test_books_that_are_right(queue: Queue, location: str) -> None:
    await queue.add("a")
    said = run_well("verify", db=location)
    assert said.out.startswith("ok: ")
    assert said.out.endswith(" checks\n")
    told = run_well("verify", "--json", db=location).json
    assert told["ok"] is True
    assert told["problems"] == []
    assert said.out == f"ok: {told['checks']} checks\n"


async def test_books_that_are_wrong(queue: Queue, location: str, database: Database) -> None:
    job = await queue.add("a")
    database.write(f"update bullite_payloads set job = -1 where job = {job.pk}")

    said = run("verify", db=location)
    told = run("verify", "--json", db=location)
    database.write(f"update bullite_payloads set job = {job.pk} where job = -1")
    assert (said.code, told.code) == (1, 1)
    assert said.lines == told.json["problems"]
    assert f"job {job.pk}" in said.out
