"""Lines about parents and children from areas B, C, E, G, J, Q, T, W and Z of the catalogue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import (
    IllegalMove,
    Job,
    JobFailed,
    LostLock,
    ParentNotFound,
    PendingChildren,
    Queue,
    QueueEvents,
    WaitingChildrenError,
    Worker,
)
from tests.support.flows import FAIL, jobs_of, key, lose, producer, tree, work, working
from tests.support.helpers import again, until

BLOCKED = "waiting-children"


def other(queue: Queue) -> Queue:
    return Queue("other", queue.store)


# --- adding --------------------------------------------------------------------------------------


async def test_B_002_jobs_added_together_under_a_parent_count_as_its_dependencies(
    queue: Queue,
) -> None:
    parent = await other(queue).add("parent")
    opts: Any = {"parent": {"id": parent.id, "queue": "other"}}
    await queue.add_bulk([{"name": "a", "opts": opts}, {"name": "b", "opts": opts}])
    assert (await parent.get_dependencies_count())["unprocessed"] == 2


async def test_J_007_adding_under_a_parent_that_does_not_exist_is_refused(queue: Queue) -> None:
    with pytest.raises(ParentNotFound, match="the parent other:99 does not exist"):
        await queue.add("a", parent={"id": "99", "queue": "other"})
    assert await queue.count() == 0


# --- cleaning, draining --------------------------------------------------------------------------


async def test_C_010_cleaning_the_last_pending_child_takes_its_parent_in_the_same_queue(
    queue: Queue,
) -> None:
    await producer(queue).add(tree("root", *[tree("leaf")] * 3))
    assert await queue.count() == 4
    await queue.clean(0, 0, "wait")
    assert await queue.count() == await queue.get_failed_count() == 0


async def test_C_011_cleaning_completed_jobs_takes_a_whole_flow(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", *[tree("leaf")] * 3))
    async with working(queue):
        await added["job"].result()
    assert len(await queue.clean(0, 0, "completed")) == 4
    assert await queue.count() == await queue.get_completed_count() == 0


async def test_C_012_cleaning_completed_children_spares_their_failed_parent(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", *[tree("leaf")] * 3, data=FAIL))
    async with working(queue):
        with pytest.raises(JobFailed):
            await added["job"].result()
    await queue.clean(0, 0, "completed")
    assert await added["job"].get_state() == "failed"
    assert await queue.get_completed_count() == 0


async def test_C_014_cleaning_spares_a_parent_whose_child_waits_in_another_queue(
    queue: Queue,
) -> None:
    await producer(queue).add(tree("root", tree("leaf", queue="other")))
    await queue.clean(0, 0, "wait")
    assert await queue.count() == 1


async def test_C_015_cleaning_a_failed_child_spares_its_active_parent(queue: Queue) -> None:
    async with Worker(queue, None) as worker:
        await queue.add("parent")
        parent = await worker.get_next_job()
        assert parent is not None
        await queue.add("child", parent=parent, remove_dependency_on_failure=True)
        child = await worker.get_next_job()
        assert child is not None
        await child.move_to_failed("it broke")
        assert await queue.clean(0, 0, "failed") == [child.id]
        assert await parent.get_state() == "active"
        await parent.move_to_completed()


@pytest.mark.parametrize("state", ["wait", "prioritized"])
async def test_C_016_cleaning_the_last_child_lets_a_parent_in_another_queue_run(
    queue: Queue, state: str
) -> None:
    opts = {"priority": 5} if state == "prioritized" else {}
    number = 1 if state == "prioritized" else 3
    await producer(queue).add(
        tree("root", *[tree("leaf", **opts) for _ in range(number)], queue="other")
    )
    await queue.clean(0, 0, state)
    assert await queue.count() == await queue.get_failed_count() == 0
    assert await other(queue).get_waiting_count() == 1


async def test_Q_009_draining_spares_a_parent_whose_child_waits_in_another_queue(
    queue: Queue,
) -> None:
    await producer(queue).add(tree("root", tree("leaf", queue="other")))
    await queue.drain()
    assert await queue.count() == await queue.get_waiting_children_count() == 1


@pytest.mark.parametrize("opts", [{}, {"priority": 5}])
async def test_Q_010_draining_the_last_child_lets_a_parent_in_another_queue_run(
    queue: Queue, opts: dict[str, Any]
) -> None:
    await producer(queue).add(
        tree("root", *[tree("leaf", **opts) for _ in range(3)], queue="other")
    )
    await queue.drain()
    assert await queue.count() == await queue.get_failed_count() == 0
    assert await other(queue).get_waiting_count() == 1


# --- events, getters -----------------------------------------------------------------------------


async def test_E_012_a_parent_is_told_as_waiting_for_its_children_and_later_for_its_run(
    queue: Queue,
) -> None:
    heard: list[tuple[str, Any]] = []
    async with QueueEvents(queue.name, queue.store) as events:
        for name in (BLOCKED, "waiting"):
            events.on(name, lambda payload, id, name=name: heard.append((name, payload)))
        added = await producer(queue).add(tree("root", tree("leaf", queue="other")))
        root = added["job"]
        await until(lambda: heard)
        assert await root.get_state() == BLOCKED
        async with working(other(queue)):
            await until(lambda: len(heard) == 2)
    assert heard == [
        (BLOCKED, {"job_id": root.id}),
        ("waiting", {"job_id": root.id, "prev": BLOCKED}),
    ]


async def test_G_019_the_pending_children_of_a_parent_are_listed_in_pages(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("root", *[tree("leaf", queue="other", data=n, delay=60_000) for n in range(4)])
    )
    root = added["job"]
    found = await queue.get_dependencies(root.id, "pending", 0, -1)
    assert (len(found["items"]), len(found["jobs"]), found["total"]) == (4, 4, 4)
    job = found["jobs"][1]
    assert (job.name, job.data, job.delay, job.priority) == ("leaf", 1, 60_000, 0)
    assert (job.parent, job.parent_key) == ({"id": root.id, "queue": "emails"}, key(root))
    assert job.opts["parent"] == job.parent
    assert job.timestamp > 0
    found = await queue.get_dependencies(root.id, "pending", 0, 2)
    assert (len(found["items"]), found["total"]) == (3, 4)


async def test_G_020_children_that_completed_are_listed_as_processed(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", *[tree("leaf")] * 4))
    async with working(queue):
        await added["job"].result()
    found = await queue.get_dependencies(added["job"].id, "pending", 0, -1)
    assert (found["items"], found["total"]) == ([], 0)
    found = await queue.get_dependencies(added["job"].id, "processed", 0, -1)
    assert (len(found["items"]), len(found["jobs"]), found["total"]) == (4, 4, 4)


# --- children that stall -------------------------------------------------------------------------

STALLED = "job stalled more than allowable limit"


async def test_T_006_a_child_that_fails_by_stalling_fails_its_parent(queue: Queue) -> None:
    heard: list[Any] = []
    added = await producer(queue).add(
        tree("root", tree("leaf", queue="other", fail_parent_on_failure=True))
    )
    root, leaf = jobs_of(added)
    below = other(queue)
    await lose(below)
    async with QueueEvents(queue.name, queue.store) as events:
        events.on("failed", lambda payload, id: heard.append(payload))
        async with working(below, stalled_interval=50, max_stalled_count=0), working(queue):
            with pytest.raises(JobFailed, match=f"child {key(leaf)} failed"):
                await root.result()
        await until(lambda: heard)
    assert heard[0]["prev"] == "active"


@pytest.mark.parametrize(
    "policy",
    [
        "continue_parent_on_failure",
        "ignore_dependency_on_failure",
        "remove_dependency_on_failure",
    ],
)
async def test_T_007_a_child_that_fails_by_stalling_lets_its_parent_run(
    queue: Queue, policy: str
) -> None:
    seen: list[str] = []
    added = await producer(queue).add(tree("root", tree("leaf", queue="other", **{policy: True})))
    root, leaf = jobs_of(added)
    below = other(queue)
    await lose(below)
    worker = Worker(below, work, autorun=False, stalled_interval=50, max_stalled_count=0)

    @worker.on("failed")
    async def look(job: Job, error: Exception, prev: str) -> None:
        seen.append(await root.get_state())

    async with worker:
        await until(lambda: seen)
    assert seen == ["waiting"]
    if policy == "ignore_dependency_on_failure":
        assert await root.get_ignored_children_failures() == {key(leaf): STALLED}


# --- waiting for children at run time ------------------------------------------------------------


async def parent_with_children(queue: Queue, worker: Worker, number: int) -> Job:
    """A job in somebody's hands, with children in another queue."""
    await queue.add("parent")
    parent = await worker.get_next_job()
    assert parent is not None
    for n in range(number):
        await other(queue).add("child", n, parent=parent)
    return parent


