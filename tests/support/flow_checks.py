"""Very wide and very deep families of jobs: all of them run, and each is let run once.

    python -m tests.support.flow_checks --children 100000 --deep 10000 --store sqlite

Each shape is added in one transaction and run by worker processes. From the event log it is counted
how often each job that waited was let run. Exits with 1 if a promise was broken.

wide        a parent with many children
fan in      a job that depends on many others
fan out     many jobs that depend on one
deep        a parent of a parent of a parent …
chain       a job that depends on one that depends on one …
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullite import FlowNode, FlowProducer, Job, Queue, Worker
from tests.support.databases import DATABASES
from tests.support.processes import Child, as_summary, events, problems, say

QUEUE = "families"

Build = Callable[[Queue, int], Awaitable[Job]]
"""Adds a shape of so many jobs; the one that runs last."""


async def work(location: str) -> None:
    """Work until killed."""

    async def run(job: Job) -> int:
        return job.pk

    worker = Worker(Queue(QUEUE, location), run, concurrency=50)
    await worker.wait_until_ready()
    say("ready")
    await worker.run()


# --- the shapes ----------------------------------------------------------------------------------


async def wide(queue: Queue, size: int) -> Job:
    leaf: FlowNode = {"name": "leaf"}
    root: FlowNode = {"name": "root", "queue_name": QUEUE, "children": [leaf] * size}
    return (await FlowProducer(queue.store).add(root))["job"]


async def deep(queue: Queue, size: int) -> Job:
    node: FlowNode = {"name": "leaf", "queue_name": QUEUE}
    for _ in range(size - 1):
        node = {"name": "above", "queue_name": QUEUE, "children": [node]}
    return (await FlowProducer(queue.store).add(node))["job"]


async def fan_in(queue: Queue, size: int) -> Job:
    jobs = await queue.add_bulk([{"name": "leaf"}] * size)
    return await queue.add("last", depends_on=[job.id for job in jobs])


async def fan_out(queue: Queue, size: int) -> Job:
    first = await queue.add("first")
    jobs = await queue.add_bulk([{"name": "after", "opts": {"depends_on": first}}] * size)
    return jobs[-1]


async def chain(queue: Queue, size: int) -> Job:
    def named(n: int) -> Any:
        return {"job_id": f"n{n}", **({"depends_on": f"n{n - 1}"} if n else {})}

    jobs = await queue.add_bulk([{"name": "a", "opts": named(n)} for n in range(size)])
    return jobs[-1]


SHAPES: dict[str, Build] = {
    "wide": wide,
    "fan in": fan_in,
    "fan out": fan_out,
    "deep": deep,
    "chain": chain,
}
_DEEP = ("deep", "chain")


# --- a run ---------------------------------------------------------------------------------------


@dataclass
class Report:
    """What a run of one shape showed."""

    shape: str
    jobs: int
    seconds_to_add: float
    seconds_to_run: float
    completed: int
    jobs_that_waited: int
    let_run: int
    let_run_twice: int
    verify: str

    @property
    def ok(self) -> bool:
        all_ran = self.completed == self.jobs and self.let_run == self.jobs_that_waited
        return all_ran and not self.let_run_twice and self.verify == "ok"


def run(location: str, shape: str, size: int, processes: int, limit: float) -> Report:
    workers = [Child(work, location) for _ in range(processes)]
    try:
        for worker in workers:
            worker.said("ready")
        added, ran, blocked, completed = asyncio.run(_run(location, SHAPES[shape], size, limit))
    finally:
        for worker in workers:
            worker.end()
    let_run = collections.Counter(job for job, _ in events(location, "free"))
    return Report(
        shape,
        size + (shape not in _DEEP),
        round(added, 2),
        round(ran, 2),
        completed,
        blocked,
        len(let_run),
        sum(1 for times in let_run.values() if times > 1),
        "; ".join(problems(location)) or "ok",
    )


async def _run(
    location: str, build: Build, size: int, limit: float
) -> tuple[float, float, int, int]:
    async with Queue(QUEUE, location) as queue:
        await queue.configure(max_events=2**31 - 1)
        await queue.pause()
        began = time.monotonic()
        last = await build(queue, size)
        added = time.monotonic()
        blocked = await queue.get_waiting_children_count()
        await queue.resume()
        began_to_run = time.monotonic()
        await last.result(timeout=int(limit * 1000))
        # Those beside the last one may still be on their way.
        while await queue.count() or await queue.get_active_count():
            assert time.monotonic() - began_to_run < limit, "the workers did not finish"
            await asyncio.sleep(0.02)
        return added - began, time.monotonic() - began_to_run, blocked, await _completed(queue)


async def _completed(queue: Queue) -> int:
    return await queue.get_completed_count()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--children", type=int, default=100_000)
    parser.add_argument("--deep", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--store", choices=[*DATABASES, "both"], default="both")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for each shape")
    options = parser.parse_args()
    ok = True
    for kind in list(DATABASES) if options.store == "both" else [options.store]:
        for shape in options.shape or SHAPES:
            size = options.deep if shape in _DEEP else options.children
            with tempfile.TemporaryDirectory(prefix="bullite-families-") as folder:
                database = DATABASES[kind](Path(folder))
                try:
                    report = run(database.location, shape, size, options.processes, options.limit)
                finally:
                    database.close()
            say(f"store: {kind}")
            say(as_summary(report))
            ok = ok and report.ok
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
