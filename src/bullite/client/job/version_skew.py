"""Jobs with a payload version newer than the worker's task: postponed and reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...core.clock import moment_of
from ...core.states import PROMOTE, State
from ...errors import DelayedError
from ...operations.move import MoveJobs
from ..runtime import bridge
from .job import Job

if TYPE_CHECKING:
    from ..queue.queue import Queue

POSTPONED_FOR = 60_000
"""Ms after which somebody looks again whether a newer worker has come."""

NEWER = "made by a newer version of its task than this worker has: waits for a newer worker"


async def postpone_newer(job: Job) -> None:
    """Put off a job that runs, which ends the run at no cost; its log says why, once."""
    if not await is_postponed(job):
        await job.log(NEWER, level="warn")
    await job.move_to_delayed(job._store.open().clock.now() + POSTPONED_FOR)
    raise DelayedError(NEWER)


async def is_postponed(job: Job) -> bool:
    """Whether that is the last that its log says."""
    told = await job.get_logs(-1)
    return bool(told["logs"]) and told["logs"][0]["message"] == NEWER


async def release_newer(queue: Queue, too_new: Mapping[str, Callable[[Job], bool]]) -> None:
    """Let the parked jobs of these names wait in line now, but for those that are still too new.

    Looks at single jobs only if some are parked.
    """
    if too_new.keys().isdisjoint(await queue._names_parked()):
        return
    parked: list[int] = []
    latest = moment_of(queue.store.open().clock.now() + POSTPONED_FOR)
    async for job in queue.iter_jobs(State.DELAYED):
        if job.process_at is None or job.process_at > latest:
            break
        is_known = job.name in too_new and not too_new[job.name](job)
        if is_known and await is_postponed(job):
            parked.append(job.pk)
    if parked:
        await bridge.submit(queue.store, MoveJobs(PROMOTE, parked))
