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
    """A job that is waited for, and one that waits for it."""

    upstream: int
    downstream: int
    kind: str
    policy: str
    key: str
    """What the waiting one knows the other by."""

    @property
    def sort(self) -> tuple[int, str]:
        """All links of one job that are of the same kind and policy share their fate."""
        return self.upstream, f"{self.kind} {self.policy}"


class _LinkChanges:
    """What is to become of pending links, and of those that wait."""

    def __init__(self) -> None:
        self.resolved: dict[tuple[int, str], tuple[str, str | None]] = {}
        self.dropped: set[tuple[int, str]] = set()
        self.to_fail: dict[int, str] = {}
        """Who is to fail, and why."""
        self.release_early: set[int] = set()
        """Who need not wait for the others."""

    def resolve(self, link: Link, state: str, value: str | None) -> None:
        self.resolved[link.sort] = state, value

    def drop(self, link: Link) -> None:
        self.dropped.add(link.sort)


# --- jobs that ended -----------------------------------------------------------------------------


def on_completed(tx: Transaction, values: Mapping[int, str | None]) -> Operation[None]:
    """These jobs completed, with these results: what waited for nothing else may run."""
    links = yield from _links_from(values)
    changes = _LinkChanges()
    for link in links:
        changes.resolve(link, PROCESSED, values[link.upstream] or "null")
    yield from _apply(tx, links, changes)


def on_failed(
    tx: Transaction, reasons: Mapping[int, str | None], leaving: Collection[int] = ()
) -> Operation[set[int]]:
    """These jobs failed for good: each link's policy decides.

    Those that are `leaving` are to be deleted: a parent waits for them no more. Answers which may
    not, because other jobs still depend on them.
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
    """These jobs were taken out, or deleted: a child is waited for no more.

    A parent in one of the queues `parents_in` does not run when its last child is gone: it is
    answered, and to go, too. What is not gone `for_good` is waited for again once it is back.
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
    """Cut a job off from its parent, as if it had never had one; whether it had."""
    found = yield "parents_of", {"jobs": as_json([child])}
    parents = [parent for _, parent, _ in found.rows]
    yield from load_for_update(sorted(parents))
    yield "delete_links_up", {"job": child}
    yield from release_if_ready(tx, parents)
    return bool(parents)


def waiting_for(jobs: Iterable[int]) -> Operation[list[int]]:
    """Who is tied to these jobs, waiting or not."""
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
    """Change links, then let run who waits for nobody any more; answers who is to go instead."""
    if not links:
        return []
    places = yield from load_for_update(sorted({link.downstream for link in links}))
    if changes.resolved:
        settled = [(*sort, *fate) for sort, fate in changes.resolved.items()]
        yield "resolve_links", {"links": as_json(settled)}
    if changes.dropped:
        yield "delete_links", {"links": as_json(sorted(changes.dropped))}
    yield from defer_failure(
        tx, [places[job] for job in changes.to_fail if job in places], changes.to_fail
    )
    waiting = {
        job: place
        for job, place in places.items()
        if place.state == State.WAITING_CHILDREN and job not in changes.to_fail
    }
    parents = {link.downstream for link in links if link.kind == CHILD}
    early = [place for job, place in waiting.items() if job in changes.release_early]
    yield from _release(tx, early, EARLY, parents)
    rest = [place for job, place in waiting.items() if job not in changes.release_early]
    done = yield from _done_waiting(rest)
    going: list[LockedJob] = []
    staying: list[LockedJob] = []
    for place in done:
        goes = place.queue in goes_with and place.job in parents
        (going if goes else staying).append(place)
    yield from _release(tx, staying, ON_SCHEDULE, parents)
    return going


def _done_waiting(places: Sequence[LockedJob]) -> Operation[list[LockedJob]]:
    if not places:
        return []
    jobs = {"jobs": as_json([place.job for place in places])}
    still = {job for [job] in (yield "with_pending_links", jobs).rows}
    return [place for place in places if place.job not in still]


# --- jobs that waited ----------------------------------------------------------------------------


def release_if_ready(tx: Transaction, jobs: Sequence[int]) -> Operation[None]:
    """Let those of these jobs run that wait for nobody."""
    places = yield from load_for_update(jobs)
    waiting = [p for p in places.values() if p.state == State.WAITING_CHILDREN]
    done = yield from _done_waiting(waiting)
    yield from _release(tx, done, ON_SCHEDULE, {place.job for place in done})


