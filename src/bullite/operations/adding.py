"""Adding jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..engine.contract import Step
from ..engine.plan import Request
from ..errors import QueueFull
from ..eventlog import DUPLICATED
from ..states import ADD, ADD_DELAYED, State
from .admitting import Door, open_door
from .moving import as_json, take_numbers
from .transaction import Event, Operation, Transaction

Row = tuple[object, ...]


class Extras(NamedTuple):
    """What few jobs have."""

    timestamp: int | None = None
    """When it was made, if that is not now."""
    run_at: int | None = None
    """When it is due; beats `delay`."""
    expires: int | None = None
    """Ms after which it must have begun."""
    traits: int = 0
    """What else belongs to it: see traits.py."""


class NewJob(NamedTuple):
    """A job as its producer wants it; the first fields are stored as they are, in this order."""

    name: str
    custom_id: str | None
    rank: int
    priority: int
    lifo: int
    delay: int
    attempts: int
    data: str
    opts: str | None
    extras: Extras | None = None
    """If it has any of those."""


NO_EXTRAS = Extras()
_STORED_AS_THEY_ARE = NewJob._fields.index("data")
_LIFO, _DELAY = NewJob._fields.index("lifo"), NewJob._fields.index("delay")


class Added(NamedTuple):
    """Where the jobs of a request ended up, in its order."""

    ids: Sequence[int]
    created_at: int
    existing: frozenset[int]
    """The ids that were found by a custom id, in the store or earlier in the batch."""


class OutOfDate(NamedTuple):
    """The queue's settings changed after the jobs' options were resolved; nothing was added."""


@dataclass(slots=True)
class AddJobs(Request):
    """Add jobs to one queue, all or none. Answers an Added, an OutOfDate, or a QueueFull."""

    queue: int
    jobs: Sequence[NewJob]
    version: int = 1
    """Of the settings that the jobs' options were resolved under."""
    always: bool = False
    """Whatever the queue's quotas: something that was let in before brings them about."""


Answer = Added | OutOfDate | QueueFull


def add(tx: Transaction, requests: Sequence[AddJobs]) -> Operation[list[Answer]]:
    answers: list[Answer] = []
    new: dict[int, dict[int, NewJob]] = {}
    taken: dict[int, dict[str, int]] = {}
    terms: dict[int, Terms] = {}
    doors: dict[int, Door] = {}
    numbers = yield from take_numbers(sum(len(request.jobs) for request in requests))
    used = 0
    # In a fixed order: there may be locks behind the terms.
    for queue in sorted({request.queue for request in requests}):
        terms[queue] = yield from _terms(queue)
        new[queue], taken[queue] = {}, {}
        if terms[queue].has_quotas:
            doors[queue] = yield from open_door(tx, queue)
    for request in requests:
        queue = request.queue
        if terms[queue].version != request.version:
            answers.append(OutOfDate())
            continue
        ids = numbers[used : used + len(request.jobs)]
        used += len(request.jobs)
        fresh = {} if queue in doors else new[queue]
        names = taken[queue]
        duplicates: list[Event] = []
        if any([job.custom_id for job in request.jobs]):  # noqa: C419 - a list is faster
            names = names.copy() if queue in doors else names
            added = yield from _number_by_custom_id(tx, request, ids, fresh, names, duplicates)
        else:
            fresh.update(zip(ids, request.jobs, strict=True))
            added = Added(ids, tx.now, _NONE)
        if queue in doors and not request.always:
            refusal = doors[queue].admit(fresh.values())
            if refusal is not None:
                answers.append(refusal)
                continue
        if queue in doors:
            new[queue] |= fresh
            taken[queue] = names
        if duplicates:
            tx.log(queue, DUPLICATED, duplicates)
        answers.append(added)
    yield from _insert(tx, new, terms)
    for queue, door in doors.items():
        yield from door.close(queue)
    return answers


def add_now(tx: Transaction, queue: int, jobs: Sequence[NewJob]) -> Operation[Added]:
    """Add jobs from inside another operation, under whatever settings the queue has."""
    terms = yield from _terms(queue)
    [added] = yield from add(tx, [AddJobs(queue, jobs, terms.version, always=True)])
    assert isinstance(added, Added)
    return added


_NONE: frozenset[int] = frozenset()


def foreseen(requests: Sequence[AddJobs]) -> list[Step]:
    """What `add` will ask first."""
    count = sum(len(request.jobs) for request in requests)
    first = min(request.queue for request in requests)
    return [("take_numbers", {"count": count}), ("terms", {"queue": first})]


