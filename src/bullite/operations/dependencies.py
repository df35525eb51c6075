"""Dependencies: the effects of a finished job on the jobs that wait for it.

A transaction that changes a link locks the row of the waiting job. The lock serializes the last two
children that finish at the same time in two processes, so the parent is released exactly once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..core.codec import as_json
from ..core.states import (
    DEPENDENCIES_DONE,
    DEPENDENCIES_DONE_DELAYED,
    PROMOTE,
    RELEASE_FROM_DEPENDENCIES,
    RELEASE_FROM_DEPENDENCIES_DELAYED,
    Move,
    State,
)
from ..errors import BulliteError, ChildFailed, PendingChildren
from .transaction import Event, Operation, Transaction
from .transitions import (
    LockedJob,
    allocate_ids,
    count_in,
    count_out,
    load_for_update,
    transition,
    transition_to_queue_end,
)

CHILD, DEPENDENCY = "child", "dependency"
PENDING, PROCESSED, IGNORED, FAILED, REMOVED = (
    "pending",
    "processed",
    "ignored",
    "failed",
    "removed",
)

ON_SCHEDULE = (DEPENDENCIES_DONE, DEPENDENCIES_DONE_DELAYED)
EARLY = (RELEASE_FROM_DEPENDENCIES, RELEASE_FROM_DEPENDENCIES_DELAYED)


class Link(NamedTuple):
    """A link between a job (downstream) and a job that it waits for (upstream)."""

    upstream: int
    downstream: int
    kind: str
    policy: str
    key: str
    """The key of the upstream job in results and errors of the downstream job."""

    @property
    def group(self) -> tuple[int, str]:
        """Links with the same upstream job, kind and policy change together."""
        return self.upstream, f"{self.kind} {self.policy}"


class _LinkChanges:
    """Changes of pending links, and of the jobs that wait."""

    def __init__(self) -> None:
        self.resolved: dict[tuple[int, str], tuple[str, str | None]] = {}
        self.dropped: set[tuple[int, str]] = set()
        self.to_fail: dict[int, str] = {}
        """Jobs that fail, with the reasons."""
        self.release_early: set[int] = set()
        """Jobs that no longer wait for their other dependencies."""

    def resolve(self, link: Link, state: str, value: str | None) -> None:
        self.resolved[link.group] = state, value

    def drop(self, link: Link) -> None:
        self.dropped.add(link.group)


# --- finished jobs -------------------------------------------------------------------------------


def on_completed(tx: Transaction, values: Mapping[int, str | None]) -> Operation[None]:
    """Resolve the links of completed jobs; release the jobs that wait for no other job."""
    links = yield from _links_from(values)
    changes = _LinkChanges()
    for link in links:
        changes.resolve(link, PROCESSED, values[link.upstream] or "null")
    yield from _apply(tx, links, changes)


def on_failed(
    tx: Transaction, reasons: Mapping[int, str | None], leaving: Collection[int] = ()
) -> Operation[set[int]]:
    """Apply the policies of the links of permanently failed jobs.

    The jobs in `leaving` are to be deleted: a parent no longer waits for them. Return the jobs that
    must not be deleted, because other jobs depend on them.
    """
    links = yield from _links_from(reasons)
    changes, ended, waiting = _LinkChanges(), list[Link](), list[Link]()
    for link in links:
        reason = reasons[link.upstream]
        (waiting if link.policy == "wait" else ended).append(link)
        match link.policy:
            case "fail":
                changes.resolve(link, FAILED, reason)
                changes.to_fail.setdefault(link.downstream, f"{link.kind} {link.key} failed")
            case "continue":
                changes.resolve(link, IGNORED, reason)
                changes.release_early.add(link.downstream)
            case "ignore" | "run":
                changes.resolve(link, IGNORED, reason)
            case "remove":
                changes.drop(link)
    needed = {link.upstream for link in waiting if link.kind == DEPENDENCY}
    for link in waiting:
        if link.upstream in leaving and link.upstream not in needed:
            changes.drop(link)
            ended.append(link)
    yield from _apply(tx, ended, changes)
    return needed


def on_removed(
    tx: Transaction, jobs: Collection[int], *, for_good: bool, parents_in: Collection[int] = ()
) -> Operation[list[LockedJob]]:
    """Change the links of removed jobs, or of deleted ones if `for_good`: no parent waits for them.

    If a removed job is restored, its parent waits for it again. A parent in one of the queues
    `parents_in` does not run after its last child is gone. Return these parents: the caller removes
    them as well.
    """
    links = yield from _links_from(jobs)
    changes = _LinkChanges()
    for link in links:
        if link.kind == CHILD and for_good:
            changes.drop(link)
        elif link.kind == CHILD:
            changes.resolve(link, REMOVED, None)
        elif link.policy == "fail":
            changes.resolve(link, FAILED, "it was removed")
            changes.to_fail.setdefault(link.downstream, f"dependency {link.key} was removed")
        elif link.policy == "run":
            changes.resolve(link, IGNORED, "it was removed")
    return (yield from _apply(tx, links, changes, goes_with=parents_in))


def detach_child(tx: Transaction, child: int) -> Operation[bool]:
    """Detach a job from its parent. Return True if it had one."""
    found = yield "parents_of", {"jobs": as_json([child])}
    parents = [parent for _, parent, _ in found.rows]
    yield from load_for_update(sorted(parents))
    yield "delete_links_up", {"job": child}
    yield from release_if_ready(tx, parents)
    return bool(parents)


def waiting_for(jobs: Iterable[int]) -> Operation[list[int]]:
    """Return the jobs with links to these jobs, whether they still wait or not."""
    result = yield "dependents_of", {"jobs": as_json(list(jobs))}
    return [downstream for downstream, _ in result.rows]


def _links_from(jobs: Iterable[int]) -> Operation[list[Link]]:
    result = yield "links_from", {"jobs": as_json(list(jobs))}
    return [Link(*row) for row in result.rows]


def _apply(
    tx: Transaction,
    links: Sequence[Link],
    changes: _LinkChanges,
    goes_with: Collection[int] = (),
) -> Operation[list[LockedJob]]:
    """Change links, then release the jobs that no longer wait.

    Do not release a parent in one of the queues `goes_with`: return it.
    """
    if not links:
        return []
    rows = yield from load_for_update(sorted({link.downstream for link in links}))
    if changes.resolved:
        resolved = [(*group, *result) for group, result in changes.resolved.items()]
        yield "resolve_links", {"links": as_json(resolved)}
    if changes.dropped:
        yield "delete_links", {"links": as_json(sorted(changes.dropped))}
    yield from defer_failure(
        tx, [rows[job] for job in changes.to_fail if job in rows], changes.to_fail
    )
    waiting = {
        job: row
        for job, row in rows.items()
        if row.state == State.WAITING_CHILDREN and job not in changes.to_fail
    }
    parents = {link.downstream for link in links if link.kind == CHILD}
    early = [row for job, row in waiting.items() if job in changes.release_early]
    yield from _release(tx, early, EARLY, parents)
    rest = [row for job, row in waiting.items() if job not in changes.release_early]
    done = yield from _done_waiting(rest)
    going: list[LockedJob] = []
    staying: list[LockedJob] = []
    for row in done:
        goes = row.queue in goes_with and row.job in parents
        (going if goes else staying).append(row)
    yield from _release(tx, staying, ON_SCHEDULE, parents)
    return going


def _done_waiting(rows: Sequence[LockedJob]) -> Operation[list[LockedJob]]:
    if not rows:
        return []
    jobs = {"jobs": as_json([row.job for row in rows])}
    still = {job for [job] in (yield "with_pending_links", jobs).rows}
    return [row for row in rows if row.job not in still]


# --- waiting jobs --------------------------------------------------------------------------------


def release_if_ready(tx: Transaction, jobs: Sequence[int]) -> Operation[None]:
    """Release the jobs of these that wait for no other job."""
    rows = yield from load_for_update(jobs)
    waiting = [p for p in rows.values() if p.state == State.WAITING_CHILDREN]
    done = yield from _done_waiting(waiting)
    yield from _release(tx, done, ON_SCHEDULE, {row.job for row in done})


def _release(
    tx: Transaction, rows: Sequence[LockedJob], moves: tuple[Move, Move], parents: Collection[int]
) -> Operation[None]:
    """Move the jobs to `waiting`, or to `delayed` if they are not due."""
    move_now, move_later = moves
    later = {row.job: due for row in rows if (due := _due(tx, row)) is not None}
    now = [row for row in rows if row.job not in later]
    if now:
        asked = yield from _load_released(now, parents)
        yield from transition(tx, move_now, State.WAITING_CHILDREN, asked)
        _record_released(tx, move_now, now, {})
    if later:
        asked = {job: [0, due] for job, due in later.items()}
        yield from transition(tx, move_later, State.WAITING_CHILDREN, asked)
        _record_released(tx, move_later, [p for p in rows if p.job in later], later)


def _due(tx: Transaction, row: LockedJob) -> int | None:
    """Return the due time of a job that no longer waits for other jobs; None if it is due now.

    A delay starts now, unless the job has a fixed due time.
    """
    if row.due_at is not None:
        return row.due_at if row.due_at > tx.now else None
    return tx.now + row.delay if row.delay else None


def _load_released(
    rows: Sequence[LockedJob], parents: Collection[int]
) -> Operation[dict[int, list[int]]]:
    """Return the positions of released jobs: parents at the front, oldest first; other jobs where
    they would be if they had not waited."""
    in_front = sorted((p.job for p in rows if p.job in parents), reverse=True)
    numbers = yield from allocate_ids(len(in_front))
    asked = {job: [0, -number] for number, job in zip(numbers, in_front, strict=True)}
    for row in rows:
        if row.job not in asked:
            asked[row.job] = [0, -row.job if row.lifo else row.job]
    return asked


def _record_released(
    tx: Transaction, move: Move, rows: Sequence[LockedJob], due: Mapping[int, int]
) -> None:
    for queue in {row.queue for row in rows}:
        here = [row for row in rows if row.queue == queue]
        priorities = [row.priority for row in here]
        count_out(tx, queue, State.WAITING_CHILDREN, priorities)
        count_in(tx, queue, move.target, priorities)
        events: list[Event] = [
            (row.public_id, due[row.job]) if due else row.public_id for row in here
        ]
        tx.log(queue, move.name, events)
        if due:
            tx.notify_due(queue, min(due[row.job] for row in here))


def defer_failure(
    tx: Transaction, rows: Sequence[LockedJob], reasons: Mapping[int, str]
) -> Operation[None]:
    """Let jobs fail at their next claim, and make them ready for it.

    A running job gets the failure when it waits for its children or completes, unless it fails with
    an error of its own.
    """
    blocked = [row for row in rows if row.state == State.WAITING_CHILDREN]
    delayed = [row for row in rows if row.state == State.DELAYED]
    ready = [row for row in rows if row.state == State.WAITING]
    failing = {row.job: reasons[row.job] for row in [*blocked, *delayed, *ready]}
    if not failing:
        return
    yield "set_deferred_failures", {"reasons": as_json(failing)}
    if blocked:
        asked = yield from _load_released(blocked, failing)
        yield from transition(tx, RELEASE_FROM_DEPENDENCIES, State.WAITING_CHILDREN, asked)
        _record_released(tx, RELEASE_FROM_DEPENDENCIES, blocked, {})
    if delayed:
        yield from transition_to_queue_end(
            tx, PROMOTE, State.DELAYED, [(p.job, p.lifo) for p in delayed]
        )
        for queue in {row.queue for row in delayed}:
            here = [row for row in delayed if row.queue == queue]
            count_out(tx, queue, State.DELAYED, [row.priority for row in here])
            count_in(tx, queue, State.WAITING, [row.priority for row in here])
            tx.log(queue, PROMOTE.name, [row.public_id for row in here])


# --- completions ---------------------------------------------------------------------------------


def completion_blockers(tx: Transaction, jobs: Sequence[int]) -> Operation[dict[int, BulliteError]]:
    """Return the errors of the running jobs that cannot complete because of their children."""
    rows = yield from load_for_update(jobs)  # from now on no other transaction can add a child
    found = yield "completion_blockers", {"jobs": as_json(jobs)}
    errors: dict[int, BulliteError] = {}
    for job, failed_child, is_pending, is_let_go in found.rows:
        id = rows[job].public_id if job in rows else job
        if failed_child is not None:
            errors[job] = ChildFailed(f"child {failed_child} failed")
        elif is_pending and not is_let_go:
            errors[job] = PendingChildren(
                f"job {id} has pending children: wait for them with "
                "job.move_to_waiting_children(), or remove them"
            )
    return errors
