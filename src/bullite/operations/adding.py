"""Adding jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..states import ADD, ADD_DELAYED, State
from .moving import as_json, take_numbers
from .transaction import Event, Operation, Transaction

Row = tuple[object, ...]


class NewJob(NamedTuple):
    """A job as its producer wants it; the first fields are stored as they are, in this order."""

    name: str
    custom_id: str | None
    state: str
    rank: int
    priority: int
    lifo: int
    delay: int
    attempts: int
    data: str
    opts: str | None


_STORED_AS_THEY_ARE = NewJob._fields.index("data")


class Added(NamedTuple):
    """Where the jobs of a request ended up, in its order."""

    ids: Sequence[int]
    created_at: int
    existing: frozenset[int]
    """The ids of jobs that were there already, found by a custom id; nothing was added for them."""


@dataclass(slots=True)
class AddJobs:
    """Add jobs to one queue, all or none. Answers an Added."""

    queue: int
    jobs: Sequence[NewJob]
    durable = True
    barrier = False

    def keys(self) -> Sequence[int]:
        return ()


def add(tx: Transaction, requests: Sequence[AddJobs]) -> Operation[list[Added]]:
    answers: list[Added] = []
    rows: list[Row] = []
    payloads: list[Row] = []
    number = yield from take_numbers(sum(len(request.jobs) for request in requests))
    for request in requests:
        by_name = yield "takes_by_name", {"queue": request.queue}
        ids, new = yield from _number(request, number, answers, requests)
        number += len(new)
        existing = frozenset(ids) - new.keys() if len(new) < len(ids) else frozenset()
        answers.append(Added(ids, tx.now, existing))
        rows += _job_rows(tx, request.queue, new, bool(by_name.rows[0][0]))
        payloads += [(id, job.data, job.opts) for id, job in new.items()]
        _enter_in_books(tx, request.queue, new)
    if rows:
        yield "insert_jobs", rows
        yield "insert_payloads", payloads
    return answers


def _number(
    request: AddJobs, number: int, answers: list[Added], requests: Sequence[AddJobs]
) -> Operation[tuple[Sequence[int], dict[int, NewJob]]]:
    """The id of each job, and the new ones among them by id."""
    if not any(job.custom_id for job in request.jobs):
        ids = range(number, number + len(request.jobs))
        return ids, dict(zip(ids, request.jobs, strict=True))
    taken = yield from _taken_ids(request, answers, requests)
    found: list[int] = []
    new: dict[int, NewJob] = {}
    for job in request.jobs:
        id = taken.get(job.custom_id) if job.custom_id else None
        if id is None:
            id = number + len(new)
            new[id] = job
            if job.custom_id:
                taken[job.custom_id] = id
        found.append(id)
    return found, new


def _taken_ids(
    request: AddJobs, answers: list[Added], requests: Sequence[AddJobs]
) -> Operation[dict[str, int]]:
    """The custom ids of this request that stand for a job already, stored or just being added."""
    wanted = [job.custom_id for job in request.jobs if job.custom_id]
    result = yield "taken_custom_ids", {"queue": request.queue, "custom_ids": as_json(wanted)}
    taken: dict[str, int] = {row[0]: row[1] for row in result.rows}
    for earlier, added in zip(requests, answers, strict=False):
        if earlier.queue == request.queue:
            for job, id in zip(earlier.jobs, added.ids, strict=True):
                if job.custom_id:
                    taken.setdefault(job.custom_id, id)
    return taken


def _job_rows(tx: Transaction, queue: int, new: dict[int, NewJob], by_name: bool) -> list[Row]:
    now = tx.now
    return [
        (
            id,
            -id if job.lifo else id,
            queue,
            job.name if by_name else "",
            now,
            now,
            now + job.delay if job.delay else None,
            *job[:_STORED_AS_THEY_ARE],
        )
        for id, job in new.items()
    ]


def _enter_in_books(tx: Transaction, queue: int, new: dict[int, NewJob]) -> None:
    """What new jobs mean for the counts, the log and the workers."""
    if not new:
        return
    delayed = {id: job for id, job in new.items() if job.state == State.DELAYED}
    waiting = {id: job for id, job in new.items() if id not in delayed} if delayed else new
    if waiting:
        prioritized = sum(1 for job in waiting.values() if job.priority)
        tx.count(queue, "waiting", len(waiting) - prioritized)
        tx.count(queue, "prioritized", prioritized)
        tx.log(queue, ADD.name, [(id, job.name) for id, job in waiting.items()])
        for name, number in Counter([job.name for job in waiting.values()]).items():
            tx.made_ready(queue, name, number)
    if delayed:
        events: list[Event] = [(id, [job.name, tx.now + job.delay]) for id, job in delayed.items()]
        tx.count(queue, "delayed", len(delayed))
        tx.log(queue, ADD_DELAYED.name, events)
        tx.made_delayed(queue, tx.now + min(job.delay for job in delayed.values()))
