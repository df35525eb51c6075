"""Jobs in every state that the program tells apart."""

from __future__ import annotations

from typing import Any

from bullite import Job, Queue, UnrecoverableError, Worker
from tests.support.helpers import until


async def fail_or_not(job: Job) -> str:
    """What the processor does that is used here: what the data of a job says."""
    if job.data["fate"] == "dead":
        raise UnrecoverableError("it is broken")
    if job.data["fate"] == "failed":
        raise ValueError("not this time")
    return "good"


LATER = {"delay": "1h"}
RETRIED = {"attempts": 4, "backoff": {"type": "fixed", "delay": 3_600_000}}


async def have_run(queue: Queue, *fates: str, **options: Any) -> list[Job]:
    """Jobs that a worker has done with, for now: completed, failed (to be retried) or dead."""
    jobs = [
        await queue.add(
            "shell",
            {"command": fate, "fate": fate},
            **{**(RETRIED if fate == "failed" else {}), **options},
        )
        for fate in fates
    ]
    async with Worker(queue, fail_or_not):
        await until(lambda: settled(queue))
    return jobs


async def settled(queue: Queue) -> bool:
    counts = await queue.get_job_counts("waiting", "prioritized", "active")
    return not any(counts.values())
