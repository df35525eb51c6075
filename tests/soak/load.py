"""The programs under load: each function here runs in a process of its own.

Producers and workers are killed and replaced. The observer, which reads events and sends probes,
and the worker of the probes are not: what they measure is told over the whole run.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from bullite import (
    BulkJob,
    FlowNode,
    FlowProducer,
    Job,
    JobFailed,
    JobNotFound,
    Queue,
    QueueEvents,
    QueueEventsProducer,
    Store,
    Worker,
)

from .ledger import (
    ADDED,
    COMPLETED,
    FAILED,
    GAP,
    PROBED,
    RETURNED,
    STARTED,
    WAITED_IN_VAIN,
    Ledger,
)

ROUNDS_PER_SECOND = 5
"""Of each producer; a round adds about nine jobs."""

PROBES_PER_SECOND = 20

MOST_WAITING = 300
"""Jobs of a queue; while more wait, producers add none."""

RESULT_WITHIN = 90_000
"""Ms in which a result must arrive. On PostgreSQL, the jobs of a worker that is killed are its own
until its lease of 30 s has ended."""

SHORT_LEASE: dict[str, Any] = {"lock_duration": 1_500, "stalled_interval": 500}
"""Options of the workers of one queue: a process that is stopped for longer loses its jobs."""

QUEUES = ("fast", "threads", "flaky", "short", "limited", "flows", "steps", "scheduled", "probes")

_DIE_WITH_PARENT = 1

_IMPORTED_BY = os.getpid()
"""The process that imports this, and then forks those that run it."""


def _begin(folder: str, name: str) -> Ledger:
    """Make a process end with its parent, and log into a file; return its ledger."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != _IMPORTED_BY:
        sys.exit("the parent ended before it could be followed")
    log = os.open(Path(folder) / "logs" / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 2)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    return Ledger(str(Path(folder) / "ledgers"), name)


