"""`queuectl status`: queues in queuectl's words, and workers."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from bullite.cli.worker_groups import GROUPS
from bullite.client.key_values import set_value
from bullite.processes.group_lock import entry_of_this_process
from tests.support.databases import Database
from tests.support.helpers import until

from .concurrent_runs import have_run
from .program import run, run_well

NONE = dict.fromkeys(
    ("pending", "processing", "completed", "failed", "dead", "cancelled", "expired"), 0
)


async def a_bit_of_everything(queue: Queue) -> None:
    await have_run(queue, "completed", "completed", "failed", "dead")
    for _ in range(2):
        await queue.add("shell", {"command": "later"}, delay="1h")
    await queue.cancel((await queue.add("a", delay="1h")).id)
    late = await queue.add("a", expires=1, delay="1h")
    async with Worker(queue, lambda job: None):
        await until(lambda: _has_failed(queue, late))


async def _has_failed(queue: Queue, job: Job) -> bool:
    return await queue.get_job_state(job.id) == "failed"


async def test_jobs_are_counted_in_queuectls_words(queue: Queue, location: str) -> None:
    await a_bit_of_everything(queue)
    [told] = run_well("status", "--json", db=location).json["queues"]
    assert told == {
        "name": "emails",
        "paused": False,
        "pending": 2,
        "processing": 0,
        "completed": 2,
        "failed": 1,
        "dead": 1,
        "cancelled": 1,
        "expired": 1,
    }


async def test_a_program_reads_a_line_for_each_queue(queue: Queue, location: str) -> None:
    await queue.add("a")
    other = Queue("other", queue.store)
    await other.add("a")
    await other.pause()
    said = run_well("status", db=location)
    assert said.lines[:2] == [
        "emails\trunning\t1\t0\t0\t0\t0\t0\t0",
        "other\tpaused\t1\t0\t0\t0\t0\t0\t0",
    ]
    assert said.lines[2] == "Workers: 0 processes (0 busy, 0 lost)"


async def test_people_see_cancelled_jobs_only_when_there_are_any(
    queue: Queue, location: str
) -> None:
    job = await queue.add("a")
    assert "CANCELLED" not in run_well("status", db=location, terminal=True).out
    await queue.cancel(job.id)
    assert "CANCELLED" in run_well("status", db=location, terminal=True).out


async def test_one_queue_can_be_looked_at(queue: Queue, location: str) -> None:
    await queue.add("a")
    await Queue("other", queue.store).add("a")
    told = run_well("status", "--queue", "other", "--json", db=location).json["queues"]
    assert told == [{"name": "other", "paused": False, **NONE, "pending": 1}]


async def test_a_worker_with_a_job_is_busy(queue: Queue, location: str) -> None:
    go_on = asyncio.Event()

    async def wait(job: Job) -> None:
        await go_on.wait()

    other = Queue("other", queue.store)
    async with Worker(queue, wait), Worker(other, wait):
        await queue.add("a")
        await until(lambda: queue.get_active_count())
        await until(other.get_workers_count)
        told = run_well("status", "--json", db=location).json
        said = run_well("status", db=location)
        go_on.set()
    assert told["workers"] == {
        "number": 2,
        "busy": 1,
        "lost": 0,
        "running": 1,
        "groups": [],
        "processes": {"number": 1, "busy": 1, "lost": 0},
    }
    assert said.lines[-1] == "Workers: 1 process (1 busy, 0 lost)"
    assert told["queues"][0]["processing"] == 1


async def test_a_worker_that_is_not_heard_of_is_lost(
    queue: Queue, location: str, database: Database
) -> None:
    def is_lost() -> bool:
        # Again and again: a worker that has just begun renews its lease once more.
        database.write("update bullite_workers set started_at = 1, seen_at = 1")
        lines = run_well("status", db=location).lines
        return lines[-1] == "Workers: 1 process (0 busy, 1 lost)"

    async with Worker(queue, lambda job: None):
        await until(queue.get_workers_count)
        await until(is_lost)


async def test_groups_of_workers_are_told(queue: Queue, location: str) -> None:
    await queue.add("a")
    children: list[dict[str, Any]] = [
        {"slot": 0, "state": "running", "started_at": 1_577_836_800_000},
        {"slot": 1, "state": "starting", "started_at": None},
    ]
    entry = {
        **entry_of_this_process("main"),
        "state": "running",
        "count": 2,
        "children": children,
        "started_at": 1_577_836_800_000,
        "updated_at": 1_577_836_800_000,
    }
    await set_value(queue.store, GROUPS, "main", entry)

    said = run_well("status", db=location)
    where = f"(pid {os.getpid()} on {socket.gethostname()})"
    assert said.lines[-1] == f"Group main: running, 1 of 2 processes running {where}"
    told = run_well("status", "--json", db=location).json["workers"]["groups"]
    then = "2020-01-01T00:00:00.000Z"
    children[0]["started_at"] = then
    assert told == [{"name": "main", **entry, "started_at": then, "updated_at": then}]
    assert run_well("worker", "status", "--json", db=location).json["groups"] == told


@pytest.mark.parametrize("changes", [{"began": 1}, {"host": "elsewhere", "updated_at": 0}])
async def test_a_group_whose_supervisor_is_gone_is_lost(
    queue: Queue, location: str, changes: dict[str, object]
) -> None:
    await queue.add("a")
    entry = {**entry_of_this_process("main"), "state": "running", "count": 2, **changes}
    await set_value(queue.store, GROUPS, "main", entry)

    said = run_well("status", db=location)
    assert said.lines[-1] == f"Group main: lost (pid {os.getpid()} on {entry['host']})"
    [told] = run_well("status", "--json", db=location).json["workers"]["groups"]
    assert (told["name"], told["state"]) == ("main", "lost")
    assert run_well("worker", "status", "--json", db=location).json["groups"] == [told]


async def test_a_database_without_queues(queue: Queue, location: str) -> None:
    queue.store.open()
    said = run_well("status", db=location)
    assert said.out == "Workers: 0 processes (0 busy, 0 lost)\n"
    assert "no queues yet" in said.err


async def test_a_queue_that_is_not_there(queue: Queue, location: str) -> None:
    await queue.add("a")
    said = run("status", "--queue", "nope", db=location)
    assert (said.code, said.out) == (1, "")
    assert said.err == "queuectl: there is no queue 'nope'; the queues are: emails\n"
