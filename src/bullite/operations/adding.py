"""Adding jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..engine.plan import Request
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
    """The ids that were found by a custom id, in the store or earlier in the batch."""


@dataclass(slots=True)
class AddJobs(Request):
    """Add jobs to one queue, all or none. Answers an Added."""

    queue: int
    jobs: Sequence[NewJob]


def add(tx: Transaction, requests: Sequence[AddJobs]) -> Operation[list[Added]]:
    answers: list[Added] = []
    new: dict[int, dict[int, NewJob]] = {request.queue: {} for request in requests}
    taken: dict[int, dict[str, int]] = {queue: {} for queue in new}
    number = yield from take_numbers(sum(len(request.jobs) for request in requests))
    for request in requests:
        if any([job.custom_id for job in request.jobs]):  # noqa: C419 - a list is faster
            queue = request.queue
            added = yield from _number_by_custom_id(tx, request, number, new[queue], taken[queue])
        else:
            ids = range(number, number + len(request.jobs))
            new[request.queue].update(zip(ids, request.jobs, strict=True))
            added = Added(ids, tx.now, _NONE)
        answers.append(added)
        number += len(request.jobs)
    yield from _insert(tx, new)
    return answers


_NONE: frozenset[int] = frozenset()


def _insert(tx: Transaction, new: dict[int, dict[int, NewJob]]) -> Operation[None]:
    rows: list[Row] = []
    payloads: list[Row] = []
    for queue, jobs in new.items():
        by_name = yield "takes_by_name", {"queue": queue}
        rows += _job_rows(tx, queue, jobs, bool(by_name.rows[0][0]))
        payloads += [(id, job.data, job.opts) for id, job in jobs.items()]
        _enter_in_books(tx, queue, jobs)
    if rows:
        yield "insert_jobs", rows
        yield "insert_payloads", payloads


def _number_by_custom_id(
    tx: Transaction, request: AddJobs, number: int, new: dict[int, NewJob], taken: dict[str, int]
) -> Operation[Added]:
    """Number the jobs whose custom id is free, put them with the `new`, and find the others.

    `taken` holds the custom ids that earlier requests of the batch met or took.
    """
    wanted = [job.custom_id for job in request.jobs if job.custom_id]
    result = yield "taken_custom_ids", {"queue": request.queue, "custom_ids": as_json(wanted)}
    taken.update({row[0]: row[1] for row in result.rows})
    ids: list[int] = []
    existing: set[int] = set()
    for id, job in enumerate(request.jobs, start=number):
        found = taken.get(job.custom_id) if job.custom_id else None
        if found is None:
            new[id] = job
            if job.custom_id:
                taken[job.custom_id] = id
        else:
            existing.add(found)
        ids.append(id if found is None else found)
    return Added(ids, tx.now, frozenset(existing))


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
        for job in waiting.values():
            tx.made_ready(queue, job.name)
    if delayed:
        events: list[Event] = [(id, [job.name, tx.now + job.delay]) for id, job in delayed.items()]
        tx.count(queue, "delayed", len(delayed))
        tx.log(queue, ADD_DELAYED.name, events)
        tx.made_delayed(queue, tx.now + min(job.delay for job in delayed.values()))
