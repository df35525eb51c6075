"""A store that was opened before a fork, used on both sides of it."""

from __future__ import annotations

import asyncio
import atexit
import faulthandler
import gc
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from bullite.core.clock import SystemClock
from bullite.errors import StoreError, WrongProcess
from tests.support.databases import database_at
from tests.support.processes import (
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


def data_of(location: str) -> list[str]:
    return [data for (data,) in rows(location, "select data from bullite_payloads order by job")]


def fork() -> int:
    child = os.fork()
    if not child:
        signal.alarm(30)  # not even after a test that failed does it live on
    return child


async def put(queue: Queue, *data: str) -> None:
    for text in data:
        await queue.add("job", text)


# --- queues --------------------------------------------------------------------------------------


def uses_a_queue_in_a_forked_child(location: str) -> None:
    queue = Queue("work", location)
    asyncio.run(put(queue, "parent, before"))
    child = fork()
    if not child:
        asyncio.run(put(queue, "child"))
        asyncio.run(queue.close())
        sys.exit(0)
    say("child ended with", os.waitpid(child, 0)[1])
    asyncio.run(put(queue, "parent, after"))


def test_a_queue_works_in_the_parent_and_in_the_child_of_a_fork(location, start):
    parent = start(uses_a_queue_in_a_forked_child, location)

    parent.said("child ended with 0")
    assert parent.ended() == 0
    assert data_of(location) == ['"parent, before"', '"child"', '"parent, after"']
    assert problems(location) == ()


def adds_beside_its_forked_child(location: str) -> None:
    queue = Queue("work", location)
    asyncio.run(put(queue, "first"))
    child = fork()
    asyncio.run(put(queue, *["child" if not child else "parent"] * 100))
    if child:
        say("child ended with", os.waitpid(child, 0)[1])


def test_parent_and_child_of_a_fork_write_at_the_same_time(location, start):
    parent = start(adds_beside_its_forked_child, location)

    parent.said("child ended with 0")
    assert parent.ended() == 0
    assert sorted(data_of(location)) == ['"child"'] * 100 + ['"first"'] + ['"parent"'] * 100
    assert problems(location) == ()


def leaves_requests_to_the_forked_child(location: str) -> None:
    """Forks with adds that are accepted and not yet written."""

    async def accept_and_fork() -> int:
        queue = Queue("work", location)
        await queue.wait_until_ready()
        adding = [asyncio.ensure_future(queue.add("job", number)) for number in range(300)]
        await asyncio.sleep(0)
        child = fork()
        if not child:
            atexit._run_exitfuncs()
            os._exit(0)
        await asyncio.gather(*adding)
        return child

    say("child ended with", os.waitpid(asyncio.run(accept_and_fork()), 0)[1])


def test_what_was_accepted_before_a_fork_is_written_once_by_the_parent(location, start):
    parent = start(leaves_requests_to_the_forked_child, location)

    parent.said("child ended with 0")
    assert parent.ended() == 0
    assert sorted(map(int, data_of(location))) == list(range(300))


def leaves_a_child_that_adds(location: str, gate: str) -> None:
    """Ends right after the fork; the child goes on adding."""
    queue = Queue("work", location)
    asyncio.run(put(queue, "parent"))
    if fork():
        return
    asyncio.run(put(queue, "child, before"))
    say("added")
    wait_until(Path(gate).exists)
    try:
        asyncio.run(put(queue, "child, after"))
    except StoreError as error:
        say(error)
    else:
        say("added")


def test_a_child_that_outlives_its_parent_goes_on_while_others_come_and_go(
    location, start, tmp_path
):
    """The last to close a file deletes its log: the child must hold locks of its own."""
    gate = tmp_path / "gate"
    parent = start(leaves_a_child_that_adds, location, gate)
    assert parent.line() == "added"
    assert parent.ended() == 0
    assert data_of(location) == ['"parent"', '"child, before"']

    gate.touch()

    assert parent.line() == "added"
    assert data_of(location) == ['"parent"', '"child, before"', '"child, after"']


def adds_through_multiprocessing(location: str, method: str) -> None:
    queue = Queue("work", location)
    asyncio.run(put(queue, "parent, before"))
    context = multiprocessing.get_context(method)
    children = [
        context.Process(target=add_in_child, args=(location, f"child {number}"))
        for number in range(2)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    say("exit codes", *(child.exitcode for child in children))
    asyncio.run(put(queue, "parent, after"))


def add_in_child(location: str, text: str) -> None:
    asyncio.run(put(Queue("work", location), text))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_children_add_beside_their_parent(location, start, method):
    parent = start(adds_through_multiprocessing, location, method)

    parent.said("exit codes 0 0")
    assert parent.ended() == 0
    written = data_of(location)
    assert (written[0], written[-1]) == ('"parent, before"', '"parent, after"')
    assert sorted(written[1:-1]) == ['"child 0"', '"child 1"']
    assert problems(location) == ()


# --- workers -------------------------------------------------------------------------------------


def runs_a_worker_made_before_the_fork(location: str) -> None:
    worker = Worker(Queue("work", location), print, autorun=False)
    if fork():
        os.wait()
        return
    try:
        asyncio.run(worker.run())
    except WrongProcess as error:
        say(error)


def test_a_worker_made_before_a_fork_is_refused_in_the_child(location, start):
    parent = start(runs_a_worker_made_before_the_fork, location)

    parent.said("this worker was made before a fork; make a new one in this process")


def works_and_forks(location: str) -> None:
    """Runs a worker in a thread; the main thread forks a child that looks around and exits."""

    async def process(job: Job) -> None:
        say("run", job.pk)

    async def work() -> None:
        await Worker(queue, process).run()

    queue = Queue("work", location)
    threading.Thread(target=asyncio.run, args=(work(),), daemon=True).start()
    wait_until(lambda: rows(location, "select 1 from bullite_workers"))
    child = fork()
    if not child:
        asyncio.run(put(queue, "child"))
        gc.collect()
        sys.exit(0)
    say("child ended with", os.waitpid(child, 0)[1])
    threading.Event().wait()


def test_the_exit_of_a_forked_child_takes_nothing_from_its_parent(location, start):
    add(location)
    parent = start(works_and_forks, location)
    parent.said("run 1")
    parent.said("child ended with 0")
    assert registered(location, parent)

    [job] = add(location, "after the child is gone")

    parent.said(f"run {job}")
    assert events(location, "stall") == []


def works_and_leaves_a_working_child(location: str, **settings: Any) -> None:
    """Runs a job for ever; its forked child has a worker of its own."""
    queue, held = Queue("work", location), threading.Event()

    async def for_ever(job: Job) -> None:
        held.set()
        await asyncio.Event().wait()

    async def work() -> None:
        await Worker(queue, for_ever, **settings).run()

    threading.Thread(target=asyncio.run, args=(work(),), daemon=True).start()
    held.wait()
    if fork():
        hang()
    asyncio.run(recover(queue, **settings))


async def recover(queue: Queue, **settings: Any) -> None:
    ran = asyncio.Event()

    async def run(job: Job) -> None:
        ran.set()

    async with Worker(queue, run, **settings):
        say("child works")
        await ran.wait()


def test_a_child_takes_over_the_jobs_of_its_dead_parent(database, location, start):
    [job] = add(location, "job")
    parent = start(works_and_leaves_a_working_child, location, **database.short_lease)
    parent.said("child works")

    killed_at = parent.kill()

    wait_until(lambda: states(location)[job] == "completed")
    [(_, completed_at)] = events(location, "complete")
    assert completed_at - killed_at < database.recovery_time


# --- transactions --------------------------------------------------------------------------------


def forks_inside_a_transaction(location: str, gate: str) -> None:
    driver = database_at(location).driver(SystemClock(), random.getrandbits)
    driver.open()
    driver.begin(durable=True)
    driver.execute("insert_queue", {"name": "mine", "priority_order": "low", "now": 0})
    child = fork()
    if not child:
        gc.collect()
        sys.exit(0)
    say("child ended with", os.waitpid(child, 0)[1])
    wait_until(Path(gate).exists)
    driver.commit()
    driver.close()


def test_the_exit_of_a_forked_child_neither_commits_nor_ends_its_parents_transaction(
    location, start, tmp_path
):
    add(location, "job")
    gate = tmp_path / "gate"
    parent = start(forks_inside_a_transaction, location, gate)
    parent.said("child ended with 0")
    names = "select name from bullite_queues order by name"
    assert rows(location, names) == [("work",)]

    gate.touch()

    assert parent.ended() == 0
    assert rows(location, names) == [("mine",), ("work",)]
    assert list(states(location).values()) == ["waiting"]
    assert problems(location) == ()


def dies_in_a_transaction_and_leaves_a_child(location: str, gate: str) -> None:
    driver = database_at(location).driver(SystemClock(), random.getrandbits)
    driver.open()
    driver.begin(durable=True)
    if fork():
        hang()
    say("child lives")
    wait_until(Path(gate).exists)
    os._exit(0)


def test_a_child_that_outlives_its_parent_does_not_keep_the_parents_write_lock(
    location, start, tmp_path
):
    add(location, "first")
    parent = start(dies_in_a_transaction_and_leaves_a_child, location, tmp_path / "gate")
    parent.said("child lives")

    killed_at = parent.kill()

    add(location, "second")
    assert time.time() * 1000 - killed_at < 1000
    (tmp_path / "gate").touch()


def forks_while_its_engine_is_busy(location: str) -> None:
    """Forks again and again while another thread adds jobs."""
    queue, enough = Queue("work", location), threading.Event()

    async def add_until_enough() -> None:
        while not enough.is_set():
            await asyncio.gather(*(queue.add("job", "parent") for _ in range(20)))

    adder = threading.Thread(target=asyncio.run, args=(add_until_enough(),))
    adder.start()
    for number in range(20):
        child = fork()
        if not child:
            faulthandler.dump_traceback_later(15, exit=True)  # if it hangs, it says where
            asyncio.run(put(Queue("work", location), f"child {number}"))
            os._exit(0)
        say("child ended with", os.waitpid(child, 0)[1])
    enough.set()
    adder.join()


def test_children_forked_while_the_parent_writes_all_add_their_job(location, start):
    parent = start(forks_while_its_engine_is_busy, location)

    for _ in range(20):
        assert parent.line() == "child ended with 0"
    assert parent.ended() == 0
    assert sorted(d for d in data_of(location) if "child" in d) == sorted(
        f'"child {number}"' for number in range(20)
    )
    assert problems(location) == ()
