"""Jobs as `add` returns them, made of what was inserted without reading it again."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.job_record import JobStatusRow
from ...core.states import State
from ...operations.add import NO_RARE_FIELDS, Added, NewJob
from ...operations.add_flow import FlowAdded
from ..job.job import Job
from .reads import QueueReads


def inserted_job(
    queue: QueueReads, new: NewJob, id: int, now: int, state: str | None = None
) -> Job:
    """Return a job that was inserted at `now`, without links to other jobs."""
    rare = new.rare_fields or NO_RARE_FIELDS
    created_at = now if rare.timestamp is None else rare.timestamp
    columns = (id, new.name, new.custom_id, new.priority, new.attempts, 0, 0, 0, created_at,
             None, new.opts, new.rank, -id if new.lifo else id, rare.flags,
             new.data)  # fmt: skip
    due_at = created_at + new.delay if new.delay else rare.run_at
    waits = new.delay > 0 or (rare.run_at or 0) > now
    status = JobStatusRow(
        state or (State.DELAYED.value if waits else State.WAITING.value),
        new.lifo,
        new.delay,
        due_at if waits else None,
        updated_at=now,
        expires_at=None if rare.expires is None else now + rare.expires,
    )
    return Job(queue, columns, status)


def inserted_jobs(
    queue: QueueReads, new: Sequence[NewJob], added: Added, plain_status: JobStatusRow
) -> list[Job]:
    """Return jobs that were inserted together; those without rare fields share a status."""
    now = added.created_at
    return [
        Job(queue, (id, job.name, job.custom_id, job.priority, job.attempts, 0, 0, 0, now, None,
                    job.opts, job.rank, id, 0, job.data), plain_status)
        if job.rare_fields is None and not (job.lifo or job.delay)
        else inserted_job(queue, job, id, now)
        for job, id in zip(new, added.ids)
    ]  # fmt: skip


def former_holder(queue: QueueReads, new: NewJob, id: int, added: Added | FlowAdded) -> Job | None:
    """Return the job that holds the deduplication key of a new one, if only its id is left."""
    if id not in added.behind_keys:
        return None
    named = new._replace(custom_id=added.behind_keys[id])
    return inserted_job(queue, named, id, added.created_at, state="unknown")
