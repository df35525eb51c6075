"""Who waits for whom: when a job that waits for others may run, and what their failure means."""

from __future__ import annotations

from typing import Any

import pytest

from bullite.core.decide_outcome import RunOutcome
from bullite.core.job_flags import DOWNSTREAM, UPSTREAM
from bullite.core.retention import Retention
from bullite.core.states import COMPLETE, DELETE, FAIL, REMOVE, RESTORE, RETRY_FINISHED, State
from bullite.errors import (
    ChildFailed,
    DependencyCycle,
    DependencyNotFound,
    JobLocked,
    LostLock,
    NotAChild,
    ParentNotFound,
    ParentTaken,
    PendingChildren,
    StoreFull,
)
from bullite.operations.add_flow import AddFlow
from bullite.operations.cancel_and_expire import Expire
from bullite.operations.children import AwaitChildren, DetachFromParent, RemoveUnprocessedChildren
from bullite.operations.finish import FinishRuns
from bullite.operations.flow_graph import FlowRef, Node
from bullite.operations.move import MoveJob, MoveJobs
from tests.support.harness import QUEUE, Held, Process, Store, Worker, new_job, node

BLOCKED = "waiting-children"


def family(store: Store, *children: Node, **parent: Any) -> list[int]:
    """A parent and its children; the parent is the first."""
    return store.grow(node(new_job("parent", **parent)), *(c._replace(parent=0) for c in children))


def child(policy: str = "wait", **job: Any) -> Node:
    return node(new_job("child", **job), policy=policy)


def dependent(*others: int, on_failure: str = "wait", **job: Any) -> Node:
    refs = tuple(FlowRef(QUEUE, str(other)) for other in others)
    return node(new_job("dependent", **job), depends_on=refs, on_failure=on_failure)


def links(store: Store, job: int) -> dict[int, tuple[str, str | None]]:
    """What a job waits for or waited for: the state of each link, and what came of it."""
    rows = store.database.rows("links", f"downstream = {job}")
    return {row["upstream"]: (row["state"], row["value"]) for row in rows}


def take(worker: Worker, job: int) -> Held:
    """Take this job; those in front of it are taken, too."""
    while True:
        held = worker.claim_one()
        if held.id == job:
            return held


# --- adding --------------------------------------------------------------------------------------


def test_a_parent_waits_for_its_children(store: Store) -> None:
    parent, *children = family(store, child(), child())
    assert store.states(parent, *children) == [BLOCKED, "waiting", "waiting"]
    assert store.counts() == {"waiting": 2, BLOCKED: 1}
    assert store.history(parent) == ["add_blocked"]


def test_both_ends_of_a_link_know_of_it(store: Store) -> None:
    parent, first = family(store, child())
    assert store.row(parent).traits == DOWNSTREAM
    assert store.row(first).traits == UPSTREAM


def test_a_child_knows_its_parent(store: Store) -> None:
    parent, first = family(store, child())
    opts = store.row(first, "payloads", key="job").opts
    assert opts == f'{{"parent":{{"id":"{parent}","queue":"{QUEUE}"}}}}'


def test_a_tree_over_several_queues(store: Store) -> None:
    other = store.home.open_queue("other")
    parent, _ = store.grow(node(), node(queue=other, queue_name="other", parent=0))
    assert store.counts() == {BLOCKED: 1}
    assert store.counts(other) == {"waiting": 1}
    worker = store.worker(queue=other)
    worker.complete(worker.claim_one())
    assert store.state(parent) == "waiting"


def test_a_missing_parent_is_refused_and_nothing_is_added(store: Store) -> None:
    with pytest.raises(ParentNotFound, match="work:99"):
        store.grow(node(parent=FlowRef(QUEUE, "99")), node())
    with pytest.raises(ParentNotFound, match="nowhere:1"):
        store.grow(node(parent=FlowRef("nowhere", "1")))
    assert store.counts() == {}


def test_a_missing_dependency_is_refused_and_nothing_is_added(store: Store) -> None:
    with pytest.raises(DependencyNotFound, match="work:99"):
        store.grow(node(), dependent(99))
    assert store.counts() == {}


def test_a_removed_job_is_as_good_as_missing(store: Store) -> None:
    job = store.add()
    store.move(REMOVE, job)
    with pytest.raises(ParentNotFound):
        store.grow(node(parent=FlowRef(QUEUE, str(job))))
    with pytest.raises(DependencyNotFound):
        store.grow(dependent(job))