class Terms(NamedTuple):
    """What a producer must know of a queue."""

    by_name: int
    """Whether its jobs stand in the lanes of their names."""
    version: int
    """Of its settings."""
    by_key: int
    has_quotas: int


def _terms(queue: int) -> Operation[Terms]:
    result = yield "terms", {"queue": queue}
    return Terms(*result.rows[0])


def _insert(
    tx: Transaction, new: dict[int, dict[int, NewJob]], terms: dict[int, Terms]
) -> Operation[None]:
    rows: list[Row] = []
    payloads: list[Row] = []
    for queue, jobs in new.items():
        due = {
            id: due
            for id, job in jobs.items()
            if (job.delay or job.extras) and (due := _due(tx, job)) is not None
        }
        rows += _job_rows(tx, queue, jobs, due, by_name=bool(terms[queue].by_name))
        payloads += [(id, job.data, job.opts) for id, job in jobs.items()]
        _enter_in_books(tx, queue, jobs, due)
    if rows:
        yield "insert_jobs", rows
        yield "insert_payloads", payloads


def _due(tx: Transaction, job: NewJob) -> int | None:
    """When a job that is not for now may begin; None if that time is over."""
    extras = job.extras or NO_EXTRAS
    if extras.run_at is not None:
        return extras.run_at if extras.run_at > tx.now else None
    if not job.delay:
        return None
    return (tx.now if extras.timestamp is None else extras.timestamp) + job.delay


def _number_by_custom_id(
    tx: Transaction,
    request: AddJobs,
    numbers: Sequence[int],
    new: dict[int, NewJob],
    taken: dict[str, int],
    duplicates: list[Event],
) -> Operation[Added]:
    """Number the jobs whose custom id is free, put them with the `new`, and find the others.

    `taken` holds the custom ids that earlier requests of the batch met or took; `duplicates` gets
    what is to be told of the others.
    """
    wanted = [job.custom_id for job in request.jobs if job.custom_id]
    result = yield "taken_custom_ids", {"queue": request.queue, "custom_ids": as_json(wanted)}
    taken.update({row[0]: row[1] for row in result.rows})
    ids: list[int] = []
    existing: set[int] = set()
    for id, job in zip(numbers, request.jobs, strict=True):
        found = taken.get(job.custom_id) if job.custom_id else None
        if found is None:
            new[id] = job
            if job.custom_id:
                taken[job.custom_id] = id
        else:
            existing.add(found)
            duplicates.append(job.custom_id or found)
        ids.append(id if found is None else found)
    return Added(ids, tx.now, frozenset(existing))


def _job_rows(
    tx: Transaction, queue: int, new: dict[int, NewJob], due: dict[int, int], by_name: bool
) -> list[Row]:
    now = tx.now
    return [
        (
            id,
            -id if job[_LIFO] else id,
            queue,
            job[0] if by_name else "",
            *(
                (now, now, None, None, "waiting", 0)
                if job[-1] is None and not job[_DELAY]
                else _extras(now, job, due.get(id))
            ),
            *job[:_STORED_AS_THEY_ARE],
        )
        for id, job in new.items()
    ]


def _extras(now: int, job: NewJob, due: int | None) -> Row:
    """When a job was made, changed, is due and expires; so where it is; and its traits."""
    extras = job.extras or NO_EXTRAS
    return (
        now if extras.timestamp is None else extras.timestamp,
        now,
        due,
        None if extras.expires is None else now + extras.expires,
        "waiting" if due is None else "delayed",
        extras.traits,
    )


def _enter_in_books(
    tx: Transaction, queue: int, new: dict[int, NewJob], due: dict[int, int]
) -> None:
    """What new jobs mean for the counts, the log and the workers."""
    if not new:
        return
    waiting = {id: job for id, job in new.items() if id not in due} if due else new
    if waiting:
        prioritized = sum(1 for job in waiting.values() if job.priority)
        tx.count(queue, "waiting", len(waiting) - prioritized)
        tx.count(queue, "prioritized", prioritized)
        tx.log(queue, ADD.name, [(job[1] or id, job[0]) for id, job in waiting.items()])
        for job in waiting.values():
            tx.made_ready(queue, job.name)
    if due:
        events: list[Event] = [
            (new[id].custom_id or id, [new[id].name, at]) for id, at in due.items()
        ]
        tx.count(queue, State.DELAYED.value, len(due))
        tx.log(queue, ADD_DELAYED.name, events)
        tx.made_delayed(queue, min(due.values()))
