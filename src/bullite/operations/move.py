"""Operator moves: transitions of jobs without their claim token, one or many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.checks import MAX_TIME
from ..core.codec import as_json
from ..core.job_flags import DEDUPLICATED, DOWNSTREAM, SCHEDULED, STEPPED, UPSTREAM
from ..core.states import (
    COMPLETED,
    DELETE,
    DELETE_ACTIVE,
    PRIORITIZED,
    PROMOTE,
    REMOVE,
    RESCHEDULE,
    RESTORE,
    RESTORE_DELAYED,
    RETRY_FINISHED,
    RETRY_FINISHED_DELAYED,
    Move,
    State,
)
from ..errors import (
    BulliteError,
    IllegalMove,
    JobIdTaken,
    JobLocked,
    JobNotFound,
    SchedulerOwnsJob,
)
from . import dependencies
from .deduplicate_release import moved_by_operator
from .job_lists import rows_of_list
from .request import Request
from .transaction import Event, Operation, Transaction
from .transitions import (
    LockedJob,
    count_in,
    count_out,
    delete_jobs,
    load_for_update,
    move_to_queue,
    transition,
    transition_to_queue_end,
)


class MoveJobs(Request):
    """Move jobs without their claim token. Reply with the jobs that moved.

    A job in a state from which the table does not allow the move is left out.
    """

    move: Move
    jobs: Sequence[int]
    delay: int = 0
    """Ms, for moves to `delayed`."""
    forget_attempts: bool = False
    """For moves that let a finished job run again: delete its attempts and steps."""
    with_parents: bool = False
    """For moves that remove or delete jobs: a parent of the same queue goes with its last child."""
    barrier = True

    def job_ids(self) -> Sequence[int]:
        return self.jobs


def move_jobs(tx: Transaction, requests: Sequence[MoveJobs]) -> Operation[list[list[int]]]:
    replies = []
    for request in requests:
        moved = yield from _move_all(tx, request)
        replies.append([row.job for row in moved])
    return replies


def _move_all(tx: Transaction, request: MoveJobs) -> Operation[list[LockedJob]]:
    """Move the jobs that can be moved, and the parents that go with them. Return their old rows."""
    moved: list[LockedJob] = []
    jobs = request.jobs
    while jobs:
        there = yield from _move_some(tx, request, jobs)
        moved += there
        jobs = yield from _resolve_links(tx, request, there)
    return moved


def _move_some(
    tx: Transaction, request: MoveJobs, jobs: Sequence[int]
) -> Operation[list[LockedJob]]:
    """Move the jobs that can be moved. Return their old rows."""
    rows = yield from load_for_update(jobs)
    wanted = [rows[job] for job in dict.fromkeys(jobs) if job in rows]
    if request.move is REMOVE:
        owned = yield from _owners(wanted)
        wanted = [row for row in wanted if row.job not in owned]
    moved: list[LockedJob] = []
    for source in request.move.sources:
        there = [p for p in wanted if p.state == source and _may(request.move, p)]
        there = yield from _with_free_ids(request.move, there)
        there = yield from _without_children_elsewhere(request.move, source, there)
        if there:
            yield from _move_from(tx, request, source, there)
            moved += there
    keyed = [row for row in moved if row.flags & DEDUPLICATED]
    if keyed:
        # Together, whatever states the jobs were in: keys are locked in one order.
        yield from moved_by_operator(tx, request.move, keyed)
    return moved


def _without_children_elsewhere(
    move: Move, source: State, rows: list[LockedJob]
) -> Operation[list[LockedJob]]:
    """Leave out parents that wait for children in other queues, if a queue is deleted."""
    if move is not DELETE or source is not State.WAITING_CHILDREN or not rows:
        return rows
    found = yield "with_children_elsewhere", {"jobs": as_json([row.job for row in rows])}
    kept = {job for [job] in found.rows}
    return [row for row in rows if row.job not in kept]


def _resolve_links(
    tx: Transaction, request: MoveJobs, moved: Sequence[LockedJob]
) -> Operation[list[int]]:
    """Change the links of the moved jobs. Return the jobs that must make the same move."""
    awaited = [row.job for row in moved if row.flags & UPSTREAM]
    if request.move in RESTORE.values():
        if awaited:
            yield from load_for_update((yield from dependencies.waiting_for(awaited)))
            yield "restore_links", {"jobs": as_json(awaited)}
        blocked = [p.job for p in moved if p.removed_from == State.WAITING_CHILDREN]
        if blocked:
            yield from dependencies.release_if_ready(tx, blocked)
        return []
    if not awaited or request.move.target not in (State.REMOVED, None):
        return []
    queues = {row.queue for row in moved} if request.with_parents else frozenset[int]()
    for_good = request.move.target is None
    going = yield from dependencies.on_removed(tx, awaited, for_good=for_good, parents_in=queues)
    return [row.job for row in going]


class MoveListed(Request):
    """Move the next jobs of a list, in its order. Reply with a Moved.

    Jobs that cannot be moved are skipped: the next request starts after them.
    """

    queue: int
    list: str
    """The name of the list: a state, or `prioritized`."""
    move: Move
    most: int
    """Maximum number of jobs of the list to read."""
    before: int
    """Jobs that were added, or finished, later than this are not moved."""
    after: tuple[int, int]
    """The position in the list where the previous request ended."""
    since: int
    """Time of the first request for the list. A job that was retried or promoted since then may be
    in the list again; it is not moved a second time."""
    delay: int = 0
    forget_attempts: bool = False
    barrier = True


class Moved(NamedTuple):
    """The reply to a `MoveListed`."""

    ids: list[str]
    """The ids of the jobs of the list that moved, in its order."""
    after: tuple[int, int] | None
    """The position where the next request starts; None at the end of the list."""
    frees: bool
    """Other jobs became waiting or delayed because these were removed."""
    at: int


def move_listed(tx: Transaction, requests: Sequence[MoveListed]) -> Operation[list[Moved]]:
    replies = []
    for request in requests:
        first, second = request.after
        is_taken_out = request.move.target in (State.REMOVED, None)
        params = {
            "queue": request.queue,
            "first": first,
            "second": second,
            "before": request.before,
            "since": MAX_TIME if is_taken_out else request.since,
            "most": request.most,
        }
        rows = yield from rows_of_list(request.queue, f"oldest:{request.list}", params)
        jobs = [job for job, *_ in rows]
        moving = MoveJobs(
            request.move, jobs, request.delay, request.forget_attempts, with_parents=is_taken_out
        )
        ready = _unstarted(tx, request.queue)
        moved = yield from _move_all(tx, moving)
        left = sum(p.queue == request.queue and p.state in _UNSTARTED for p in moved)
        frees = is_taken_out and _unstarted(tx, request.queue) > ready - left
        went = {row.job for row in moved}
        ids = [custom_id or str(job) for job, custom_id, *_ in rows if job in went]
        after = None
        if len(rows) == request.most:
            *_, (_, _, first, second) = rows
            after = first, second
        replies.append(Moved(ids, after, frees, tx.now))
    return replies


_UNSTARTED = (State.WAITING, State.DELAYED)


def _unstarted(tx: Transaction, queue: int) -> int:
    """Return by how much `tx` has increased the number of waiting and delayed jobs of a queue."""
    return sum(tx.counted(queue, name) for name in (*_UNSTARTED, PRIORITIZED))


class MoveJob(Request):
    """Move one job without its claim token. Reply with None, or with an error that says why not."""

    move: Move
    job: int
    id: str
    """The public id."""
    delay: int = 0
    forget_attempts: bool = False
    source: State | None = None
    """The only state from which the job may move; None for all that the table allows."""
    with_descendants: bool = False
    """All its descendants make the same move; if one of them runs, no job moves."""
    barrier = True

    def job_ids(self) -> Sequence[int]:
        return (self.job,)


def move_job(tx: Transaction, requests: Sequence[MoveJob]) -> Operation[list[BulliteError | None]]:
    replies: list[BulliteError | None] = []
    for request in requests:
        row = (yield from load_for_update([request.job])).get(request.job)
        moved: list[int] = []
        descendants: list[LockedJob] = []
        if row is not None and request.with_descendants and row.flags & DOWNSTREAM:
            descendants = yield from _descendants(request)
        running = [p for p in descendants if p.state == State.ACTIVE]
        if row is not None and request.source in (None, row.state) and not running:
            moved = yield from _move_with_descendants(tx, request, row, descendants)
        owners = (yield from _owners([row])) if row is not None and not moved else {}
        owner = owners.get(request.job)
        replies.append(None if moved else _why_not(request, row, running, owner))
    return replies


def _owners(rows: Sequence[LockedJob]) -> Operation[dict[int, str]]:
    """Return the pending jobs of schedulers, with the keys: only a scheduler removes its own."""
    scheduled = [row.job for row in rows if row.flags & SCHEDULED]
    if not scheduled:
        return {}
    found = yield "owning_schedulers", {"jobs": as_json(scheduled)}
    return dict(found.rows)


def _descendants(request: MoveJob) -> Operation[list[LockedJob]]:
    """Return the descendants of a job: the removed ones if it is restored, else the others."""
    found = yield "descendants", {"jobs": as_json([request.job])}
    rows = yield from load_for_update([job for job, *_ in found.rows])
    is_back = request.move in RESTORE.values()
    return [p for p in rows.values() if (p.state == State.REMOVED) == is_back]


def _move_with_descendants(
    tx: Transaction, request: MoveJob, row: LockedJob, descendants: Sequence[LockedJob]
) -> Operation[list[int]]:
    """Move a job and its descendants.

    Restore descendants first: a parent that is restored before its children would find that it
    waits for none.
    """
    moving = MoveJobs(request.move, (request.job,), request.delay, request.forget_attempts)
    if request.move in RESTORE.values():
        if (yield from _with_free_ids(request.move, [row])):
            for state, move in RESTORE.items():
                jobs = [member.job for member in descendants if member.removed_from == state]
                yield from move_jobs(tx, [MoveJobs(move, jobs)])
        [moved] = yield from move_jobs(tx, [moving])
        return moved
    [moved] = yield from move_jobs(tx, [moving])
    if moved and descendants:
        yield from move_jobs(tx, [MoveJobs(request.move, [p.job for p in descendants])])
    return moved


def _why_not(
    request: MoveJob,
    row: LockedJob | None,
    running: Sequence[LockedJob] = (),
    owner: str | None = None,
) -> BulliteError:
    id, move = request.id, request.move
    if running:
        child = running[0].public_id
        return JobLocked(
            f"job {id} could not be removed: its descendant {child} is locked by the worker that "
            "runs it; nothing was removed"
        )
    sources = move.sources if request.source is None else (request.source,)
    if row is None or (row.state == State.REMOVED and State.REMOVED not in sources):
        return JobNotFound(f"job {id} does not exist")
    if owner is not None and move is REMOVE:
        return SchedulerOwnsJob(
            f"job {id} belongs to the job scheduler {owner!r} and cannot be removed by itself: "
            f"remove_job_scheduler({owner!r}) removes both"
        )
    if row.state in sources:
        return JobIdTaken(f"another job is called {id!r} by now: remove that one, or leave it be")
    if row.state == State.ACTIVE and move is REMOVE:
        return JobLocked(f"job {id} could not be removed: it is locked by the worker that runs it")
    wanted = " or ".join(sources)
    return IllegalMove(f"job {id} is not in the {wanted} state but {row.state}: {move} refused")


def _may(move: Move, row: LockedJob) -> bool:
    """Return False if a job would be restored to another state than it was removed from."""
    if move in RESTORE.values():
        return row.removed_from == move.target
    return True


def _with_free_ids(move: Move, rows: list[LockedJob]) -> Operation[list[LockedJob]]:
    """Return the jobs whose custom id, if they have one, is free in the queue they move to."""
    wanted: dict[int, tuple[int, str]] = {}
    by_queue: dict[int, list[str]] = {}
    for row in rows:
        target = row.queue if move in RESTORE.values() else None
        if move in (RETRY_FINISHED, RETRY_FINISHED_DELAYED):
            target = row.original_queue
        if target is not None and row.custom_id is not None:
            wanted[row.job] = target, row.custom_id
            by_queue.setdefault(target, []).append(row.custom_id)
    taken: set[tuple[int, str]] = set()
    for queue, ids in by_queue.items():
        found = yield "taken_custom_ids", {"queue": queue, "custom_ids": as_json(ids)}
        taken |= {(queue, custom_id) for custom_id, _ in found.rows}
    free = []
    for row in rows:
        id = wanted.get(row.job)
        if id is None or id not in taken:
            free.append(row)
        if id is not None:
            taken.add(id)  # of two jobs with one id, only the first may have it
    return free


def _move_from(
    tx: Transaction, request: MoveJobs, source: State, rows: list[LockedJob]
) -> Operation[None]:
    move = request.move
    jobs = [row.job for row in rows]
    if move in (RETRY_FINISHED, RETRY_FINISHED_DELAYED):
        rows = yield from _prepare_to_run_again(tx, source, rows)
        stepped = [row.job for row in rows if row.flags & STEPPED]
        if request.forget_attempts and stepped:
            yield "delete_steps", {"jobs": as_json(stepped)}
            yield "delete_signals", {"jobs": as_json(stepped)}
    if move in (DELETE, DELETE_ACTIVE):
        yield from delete_jobs(tx, source, {p.job: p.flags for p in rows}, move)
    elif move in (PROMOTE, RETRY_FINISHED):
        with_lifo = [(p.job, p.lifo) for p in rows]
        yield from transition_to_queue_end(
            tx, move, source, with_lifo, kept=int(not request.forget_attempts)
        )
    elif move in (RESCHEDULE, RETRY_FINISHED_DELAYED):
        asked = {job: [0, request.delay] for job in jobs}
        yield from transition(tx, move, source, asked, kept=int(not request.forget_attempts))
    else:
        yield from transition(tx, move, source, jobs)
    for queue in {row.queue for row in rows}:
        here = [row for row in rows if row.queue == queue]
        _record_moved(tx, queue, request, source, here)


def _record_moved(
    tx: Transaction, queue: int, request: MoveJobs, source: State, rows: list[LockedJob]
) -> None:
    move = request.move
    priorities = [row.priority for row in rows]
    count_out(tx, queue, source, priorities)
    count_in(tx, queue, move.target, priorities)
    due = tx.now + request.delay
    if move.events:
        tx.log(queue, move.name, [_event(move, source, row, due) for row in rows])
    if move in RESTORE.values() and move.target is State.DELAYED:
        due = min(row.due_at or tx.now for row in rows)
    if move.target is State.DELAYED:
        tx.notify_due(queue, due)


def _event(move: Move, source: State, row: LockedJob, due: int) -> Event:
    if move in (REMOVE, RETRY_FINISHED):
        return (row.public_id, source.value)
    if move is RETRY_FINISHED_DELAYED:
        return (row.public_id, [source.value, due])
    if move is RESCHEDULE:
        return (row.public_id, due)
    if move is RESTORE_DELAYED:
        return (row.public_id, row.due_at)
    return row.public_id


def _prepare_to_run_again(
    tx: Transaction, source: State, rows: list[LockedJob]
) -> Operation[list[LockedJob]]:
    """Delete the results of finished jobs, but not their history, and reopen their links.

    Move them from the dead-letter queue back to their own. Return their rows with the queue in
    which they are counted now.
    """
    jobs = as_json([row.job for row in rows])
    if source is State.COMPLETED:
        ended = [[row.job, COMPLETED, None, None] for row in rows]
        yield "write_attempts", {"attempts": as_json(ended), "now": tx.now}
    yield "forget_results", {"jobs": jobs}
    awaited = [row.job for row in rows if row.flags & UPSTREAM]
    if awaited:
        yield from load_for_update((yield from dependencies.waiting_for(awaited)))
        yield "reopen_links", {"jobs": as_json(awaited)}
    parents = [row.job for row in rows if row.flags & DOWNSTREAM]
    if parents:
        yield "ignore_failed_links", {"jobs": as_json(parents)}
    strays = [row for row in rows if row.original_queue is not None]
    for queue, home in {(row.queue, row.original_queue or 0) for row in strays}:
        some = [p for p in strays if (p.queue, p.original_queue) == (queue, home)]
        yield from move_to_queue(queue, home, [row.job for row in some], original_queue=None)
        priorities = [row.priority for row in some]
        count_out(tx, queue, source, priorities)
        count_in(tx, home, source, priorities)
    return [p if p.original_queue is None else p._replace(queue=p.original_queue) for p in rows]