def test_a_job_of_another_queue_is_not_meant(store: Store) -> None:
    job = store.home.add(queue=store.home.open_queue("other"))
    with pytest.raises(DependencyNotFound):
        store.grow(dependent(job))


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_a_parent_that_has_ended_takes_no_children(store: Store, end: str) -> None:
    worker = store.worker()
    job = store.add()
    getattr(worker, end)(worker.claim_one())
    with pytest.raises(ParentTaken, match="waits for nobody"):
        store.grow(node(parent=FlowRef(QUEUE, str(job))))


def test_settings_that_changed_meanwhile_add_nothing(store: Store) -> None:
    answer = store.ask(AddFlow([node(queue=store.queue)], {store.queue: 99}))
    assert type(answer).__name__ == "StaleSettings"
    assert store.counts() == {}


def test_nodes_without_ties_are_added_like_any_job(store: Store) -> None:
    first, second = store.grow(node(new_job(custom_id="x")), node(new_job(delay=5)))
    assert store.states(first, second) == ["waiting", "delayed"]
    assert store.row(first).traits == 0


# --- circles -------------------------------------------------------------------------------------


def test_a_job_cannot_wait_for_itself(store: Store) -> None:
    with pytest.raises(DependencyCycle):
        store.grow(node(new_job(custom_id="a"), depends_on=(FlowRef(QUEUE, "a"),)))
    assert store.counts() == {}


def test_jobs_added_together_cannot_wait_for_each_other(store: Store) -> None:
    with pytest.raises(DependencyCycle):
        store.grow(
            node(new_job(custom_id="a"), depends_on=(FlowRef(QUEUE, "b"),)),
            node(new_job(custom_id="b"), depends_on=(FlowRef(QUEUE, "a"),)),
        )
    assert store.counts() == {}


def test_a_child_cannot_depend_on_its_parent(store: Store) -> None:
    parent = store.add()
    ref = FlowRef(QUEUE, str(parent))
    with pytest.raises(DependencyCycle):
        store.grow(node(parent=ref, depends_on=(ref,)))


def test_a_circle_through_jobs_that_exist_is_found(store: Store) -> None:
    [bottom] = store.grow(node())
    [middle] = store.grow(dependent(bottom))
    [top] = store.grow(dependent(middle))
    with pytest.raises(DependencyCycle):
        store.grow(node(parent=FlowRef(QUEUE, str(bottom)), depends_on=(FlowRef(QUEUE, str(top)),)))


def test_two_ties_that_make_no_circle_are_fine(store: Store) -> None:
    bottom = store.add()
    [top] = store.grow(dependent(bottom))
    store.grow(node(parent=FlowRef(QUEUE, str(bottom))), dependent(top))
    assert store.counts() == {"waiting": 2, BLOCKED: 2}


# --- being let run -------------------------------------------------------------------------------


def test_the_last_child_lets_its_parent_run(store: Store) -> None:
    parent, first, second = family(store, child(), child())
    worker = store.worker()
    worker.complete(take(worker, first), value="1")
    assert store.state(parent) == BLOCKED
    worker.complete(take(worker, second), value='"two"')
    assert store.state(parent) == "waiting"
    assert links(store, parent) == {first: ("processed", "1"), second: ("processed", '"two"')}
    assert store.history(parent) == ["add_blocked", "free"]


def test_children_that_end_together_let_their_parent_run_once(store: Store) -> None:
    parent, *_ = family(store, child(), child(), child())
    worker = store.worker()
    worker.complete(*worker.claim(3))
    assert store.state(parent) == "waiting"
    assert store.history(parent).count("free") == 1


def test_a_parent_goes_to_the_front_of_its_rank(store: Store) -> None:
    first = store.add()
    parent, below = family(store, child(lifo=True))
    worker = store.worker()
    worker.complete(take(worker, below))
    assert [held.id for held in worker.claim(9)] == [parent, first]


def test_parents_let_run_together_keep_their_order(store: Store) -> None:
    parents = [family(store, child(lifo=True))[0] for _ in range(3)]
    worker = store.worker()
    worker.complete(*worker.claim(3))
    assert [held.id for held in worker.claim(9)] == parents


def test_a_dependent_job_takes_the_place_it_would_have_had(store: Store) -> None:
    first = store.add(lifo=True)
    [waits] = store.grow(dependent(first))
    later = store.add()
    worker = store.worker()
    worker.complete(take(worker, first))
    assert [held.id for held in worker.claim(9)] == [waits, later]


