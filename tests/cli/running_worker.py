"""A worker for commands in a thread of this process, beside the program that is tested."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bullite import Queue, Store, Worker
from bullite.commands.job_types import RETRIES
from bullite.commands.processors import BuiltinProcessors
from tests.support.databases import PATIENCE


@contextmanager
def working(location: str, *queues: str, concurrency: int = 1) -> Iterator[None]:
    """Meanwhile jobs of these queues, `default` unless given, are run."""
    ready, done = threading.Event(), threading.Event()
    problems: list[BaseException] = []

    async def work() -> None:
        store = Store(location)
        crew = BuiltinProcessors(store, ["tests.cli.tasks"])
        workers = [
            Worker(
                Queue(name, store),
                crew.processors(),
                concurrency=concurrency,
                retry_strategies={RETRIES: crew.retry_strategy},
            )
            for name in queues or ("default",)
        ]
        for worker in workers:
            await worker.wait_until_ready()
        ready.set()
        await asyncio.to_thread(done.wait)
        for worker in workers:
            await worker.close(force=True)
        await asyncio.to_thread(store.close)

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            problems.append(error)
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield
    finally:
        done.set()
        thread.join(PATIENCE)
        assert not problems, problems