def _release(
    tx: Transaction, places: Sequence[LockedJob], moves: tuple[Move, Move], parents: Collection[int]
) -> Operation[None]:
    """Move the jobs to `waiting`, or to `delayed` if they are not due."""
    move_now, move_later = moves
    later = {place.job: due for place in places if (due := _due(tx, place)) is not None}
    now = [place for place in places if place.job not in later]
    if now:
        asked = yield from _load_released(now, parents)
        yield from transition(tx, move_now, State.WAITING_CHILDREN, asked)
        _record_released(tx, move_now, now, {})
    if later:
        asked = {job: [0, due] for job, due in later.items()}
        yield from transition(tx, move_later, State.WAITING_CHILDREN, asked)
        _record_released(tx, move_later, [p for p in places if p.job in later], later)


def _due(tx: Transaction, place: LockedJob) -> int | None:
    """When a job that waits for nobody may begin; None if now.

    A delay counts from now on, unless the job was to begin at a certain time.
    """
    if place.due_at is not None:
        return place.due_at if place.due_at > tx.now else None
    return tx.now + place.delay if place.delay else None


def _load_released(
    places: Sequence[LockedJob], parents: Collection[int]
) -> Operation[dict[int, list[int]]]:
    """Parents go to the front, who was first there first; others to where they would be by now."""
    in_front = sorted((p.job for p in places if p.job in parents), reverse=True)
    numbers = yield from allocate_ids(len(in_front))
    asked = {job: [0, -number] for number, job in zip(numbers, in_front, strict=True)}
    for place in places:
        if place.job not in asked:
            asked[place.job] = [0, -place.job if place.lifo else place.job]
    return asked


def _record_released(
    tx: Transaction, move: Move, places: Sequence[LockedJob], due: Mapping[int, int]
) -> None:
    for queue in {place.queue for place in places}:
        here = [place for place in places if place.queue == queue]
        priorities = [place.priority for place in here]
        count_out(tx, queue, State.WAITING_CHILDREN, priorities)
        count_in(tx, queue, move.target, priorities)
        events: list[Event] = [
            (place.public_id, due[place.job]) if due else place.public_id for place in here
        ]
        tx.log(queue, move.name, events)
        if due:
            tx.notify_due(queue, min(due[place.job] for place in here))


def defer_failure(
    tx: Transaction, places: Sequence[LockedJob], reasons: Mapping[int, str]
) -> Operation[None]:
    """These are to fail when they are next taken, which is to be soon.

    One that runs is told when it wants to wait, or to be completed; its own error comes first.
    """
    blocked = [place for place in places if place.state == State.WAITING_CHILDREN]
    delayed = [place for place in places if place.state == State.DELAYED]
    ready = [place for place in places if place.state == State.WAITING]
    doomed = {place.job: reasons[place.job] for place in [*blocked, *delayed, *ready]}
    if not doomed:
        return
    yield "set_deferred_failures", {"reasons": as_json(doomed)}
    if blocked:
        asked = yield from _load_released(blocked, doomed)
        yield from transition(tx, RELEASE_FROM_DEPENDENCIES, State.WAITING_CHILDREN, asked)
        _record_released(tx, RELEASE_FROM_DEPENDENCIES, blocked, {})
    if delayed:
        yield from transition_to_queue_end(
            tx, PROMOTE, State.DELAYED, [(p.job, p.lifo) for p in delayed]
        )
        for queue in {place.queue for place in delayed}:
            here = [place for place in delayed if place.queue == queue]
            count_out(tx, queue, State.DELAYED, [place.priority for place in here])
            count_in(tx, queue, State.WAITING, [place.priority for place in here])
            tx.log(queue, PROMOTE.name, [place.public_id for place in here])


# --- jobs that want to be completed --------------------------------------------------------------


def completion_blockers(tx: Transaction, jobs: Sequence[int]) -> Operation[dict[int, BulliteError]]:
    """Why some of these running jobs cannot be completed: their children have a say."""
    places = yield from load_for_update(jobs)  # from here on nobody can give them another child
    found = yield "completion_blockers", {"jobs": as_json(jobs)}
    errors: dict[int, BulliteError] = {}
    for job, failed_child, is_pending, is_let_go in found.rows:
        id = places[job].public_id if job in places else job
        if failed_child is not None:
            errors[job] = ChildFailed(f"child {failed_child} failed")
        elif is_pending and not is_let_go:
            errors[job] = PendingChildren(
                f"job {id} has pending children: wait for them with "
                "job.move_to_waiting_children(), or remove them"
            )
    return errors