def test_a_parent_with_a_priority_goes_to_its_rank(store: Store) -> None:
    parent, below = family(store, child(), priority=3)
    plain = store.add()
    worker = store.worker()
    worker.complete(take(worker, below))
    assert store.counts() == {"waiting": 1, "prioritized": 1, "completed": 1}
    assert [held.id for held in worker.claim(9)] == [plain, parent]


def test_the_delay_of_a_parent_begins_when_its_children_have_ended(store: Store) -> None:
    parent, below = family(store, child(), delay=500)
    worker = store.worker()
    store.clock.advance(400)
    worker.complete(take(worker, below))
    assert store.state(parent) == "delayed"
    assert store.row(parent).due_at == store.clock.now() + 500
    assert store.history(parent) == ["add_blocked", "free_delayed"]


def test_the_delay_of_a_dependent_job_began_when_it_was_added(store: Store) -> None:
    first = store.add()
    soon, late = store.grow(dependent(first, delay=100), dependent(first, delay=900))
    worker = store.worker()
    store.clock.advance(400)
    worker.complete(take(worker, first))
    assert store.states(soon, late) == ["waiting", "delayed"]


def test_a_job_waits_for_children_and_dependencies(store: Store) -> None:
    other = store.add()
    waits, below = store.grow(dependent(other), child()._replace(parent=0))
    worker = store.worker()
    worker.complete(take(worker, other))
    assert store.state(waits) == BLOCKED
    worker.complete(take(worker, below))
    assert store.state(waits) == "waiting"


def test_a_diamond_lets_its_last_job_run_once(store: Store) -> None:
    top = store.add()
    left, right = store.grow(dependent(top), dependent(top))
    [last] = store.grow(dependent(left, right))
    worker = store.worker()
    worker.complete(take(worker, top))
    worker.complete(*worker.claim(2))
    assert store.history(last) == ["add_blocked", "free"]


def test_what_has_completed_already_is_not_waited_for(store: Store) -> None:
    worker = store.worker()
    done = store.add()
    worker.complete(worker.claim_one(), value="7")
    [waits] = store.grow(dependent(done))
    assert store.state(waits) == "waiting"
    assert links(store, waits) == {done: ("processed", "7")}


def test_a_child_is_taken_before_anybody_knows_of_its_parent(store: Store) -> None:
    """The worker that finishes the child sees a link that was added while the child ran."""
    worker = store.worker()
    job = store.add()
    held = worker.claim_one()
    [waits] = store.grow(dependent(job))
    assert store.state(waits) == BLOCKED
    worker.complete(held, value="1")
    assert store.state(waits) == "waiting"


def test_a_child_that_is_removed_when_it_completes_leaves_its_value(store: Store) -> None:
    parent, below = family(store, child())
    worker = store.worker()
    held = take(worker, below)
    store.home.settle(
        RunOutcome(held.id, held.token, COMPLETE, value="5", retention=Retention(0), flags=UPSTREAM)
    )
    assert store.state(below) is None
    assert links(store, parent) == {below: ("processed", "5")}
    assert store.state(parent) == "waiting"


def test_links_go_with_the_job_that_waited(store: Store) -> None:
    parent, below = family(store, child())
    worker = store.worker()
    worker.complete(take(worker, below))
    worker.complete(take(worker, parent))
    store.move(DELETE, parent)
    assert links(store, parent) == {}


def test_the_end_of_a_child_and_the_release_of_its_parent_are_one_transaction(
    store: Store,
) -> None:
    parent, below = family(store, child())
    worker = store.worker()
    held = take(worker, below)
    for statement in ("resolve_links", "with_pending_links", "commit"):
        store.home.driver.fail_at[statement] = StoreFull("no room")
        with pytest.raises(StoreFull):
            worker.complete(held)
        assert store.states(parent, below) == [BLOCKED, "active"]
    worker.complete(held)
    assert store.states(parent, below) == ["waiting", "completed"]


def test_verify_finds_jobs_that_wait_in_vain(store: Store) -> None:
    parent, below = family(store, child())
    write = store.database.write
    write("update bullite_links set state = 'processed'")
    assert store.problems() == [f"job {parent} waits for others and for none"]
    write("update bullite_links set state = 'pending', downstream = 99")
    assert store.problems() == [
        f"job {parent} waits for others and for none",
        "link of job 99, which does not exist",
    ]
    write(f"update bullite_links set downstream = {parent}")
    write("update bullite_jobs set traits = 0")
    assert store.problems() == [
        f"job {below} does not know that others wait for it",
        f"job {parent} does not know that it waits for others",
    ]
    write(f"update bullite_jobs set traits = {DOWNSTREAM} where id = {parent}")
    write(f"update bullite_jobs set traits = {UPSTREAM} where id = {below}")


