"""What several tests of the public interface need."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from bullite import Job, Queue
from bullite.client.runtime import bridge
from bullite.core.states import Move
from bullite.database.driver import WorkerRow as Registered
from bullite.operations.move import MoveJobs
from bullite.operations.workers import RecoverStalled


async def until(condition: Callable[[], Any | Awaitable[Any]], limit: float = 15.0) -> None:
    """Wait until the condition holds; an error if it never does."""
    ends = time.monotonic() + limit
    while True:
        holds = condition()
        if inspect.isawaitable(holds):
            holds = await holds
        if holds:
            return
        assert time.monotonic() < ends, f"not within {limit} s: {inspect.getsource(condition)}"
        await asyncio.sleep(0.005)


async def again(queue: Queue, job: Job) -> Job:
    """The job as it is now."""
    found = await queue.get_job(job.id)
    assert found is not None
    return found


async def state_of(queue: Queue, job: Job) -> str:
    return (await again(queue, job)).state


async def move_by_hand(queue: Queue, job: Job, move: Move) -> None:
    """What somebody with a tool for it does to a job."""
    assert await bridge.submit(queue.store, MoveJobs(move, [job.pk])) == [job.pk]


async def take_away(queue: Queue) -> None:
    """Give the running jobs of all workers back, as others do with the jobs of dead ones."""
    for row in await bridge.query(queue.store, "workers", {}):
        await bridge.submit(queue.store, RecoverStalled(Registered(*row), dead=True))


def python(program: str, *arguments: object, timeout: float = 20) -> str:
    """What a program says that runs in a process of its own; an error unless it ends well."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def case(name: object) -> Iterator[None]:
    """One of many cases of a test: whatever fails in it is told with its name."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {name!r:.200}")
        raise


_numbers = count(1)


def fresh(queue: Queue) -> Queue:
    """A queue with nothing in it, beside others in the same store."""
    return Queue(f"emails {next(_numbers)}", queue.store)
