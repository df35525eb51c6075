"""The jobs of `queuectl list`: newest first, of one queue or of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..client.queue.search import JobFilter, find, lists_meant
from ..client.read_only import ReadOnlyQueue
from ..core.job_record import JobRecord
from .console import InvalidInput, one_line
from .job_format import description_of, lists_of, status_of
from .session import Session
from .times import stamp

COLUMNS = ("ID", "QUEUE", "STATUS", "PRIORITY", "ATTEMPTS", "CREATED", "COMMAND")

MAX_LENGTH = 200
"""Maximum length of a command on a terminal."""

_BATCH = 500
"""Jobs read at a time when they are filtered by status."""


class Page(NamedTuple):
    """One page of a list."""

    jobs: Sequence[JobRecord]
    cursor: str | None
    """The start of the next page, for a list of one queue."""
    may_be_more: bool


def page_of(
    session: Session,
    queues: Sequence[ReadOnlyQueue],
    criteria: JobFilter,
    word: str | None,
    limit: int,
    cursor: str | None,
) -> Page:
    """Return the next jobs that match, of all these queues together."""
    if cursor is not None and len(queues) != 1:
        raise InvalidInput("--cursor goes on in one queue: say in which with --queue")
    status = None
    if word is not None:
        words, status = lists_of(word)
        lists, outcome = lists_meant(words)
        criteria = criteria._replace(lists=tuple(lists), outcome=outcome)
    found = [_of_queue(session, queue, criteria, status, limit, cursor) for queue in queues]
    jobs = sorted(
        (job for page in found for job in page.jobs),
        key=lambda job: (job.timestamp, job.pk),
        reverse=True,
    )
    more = len(jobs) > limit or any(page.may_be_more for page in found)
    return Page(jobs[:limit], found[0].cursor if len(found) == 1 else None, more)


def _of_queue(
    session: Session,
    queue: ReadOnlyQueue,
    criteria: JobFilter,
    status: str | None,
    limit: int,
    cursor: str | None,
) -> Page:
    jobs: list[JobRecord] = []
    batch = limit if status is None else max(limit, _BATCH)
    while True:
        found, next_cursor = session.wait(find(queue, criteria, batch, cursor))
        fitting = [job for job in found if status is None or status_of(job) == status]
        missing = limit - len(jobs)
        if len(fitting) > missing:
            # The cursor points after all found jobs, and some do not fit on the page: read fewer.
            batch = found.index(fitting[missing - 1]) + 1
            continue
        jobs += fitting
        cursor = next_cursor
        if cursor is None or len(jobs) == limit:
            return Page(jobs, cursor, cursor is not None)


def row_of(job: JobRecord, on_terminal: bool) -> Sequence[str]:
    """Return a job as a table row; on a terminal long commands are cut."""
    command = description_of(job)
    return (
        job.id,
        job.queue_name,
        status_of(job),
        str(job.priority),
        f"{job.attempts_made}/{job.attempts}",
        stamp(job.created_at, on_terminal),
        one_line(command, MAX_LENGTH) if on_terminal else command,
    )