# --- failing -------------------------------------------------------------------------------------


def failing(store: Store, policy: str, **parent: Any) -> tuple[int, int, Worker]:
    """A parent with a child that failed under this policy, and another one that waits."""
    parent_id, below, _ = family(store, child(policy), child(priority=9), **parent)
    worker = store.worker()
    worker.fail(take(worker, below), reason="it broke")
    return parent_id, below, worker


def test_without_a_policy_the_parent_waits_on(store: Store) -> None:
    parent, below, _ = failing(store, "wait")
    assert store.state(parent) == BLOCKED
    assert links(store, parent)[below] == ("pending", None)


def test_a_child_can_fail_its_parent(store: Store) -> None:
    parent, below, worker = failing(store, "fail")
    assert store.state(parent) == "waiting"
    assert store.row(parent).deferred_failure == f"child work:{below} failed"
    assert links(store, parent)[below] == ("failed", "it broke")
    assert store.history(parent) == ["add_blocked", "let_go"]
    assert take(worker, parent).row.deferred_failure == f"child work:{below} failed"


def test_a_parent_that_is_to_fail_is_to_fail_after_a_stall_too(store: Store) -> None:
    parent, below, _ = failing(store, "fail")
    doomed = store.process()
    assert doomed.worker().claim_one().id == parent
    store.kill(doomed)
    assert store.home.recover() == 1
    assert store.row(parent).stalled_count == 1
    assert store.row(parent).deferred_failure == f"child work:{below} failed"


def test_a_child_can_let_its_parent_go_on_without_the_others(store: Store) -> None:
    parent, below, _ = failing(store, "continue")
    assert store.state(parent) == "waiting"
    assert store.row(parent).deferred_failure is None
    assert links(store, parent)[below] == ("ignored", "it broke")


def test_a_parent_that_goes_on_without_the_others_keeps_its_delay(store: Store) -> None:
    parent, *_ = failing(store, "continue", delay=100)
    assert store.state(parent) == "delayed"
    assert store.history(parent) == ["add_blocked", "let_go_delayed"]


def test_a_second_child_that_lets_its_parent_go_on_changes_nothing(store: Store) -> None:
    parent, first, second = family(store, child("continue"), child("continue"))
    worker = store.worker()
    worker.fail(take(worker, first))
    worker.fail(take(worker, second))
    assert store.history(parent).count("let_go") == 1


@pytest.mark.parametrize(
    ("policy", "kept"), [("ignore", ("ignored", "it broke")), ("remove", None)]
)
def test_a_child_whose_failure_does_not_matter_counts_as_done(
    store: Store, policy: str, kept: tuple[str, str] | None
) -> None:
    parent, below, worker = failing(store, policy)
    assert store.state(parent) == BLOCKED
    assert links(store, parent).get(below) == kept
    worker.complete(worker.claim_one())
    assert store.state(parent) == "waiting"


def test_a_try_that_is_followed_by_another_decides_nothing(store: Store) -> None:
    parent, below = family(store, child("fail"))
    worker = store.worker()
    worker.retry(take(worker, below))
    assert store.state(parent) == BLOCKED
    assert links(store, parent) == {below: ("pending", None)}


def test_failures_go_up_level_by_level(store: Store) -> None:
    root, middle, leaf = store.grow(
        node(), child("fail")._replace(parent=0), child("fail")._replace(parent=1)
    )
    worker = store.worker()
    worker.fail(take(worker, leaf))
    assert store.states(root, middle) == [BLOCKED, "waiting"]
    worker.fail(take(worker, middle))
    assert store.row(root).deferred_failure == f"child work:{middle} failed"


def test_a_parent_that_waits_for_its_time_fails_soon(store: Store) -> None:
    parent = store.add(delay=60_000)
    [below] = store.grow(child("fail")._replace(parent=FlowRef(QUEUE, str(parent))))
    worker = store.worker()
    worker.fail(take(worker, below))
    assert store.state(parent) == "waiting"
    assert store.row(parent).deferred_failure == f"child work:{below} failed"