async def test_W_096_a_running_parent_waits_for_its_children_once(queue: Queue) -> None:
    async with Worker(queue, None) as worker:
        parent = await parent_with_children(queue, worker, 1)
        token = parent.token
        assert await parent.move_to_waiting_children(token)
        assert len(await queue.get_waiting_children()) == 1
        with pytest.raises(LostLock, match=f"job {parent.id} is not held any more"):
            await parent.move_to_waiting_children(token)
        with pytest.raises(IllegalMove, match="is not in the active state"):
            await (await again(queue, parent)).move_to_waiting_children()


async def test_Z_003_a_family_of_one_queue_is_obliterated_with_it(queue: Queue) -> None:
    await producer(queue).add(tree("root", tree("a"), tree("b", tree("c", delay=60_000))))
    await queue.obliterate()
    assert await queue.count() == await queue.get_failed_count() == 0


async def test_Z_003_a_parent_with_a_child_elsewhere_is_kept(queue: Queue) -> None:
    await producer(queue).add(tree("root", tree("a"), tree("b", queue="other")))
    await queue.obliterate()
    assert await queue.count() == 1


async def test_Z_003_a_parent_elsewhere_may_run(queue: Queue) -> None:
    await producer(queue).add(tree("root", tree("a"), tree("b", priority=3), queue="other"))
    await queue.obliterate()
    assert await other(queue).get_waiting_count() == 1


