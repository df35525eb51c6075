"""Adding jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..engine.contract import Step
from ..engine.plan import Request
from ..eventlog import DUPLICATED
from ..states import ADD, ADD_BLOCKED, ADD_DELAYED, State
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
    """Add jobs to one queue, all or none. Answers an Added, or an OutOfDate."""

    queue: int
    jobs: Sequence[NewJob]
    version: int = 1
    """Of the settings that the jobs' options were resolved under."""


def add(tx: Transaction, requests: Sequence[AddJobs]) -> Operation[list[Added | OutOfDate]]:
    answers: list[Added | OutOfDate] = []
    new: dict[int, dict[int, NewJob]] = {}
    taken: dict[int, dict[str, int]] = {}
    terms: dict[int, tuple[bool, int]] = {}
    numbers = yield from take_numbers(sum(len(request.jobs) for request in requests))
    used = 0
    for request in requests:
        queue = request.queue
        if queue not in terms:
            terms[queue] = yield from terms_of(queue)
            new[queue], taken[queue] = {}, {}
        if terms[queue][1] != request.version:
            answers.append(OutOfDate())
            continue
        ids = numbers[used : used + len(request.jobs)]
        used += len(request.jobs)
        if any([job.custom_id for job in request.jobs]):  # noqa: C419 - a list is faster
            added = yield from _number_by_custom_id(tx, request, ids, new[queue], taken[queue])
        else:
            new[queue].update(zip(ids, request.jobs, strict=True))
            added = Added(ids, tx.now, _NONE)
        answers.append(added)
    yield from insert(tx, new, terms)
    return answers


def add_now(tx: Transaction, queue: int, jobs: Sequence[NewJob]) -> Operation[Added]:
    """Add jobs from inside another operation, under whatever settings the queue has."""
    _, version = yield from terms_of(queue)
    [added] = yield from add(tx, [AddJobs(queue, jobs, version)])
    assert isinstance(added, Added)
    return added


_NONE: frozenset[int] = frozenset()


def foreseen(requests: Sequence[AddJobs]) -> list[Step]:
    """What `add` will ask first."""
    count = sum(len(request.jobs) for request in requests)
    return [("take_numbers", {"count": count}), ("terms", {"queue": requests[0].queue})]


def terms_of(queue: int) -> Operation[tuple[bool, int]]:
    """Whether the queue's jobs stand in the lanes of their names, and its settings' version."""
    result = yield "terms", {"queue": queue}
    by_name, version = result.rows[0]
    return bool(by_name), version


def insert(
    tx: Transaction,
    new: Mapping[int, Mapping[int, NewJob]],
    terms: Mapping[int, tuple[bool, int]],
    blocked: Mapping[int, int | None] = {},
) -> Operation[None]:
    """Write new jobs, by queue and number, and enter them in the books.

    Those `blocked` wait for others, and then for their time if there is one.
    """
    rows: list[Row] = []
    payloads: list[Row] = []
    for queue, jobs in new.items():
        due = {
            id: due
            for id, job in jobs.items()
            if (job.delay or job.extras) and id not in blocked
            if (due := due_of(tx, job)) is not None
        }
        rows += _job_rows(tx, queue, jobs, due, blocked, by_name=terms[queue][0])
        payloads += [(id, job.data, job.opts) for id, job in jobs.items()]
        _enter_in_books(tx, queue, jobs, due, blocked)
    if rows:
        yield "insert_jobs", rows
        yield "insert_payloads", payloads


def due_of(tx: Transaction, job: NewJob) -> int | None:
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
) -> Operation[Added]:
    """Number the jobs whose custom id is free, put them with the `new`, and find the others.

    `taken` holds the custom ids that earlier requests of the batch met or took.
    """
    wanted = [job.custom_id for job in request.jobs if job.custom_id]
    result = yield "taken_custom_ids", {"queue": request.queue, "custom_ids": as_json(wanted)}
    taken.update({row[0]: row[1] for row in result.rows})
    ids: list[int] = []
    existing: set[int] = set()
    duplicates: list[Event] = []
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
    if duplicates:
        tx.log(request.queue, DUPLICATED, duplicates)
    return Added(ids, tx.now, frozenset(existing))


def _job_rows(
    tx: Transaction,
    queue: int,
    new: Mapping[int, NewJob],
    due: Mapping[int, int],
    blocked: Mapping[int, int | None],
    by_name: bool,
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
                else _extras(now, job, *_where(id, due, blocked))
            ),
            *job[:_STORED_AS_THEY_ARE],
        )
        for id, job in new.items()
    ]


def _where(
    id: int, due: Mapping[int, int], blocked: Mapping[int, int | None]
) -> tuple[int | None, State]:
    """When a new job is due, and where it is until then."""
    if id in blocked:
        return blocked[id], State.WAITING_CHILDREN
    return due.get(id), State.DELAYED if id in due else State.WAITING


def _extras(now: int, job: NewJob, due: int | None, state: State) -> Row:
    """When a job was made, changed, is due and expires; where it is; and its traits."""
    extras = job.extras or NO_EXTRAS
    return (
        now if extras.timestamp is None else extras.timestamp,
        now,
        due,
        None if extras.expires is None else now + extras.expires,
        state.value,
        extras.traits,
    )


def _enter_in_books(
    tx: Transaction,
    queue: int,
    new: Mapping[int, NewJob],
    due: Mapping[int, int],
    blocked: Mapping[int, int | None],
) -> None:
    """What new jobs mean for the counts, the log and the workers."""
    if not new:
        return
    waiting = new
    if due or blocked:
        waiting = {id: job for id, job in new.items() if id not in due and id not in blocked}
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
    here = [id for id in blocked if id in new]
    if here:
        tx.count(queue, "waiting_children", len(here))
        tx.log(queue, ADD_BLOCKED.name, [(new[id].custom_id or id, new[id].name) for id in here])
