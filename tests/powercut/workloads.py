"""Programs that the power is cut under: they use a queue, and write down what they were promised.

    python -m tests.powercut.workloads <name> <database> <ledger> <rounds>

A line of the ledger is written when the promise was made, and in no other case:

    ["add", number, data]           `add` has answered
    ["end", number, state, value]   somebody was told how the job ended
    ["step", number, name]          a step of it has been recorded
    ["event", row, number]          a reader was told an event of the log

One line more is no promise: ["failed sync", path] (see `failing`).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from bullite import FlowProducer, Job, JobFailed, Queue, QueueEvents, Worker
from bullite.client.runtime.store_reader import StoreReader
from bullite.database.sqlite import checkpoints
from bullite.errors import StoreUnsynced

from .failing import ENGINE, READER, FailingDisk, take_away_the_guard, write_nothing_again
from .recorder import python

PROGRAM = "tests.powercut.workloads"

MANY_CHECKPOINTS = 60
"""Pages in the log, instead of a thousand: so checkpoints and new logs are part of all programs."""


class Ledger:
    """Where promises are written down; several processes may write to one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, *entries: list[Any]) -> None:
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        os.write(self._file, lines.encode())

    def added(self, *jobs: Job) -> None:
        self.note(*(["add", job.pk, job.data] for job in jobs))

    async def ended(self, job: Job) -> None:
        """Wait until a job has ended, and write down how."""
        try:
            value = await job.result(timeout=30_000)
        except JobFailed:
            self.note(["end", job.pk, "failed", None])
        else:
            self.note(["end", job.pk, "completed", value])


Workload = Callable[[str, Ledger, int], Coroutine[Any, Any, None]]


def data_of(number: int) -> dict[str, Any]:
    """Some are longer than a page."""
    return {"number": number, "text": "abcdefgh" * (1 + number * 37 % 60 + 800 * (number % 9 == 4))}


def work_of(ledger: Ledger) -> Callable[[Job], Awaitable[Any]]:
    async def work(job: Job) -> Any:
        if job.name == "step":
            receipt = await job.step("charge", lambda: {"receipt": job.pk})
            ledger.note(["step", job.pk, "charge"])
            return receipt
        if job.name == "fail" or (job.name == "retry" and job.attempts_made == 0):
            raise ValueError("not this time")
        return {"worked": job.pk}

    return work


NAMES = ("plain", "fail", "step", "retry", "plain", "delayed")


async def add(queue: Queue, ledger: Ledger, number: int) -> Job:
    name = NAMES[number % len(NAMES)]
    options: dict[str, Any] = {"delay": 5} if name == "delayed" else {}
    if name == "retry":
        options = {"attempts": 3, "backoff": {"type": "fixed", "delay": 3}}
    job = await queue.add(name, data_of(number), **options)
    ledger.added(job)
    return job


# --- the programs --------------------------------------------------------------------------------


async def adding(database: str, ledger: Ledger, rounds: int) -> None:
    """One by one, several at once, and in bulk."""
    async with Queue("work", database) as queue:
        for number in range(rounds):
            await add(queue, ledger, number)
            if number % 3 == 1:
                await asyncio.gather(*(add(queue, ledger, number + more) for more in range(4)))
            if number % 5 == 2:
                many: list[Any] = [
                    {"name": "plain", "data": data_of(each)} for each in range(number % 40)
                ]
                ledger.added(*await queue.add_bulk(many))


async def working(database: str, ledger: Ledger, rounds: int) -> None:
    """A worker completes, fails, retries; results and events are told."""
    async with AsyncExitStack() as stack:
        queue = await stack.enter_async_context(Queue("work", database))
        events = await stack.enter_async_context(QueueEvents("work", database))
        for name in ("completed", "failed"):
            events.on(name, lambda payload, id: hear(ledger, payload, id))
        await events.wait_until_ready()
        worker = Worker(queue, work_of(ledger), concurrency=4)
        await stack.enter_async_context(worker)
        for start in range(0, rounds, 4):
            jobs = [await add(queue, ledger, start + more) for more in range(4)]
            await asyncio.gather(*map(ledger.ended, jobs))


def hear(ledger: Ledger, payload: dict[str, Any], id: str) -> None:
    ledger.note(["event", int(id.partition("-")[0]), int(payload["job_id"])])


