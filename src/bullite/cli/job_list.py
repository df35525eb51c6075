"""The jobs that `list` shows: newest first, from one queue or from all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..client.queue.search import JobFilter, find, lists_meant
from ..client.read_only import ReadOnlyQueue
from ..core.job_record import JobRecord
from .console import InvalidInput, one_line
from .job_format import lists_of, status_of, what_it_does
from .session import Session
from .times import stamp

COLUMNS = ("ID", "QUEUE", "STATUS", "PRIORITY", "ATTEMPTS", "CREATED", "COMMAND")

MAX_SHOWN = 200
"""Characters of a command, on however wide a terminal."""

_AT_ONCE = 500


class Page(NamedTuple):
    """Jobs, and whether there may be more."""

    jobs: Sequence[JobRecord]
    cursor: str | None
    """To go on from; only of one queue."""
    may_be_more: bool


def page_of(
    session: Session,
    queues: Sequence[ReadOnlyQueue],
    criteria: JobFilter,
    word: str | None,
    limit: int,
    cursor: str | None,
) -> Page:
    """The next jobs that fit, of all these queues together."""
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
    at_once = limit if status is None else max(limit, _AT_ONCE)
    while True:
        found, behind = session.wait(find(queue, criteria, at_once, cursor))
        fitting = [job for job in found if status is None or status_of(job) == status]
        missing = limit - len(jobs)
        if len(fitting) > missing:
            # A cursor stands behind what was found, and this is too much: look again, for less.
            at_once = found.index(fitting[missing - 1]) + 1
            continue
        jobs += fitting
        cursor = behind
        if cursor is None or len(jobs) == limit:
            return Page(jobs, cursor, cursor is not None)


def row_of(job: JobRecord, on_terminal: bool) -> Sequence[str]:
    """A job under the columns; for people what is too long for their screen is cut off."""
    does = what_it_does(job)
    return (
        job.id,
        job.queue_name,
        status_of(job),
        str(job.priority),
        f"{job.attempts_made}/{job.attempts}",
        stamp(job.created_at, on_terminal),
        one_line(does, MAX_SHOWN) if on_terminal else does,
    )
