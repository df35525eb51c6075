"""Adding jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..states import ADD, ADD_DELAYED, State
from .moving import as_json, take_numbers
from .transaction import Event, Operation, Transaction


class NewJob(NamedTuple):
    """A job as its producer wants it."""

    name: str
    data: str
    opts: str | None
    custom_id: str | None
    priority: int
    rank: int
    lifo: bool
    delay: int
    attempts: int


class Added(NamedTuple):
    """Where a job ended up."""

    id: int
    created_at: int
    new: bool
    """False when a job with its custom id was there already; then `id` is that one's."""


@dataclass(slots=True)
class AddJobs:
    """Add jobs to one queue, all or none. Answers an Added for each, in order."""

    queue: int
    jobs: Sequence[NewJob]
    durable = True

    def keys(self) -> Sequence[int]:
        return ()


def add(tx: Transaction, requests: Sequence[AddJobs]) -> Operation[list[list[Added]]]:
    answers: list[list[Added]] = []
    job_rows: list[tuple[object, ...]] = []
    payload_rows: list[tuple[object, ...]] = []
    number = yield from take_numbers(sum(len(request.jobs) for request in requests))
    by_name = yield from _queues_by_name({request.queue for request in requests})
    for request in requests:
        taken = yield from _taken_ids(request, answers, requests)
        added: list[Added] = []
        books = _Books(tx, request.queue)
        for job in request.jobs:
            existing = taken.get(job.custom_id) if job.custom_id is not None else None
            if existing is not None:
                added.append(Added(existing, tx.now, False))
                continue
            job_rows.append(_job_row(tx, request.queue, number, job, by_name[request.queue]))
            payload_rows.append((number, job.data, job.opts))
            if job.custom_id is not None:
                taken[job.custom_id] = number
            books.enter(number, job)
            added.append(Added(number, tx.now, True))
            number += 1
        books.close()
        answers.append(added)
    if job_rows:
        yield "insert_jobs", job_rows
        yield "insert_payloads", payload_rows
    return answers


def _job_row(
    tx: Transaction, queue: int, number: int, job: NewJob, by_name: bool
) -> tuple[object, ...]:
    delayed = job.delay > 0
    return (
        number,
        queue,
        job.name,
        job.custom_id,
        State.DELAYED.value if delayed else State.WAITING.value,
        job.name if by_name else "",
        job.rank,
        -number if job.lifo else number,
        job.priority,
        int(job.lifo),
        job.delay,
        tx.now + job.delay if delayed else None,
        job.attempts,
        tx.now,
        tx.now,
    )


def _queues_by_name(queues: set[int]) -> Operation[dict[int, bool]]:
    by_name = {}
    for queue in queues:
        result = yield "takes_by_name", {"queue": queue}
        by_name[queue] = bool(result.rows and result.rows[0][0])
    return by_name


def _taken_ids(
    request: AddJobs, answers: list[list[Added]], requests: Sequence[AddJobs]
) -> Operation[dict[str, int]]:
    """The custom ids of this request that stand for a job already, stored or just being added."""
    wanted = [job.custom_id for job in request.jobs if job.custom_id is not None]
    if not wanted:
        return {}
    result = yield "taken_custom_ids", {"queue": request.queue, "custom_ids": as_json(wanted)}
    taken: dict[str, int] = {row[0]: row[1] for row in result.rows}
    for earlier, added in zip(requests, answers, strict=False):
        if earlier.queue == request.queue:
            for job, place in zip(earlier.jobs, added, strict=True):
                if job.custom_id is not None:
                    taken.setdefault(job.custom_id, place.id)
    return taken


class _Books:
    """What one request's new jobs mean for the counts, the log and the workers."""

    def __init__(self, tx: Transaction, queue: int) -> None:
        self._tx = tx
        self._queue = queue
        self._ready: dict[str, int] = {}
        self._prioritized = 0
        self._waiting: list[Event] = []
        self._delayed: list[Event] = []

    def enter(self, number: int, job: NewJob) -> None:
        if job.delay > 0:
            self._delayed.append((number, [job.name, self._tx.now + job.delay]))
            return
        self._waiting.append((number, [job.name]))
        self._ready[job.name] = self._ready.get(job.name, 0) + 1
        if job.priority:
            self._prioritized += 1

    def close(self) -> None:
        tx, queue = self._tx, self._queue
        if self._waiting:
            tx.count(queue, "waiting", len(self._waiting) - self._prioritized)
            tx.count(queue, "prioritized", self._prioritized)
            tx.log(queue, ADD.name, self._waiting)
        if self._delayed:
            tx.count(queue, "delayed", len(self._delayed))
            tx.log(queue, ADD_DELAYED.name, self._delayed)
            tx.made_delayed(queue, min(detail[1] for _, detail in self._delayed))
        for name, number in self._ready.items():
            tx.made_ready(queue, name, number)