async def flows(database: str, ledger: Ledger, rounds: int) -> None:
    """Parents that wait for their children."""
    async with (
        FlowProducer(database) as producer,
        Queue("work", producer.store) as queue,
        Worker(queue, work_of(ledger), concurrency=3),
    ):
        for number in range(0, rounds, 3):
            flow = await producer.add(_tree(number))
            jobs = [flow["job"], *(child["job"] for child in flow["children"])]
            ledger.added(*jobs)
            await asyncio.gather(*map(ledger.ended, jobs))


def _tree(number: int) -> Any:
    children = [
        {"name": "plain", "queue_name": "work", "data": data_of(number + each)} for each in (1, 2)
    ]
    return {"name": "plain", "queue_name": "work", "data": data_of(number), "children": children}


async def reopening(database: str, ledger: Ledger, rounds: int) -> None:
    """Closed and opened again and again: each close moves the log into the database."""
    for start in range(0, rounds, 4):
        async with Queue("work", database) as queue:
            jobs = [await add(queue, ledger, start + more) for more in range(4)]
            if start % 8 == 4:
                async with Worker(queue, work_of(ledger), concurrency=4):
                    await asyncio.gather(*map(ledger.ended, jobs))


async def two_processes(database: str, ledger: Ledger, rounds: int) -> None:
    """One adds and waits for results, another works and adds, too."""
    async with Queue("work", database) as queue:
        other = _start("working_until_told", database, ledger.path, rounds)
        try:
            for start in range(0, rounds, 4):
                jobs = [await add(queue, ledger, start + more) for more in range(4)]
                await asyncio.gather(*map(ledger.ended, jobs))
        finally:
            other.communicate()
        assert other.returncode == 0