def test_a_failed_child_that_is_removed_lets_its_parent_run(store: Store) -> None:
    parent, below = family(store, child())
    worker = store.worker()
    held = take(worker, below)
    store.home.settle(
        RunOutcome(held.id, held.token, FAIL, reason="x", retention=Retention(0), flags=UPSTREAM)
    )
    assert store.state(below) is None
    assert store.state(parent) == "waiting"


def test_what_others_depend_on_is_not_removed_when_it_fails(store: Store) -> None:
    job = store.add()
    [waits] = store.grow(dependent(job))
    worker = store.worker()
    held = take(worker, job)
    store.home.settle(
        RunOutcome(held.id, held.token, FAIL, reason="x", retention=Retention(0), flags=UPSTREAM)
    )
    assert store.states(job, waits) == ["failed", BLOCKED]


def test_retention_leaves_what_others_wait_for(store: Store) -> None:
    job, other = store.add(), store.add()
    store.grow(dependent(job))
    worker = store.worker()
    for held in worker.claim(2):
        worker.fail(held)
    store.home.configure(keep_failed_count=0)
    store.home.sweep()
    assert store.states(job, other) == ["failed", None]


@pytest.mark.parametrize(
    ("on_failure", "state"), [("wait", BLOCKED), ("fail", "waiting"), ("run", "waiting")]
)
def test_a_dependent_job_decides_what_a_failure_means(
    store: Store, on_failure: str, state: str
) -> None:
    job = store.add()
    [waits] = store.grow(dependent(job, on_failure=on_failure))
    worker = store.worker()
    worker.fail(take(worker, job))
    assert store.state(waits) == state
    deferred = f"dependency work:{job} failed" if on_failure == "fail" else None
    assert store.row(waits).deferred_failure == deferred


@pytest.mark.parametrize(
    ("on_failure", "state"), [("wait", BLOCKED), ("fail", "waiting"), ("run", "waiting")]
)
def test_a_failure_before_it_was_added_means_the_same(
    store: Store, on_failure: str, state: str
) -> None:
    job = store.add()
    worker = store.worker()
    worker.fail(worker.claim_one())
    [waits] = store.grow(dependent(job, on_failure=on_failure))
    assert store.state(waits) == state
    assert bool(store.row(waits).deferred_failure) is (on_failure == "fail")


def test_a_job_that_expires_has_failed(store: Store) -> None:
    parent, below = family(store, child("ignore", expires=5))
    store.clock.advance(5)
    store.ask(Expire(store.queue))
    assert store.state(parent) == "waiting"
    assert links(store, parent)[below][0] == "ignored"


def test_what_others_depend_on_is_not_removed_when_it_expires(store: Store) -> None:
    job = store.add(expires=5, opts='{"remove_on_fail":true}')
    [waits] = store.grow(dependent(job))
    store.clock.advance(5)
    store.ask(Expire(store.queue))
    assert store.states(job, waits) == ["failed", BLOCKED]


def test_a_child_that_is_removed_when_it_expires_lets_its_parent_run(store: Store) -> None:
    parent, below = family(store, child(expires=5, opts='{"remove_on_fail":true}'))
    store.clock.advance(5)
    store.ask(Expire(store.queue))
    assert store.states(parent, below) == ["waiting", None]


def test_links_of_one_policy_do_not_share_the_fate_of_another(store: Store) -> None:
    job = store.add()
    runs, waits = store.grow(dependent(job, on_failure="run"), dependent(job))
    parent, _ = store.grow(
        node(), child()._replace(parent=0, depends_on=(FlowRef(QUEUE, str(job)),))
    )
    worker = store.worker()
    worker.fail(take(worker, job))
    assert store.states(runs, waits, parent) == ["waiting", BLOCKED, BLOCKED]
    assert links(store, runs) == {job: ("ignored", "it broke")}
    assert links(store, waits) == {job: ("pending", None)}


@pytest.mark.parametrize("policy", ["wait", "fail", "continue", "ignore", "remove"])
@pytest.mark.parametrize("delay", [0, 3])
def test_a_whole_family_expires_at_once(store: Store, policy: str, delay: int) -> None:
    root, middle, leaf = store.grow(
        node(new_job(expires=5)),
        child(policy, expires=5)._replace(parent=0),
        child(policy, expires=5, delay=delay)._replace(parent=1),
    )
    store.clock.advance(5)
    store.ask(Expire(store.queue))
    assert store.states(root, middle, leaf) == ["failed"] * 3