async def _until_terminated(work: Coroutine[Any, Any, None]) -> None:
    """Run until SIGTERM, which cancels."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        pass  # as it is meant


# --- the observer --------------------------------------------------------------------------------


async def observer(folder: str, name: str, location: str, ends: float) -> None:
    """Set the queues up, read all events, send probes and keep job schedulers until `ends`.

    At SIGTERM it reads to the end of the log, and ends.
    """
    ledger = _begin(folder, name)
    store = Store(location)
    await _configure(store)
    events, told_all = QueueEvents(None, store), asyncio.Event()

    def ended(how: str) -> Callable[[dict[str, Any]], None]:
        return lambda payload: ledger.write(how, payload["job_id"])

    events.on("completed", ended(COMPLETED))
    events.on("retries-exhausted", ended(FAILED))
    events.on("gap", lambda payload: ledger.write(GAP, payload["missed"] or 1))
    events.on("soak-ends", lambda payload: told_all.set())
    await events.wait_until_ready()
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    say("ready")
    await _probe(store, ledger, ends)
    await _remove_schedulers(store)
    say("schedulers removed")
    await terminated.wait()
    last = QueueEventsProducer("probes", store)
    await last.publish_event("soak-ends")
    await told_all.wait()
    await last.close()
    await events.close()
    store.close()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _configure(store: Store) -> None:
    for name in QUEUES:
        async with Queue(name, store) as queue:
            await queue.configure(keep_completed={"count": 500}, keep_failed={"count": 500})
            if name == "limited":
                await queue.set_global_rate_limit(30, 1_000)
            if name == "scheduled":
                for every in (1_000, 2_000):
                    await queue.upsert_job_scheduler(
                        f"every-{every}", every=every, template={"name": "tick", "data": {}}
                    )


async def _remove_schedulers(store: Store) -> None:
    async with Queue("scheduled", store) as queue:
        for every in (1_000, 2_000):
            await queue.remove_job_scheduler(f"every-{every}")


async def _probe(store: Store, ledger: Ledger, ends: float) -> None:
    """Send jobs at a steady rate, whatever became of those before."""
    probes = set[asyncio.Task[None]]()

    async def send() -> None:
        job = await queue.add("probe", time.monotonic())
        ledger.write(ADDED, job.id, COMPLETED)

    async with Queue("probes", store) as queue:
        due = time.monotonic()
        while due < ends:
            await asyncio.sleep(max(0, due - time.monotonic()))
            if len(probes) < MOST_WAITING:
                probes.add(probe := asyncio.create_task(send()))
                probe.add_done_callback(probes.discard)
            due = max(due + 1 / PROBES_PER_SECOND, time.monotonic() - 1)
        await asyncio.gather(*probes)


async def probe_worker(folder: str, name: str, location: str) -> None:
    """Note how long each probe took from before it was added until it was started."""
    ledger = _begin(folder, name)

    async def note(job: Job) -> None:
        started = time.monotonic()
        ledger.write(PROBED, job.data, round((started - job.data) * 1000, 3))
        ledger.write(STARTED, job.id)
        ledger.write(RETURNED, job.id)

    await _work([Worker(Queue("probes", location), note, concurrency=20, max_stalled_count=1_000)])


# --- a worker ------------------------------------------------------------------------------------


async def worker(folder: str, name: str, location: str) -> None:
    """Take jobs of every queue but that of the probes, until SIGTERM."""
    ledger = _begin(folder, name)
    store = Store(location)

    async def run(job: Job) -> str:
        ledger.write(STARTED, job.id)
        await asyncio.sleep(job.data.get("seconds", 0))
        return end(job)

    def run_in_thread(job: Job) -> str:
        ledger.write(STARTED, job.id)
        time.sleep(job.data.get("seconds", 0))
        return end(job)

    async def run_in_steps(job: Job) -> str:
        ledger.write(STARTED, job.id)
        await job.step("first", _numbers, 3)
        await job.sleep(200)
        await job.step("second", _numbers, 5)
        return end(job)

    def end(job: Job) -> str:
        if job.attempts_made < job.data.get("failures", 0):
            raise RuntimeError("a failure that was asked for")
        ledger.write(RETURNED, job.id)
        return job.id

    processors: dict[str, Callable[[Job], Awaitable[str] | str]] = dict.fromkeys(QUEUES, run)
    processors |= {"threads": run_in_thread, "steps": run_in_steps}
    del processors["probes"]
    workers = []
    for queue, processor in processors.items():
        lease: dict[str, Any] = SHORT_LEASE if queue == "short" else {}
        workers.append(
            Worker(
                Queue(queue, store),
                processor,
                concurrency=8,
                max_stalled_count=1_000,
                **lease,
            )
        )
    await _work(workers)


def _numbers(count: int) -> list[int]:
    return list(range(count))


async def _work(workers: list[Worker]) -> None:
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    for one in workers:
        await one.wait_until_ready()
    await terminated.wait()
    await asyncio.gather(*(one.close() for one in workers))
    for one in workers:
        await one.queue.close()


# --- a producer ----------------------------------------------------------------------------------


async def producer(folder: str, name: str, location: str, ends: float, seed: int) -> None:
    """Add jobs of every kind at a bounded rate until `ends`."""
    ledger = _begin(folder, name)
    store = Store(location)
    await _until_terminated(_Producer(store, ledger, random.Random(seed)).produce(ends))
    store.close()


class _Producer:
    def __init__(self, store: Store, ledger: Ledger, random: random.Random) -> None:
        self._store, self._ledger, self._random = store, ledger, random
        self._queues = {name: Queue(name, store) for name in QUEUES}
        self._flows = FlowProducer(store)
        self._waits = set[asyncio.Task[None]]()

    async def produce(self, ends: float) -> None:
        due = time.monotonic()
        for round_ in itertools.count():
            if due >= ends:
                break
            await asyncio.sleep(max(0, due - time.monotonic()))
            if round_ % ROUNDS_PER_SECOND == 0:
                crowded = await self._crowded()
            if not crowded:
                await asyncio.gather(*self._round())
            # What could not be added in time is left out, not added later.
            due = max(due + 1 / ROUNDS_PER_SECOND, time.monotonic())
        await asyncio.gather(*self._waits)
        # The last round may be over before: a process that ends by then counts as a failure.
        await asyncio.sleep(max(0, ends - time.monotonic()))
        for queue in self._queues.values():
            await queue.close()

    async def _crowded(self) -> bool:
        for queue in self._queues.values():
            counts = await queue.get_job_counts("waiting", "prioritized", "delayed")
            if sum(counts.values()) > MOST_WAITING:
                return True
        return False

    def _round(self) -> list[Coroutine[Any, Any, object]]:
        chance, random = self._chance, self._random
        adds: list[Coroutine[Any, Any, object]] = [
            self._add("threads", seconds=0.003, priority=random.randrange(5))
        ]
        adds += [self._add("fast", seconds=random.uniform(0, 0.005)) for _ in range(3)]
        if chance(0.1):
            adds.append(self._add_bulk())
        if chance(0.5):
            adds.append(self._add("flaky", failures=1, attempts=3, backoff=200))
        if chance(0.1):
            adds.append(self._add("flaky", failures=9, attempts=2, backoff=100))
        if chance(0.5):
            adds.append(self._add("short", seconds=0.05))
        if chance(0.3):
            adds.append(self._add("fast", delay=random.randrange(100, 2_000)))
        if chance(0.25):
            adds.append(self._add("limited"))
        if chance(0.2):
            adds.append(self._add("steps"))
        if chance(0.3):
            key = {"id": f"key {random.randrange(3)}", "ttl": 300}
            adds.append(self._add("fast", deduplication=key))
        if chance(0.2):
            adds.append(self._add_flow())
        if chance(0.2):
            adds.append(self._add_and_wait())
        return adds

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    async def _add(self, queue: str, seconds: float = 0, failures: int = 0, **options: Any) -> Job:
        data = {"seconds": seconds, "failures": failures}
        job = await self._queues[queue].add("job", data, **options)
        fails = failures >= options.get("attempts", 1) > 0
        self._ledger.write(ADDED, job.id, FAILED if fails else COMPLETED)
        return job

    async def _add_bulk(self) -> None:
        jobs: list[BulkJob] = [{"name": "job", "data": {"seconds": 0.001}} for _ in range(20)]
        for job in await self._queues["fast"].add_bulk(jobs):
            self._ledger.write(ADDED, job.id, COMPLETED)

    async def _add_flow(self) -> None:
        """A parent with three children, of which one fails now and then and is ignored."""
        fails = self._chance(0.2)
        children: list[FlowNode] = [
            {"name": "child", "queue_name": "flows", "data": {"seconds": 0.005}} for _ in range(2)
        ]
        children.append(
            {
                "name": "child",
                "queue_name": "fast",
                "data": {"failures": 9 if fails else 0},
                "opts": {"ignore_dependency_on_failure": True},
            }
        )
        flow = await self._flows.add(
            {"name": "parent", "queue_name": "flows", "data": {}, "children": children}
        )
        self._ledger.write(ADDED, flow["job"].id, COMPLETED)
        for child in flow["children"]:
            fails = child["job"].data.get("failures", 0) > 0
            self._ledger.write(ADDED, child["job"].id, FAILED if fails else COMPLETED)

    async def _add_and_wait(self) -> None:
        job = await self._add("fast", seconds=0.002)
        self._waits.add(wait := asyncio.create_task(self._wait(job)))
        wait.add_done_callback(self._waits.discard)

    async def _wait(self, job: Job) -> None:
        try:
            await job.result(RESULT_WITHIN)
        except (TimeoutError, JobNotFound, JobFailed) as error:
            self._ledger.write(WAITED_IN_VAIN, job.id, type(error).__name__)