def _start(*arguments: object) -> subprocess.Popen[bytes]:
    """Another process, which ends when its standard input does."""
    return subprocess.Popen(
        python(PROGRAM, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


async def working_until_told(database: str, ledger: Ledger, rounds: int) -> None:
    """The other of two processes, until its standard input ends."""
    async with Queue("work", database) as queue, Worker(queue, work_of(ledger), concurrency=2):
        told = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
        number = 0
        while not told.done() and number < rounds:
            number += 1
            await add(queue, ledger, 1_000 + number)
            await asyncio.sleep(0.005)
        await told


async def relaxed(database: str, ledger: Ledger, rounds: int) -> None:
    """A control: what was added without syncs is lost."""
    await adding(f"sqlite:///{database}?durability=relaxed", ledger, rounds)


# --- a sync that fails ---------------------------------------------------------------------------


Meeting = Callable[[FailingDisk, Queue, Job, Ledger], Coroutine[Any, Any, Any]]
"""Has a sync fail in one place; gets a job that has ended."""


async def in_a_commit(disk: FailingDisk, queue: Queue, ended: Job, ledger: Ledger) -> None:
    disk.fail_in(ENGINE)
    await add(queue, ledger, 4)


async def in_a_result(disk: FailingDisk, queue: Queue, ended: Job, ledger: Ledger) -> None:
    disk.fail_in(ENGINE)
    await ledger.ended(ended)


async def in_events(disk: FailingDisk, queue: Queue, ended: Job, ledger: Ledger) -> None:
    disk.fail_in(READER)
    async with QueueEvents("work", queue.store, last_event_id="0-0") as events:
        events.on("completed", lambda payload, id: hear(ledger, payload, id))
        await asyncio.to_thread(disk.has_failed.wait, 30)


async def in_a_read(disk: FailingDisk, queue: Queue, ended: Job, ledger: Ledger) -> None:
    disk.fail_in(READER)
    reader = StoreReader(queue.store)
    await asyncio.to_thread(reader.read, "finished_jobs", {"jobs": f"[{ended.pk}]"})


async def failing(
    meet: Meeting, other: str | None, database: str, ledger: Ledger, rounds: int
) -> None:
    """A sync fails while a claim is in the log that nobody has synced; then adding goes on, with
    the same engine and with others, and beside another process that has the database open."""
    # The log is to stay as it is: what is told after the failure stands behind it. But it is to
    # begin here, so that the lost pages are not all in it in an older version, too.
    checkpoints.CHECKPOINT_FRAMES = 100_000
    await _add_whatever_fails(database, ledger, range(30))
    disk = FailingDisk(ledger.path, ledger.note)
    beside = _start(other, database, ledger.path, rounds) if other else None
    try:
        async with Queue("work", database) as queue:
            if beside is not None:
                assert beside.stdout is not None
                await asyncio.to_thread(beside.stdout.readline)
            with suppress(StoreUnsynced):
                await _leave_a_claim_unsynced(meet, disk, queue, ledger)
            assert disk.has_failed.is_set()
            with suppress(StoreUnsynced):
                for number in range(5):
                    await add(queue, ledger, number)
        await _add_whatever_fails(database, ledger, range(rounds))
    finally:
        if beside is not None:
            beside.communicate()
    assert beside is None or beside.returncode == 0


async def _leave_a_claim_unsynced(
    meet: Meeting, disk: FailingDisk, queue: Queue, ledger: Ledger
) -> None:
    claimed, go_on = asyncio.Event(), asyncio.Event()

    async def hold(job: Job) -> Any:
        if job.name == "delayed":
            claimed.set()
            await go_on.wait()
        return {"worked": job.pk}

    async with Worker(queue, hold):
        ended = await add(queue, ledger, 0)
        await ledger.ended(ended)
        await queue.add("delayed", delay=20)
        await asyncio.wait_for(claimed.wait(), 30)
        try:
            await meet(disk, queue, ended, ledger)
        finally:
            go_on.set()


async def _add_whatever_fails(
    database: str, ledger: Ledger, numbers: Iterable[int], pause: float = 0
) -> None:
    """Open the database again whenever its engine has ended."""
    left = list(numbers)
    while left:
        with suppress(StoreUnsynced):
            async with Queue("work", database) as queue:
                while left:
                    await add(queue, ledger, left[0])
                    del left[0]
                    await asyncio.sleep(pause)


async def adding_beside(database: str, ledger: Ledger, rounds: int) -> None:
    """The other process: it has the database open all the time, and adds."""
    checkpoints.CHECKPOINT_FRAMES = 100_000
    FailingDisk(ledger.path, ledger.note)
    told = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    number = 1_000
    async with Queue("work", database):
        _say_that_it_is_open()
    while not told.done():
        await _add_whatever_fails(database, ledger, range(number, number + rounds), 0.005)
        number += rounds
    await told


async def idle_beside(database: str, ledger: Ledger, rounds: int) -> None:
    """The other process of the control: while it is there, nobody is the last to close."""
    async with Queue("work", database):
        _say_that_it_is_open()
        await asyncio.to_thread(sys.stdin.read)


def _say_that_it_is_open() -> None:
    sys.stdout.write("open\n")
    sys.stdout.flush()


async def failing_unguarded(database: str, ledger: Ledger, rounds: int) -> None:
    """A control: what is added behind the lost pages is lost."""
    take_away_the_guard()
    await failing(in_a_commit, "idle_beside", database, ledger, rounds)


async def failing_and_not_rewritten(database: str, ledger: Ledger, rounds: int) -> None:
    """A control: a power cut during the checkpoint leaves old pages over newer ones."""
    write_nothing_again()
    await failing(in_a_commit, None, database, ledger, rounds)


FAILING: dict[str, Workload] = {
    f"a sync fails {name}{beside}": partial(failing, meet, other)
    for beside, other in (("", None), (", beside another process", "adding_beside"))
    for name, meet in (
        ("in a commit", in_a_commit),
        ("in a result", in_a_result),
        ("in events", in_events),
        ("in a read", in_a_read),
    )
}
WORKLOADS: dict[str, Workload] = {
    "adding": adding,
    "working": working,
    "flows": flows,
    "reopening": reopening,
    "two processes": two_processes,
}
OTHERS: dict[str, Workload] = {
    "relaxed": relaxed,
    "working_until_told": working_until_told,
    "adding_beside": adding_beside,
    "idle_beside": idle_beside,
    "failing_unguarded": failing_unguarded,
    "failing_and_not_rewritten": failing_and_not_rewritten,
}


def main(name: str, database: str, ledger: str, rounds: str) -> None:
    checkpoints.CHECKPOINT_FRAMES = MANY_CHECKPOINTS
    asyncio.run((WORKLOADS | FAILING | OTHERS)[name](database, Ledger(ledger), int(rounds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