def test_a_delayed_parent_expires_together_with_the_child_that_fails_it(store: Store) -> None:
    parent = store.add(delay=60, expires=5)
    [below] = store.grow(child("fail", expires=5)._replace(parent=FlowRef(QUEUE, str(parent))))
    store.clock.advance(5)
    store.ask(Expire(store.queue))
    assert store.states(parent, below) == ["failed"] * 2


def test_a_job_that_waits_for_others_can_expire(store: Store) -> None:
    parent, _ = family(store, child(), expires=5)
    store.clock.advance(5)
    store.ask(Expire(store.queue))
    assert store.state(parent) == "failed"


# --- running again -------------------------------------------------------------------------------


def test_a_child_that_runs_again_is_waited_for_again(store: Store) -> None:
    parent, first, second = family(store, child(), child())
    worker = store.worker()
    worker.complete(take(worker, first), value="1")
    store.move(RETRY_FINISHED, first)
    assert links(store, parent)[first] == ("pending", None)
    worker.complete(take(worker, second))
    assert store.state(parent) == BLOCKED
    worker.complete(take(worker, first), value="2")
    assert store.state(parent) == "waiting"


def test_a_parent_that_has_ended_does_not_wait_again(store: Store) -> None:
    parent, below = family(store, child())
    worker = store.worker()
    worker.complete(take(worker, below), value="1")
    worker.complete(take(worker, parent))
    store.move(RETRY_FINISHED, below)
    assert links(store, parent) == {below: ("processed", "1")}


def test_a_parent_that_runs_again_forgives_the_child_that_failed_it(store: Store) -> None:
    parent, below = family(store, child("fail"))
    worker = store.worker()
    worker.fail(take(worker, below))
    worker.fail(take(worker, parent))
    store.move(RETRY_FINISHED, parent)
    worker.complete(take(worker, parent))
    assert store.state(parent) == "completed"


# --- going ---------------------------------------------------------------------------------------


def remove_tree(store: Store, job: int, with_children: bool = True) -> Any:
    return store.ask(MoveJob(REMOVE, job, str(job), with_descendants=with_children))


def test_removing_the_last_child_lets_its_parent_run(store: Store) -> None:
    parent, first, second = family(store, child(), child())
    store.move(REMOVE, first)
    assert store.state(parent) == BLOCKED
    store.move(REMOVE, second)
    assert store.state(parent) == "waiting"


def test_a_parent_is_removed_with_all_below_it(store: Store) -> None:
    jobs = store.grow(node(), child()._replace(parent=0), child()._replace(parent=1))
    assert remove_tree(store, jobs[0]) is None
    assert store.states(*jobs) == ["removed"] * 3
    assert store.counts() == {}


def test_children_can_be_left_alone(store: Store) -> None:
    parent, below = family(store, child())
    remove_tree(store, parent, with_children=False)
    assert store.states(parent, below) == ["removed", "waiting"]


def test_nothing_is_removed_while_one_of_them_runs(store: Store) -> None:
    parent, first, second = family(store, child(), child())
    take(store.worker(), first)
    with pytest.raises(JobLocked, match=str(first)):
        remove_tree(store, parent)
    assert store.states(parent, first, second) == [BLOCKED, "active", "waiting"]


def test_a_removed_tree_comes_back_whole(store: Store) -> None:
    jobs = store.grow(node(), child()._replace(parent=0), child()._replace(parent=1))
    remove_tree(store, jobs[0])
    back = MoveJob(RESTORE[State.WAITING_CHILDREN], jobs[0], str(jobs[0]), with_descendants=True)
    assert store.ask(back) is None
    assert store.states(*jobs) == [BLOCKED, BLOCKED, "waiting"]
    worker = store.worker()
    for job in reversed(jobs):
        worker.complete(take(worker, job))
    assert store.states(*jobs) == ["completed"] * 3


def test_a_child_that_comes_back_is_waited_for_again(store: Store) -> None:
    parent, first, _ = family(store, child(), child())
    store.move(REMOVE, first)
    store.move(RESTORE[State.WAITING], first)
    assert links(store, parent)[first] == ("pending", None)


def test_a_parent_that_comes_back_without_children_runs(store: Store) -> None:
    parent, below = family(store, child())
    remove_tree(store, parent)
    store.move(DELETE, below)
    store.move(RESTORE[State.WAITING_CHILDREN], parent)
    assert store.state(parent) == "waiting"


def test_a_parent_goes_with_its_last_child_when_a_queue_is_emptied(store: Store) -> None:
    parent, *children = family(store, child(), child())
    store.ask(MoveJobs(REMOVE, children, with_parents=True))
    assert store.states(parent, *children) == ["removed"] * 3