async def test_Z_007_waiting_for_children_costs_no_attempt(queue: Queue) -> None:
    waits: list[bool] = []

    async def step(job: Job) -> None:
        if job.attempts_started == 1:
            for n in range(3):
                await other(queue).add("child", n, parent=job)
        waits.append(await job.move_to_waiting_children())
        if waits[-1]:
            raise WaitingChildrenError

    parent = await queue.add("parent", attempts=3)
    async with working(queue, processor=step):
        await until(lambda: waits)
        async with working(other(queue)):
            await parent.result()
    assert waits == [True, False]
    done = await again(queue, parent)
    assert (done.attempts_made, done.attempts_started) == (1, 2)


async def test_Z_008_children_end_one_by_one_until_nothing_is_waited_for(queue: Queue) -> None:
    below = other(queue)
    async with Worker(queue, None) as above, Worker(below, None) as worker:
        parent = await parent_with_children(queue, above, 3)
        pending = []
        for _ in range(3):
            found = await parent.get_dependencies()
            pending.append((len(found["processed"]), len(found["unprocessed"])))
            if len(pending) == 1:
                assert await parent.move_to_waiting_children()
            child = await worker.get_next_job()
            assert child is not None
            await child.move_to_completed(child.data)
        found = await parent.get_dependencies()
        pending.append((len(found["processed"]), len(found["unprocessed"])))
        assert pending == [(0, 3), (1, 2), (2, 1), (3, 0)]
        parent_again = await above.get_next_job()
        assert parent_again is not None
        assert parent_again.id == parent.id
        assert not await parent_again.move_to_waiting_children()
        await parent_again.move_to_completed()


async def test_Z_009_a_parent_with_pending_children_cannot_be_completed(queue: Queue) -> None:
    async with Worker(queue, None) as worker:
        parent = await parent_with_children(queue, worker, 1)
        with pytest.raises(PendingChildren, match=f"job {parent.id} has pending children"):
            await parent.move_to_completed("early")
        assert await parent.get_state() == "active"
        await parent.extend_lock("10s")
        await asyncio.sleep(0)
        await parent.move_to_failed("given up", retry=False)


# --- limits --------------------------------------------------------------------------------------


async def test_N_005_one_slot_is_enough_for_a_flow_whose_jobs_ask_to_wait(queue: Queue) -> None:
    await queue.set_global_concurrency(1)
    running, most, ran = 0, 0, list[str]()

    async def step(job: Job) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        ran.append(job.name)
        await asyncio.sleep(0.002)
        running -= 1
        assert not await job.move_to_waiting_children()

    plain = await queue.add_bulk([{"name": "plain"}] * 5)
    added = await producer(queue).add(tree("root", tree("middle", tree("leaf"))))
    async with working(queue, processor=step, concurrency=5):
        await added["job"].result(timeout="20s")
        for job in plain:
            await job.result(timeout="20s")
    assert len(ran) == 8
    assert most == 1


async def test_N_005_a_job_that_waits_for_its_children_frees_its_slot(queue: Queue) -> None:
    await queue.set_global_concurrency(1)

    async def step(job: Job) -> str:
        if job.name == "parent":
            if job.attempts_started == 1:
                await queue.add("child", parent=job)
            if await job.move_to_waiting_children():
                raise WaitingChildrenError
        return job.name

    parent = await queue.add("parent")
    async with working(queue, processor=step, concurrency=5):
        assert await parent.result(timeout="20s") == "parent"


async def test_R_009_children_and_parents_are_limited_each_in_their_own_queue(
    queue: Queue,
) -> None:
    below = other(queue)
    flows = [tree("root", *[tree("leaf", queue="other")] * 2) for _ in range(3)]
    added = await producer(queue).add_bulk(flows)
    began: dict[str, list[int]] = {"root": [], "leaf": []}

    async def note(job: Job) -> None:
        assert job.processed_on is not None
        began[job.name].append(job.processed_on)

    slow, quick = {"max": 1, "duration": 100}, {"max": 1, "duration": 50}
    async with (
        Worker(below, note, concurrency=5, limiter=quick),  # type: ignore[arg-type]
        Worker(queue, note, concurrency=5, limiter=slow),  # type: ignore[arg-type]
    ):
        for flow in added:
            await flow["job"].result(timeout="20s")
    assert began["leaf"][-1] - began["leaf"][0] >= 5 * 50
    assert began["root"][-1] - began["root"][0] >= 2 * 100
