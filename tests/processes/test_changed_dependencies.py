"""Several processes tie jobs to each other, run, remove and bring them back, all at once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from bullite import FlowNode, FlowProducer, Job, Queue, WaitingChildrenError, Worker
from bullite.errors import (
    DependencyCycle,
    IllegalMove,
    JobIdTaken,
    JobNotFound,
    LostLock,
)
from tests.support.processes import Child, problems, rows, say

PROCESSES, MOVES = 3, 250
LIMIT = 60.0
"""Seconds in which a process comes to its end."""

IDS = 20
"""Few ids, so that all meet at the same jobs."""

EXPECTED = (DependencyCycle, IllegalMove, JobIdTaken, JobNotFound, LostLock)
"""What may be told to somebody who was too late."""

POLICIES = (
    {},
    {"fail_parent_on_failure": True},
    {"continue_parent_on_failure": True},
    {"ignore_dependency_on_failure": True},
    {"remove_dependency_on_failure": True},
)


async def meddle(location: str, seed: int) -> None:
    """Do this and that, and say what came of it: a line for each kind of answer."""
    dice = random.Random(seed)
    came: Counter[str] = Counter()
    queues = [Queue(name, location) for name in ("one", "two")]
    flows = FlowProducer(queues[0].store)

    async def work(job: Job) -> None:
        await asyncio.sleep(dice.uniform(0, 0.01))
        if dice.random() < 0.2:
            raise RuntimeError("it broke")
        if dice.random() < 0.3:
            await some_queue().add("child", parent=job, **some_options())
        if await job.move_to_waiting_children():
            raise WaitingChildrenError

    def some_queue() -> Queue:
        return dice.choice(queues)

    def some_id() -> str:
        return f"job-{dice.randrange(IDS)}"

    def some_options() -> Any:
        options: dict[str, Any] = {**dice.choice(POLICIES), "attempts": dice.randint(1, 2)}
        options["on_dependency_failure"] = dice.choice(["wait", "fail", "run"])
        if dice.random() < 0.5:
            options["job_id"] = some_id()
        if dice.random() < 0.2:
            options |= {"remove_on_complete": True, "remove_on_fail": True}
        if dice.random() < 0.1:
            options["expires"] = dice.randint(1, 50)
        return options

    def some_tree(depth: int) -> FlowNode:
        children = [some_tree(depth - 1) for _ in range(dice.randrange(3))] if depth else []
        queue = some_queue().name
        return {"name": "node", "queue_name": queue, "opts": some_options(), "children": children}

    async def depend() -> None:
        others = [(some_queue().name, some_id()) for _ in range(dice.randint(1, 3))]
        await some_queue().add("dependent", depends_on=others, **some_options())

    async def with_job(do: Callable[[Job], Awaitable[Any]]) -> None:
        job = await some_queue().get_job(some_id())
        if job is not None:
            await do(job)

    moves: list[Callable[[], Awaitable[Any]]] = [
        *([lambda: some_queue().add("plain", job_id=some_id())] * 2),
        *([lambda: flows.add(some_tree(3))] * 3),
        *([depend] * 3),
        lambda: with_job(lambda job: some_queue().add("child", parent=job, **some_options())),
        lambda: with_job(lambda job: job.remove(dice.random() < 0.7)),
        lambda: with_job(lambda job: job.retry(dice.choice(["failed", "completed"]))),
        lambda: with_job(lambda job: job.remove_child_dependency()),
        lambda: with_job(lambda job: job.remove_unprocessed_children()),
        lambda: with_job(lambda job: job.promote()),
        lambda: some_queue().restore(some_id()),
        lambda: some_queue().retry_jobs(),
        lambda: some_queue().drain(),
        lambda: some_queue().clean(0, 5, dice.choice(["completed", "failed", "wait"])),
    ]

    async def go_on() -> None:
        while came.total() < MOVES:
            try:
                await dice.choice(moves)()
                came["done"] += 1
            except EXPECTED as error:
                came[type(error).__name__] += 1
            except Exception as error:
                came["unexpected"] += 1
                say("unexpected:", type(error).__name__, str(error).replace("\n", " "))

    def trouble(error: Exception) -> None:
        if not isinstance(error, EXPECTED):
            came["unexpected"] += 1
            say("unexpected: the worker", type(error).__name__, error)

    workers = [Worker(queue, work, concurrency=3, autorun=False) for queue in queues]
    for worker in workers:
        worker.on("error", trouble)
    async with asyncio.timeout(LIMIT), queues[0], queues[1], workers[0], workers[1]:
        await asyncio.gather(*(go_on() for _ in range(3)))
    say("came", *(f"{name}={number}" for name, number in came.items()))


def test_processes_that_do_everything_with_families_meet_only_expected_errors(
    location: str, start: Callable[..., Child]
) -> None:
    children = [start(meddle, location, seed) for seed in range(PROCESSES)]
    lines = [line for child in children for line in child.rest()]
    assert Counter(line for line in lines if line.startswith("unexpected")) == {}
    done = [word for line in lines for word in line.split() if word.startswith("done=")]
    assert len(done) == PROCESSES
    assert all(int(word.removeprefix("done=")) > 30 for word in done), lines
    assert problems(location) == ()
    assert rows(location, "select count(*) from bullite_links") > [(0,)]
