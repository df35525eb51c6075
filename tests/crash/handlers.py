"""A worker program whose jobs do what their names say."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from pathlib import Path
from typing import Any

from bullite import Job, Queue, Worker
from tests.support.processes import say, wait_until


async def work(location: str, **settings: Any) -> None:
    """Work until killed."""
    await Worker(Queue("work", location), process, **settings).run()


async def process(job: Job) -> int:
    say("start", job.pk)
    match job.name:
        case "hold" if job.attempts_started == 1:
            await asyncio.Event().wait()
        case "wait for":
            await asyncio.to_thread(wait_until, Path(job.data).exists)
        case "block the loop":
            stop = time.monotonic() + job.data
            while time.monotonic() < stop:
                pass
        case "hold the GIL":
            sum(range(job.data))  # one call into C: no other thread runs before it returns
        case "abort":
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.abort()
    return job.attempts_started
