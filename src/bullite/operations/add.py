"""Adds: insert jobs, unless a custom id, a deduplication key or a quota prevents it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.codec import as_json, decode
from ..core.deduplication import DeduplicationRule
from ..core.event_log import DUPLICATED
from ..core.job_flags import TAGGED
from ..core.states import ADD, ADD_DELAYED, ADD_WAITING_CHILDREN, State
from ..database.driver import ColumnarRows, ConstantColumn, Step
from ..errors import QueueFull
from .deduplicate import LockedKeys, lock_keys
from .queues import QueueAddInfo, load_add_info
from .quotas import QuotaCheck, load_quotas
from .request import Request
from .transaction import Event, Operation, Transaction
from .transitions import UNSORTED, allocate_ids

Row = tuple[object, ...]


class RareFields(NamedTuple):
    """Values that few jobs have."""

    timestamp: int | None = None
    """The option `timestamp`: when the job was created, if not now."""
    run_at: int | None = None
    """When the job is due; overrides `delay`."""
    expires: int | None = None
    """Ms after which the job expires unless it has started."""
    flags: int = 0
    """See job_flags.py."""
    deduplication: DeduplicationRule | None = None
    """The deduplication key of the job, and its rule."""


class NewJob(NamedTuple):
    """A job to be added; the fields up to `data` are stored as they are, in this order."""

    name: str
    custom_id: str | None
    rank: int
    priority: int
    lifo: int
    delay: int
    attempts: int
    data: str
    opts: str | None
    rare_fields: RareFields | None = None
    """None if the job has none of these values."""


NO_RARE_FIELDS = RareFields()
_NAME, _CUSTOM_ID, _LIFO, _DELAY, _DATA, _OPTS, _RARE = (
    NewJob._fields.index(field)
    for field in ("name", "custom_id", "lifo", "delay", "data", "opts", "rare_fields")
)


class Added(NamedTuple):
    """The ids of the jobs of a request, in its order."""

    ids: Sequence[int]
    created_at: int
    existing: frozenset[int]
    """The ids of existing jobs, in the database or earlier in the batch: they have the custom id of
    a job of the request, or hold its deduplication key."""
    behind_keys: Mapping[int, str | None] = {}
    """The custom ids of the existing jobs that hold a key; such a job may have been deleted."""


class StaleSettings(NamedTuple):
    """The reply if the settings of the queue changed after the options of the jobs were resolved;
    nothing was added."""


class AddJobs(Request):
    """Add all jobs to one queue, or none. Reply with Added, StaleSettings or QueueFull."""

    queue: int
    jobs: Sequence[NewJob]
    version: int = 1
    """Version of the settings with which the options of the jobs were resolved."""
    always: bool = False
    """Do not check quotas: the jobs follow from a job or a request that was accepted before."""
    skip_quotas: Collection[str] = ()
    """Custom ids of jobs that quotas on numbers do not count."""


Reply = Added | StaleSettings | QueueFull


def add(tx: Transaction, requests: Sequence[AddJobs]) -> Operation[list[Reply]]:
    replies: list[Reply] = []
    batch = _Batch()
    numbers = yield from allocate_ids(sum(len(request.jobs) for request in requests))
    used = 0
    # In a fixed order, to avoid deadlocks: quotas lock the queue.
    for queue in sorted({request.queue for request in requests}):
        yield from batch.open(tx, queue)
    for request in requests:
        if batch.add_info[request.queue].version != request.version:
            replies.append(StaleSettings())
            continue
        ids = numbers[used : used + len(request.jobs)]
        used += len(request.jobs)
        replies.append((yield from batch.number(tx, requests, request, ids)))
    batch.log_duplicates(tx)
    yield from insert(tx, batch.new, batch.add_info)
    yield from batch.close(tx)
    return replies


class _Batch:
    """Jobs that are added together: the new jobs, and the ids, quotas and keys checked so far."""

    def __init__(self) -> None:
        self.new: dict[int, dict[int, NewJob]] = {}
        self.add_info: dict[int, QueueAddInfo] = {}
        self._taken: dict[int, dict[str, int]] = {}
        self._checks: dict[int, QuotaCheck] = {}
        self._keys: LockedKeys | None = None
        self._duplicates: list[tuple[int, list[Event]]] = []

    def open(self, tx: Transaction, queue: int) -> Operation[None]:
        self.add_info[queue] = yield from load_add_info(queue)
        self.new[queue], self._taken[queue] = {}, {}
        if self.add_info[queue].has_quotas:
            self._checks[queue] = yield from load_quotas(tx, queue)

    def number(
        self,
        tx: Transaction,
        requests: Sequence[AddJobs],
        request: AddJobs,
        ids: Sequence[int],
    ) -> Operation[Added | QueueFull]:
        """Add the jobs of a request to the new ones. Return their ids, or the error of a quota."""
        queue = request.queue
        check = None if request.always else self._checks.get(queue)
        # With quotas, work on copies: a request that is refused must change nothing.
        new = self.new[queue] if check is None else {}
        taken, keys = self._taken[queue], self._keys
        duplicates: list[Event] = []
        if any([job[_CUSTOM_ID] or job[_RARE] for job in request.jobs]):  # noqa: C419 - a list is faster
            keys = keys or (yield from _wanted_keys(requests, self.add_info))
            self._keys = keys
            if check is not None:
                taken, keys = taken.copy(), keys.copy()
            added = yield from _assign_ids(tx, request, ids, new, taken, keys, duplicates)
        else:
            new.update(zip(ids, request.jobs, strict=True))
            added = Added(ids, tx.now, _NONE)
        if check is not None:
            counted = [job for job in new.values() if job.custom_id not in request.skip_quotas]
            uncounted = [job for job in new.values() if job.custom_id in request.skip_quotas]
            refusal = check.admit(counted, uncounted)
            if refusal is not None:
                return refusal
            self.new[queue] |= new
            self._taken[queue], self._keys = taken, keys
        if duplicates:
            self._duplicates.append((queue, duplicates))
        return added

    def log_duplicates(self, tx: Transaction) -> None:
        """Log an event for each job whose custom id exists already."""
        for queue, duplicates in self._duplicates:
            tx.log(queue, DUPLICATED, duplicates)

    def close(self, tx: Transaction) -> Operation[None]:
        if self._keys is not None:
            yield from self._keys.save(tx)
        for queue, check in self._checks.items():
            yield from check.save(queue)


def quota_error(tx: Transaction, request: AddJobs) -> Operation[QueueFull | None]:
    """Return the error with which a quota would refuse this request; None if `add` accepts it."""
    batch = _Batch()
    yield from batch.open(tx, request.queue)
    if not batch.add_info[request.queue].has_quotas:
        return None
    answer = yield from batch.number(tx, [request], request, range(len(request.jobs)))
    if not isinstance(answer, QueueFull):
        return None
    yield from batch.close(tx)  # none of these jobs was added: release the keys
    return answer


def add_within(tx: Transaction, queue: int, jobs: Sequence[NewJob]) -> Operation[Added]:
    """Add jobs from inside another operation, with the present settings of the queue."""
    add_info = yield from load_add_info(queue)
    [added] = yield from add(tx, [AddJobs(queue, jobs, add_info.version, always=True)])
    assert isinstance(added, Added)
    return added


_NONE: frozenset[int] = frozenset()


def first_statements(requests: Sequence[AddJobs]) -> list[Step]:
    """Return the first statements of `add`."""
    count = sum(len(request.jobs) for request in requests)
    first = min(request.queue for request in requests)
    return [("take_numbers", {"count": count}), ("add_info", {"queue": first})]


def insert(
    tx: Transaction,
    new: Mapping[int, Mapping[int, NewJob]],
    add_info: Mapping[int, QueueAddInfo],
    blocked: Mapping[int, int | None] = {},
) -> Operation[None]:
    """Insert new jobs, by queue and number, and record them in counts, log and notifications.

    The jobs in `blocked` wait for other jobs and after that until their due time, if they have one.
    """
    for queue, jobs in new.items():
        if not jobs:
            continue
        fields = list(zip(*jobs.values(), strict=True))
        due: Mapping[int, int] = {}
        if not _has_no_rare_fields(fields):
            due = {
                id: at
                for id, job in jobs.items()
                if id not in blocked and (at := due_time(tx, job)) is not None
            }
        lanes = fields[_NAME] if add_info[queue].by_name else ConstantColumn(UNSORTED)
        table = _job_table(tx, queue, jobs, fields, lanes, due, blocked)
        found_by = [table.columns[index] for index in _FOUND_BY]
        payloads = ColumnarRows(len(jobs), (list(jobs), fields[_DATA], fields[_OPTS], *found_by))
        yield "insert_jobs", table
        yield "insert_payloads", payloads
        if any(fields[_RARE]):
            tagged = _tags(tx, queue, jobs)
            if tagged:
                yield "insert_tags", tagged
        _record_added(tx, queue, jobs, due, blocked)


def _tags(
    tx: Transaction, queue: int, jobs: Mapping[int, NewJob]
) -> list[tuple[int, str, int, int]]:
    """Return rows for the tags of new jobs: queue, tag, creation time of the job, its number."""
    return [
        (queue, tag, tx.now if job.rare_fields.timestamp is None else job.rare_fields.timestamp, id)
        for id, job in jobs.items()
        if job.rare_fields is not None and job.rare_fields.flags & TAGGED and job.opts is not None
        for tag in dict.fromkeys(decode(job.opts).get("tags", ()))
    ]


def _has_no_rare_fields(fields: Sequence[Sequence[Any]]) -> bool:
    """Return True if no job has a delay or rare fields."""
    return not (any(fields[_RARE]) or any(fields[_DELAY]))


def due_time(tx: Transaction, job: NewJob) -> int | None:
    """Return the due time of a new job; None if it is due now."""
    extras = job.rare_fields or NO_RARE_FIELDS
    if extras.run_at is not None:
        return extras.run_at if extras.run_at > tx.now else None
    if not job.delay:
        return None
    return (tx.now if extras.timestamp is None else extras.timestamp) + job.delay


def _wanted_keys(
    requests: Sequence[AddJobs], add_info: Mapping[int, QueueAddInfo]
) -> Operation[LockedKeys]:
    """Lock the deduplication keys of the jobs of all requests with current settings."""
    wanted = [
        (request.queue, job.rare_fields.deduplication.id)
        for request in requests
        if add_info[request.queue].version == request.version
        for job in request.jobs
        if job.rare_fields is not None and job.rare_fields.deduplication is not None
    ]
    return (yield from lock_keys(wanted))


def _assign_ids(
    tx: Transaction,
    request: AddJobs,
    numbers: Sequence[int],
    new: dict[int, NewJob],
    taken: dict[str, int],
    keys: LockedKeys,
    duplicates: list[Event],
) -> Operation[Added]:
    """Add the jobs whose custom id and key are free to `new`, with ids; find the existing others.

    `taken` has the custom ids that earlier requests of the batch found or used. The events of
    duplicates are appended to `duplicates`.
    """
    wanted = [job.custom_id for job in request.jobs if job.custom_id]
    if wanted:
        result = yield "taken_custom_ids", {"queue": request.queue, "custom_ids": as_json(wanted)}
        taken.update(result.rows)
    ids: list[int] = []
    existing: set[int] = set()
    behind_keys: dict[int, str | None] = {}
    for id, job in zip(numbers, request.jobs, strict=True):
        found = taken.get(job.custom_id) if job.custom_id else None
        if found is not None:
            duplicates.append(job.custom_id or found)
        elif job.rare_fields is not None and job.rare_fields.deduplication is not None:
            state = State.WAITING if due_time(tx, job) is None else State.DELAYED
            rule = job.rare_fields.deduplication
            holder = keys.resolve(tx.now, request.queue, id, job, rule, state)
            if holder is not None:
                found = holder.job
                behind_keys[found] = holder.custom_id
        if found is None:
            new[id] = job
            if job.custom_id:
                taken[job.custom_id] = id
        else:
            existing.add(found)
        ids.append(id if found is None else found)
    return Added(ids, tx.now, frozenset(existing), behind_keys)


def _job_table(
    tx: Transaction,
    queue: int,
    jobs: Mapping[int, NewJob],
    fields: Sequence[Sequence[Any]],
    lanes: Sequence[str] | ConstantColumn,
    due: Mapping[int, int],
    blocked: Mapping[int, int | None],
) -> ColumnarRows:
    ids = list(jobs)
    now = tx.now
    seqs = ids
    if any(fields[_LIFO]):
        seqs = [-id if lifo else id for id, lifo in zip(ids, fields[_LIFO], strict=True)]
    extras: Iterable[Sequence[Any] | ConstantColumn] = map(
        ConstantColumn, (now, now, None, None, "waiting", 0)
    )
    if not _has_no_rare_fields(fields):
        extras = zip(
            *[_extras(now, job, *_due_and_state(id, due, blocked)) for id, job in jobs.items()],
            strict=True,
        )
    return ColumnarRows(
        len(ids), (ids, seqs, ConstantColumn(queue), lanes, *extras, *fields[:_DATA])
    )


_COLUMNS = (
    *("id", "seq", "queue", "lane"),
    *("created_at", "updated_at", "due_at", "expires_at", "state", "traits"),
    *NewJob._fields[:_DATA],
)
"""The columns of that table."""

_FOUND_BY = tuple(map(_COLUMNS.index, ("queue", "name", "created_at")))
"""The positions of the columns that the statement `insert_payloads` repeats, for searches."""


def _due_and_state(
    id: int, due: Mapping[int, int], blocked: Mapping[int, int | None]
) -> tuple[int | None, State]:
    """Return the due time and the state of a new job."""
    if id in blocked:
        return blocked[id], State.WAITING_CHILDREN
    return due.get(id), State.DELAYED if id in due else State.WAITING


def _extras(now: int, job: NewJob, due: int | None, state: State) -> Row:
    """Return the columns from `created_at` to `traits` of a job."""
    extras = job.rare_fields or NO_RARE_FIELDS
    return (
        now if extras.timestamp is None else extras.timestamp,
        now,
        due,
        None if extras.expires is None else now + extras.expires,
        state.value,
        extras.flags,
    )


def _record_added(
    tx: Transaction,
    queue: int,
    new: Mapping[int, NewJob],
    due: Mapping[int, int],
    blocked: Mapping[int, int | None],
) -> None:
    """Record new jobs in the counts, the log and the notifications."""
    waiting = new
    if due or blocked:
        waiting = {id: job for id, job in new.items() if id not in due and id not in blocked}
    if waiting:
        names, custom_ids, _, priorities, *_ = zip(*waiting.values(), strict=True)
        plain = priorities.count(0)
        tx.count(queue, "waiting", plain)
        tx.count(queue, "prioritized", len(waiting) - plain)
        ids: Iterable[int | str] = waiting
        if any(custom_ids):
            ids = [custom_id or id for id, custom_id in zip(waiting, custom_ids, strict=True)]
        tx.log(queue, ADD.name, list(zip(ids, names, strict=True)))
        for name, number in Counter(names).items():
            tx.notify_ready(queue, name, number)
    if due:
        events: list[Event] = [
            (new[id].custom_id or id, [new[id].name, at]) for id, at in due.items()
        ]
        tx.count(queue, State.DELAYED.value, len(due))
        tx.log(queue, ADD_DELAYED.name, events)
        tx.notify_due(queue, min(due.values()))
    here = [id for id in blocked if id in new]
    if here:
        tx.count(queue, "waiting_children", len(here))
        tx.log(
            queue,
            ADD_WAITING_CHILDREN.name,
            [(new[id].custom_id or id, new[id].name) for id in here],
        )