def test_a_parent_in_another_queue_runs_instead(store: Store) -> None:
    other = store.home.open_queue("other")
    parent, below = store.grow(node(queue=other, queue_name="other"), child()._replace(parent=0))
    store.ask(MoveJobs(REMOVE, [below], with_parents=True))
    assert store.states(parent, below) == ["waiting", "removed"]


def test_a_parent_with_children_elsewhere_is_not_deleted_with_its_queue(store: Store) -> None:
    other = store.home.open_queue("other")
    parent, _ = store.grow(node(), child()._replace(queue=other, queue_name="other", parent=0))
    assert store.move(DELETE, parent) == []
    assert store.state(parent) == BLOCKED


@pytest.mark.parametrize(
    ("on_failure", "state"), [("wait", BLOCKED), ("fail", "waiting"), ("run", "waiting")]
)
def test_removing_what_others_depend_on_is_as_good_as_its_failure(
    store: Store, on_failure: str, state: str
) -> None:
    job = store.add()
    [waits] = store.grow(dependent(job, on_failure=on_failure))
    store.move(REMOVE, job)
    assert store.state(waits) == state


# --- children of a running job -------------------------------------------------------------------


def with_child(store: Store, policy: str = "wait") -> tuple[Worker, Held, int]:
    """A job that runs and was given a child meanwhile."""
    job = store.add()
    worker = store.worker()
    held = take(worker, job)
    [below] = store.grow(child(policy)._replace(parent=FlowRef(QUEUE, str(job))))
    return worker, held, below


def await_children(process: Process, held: Held, key: str | None = None) -> Any:
    return process.ask(AwaitChildren(held.id, held.token, key))


def test_a_running_job_can_wait_for_its_children(store: Store) -> None:
    worker, held, below = with_child(store)
    assert await_children(store.home, held) is True
    assert store.counts() == {"waiting": 1, BLOCKED: 1}
    worker.complete(take(worker, below))
    assert store.state(held.id) == "waiting"
    again = take(worker, held.id)
    assert await_children(store.home, again) is False
    assert (again.row.attempts_made, again.row.attempts_started) == (0, 2)


def test_without_children_there_is_nothing_to_wait_for(store: Store) -> None:
    store.add()
    assert await_children(store.home, store.worker().claim_one()) is False


def test_only_its_holder_can_make_it_wait(store: Store) -> None:
    _, held, _ = with_child(store)
    with pytest.raises(LostLock):
        await_children(store.home, held._replace(token=99))
    await_children(store.home, held)
    with pytest.raises(LostLock):
        await_children(store.home, held)


def test_a_child_that_fails_its_parent_tells_it_when_it_wants_to_wait(store: Store) -> None:
    worker, held, below = with_child(store, "fail")
    worker.fail(take(worker, below))
    with pytest.raises(ChildFailed, match=str(below)):
        await_children(store.home, held)
    assert store.state(held.id) == "active"


def test_it_can_wait_for_one_child_only(store: Store) -> None:
    worker, held, first = with_child(store)
    store.grow(child()._replace(parent=FlowRef(QUEUE, str(held.id))))
    worker.complete(take(worker, first))
    assert await_children(store.home, held, f"{QUEUE}:{first}") is False
    assert await_children(store.home, held) is True


def test_a_run_that_did_not_wait_for_its_children_fails(store: Store) -> None:
    _, held, _ = with_child(store)
    [settled] = [store.ask(FinishRuns(store.queue, [RunOutcome(held.id, held.token, COMPLETE)]))]
    assert isinstance(settled.overridden[held.id], PendingChildren)
    assert store.state(held.id) == "failed"
    assert "pending children" in store.result(held.id).failed_reason


def test_manual_completion_reports_pending_children_and_keeps_the_job_active(store: Store) -> None:
    _, held, _ = with_child(store)
    verdict = RunOutcome(held.id, held.token, COMPLETE, manual=True)
    settled = store.ask(FinishRuns(store.queue, [verdict]))
    assert isinstance(settled.overridden[held.id], PendingChildren)
    assert store.state(held.id) == "active"


def test_a_run_whose_child_failed_it_cannot_complete(store: Store) -> None:
    worker, held, below = with_child(store, "fail")
    worker.fail(take(worker, below))
    settled = store.ask(FinishRuns(store.queue, [RunOutcome(held.id, held.token, COMPLETE)]))
    assert isinstance(settled.overridden[held.id], ChildFailed)
    assert store.state(held.id) == "failed"


