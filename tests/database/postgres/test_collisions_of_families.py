"""Two transactions meet at one family: the second waits for the first and sees what it did."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bullite.core.decide_outcome import RunOutcome
from bullite.core.retention import Retention
from bullite.core.states import COMPLETE, FAIL, REMOVE, RESTORE, RETRY_FINISHED, Move, State
from bullite.errors import (
    BulliteError,
    DependencyCycle,
    DependencyNotFound,
    ParentTaken,
    PendingChildren,
)
from bullite.operations.add_flow import AddFlow, add_flow
from bullite.operations.children import (
    AwaitChildren,
    DetachFromParent,
    await_children,
    detach_from_parent,
)
from bullite.operations.finish import FinishRuns, finish_runs
from bullite.operations.flow_graph import FlowRef, Node
from bullite.operations.move import MoveJob, MoveJobs, move_job, move_jobs
from bullite.operations.transaction import Operation, Transaction
from tests.database.postgres.test_collisions import waiting_for_locks
from tests.support.harness import QUEUE, Held, Process, Store, Worker, new_job, node
from tests.support.postgres_database import PostgresDatabase
from tests.support.processes import wait_until

BLOCKED = "waiting-children"
Make = Callable[[Transaction], Operation[Any]]


@pytest.fixture
def other(store: Store) -> Process:
    """A second process."""
    return store.process()


class Collision:
    """What one process asks for while a transaction of another is under way, and has to wait."""

    def __init__(self, store: Store, database: PostgresDatabase, other: Process) -> None:
        self._store, self._database, self._other = store, database, other

    def between(self, first: Make, second: Any) -> Any:
        """The answer to `second`, which is asked for after `first` and before its commit."""
        with ThreadPoolExecutor(1) as pool:
            with self._store.home.transaction(careful=True) as open:
                open.run(first(open.tx))
                waiting = threading.Event()
                answer = pool.submit(self._ask, second, waiting)
                assert waiting.wait(10)
                wait_until(lambda: waiting_for_locks(self._database))
            return answer.result(20)

    def _ask(self, request: Any, waiting: threading.Event) -> Any:
        waiting.set()
        [answer] = self._other.ask_together(request)
        return answer


@pytest.fixture
def collision(store: Store, database: PostgresDatabase, other: Process) -> Collision:
    return Collision(store, database, other)


# --- what the transactions do --------------------------------------------------------------------


def verdict(held: Held, move: Move = COMPLETE, **details: Any) -> RunOutcome:
    details = {"flags": held.row.traits, "reason": "it broke" if move is FAIL else None, **details}
    return RunOutcome(held.id, held.token, move, **details)


def settled(store: Store, held: Held, move: Move = COMPLETE, **details: Any) -> FinishRuns:
    return FinishRuns(store.queue, [verdict(held, move, **details)])


def settling(store: Store, held: Held, move: Move = COMPLETE, **details: Any) -> Make:
    return lambda tx: finish_runs(tx, [settled(store, held, move, **details)])


def grown(store: Store, *nodes: Node) -> AddFlow:
    version = store.home.version(store.queue)
    return AddFlow([one._replace(queue=store.queue) for one in nodes], {store.queue: version})


def growing(store: Store, *nodes: Node) -> Make:
    return lambda tx: add_flow(tx, [grown(store, *nodes)])


def ref(job: int) -> FlowRef:
    return FlowRef(QUEUE, str(job))


def child_of(job: int, **ties: Any) -> Node:
    return node(new_job("child"), parent=ref(job), **ties)


def dependent_on(job: int) -> Node:
    return node(new_job("dependent"), depends_on=(ref(job),))


def family(store: Store, *children: Node) -> list[int]:
    return store.grow(node(new_job("parent")), *(one._replace(parent=0) for one in children))


def children_held(store: Store, other: Process) -> tuple[int, Held, Held]:
    """A parent whose two last children are run by two processes."""
    parent, *_ = family(store, node(), node())
    return parent, store.worker().claim_one(), other.worker().claim_one()


def held_by(process: Process, job: int) -> tuple[Worker, Held]:
    worker = process.worker()
    held = worker.claim_one()
    assert held.id == job
    return worker, held


# --- the last two children -----------------------------------------------------------------------


def test_the_last_two_children_end_at_one_moment_and_the_parent_is_let_run_once(
    store: Store, other: Process, collision: Collision
) -> None:
    parent, first, second = children_held(store, other)
    collision.between(settling(store, first, value="1"), settled(store, second, value="2"))
    assert store.state(parent) == "waiting"
    assert store.history(parent) == ["add_blocked", "free"]


def test_one_child_completes_while_the_other_is_removed(
    store: Store, other: Process, collision: Collision
) -> None:
    parent, _, removed = family(store, node(), node())
    _, held = held_by(other, parent + 1)
    moving = [MoveJobs(REMOVE, [removed])]
    collision.between(lambda tx: move_jobs(tx, moving), settled(store, held))
    assert store.history(parent) == ["add_blocked", "free"]


def test_one_child_completes_while_the_other_is_to_run_again(
    store: Store, other: Process, collision: Collision
) -> None:
    parent, first, second = children_held(store, other)
    store.home.settle(verdict(first, value="1"))
    moving = [MoveJobs(RETRY_FINISHED, [first.id])]
    collision.between(lambda tx: move_jobs(tx, moving), settled(store, second))
    assert store.state(parent) == BLOCKED


def test_two_children_that_fail_their_parent_at_one_moment_fail_it_once(
    store: Store, other: Process, collision: Collision
) -> None:
    parent, *_ = family(store, node(policy="fail"), node(policy="fail"))
    first, second = store.worker().claim_one(), other.worker().claim_one()
    collision.between(settling(store, first, FAIL), settled(store, second, FAIL))
    assert store.history(parent) == ["add_blocked", "let_go"]
    assert store.row(parent).deferred_failure == f"child work:{first.id} failed"


def test_one_child_completes_while_the_other_leaves(
    store: Store, other: Process, collision: Collision
) -> None:
    parent, _, leaving = family(store, node(), node())
    _, held = held_by(other, parent + 1)
    collision.between(
        lambda tx: detach_from_parent(tx, [DetachFromParent(leaving)]), settled(store, held)
    )
    assert store.history(parent) == ["add_blocked", "free"]


# --- a child is added to a running parent --------------------------------------------------------


def test_a_child_that_comes_too_late_is_refused(store: Store, collision: Collision) -> None:
    job = store.add()
    _, held = held_by(store.home, job)
    answer = collision.between(settling(store, held), grown(store, child_of(job)))
    assert isinstance(answer, ParentTaken)
    assert store.counts() == {"completed": 1}


@pytest.mark.parametrize("knows", [False, True], ids=["the first child", "one more child"])
def test_a_child_that_comes_in_time_keeps_its_parent_from_completing(
    store: Store, other: Process, collision: Collision, knows: bool
) -> None:
    job = store.add()
    if knows:
        [below] = store.grow(child_of(job))
        store.move(REMOVE, below)
    _, held = held_by(other, job)
    answer = collision.between(growing(store, child_of(job)), settled(store, held))
    assert isinstance(answer.overridden[job], PendingChildren)
    assert store.state(job) == "failed"


def test_a_child_that_comes_in_time_is_waited_for(
    store: Store, other: Process, collision: Collision
) -> None:
    job = store.add()
    _, held = held_by(other, job)
    must_wait = collision.between(growing(store, child_of(job)), AwaitChildren(held.id, held.token))
    assert must_wait is True
    assert store.state(job) == BLOCKED


def test_the_last_child_ends_while_its_parent_wants_to_wait(
    store: Store, other: Process, collision: Collision
) -> None:
    job = store.add()
    _, held = held_by(other, job)
    [below] = store.grow(child_of(job))
    _, child = held_by(store.home, below)
    must_wait = collision.between(settling(store, child), AwaitChildren(held.id, held.token))
    assert must_wait is False
    assert store.state(job) == "active"


def test_a_parent_goes_to_wait_while_its_last_child_ends(
    store: Store, other: Process, collision: Collision
) -> None:
    job = store.add()
    _, held = held_by(store.home, job)
    [below] = store.grow(child_of(job))
    _, child = held_by(other, below)
    waiting = [AwaitChildren(held.id, held.token)]
    collision.between(lambda tx: await_children(tx, waiting), settled(store, child))
    assert store.state(job) == "waiting"
    assert store.history(job)[-2:] == ["await", "free"]


# --- removing ------------------------------------------------------------------------------------


def test_a_child_ends_while_its_parent_is_removed(
    store: Store, other: Process, collision: Collision
) -> None:
    parent, below = family(store, node())
    _, held = held_by(other, below)
    removing = [MoveJob(REMOVE, parent, str(parent))]
    collision.between(lambda tx: move_job(tx, removing), settled(store, held, value="7"))
    assert store.states(parent, below) == ["removed", "completed"]
    store.move(RESTORE[State.WAITING_CHILDREN], parent)
    assert store.state(parent) == "waiting"


def test_a_parent_is_removed_while_its_child_ends(
    store: Store, other: Process, collision: Collision
) -> None:
    parent, below = family(store, node())
    _, held = held_by(store.home, below)
    removing = MoveJob(REMOVE, parent, str(parent), with_descendants=True)
    assert collision.between(settling(store, held), removing) is None
    assert store.states(parent, below) == ["removed", "removed"]


def test_a_child_is_added_while_its_parent_is_removed(store: Store, collision: Collision) -> None:
    parent = store.add()
    removing = [MoveJob(REMOVE, parent, str(parent))]
    answer = collision.between(lambda tx: move_job(tx, removing), grown(store, child_of(parent)))
    assert isinstance(answer, BulliteError)
    assert store.counts() == {}


# --- dependencies --------------------------------------------------------------------------------


def test_a_dependency_completes_while_its_dependent_is_added(
    store: Store, other: Process, collision: Collision
) -> None:
    job = store.add()
    _, held = held_by(other, job)
    collision.between(growing(store, dependent_on(job)), settled(store, held, value="7"))
    assert store.counts() == {"waiting": 1, "completed": 1}
    assert [row["value"] for row in store.database.rows("links")] == ["7"]


def test_a_dependent_is_added_while_its_dependency_completes(
    store: Store, collision: Collision
) -> None:
    job = store.add()
    _, held = held_by(store.home, job)
    collision.between(settling(store, held, value="7"), grown(store, dependent_on(job)))
    assert store.counts() == {"waiting": 1, "completed": 1}
    assert [row["value"] for row in store.database.rows("links")] == ["7"]


def test_a_dependent_is_added_while_its_dependency_is_deleted(
    store: Store, collision: Collision
) -> None:
    job = store.add()
    _, held = held_by(store.home, job)
    deleting = settling(store, held, retention=Retention(0))
    answer = collision.between(deleting, grown(store, dependent_on(job)))
    assert isinstance(answer, DependencyNotFound)
    assert store.counts() == {}


# --- adopting, circles ---------------------------------------------------------------------------


def test_two_flows_want_the_same_job_as_a_child(store: Store, collision: Collision) -> None:
    job = store.add(custom_id="child")
    flow = [node(new_job("parent")), node(new_job(custom_id="child"), parent=0)]
    answer = collision.between(growing(store, *flow), grown(store, *flow))
    assert isinstance(answer, ParentTaken)
    assert store.counts() == {"waiting": 1, BLOCKED: 1}
    assert [row["upstream"] for row in store.database.rows("links")] == [job]


def test_two_halves_of_a_circle_are_not_both_added(store: Store, collision: Collision) -> None:
    first, second = store.add(), store.add()
    answer = collision.between(
        growing(store, child_of(first, depends_on=(ref(second),))),
        grown(store, child_of(second, depends_on=(ref(first),))),
    )
    assert isinstance(answer, DependencyCycle)


def test_two_halves_of_a_circle_that_have_no_job_in_common_are_not_both_added(
    store: Store, collision: Collision
) -> None:
    north, south = store.add(), store.add()
    [east], [west] = store.grow(dependent_on(south)), store.grow(dependent_on(north))
    answer = collision.between(
        growing(store, child_of(north, depends_on=(ref(east),))),
        grown(store, child_of(south, depends_on=(ref(west),))),
    )
    assert isinstance(answer, DependencyCycle)
