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
    from ..queue.reads import QueueReads

POSTPONED_FOR = 60_000
"""Ms after which a postponed job is claimed again, perhaps by a newer worker."""

MAX_NAMES = 100
"""Names of postponed jobs that one read returns."""

NEWER = "made by a newer version of its task than this worker has: waits for a newer worker"


async def postpone_newer(job: Job) -> None:
    """End the run of a job and delay it; its log says why, once. Uses no attempt."""
    if not await is_postponed(job):
        await job.log(NEWER, level="warn")
    await job.move_to_delayed(job._store.open().clock.now() + POSTPONED_FOR)
    raise DelayedError(NEWER)


async def is_postponed(job: Job) -> bool:
    """Return True if the last line of the job's log says that it was postponed."""
    last = await job.get_logs(-1)
    return bool(last["logs"]) and last["logs"][0]["message"] == NEWER


async def release_newer(queue: QueueReads, too_new: Mapping[str, Callable[[Job], bool]]) -> None:
    """Move the postponed jobs of these names to waiting, except those that are still too new.

    Reads single jobs only if some are postponed.
    """
    if too_new.keys().isdisjoint(await postponed_names(queue)):
        return
    postponed: list[int] = []
    latest = moment_of(queue.store.open().clock.now() + POSTPONED_FOR)
    async for job in queue.iter_jobs(State.DELAYED):
        if job.process_at is None or job.process_at > latest:
            break
        is_known = job.name in too_new and not too_new[job.name](job)
        if is_known and await is_postponed(job):
            postponed.append(job.pk)
    if postponed:
        await bridge.submit(queue.store, MoveJobs(PROMOTE, postponed))


async def postponed_names(queue: QueueReads) -> dict[str, int]:
    """Return the names of postponed jobs, and the number of jobs of each."""
    until = queue.store.open().clock.now() + POSTPONED_FOR
    params = {"queue": queue._pk, "until": until, "message": NEWER, "most": MAX_NAMES}
    return dict(await bridge.query(queue.store, "postponed_names", params))