def test_a_run_that_may_go_on_without_its_children_completes(store: Store) -> None:
    worker, held, below = with_child(store, "continue")
    store.grow(child()._replace(parent=FlowRef(QUEUE, str(held.id))))
    worker.fail(take(worker, below))
    assert store.home.settle(RunOutcome(held.id, held.token, COMPLETE)) == []
    assert store.state(held.id) == "completed"


# --- adopting, leaving ---------------------------------------------------------------------------


def test_a_job_that_exists_can_be_given_a_parent(store: Store) -> None:
    job = store.add(custom_id="tue")
    parent, same = family(store, child(custom_id="tue"))
    assert same == job
    assert store.counts() == {"waiting": 1, BLOCKED: 1}
    assert f'"id":"{parent}"' in store.row(job, "payloads", key="job").opts


def test_a_job_that_runs_can_be_given_a_parent(store: Store) -> None:
    store.add(custom_id="mon")
    worker = store.worker()
    held = worker.claim_one()
    parent, _ = family(store, child(custom_id="mon"))
    worker.complete(held)
    assert store.state(parent) == "waiting"


def test_a_job_keeps_the_parent_it_has(store: Store) -> None:
    family(store, child(custom_id="mon"))
    with pytest.raises(ParentTaken, match="work:mon"):
        family(store, child(custom_id="mon"))
    assert store.counts() == {"waiting": 1, BLOCKED: 1}


def test_the_same_flow_again_is_the_same_jobs(store: Store) -> None:
    first = family(store, child(custom_id="c"), custom_id="p")
    assert family(store, child(custom_id="c"), custom_id="p") == first


def test_a_parent_of_a_completed_child_runs_at_once(store: Store) -> None:
    store.add(custom_id="c")
    worker = store.worker()
    worker.complete(worker.claim_one(), value="3")
    parent, below = family(store, child(custom_id="c"))
    assert store.states(parent, below) == ["waiting", "completed"]


def test_a_child_that_came_back_too_late_can_be_given_to_its_parent_again(store: Store) -> None:
    job = store.add(custom_id="c")
    parent = store.add(custom_id="p")
    tie = node(new_job(custom_id="c"), parent=FlowRef(QUEUE, "p"))
    store.grow(tie)
    store.move(REMOVE, job)
    store.move(RESTORE[State.WAITING], job)
    assert links(store, parent)[job][0] == "removed"
    store.grow(tie)
    assert links(store, parent)[job][0] == "pending"


def test_what_a_job_depends_on_can_become_its_child(store: Store) -> None:
    job = store.add(custom_id="c")
    [waits] = store.grow(dependent(job))
    store.grow(node(new_job(custom_id="c"), parent=FlowRef(QUEUE, str(waits))))
    [row] = store.database.rows("links")
    assert (row["kind"], row["state"]) == ("child", "pending")


def test_a_job_that_exists_keeps_its_dependencies(store: Store) -> None:
    first, second = store.add(), store.add()
    [waits] = store.grow(dependent(first, custom_id="w"))
    assert store.grow(dependent(first, second, custom_id="w")) == [waits]
    assert links(store, waits) == {first: ("pending", None)}
    plain = store.add(custom_id="plain")
    assert store.grow(dependent(first, custom_id="plain")) == [plain]
    assert store.state(plain) == "waiting"


def test_a_child_can_leave_its_parent(store: Store) -> None:
    parent, below = family(store, child())
    assert store.ask(DetachFromParent(below)) is True
    assert store.states(parent, below) == ["waiting", "waiting"]
    assert store.row(below, "payloads", key="job").opts is None
    with pytest.raises(NotAChild):
        store.ask(DetachFromParent(below))


def test_only_what_nobody_has_begun_is_removed(store: Store) -> None:
    parent, done, running, waits, later, nested, leaf = store.grow(
        node(),
        child()._replace(parent=0),
        child()._replace(parent=0),
        child()._replace(parent=0),
        child(delay=500)._replace(parent=0),
        child()._replace(parent=0),
        child(priority=1)._replace(parent=5),
    )
    worker = store.worker()
    worker.complete(take(worker, done))
    take(worker, running)
    assert store.ask(RemoveUnprocessedChildren(parent)) == 4
    assert store.states(done, running) == ["completed", "active"]
    assert store.states(waits, later, nested, leaf) == ["removed"] * 4
    assert store.state(parent) == BLOCKED
