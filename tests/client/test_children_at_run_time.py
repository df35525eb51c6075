"""Children that a job is given while it waits or runs, and a run that waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import (
    ChildFailed,
    IllegalMove,
    Job,
    JobFailed,
    JobNotFound,
    JobWaitingChildrenError,
    LostLock,
    NotAChild,
    ParentNotFound,
    ParentTaken,
    PendingChildren,
    Queue,
    WaitingChildrenError,
    Worker,
)
from bullite.errors import InvalidOption, InvalidOptionType
from tests.support.flows import FAIL, jobs_of, key, producer, tree, work, working
from tests.support.helpers import again, case, fresh, state_of, take_away, until
from tests.support.listening import names_of, told

BLOCKED = "waiting-children"


async def held(queue: Queue) -> tuple[Worker, Job]:
    """A job in the hands of somebody who ends it by hand, and that somebody."""
    worker = Worker(queue, None)
    await queue.add("parent")
    job = await worker.get_next_job()
    assert job is not None
    return worker, job


# --- being given a parent ------------------------------------------------------------------------


async def test_a_parent_can_be_named_in_several_ways(queue: Queue) -> None:
    for spelling in ["mapping", "job", "parent_id"]:
        with case(spelling):
            queue = fresh(queue)
            parent = await queue.add("parent", delay=60_000)
            named: dict[str, Any] = {
                "mapping": {"parent": {"id": parent.id, "queue": queue.name}},
                "job": {"parent": parent},
                "parent_id": {"parent_id": parent.id},
            }[spelling]
            child = await queue.add("child", **named)
            stored = await again(queue, child)
            for job in (child, stored):
                assert job.parent == {"id": parent.id, "queue": queue.name}
                assert (job.parent_id, job.parent_key) == (parent.id, key(parent))
            counts = await (await again(queue, parent)).get_dependencies_count()
            assert counts["unprocessed"] == 1


async def test_a_parent_of_another_queue_and_of_an_id_of_its_own(queue: Queue) -> None:
    other = Queue("other", queue.store)
    parent = await other.add("parent", job_id="mine", delay=60_000)
    child = await queue.add("child", parent={"id": "mine", "queue": "other"})
    assert child.parent_key == "other:mine"
    assert (await parent.get_dependencies())["unprocessed"] == [key(child)]


async def test_jobs_added_together_can_have_parents(queue: Queue) -> None:
    parent = await queue.add("parent", delay=60_000)
    jobs = await queue.add_bulk(
        [
            {"name": "a", "opts": {"parent": parent}},
            {"name": "plain"},
            {"name": "b", "opts": {"parent": parent}},
        ]
    )
    assert [job.parent_id for job in jobs] == [parent.id, None, parent.id]
    assert (await parent.get_dependencies_count())["unprocessed"] == 2


async def test_a_bulk_of_children_may_come_in_chunks(queue: Queue) -> None:
    parent = await queue.add("parent", delay=60_000)
    stored: list[int] = []
    children: list[Any] = [{"name": "a", "opts": {"parent": parent}}] * 5
    await queue.add_bulk(children, chunk=2, on_chunk=stored.append)
    assert stored == [2, 4, 5]
    assert (await parent.get_dependencies_count())["unprocessed"] == 5


@pytest.mark.parametrize("state", ["unknown", "removed"])
async def test_a_parent_that_is_not_there_is_refused(queue: Queue, state: str) -> None:
    parent = {"id": "99", "queue": "emails"}
    if state == "removed":
        job = await queue.add("parent")
        await job.remove()
        parent["id"] = job.id
    with pytest.raises(ParentNotFound, match=f"emails:{parent['id']} does not exist"):
        await queue.add("child", parent=parent)
    with pytest.raises(ParentNotFound):
        await queue.add_bulk([{"name": "plain"}, {"name": "a", "opts": {"parent": parent}}])
    assert await queue.count() == 0


async def test_a_number_written_otherwise_is_no_job(queue: Queue) -> None:
    parent = await queue.add("parent")
    with pytest.raises(ParentNotFound):
        await queue.add("child", parent_id=f"0{parent.id}")


async def test_a_parent_that_has_ended_takes_no_children(queue: Queue) -> None:
    parent = await queue.add("parent")
    async with working(queue):
        await parent.result(timeout="10s")
    with pytest.raises(ParentTaken, match="is completed: it waits for nobody"):
        await queue.add("child", parent=parent)


async def test_a_parent_that_waits_stays_in_line_and_needs_its_children_to_complete(
    queue: Queue,
) -> None:
    parent = await queue.add("parent")
    child = await queue.add("child", parent=parent, delay=60_000)
    assert await state_of(queue, parent) == "waiting"
    async with working(queue):
        with pytest.raises(JobFailed, match="pending children"):
            await parent.result(timeout="10s")
    await child.remove()


async def test_a_policy_without_a_parent_has_no_effect(queue: Queue) -> None:
    job = await queue.add("a", data := FAIL, fail_parent_on_failure=True)
    assert (job.parent, data) == (None, FAIL)
    async with working(queue):
        with pytest.raises(JobFailed, match="it broke"):
            await job.result(timeout="10s")


async def test_bad_parents_and_policies_are_refused(queue: Queue) -> None:
    for options, message in [
        ({"parent": 3}, "parent must be a Job"),
        ({"parent": "1"}, "parent must be a Job"),
        ({"parent": {"id": "1"}}, 'parent must be {"id": ..., "queue": ...}'),
        ({"parent": {"id": "1", "queue": "a", "x": 1}}, "parent must be"),
        ({"parent": {"id": 1, "queue": "a"}}, "parent id must be text"),
        ({"parent": {"id": "1", "queue": ""}}, "parent queue must have 1 to 255"),
        ({"parent": {"id": "a\x00", "queue": "a"}}, "control characters"),
        ({"parent_id": 1}, "parent_id must be text"),
        ({"parent_id": "1", "parent": {"id": "1", "queue": "a"}}, "parent and parent_id"),
        ({"parent_id": "1", "deduplication": {"id": "k"}}, "together with parent_id"),
        ({"parent": {"id": "1", "queue": "a"}, "deduplication": {"id": "k"}}, "with parent"),
        (
            {"fail_parent_on_failure": True, "ignore_dependency_on_failure": True},
            "fail_parent_on_failure and ignore_dependency_on_failure contradict each other",
        ),
        (
            {"continue_parent_on_failure": True, "remove_dependency_on_failure": True},
            "contradict each other",
        ),
        ({"fail_parent_on_failure": 1}, "fail_parent_on_failure must be True or False"),
    ]:
        with case((options, message)):
            with pytest.raises((InvalidOption, InvalidOptionType), match=message):
                await queue.add("a", **options)
            with pytest.raises((InvalidOption, InvalidOptionType), match=message):
                await queue.add_bulk([{"name": "b"}, {"name": "a", "opts": options}])  # type: ignore[typeddict-item]
            assert await queue.count() == 0


# --- waiting for children ------------------------------------------------------------------------


async def test_a_run_can_wait_for_children_that_it_added(queue: Queue) -> None:
    ran: list[tuple[str, int, int]] = []

    async def step(job: Job) -> Any:
        ran.append((job.name, job.attempts_made, job.attempts_started))
        if job.name != "parent":
            return job.data
        if job.data["step"] == 1:
            await queue.add("child", 7, parent=job)
            await queue.add("child", 8, parent=job)
            await job.update_data({"step": 2})
        if await job.move_to_waiting_children():
            raise WaitingChildrenError
        return sorted((await job.get_children_values()).values())

    parent = await queue.add("parent", {"step": 1}, attempts=1)
    async with working(queue, processor=step):
        assert await parent.result(timeout="10s") == [7, 8]
    assert ran == [("parent", 0, 1), ("child", 0, 1), ("child", 0, 1), ("parent", 0, 2)]
    done = await again(queue, parent)
    assert (done.attempts_made, done.attempts_started) == (1, 2)


async def test_waiting_for_children_is_told_as_neither_failed_nor_completed(queue: Queue) -> None:
    async def step(job: Job) -> None:
        if job.name == "parent":
            if job.attempts_started == 1:
                await queue.add("child", parent=job)
            if await job.move_to_waiting_children():
                raise JobWaitingChildrenError

    parent = await queue.add("parent")
    async with working(queue, processor=step):
        await parent.result(timeout="10s")
    heard = await told(queue, BLOCKED, "dependencies_completed")
    assert names_of(heard, parent.id) == [
        *("added", "waiting", "active", BLOCKED),
        *("dependencies_completed", "promoted", "waiting", "active", "completed"),
    ]


async def test_a_thread_can_wait_for_its_children(queue: Queue) -> None:
    other = Queue("other", queue.store)
    main = asyncio.get_running_loop()

    def step(job: Job) -> str:
        if job.attempts_started == 1:
            adding = other.add("child", parent=job, delay=50)
            asyncio.run_coroutine_threadsafe(adding, main).result(10)
        if job.move_to_waiting_children().result():
            raise WaitingChildrenError
        return f"run {job.attempts_started}"

    parent = await queue.add("parent")
    async with working(queue, processor=step), working(other):
        assert await parent.result(timeout="10s") == "run 2"


async def test_a_thread_need_not_read_whether_it_has_to_wait(queue: Queue) -> None:
    await queue.add("parent")
    [parent] = await queue.get_waiting()
    await queue.add("child", parent=parent, priority=1)

    def step(job: Job) -> str:
        if job.name == "parent" and job.attempts_started == 1:
            job.move_to_waiting_children()
            raise WaitingChildrenError
        return job.name

    async with working(queue, processor=step):
        assert await parent.result(timeout="10s") == "parent"


async def test_raising_without_having_to_wait_is_named_as_a_mistake(queue: Queue) -> None:
    async def confused(job: Job) -> None:
        await job.move_to_waiting_children()
        raise WaitingChildrenError

    job = await queue.add("a")
    async with working(queue, processor=confused):
        with pytest.raises(JobFailed, match=r"was raised without .*telling that it has to wait"):
            await job.result(timeout="10s")


async def test_children_that_ended_before_are_not_waited_for(queue: Queue) -> None:
    other = Queue("other", queue.store)

    async def step(job: Job) -> list[bool]:
        child = await other.add("child", 1, parent=job)
        await child.result()
        return [await job.move_to_waiting_children()]

    parent = await queue.add("parent")
    async with working(queue, processor=step), working(other):
        assert await parent.result(timeout="10s") == [False]
    assert (await again(queue, parent)).attempts_started == 1


async def test_a_run_can_wait_for_one_of_its_children(queue: Queue) -> None:
    worker, parent = await held(queue)
    first = await queue.add("first", parent=parent)
    second = await queue.add("second", parent=parent, delay=60_000)
    async with working(queue):
        await first.result(timeout="10s")
    assert not await parent.move_to_waiting_children(child=first)
    assert not await parent.move_to_waiting_children(child={"id": first.id, "queue": "emails"})
    with pytest.raises(InvalidOption, match="child must be"):
        parent.move_to_waiting_children(child={"id": first.id})
    assert await parent.move_to_waiting_children(child=second)
    assert await state_of(queue, parent) == BLOCKED
    await second.remove()
    await worker.close()


async def test_only_the_run_that_holds_a_job_can_let_it_wait(queue: Queue) -> None:
    worker, parent = await held(queue)
    await queue.add("child", parent=parent, delay=60_000)
    with pytest.raises(LostLock, match="not held with the token"):
        await parent.move_to_waiting_children("wrong")
    assert await parent.move_to_waiting_children(parent.token)
    with pytest.raises(LostLock):
        await parent.move_to_waiting_children()
    with pytest.raises(IllegalMove, match="not in the active state but waiting-children"):
        await (await again(queue, parent)).move_to_waiting_children()
    await worker.close()


async def test_a_run_that_lost_its_job_moves_nothing(queue: Queue) -> None:
    worker, parent = await held(queue)
    await queue.add("child", parent=parent, delay=60_000)
    await take_away(queue)
    with pytest.raises(LostLock):
        await parent.move_to_waiting_children()
    assert await state_of(queue, parent) == "waiting"
    await worker.close()


async def test_children_that_end_one_by_one_are_counted_one_by_one(queue: Queue) -> None:
    worker, parent = await held(queue)
    for _ in range(3):
        await queue.add("child", parent=parent)
    numbers = []
    for _ in range(3):
        child = await worker.get_next_job()
        assert child is not None
        await child.move_to_completed()
        counts = await parent.get_dependencies_count(processed=True, unprocessed=True)
        numbers.append((counts["processed"], counts["unprocessed"]))
    assert numbers == [(1, 2), (2, 1), (3, 0)]
    assert not await parent.move_to_waiting_children()
    await parent.move_to_completed()
    await worker.close()


# --- completing too early ------------------------------------------------------------------------


async def test_a_run_that_returns_before_its_children_ended_fails_for_good(queue: Queue) -> None:
    heard: list[tuple[str, str]] = []

    async def forget(job: Job) -> str:
        await queue.add("child", parent=job, delay=60_000)
        return "done"

    parent = await queue.add("parent", attempts=5)
    worker = Worker(queue, forget, autorun=False)
    worker.on("failed", lambda job, error, prev: heard.append((type(error).__name__, prev)))
    worker.on("completed", lambda job: heard.append(("completed", job.id)))
    async with worker:
        with pytest.raises(JobFailed, match=f"job {parent.id} has pending children"):
            await parent.result(timeout="10s")
        await until(lambda: heard)
    assert heard == [("PendingChildren", "active")]
    failed = await again(queue, parent)
    assert (failed.state, failed.attempts_made, failed.return_value) == ("failed", 1, None)


async def test_who_completes_by_hand_too_early_holds_the_job_still(queue: Queue) -> None:
    worker, parent = await held(queue)
    child = await queue.add("child", parent=parent, delay=60_000)
    with pytest.raises(PendingChildren, match="has pending children"):
        await parent.move_to_completed("early")
    assert await state_of(queue, parent) == "active"
    await child.remove()
    await parent.move_to_completed("late")
    assert (await again(queue, parent)).return_value == "late"
    await worker.close()


async def test_a_child_that_fails_its_running_parent_is_heard_of_when_it_wants_to_wait(
    queue: Queue,
) -> None:
    other = Queue("other", queue.store)

    async def step(job: Job) -> None:
        child = await other.add("child", FAIL, parent=job, fail_parent_on_failure=True)
        with pytest.raises(JobFailed):
            await child.result()
        await job.move_to_waiting_children()

    parent = await queue.add("parent", attempts=3)
    async with working(queue, processor=step), working(other):
        with pytest.raises(JobFailed, match=r"child other:.* failed"):
            await parent.result(timeout="10s")
    assert (await again(queue, parent)).attempts_made == 1


async def test_a_child_that_fails_its_running_parent_keeps_it_from_completing(
    queue: Queue,
) -> None:
    worker, parent = await held(queue)
    child = await queue.add("child", FAIL, parent=parent, fail_parent_on_failure=True)
    async with working(queue):
        with pytest.raises(JobFailed):
            await child.result(timeout="10s")
    with pytest.raises(ChildFailed, match=f"child {key(child)} failed"):
        await parent.move_to_completed()
    await parent.move_to_failed("so be it", retry=False)
    await worker.close()


async def test_the_own_error_of_a_parent_comes_first(queue: Queue) -> None:
    other = Queue("other", queue.store)

    async def step(job: Job) -> None:
        child = await other.add("child", FAIL, parent=job, fail_parent_on_failure=True)
        with pytest.raises(JobFailed):
            await child.result()
        raise ValueError("its own error")

    parent = await queue.add("parent")
    async with working(queue, processor=step), working(other):
        with pytest.raises(JobFailed, match="its own error"):
            await parent.result(timeout="10s")


async def test_children_of_a_parent_that_is_retried_are_still_its_children(queue: Queue) -> None:
    async def step(job: Job) -> Any:
        if job.name != "parent":
            return job.data
        if job.attempts_made == 0:
            await queue.add("child", 5, parent=job, priority=3)
            raise ValueError("first try")
        if await job.move_to_waiting_children():
            raise WaitingChildrenError
        return list((await job.get_children_values()).values())

    parent = await queue.add("parent", attempts=2)
    async with working(queue, processor=step):
        assert await parent.result(timeout="10s") == [5]


async def test_a_parent_retried_after_its_child_failed_it_may_complete(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("root", tree("leaf", data=FAIL, fail_parent_on_failure=True), data="fine")
    )
    root, leaf = jobs_of(added)
    async with working(queue):
        with pytest.raises(JobFailed, match="child"):
            await root.result(timeout="10s")
        await (await again(queue, root)).retry()
        assert await (await again(queue, root)).result(timeout="10s") == "fine"
    assert await root.get_dependencies_count(failed=True) == {"failed": 1}
    assert await state_of(queue, leaf) == "failed"


# --- children that run again ---------------------------------------------------------------------


@pytest.mark.parametrize("end", ["failed", "ignored", "completed"])
async def test_a_child_that_is_retried_is_waited_for_again(queue: Queue, end: str) -> None:
    state = "completed" if end == "completed" else "failed"
    fails = state == "failed"

    async def maybe(job: Job) -> str:
        if job.name == "leaf" and fails:
            raise ValueError("it broke")
        return job.name

    added = await producer(queue).add(
        tree(
            "root",
            tree("leaf", ignore_dependency_on_failure=end == "ignored"),
            tree("other", delay=60_000),
        )
    )
    root, leaf, other = jobs_of(added)
    async with working(queue, processor=maybe):
        await until(lambda: state_is(queue, leaf, state))
        fails = False
        await (await again(queue, leaf)).retry(state)
        assert await root.get_dependencies_count(ignored=True) == {"ignored": 0}
        await (await again(queue, leaf)).result(timeout="10s")
        assert await state_of(queue, root) == BLOCKED
        await (await again(queue, other)).promote()
        await root.result(timeout="10s")
    assert (await root.get_dependencies_count())["processed"] == 2


async def state_is(queue: Queue, job: Job, state: str) -> bool:
    return await state_of(queue, job) == state


async def test_a_child_retried_after_its_parent_ran_has_no_say(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf", data=1)))
    root, leaf = jobs_of(added)
    async with working(queue):
        await root.result(timeout="10s")
        await (await again(queue, leaf)).retry("completed")
        await (await again(queue, leaf)).result(timeout="10s")
    assert await state_of(queue, root) == "completed"
    assert await root.get_children_values() == {key(leaf): 1}


# --- getters -------------------------------------------------------------------------------------


async def test_dependencies_come_in_pages(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", *[tree("leaf", data=n) for n in range(7)]))
    root = added["job"]
    async with working(queue, concurrency=4):
        await root.result(timeout="10s")
    pages, cursor = [], 0
    while True:
        found = await root.get_dependencies(processed={"cursor": cursor, "count": 3})
        pages.append(list(found["processed"].values()))
        cursor = found["next_processed_cursor"]
        if not cursor:
            break
    assert pages == [[0, 1, 2], [3, 4, 5], [6]]
    assert found.keys() == {"processed", "next_processed_cursor"}


async def test_a_page_that_ends_with_the_last_one_says_so(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("a"), tree("b")))
    found = await added["job"].get_dependencies(unprocessed={"count": 2})
    assert len(found["unprocessed"]) == 2
    assert found["next_unprocessed_cursor"] == 0


async def test_dependencies_of_all_kinds_at_once(queue: Queue) -> None:
    added = await producer(queue).add(
        tree(
            "root",
            tree("done", data=1),
            tree("ignored", data=FAIL, ignore_dependency_on_failure=True),
            tree("failed", data=FAIL, fail_parent_on_failure=True),
            tree("later", delay=60_000),
        )
    )
    root, done, ignored, failed, later = jobs_of(added)
    async with working(queue):
        with pytest.raises(JobFailed):
            await root.result(timeout="10s")
    assert await root.get_dependencies() == {
        "processed": {key(done): 1},
        "unprocessed": [key(later)],
        "ignored": {key(ignored): "it broke"},
        "failed": [key(failed)],
    }
    assert await root.get_dependencies_count() == {
        "processed": 1, "unprocessed": 1, "ignored": 1, "failed": 1
    }  # fmt: skip
    assert await root.get_dependencies_count(ignored=True, failed=True) == {
        "ignored": 1, "failed": 1
    }  # fmt: skip
    assert await root.get_failed_children_values() == {key(ignored): "it broke"}


async def test_bad_pages_are_refused(queue: Queue) -> None:
    for page in [3, "all", {"start": 0}, {"cursor": -1}, {"count": 0}]:
        with case(page):
            job = await queue.add("a")
            with pytest.raises((InvalidOption, InvalidOptionType), match="processed"):
                await job.get_dependencies(processed=page)


async def test_the_queue_lists_the_children_of_a_job(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("root", *[tree("leaf", queue="other", data=n) for n in range(4)])
    )
    root, *leaves = jobs_of(added)
    found = await queue.get_dependencies(root.id, "pending", 1, 2)
    assert found["items"] == [key(leaf) for leaf in leaves[1:3]]
    assert [job.data for job in found["jobs"]] == [1, 2]
    assert found["total"] == 4
    last = await queue.get_dependencies(root.id, "pending", -2, -1)
    assert [job.data for job in last["jobs"]] == [2, 3]
    beyond = await queue.get_dependencies(root.id, "pending", 9, 20)
    assert beyond == {"items": [], "jobs": [], "total": 4}
    assert (await queue.get_dependencies("99"))["total"] == 0
    with pytest.raises(InvalidOption, match='type must be "pending" or "processed"'):
        await queue.get_dependencies(root.id, "failed")


async def test_children_that_are_gone_are_listed_without_their_jobs(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("root", tree("a", remove_on_complete=True), tree("b"), tree("c"))
    )
    root, a, b, c = jobs_of(added)
    async with working(queue):
        await root.result(timeout="10s")
    found = await queue.get_dependencies(root.id, "processed", 0, 1)
    assert found["items"] == [key(a), key(b)]
    assert [job.id for job in found["jobs"]] == [b.id]
    found = await queue.get_dependencies(root.id, "processed", 2, 2)
    assert [job.id for job in found["jobs"]] == [c.id]


async def test_the_values_of_a_removed_parent_go_with_it(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf", data=1), remove_on_complete=True))
    async with working(queue):
        await added["job"].result(timeout="10s")
    await until(lambda: state_is_unknown(queue, added["job"]))
    assert await added["job"].get_children_values() == {}


async def state_is_unknown(queue: Queue, job: Job) -> bool:
    return await queue.get_job_state(job.id) == "unknown"


async def test_jobs_that_wait_for_others_are_listed_and_counted(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf")))
    waits = await queue.add("waits", depends_on=added["job"])
    blocked = await queue.get_waiting_children()
    assert [job.id for job in blocked] == [added["job"].id, waits.id]
    assert await queue.get_waiting_children_count() == 2
    assert await queue.count() == 3
    assert await waits.is_waiting_children()


# --- leaving, removing ---------------------------------------------------------------------------


async def test_a_child_can_leave_its_parent(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("a"), tree("b")))
    root, a, b = jobs_of(added)
    assert await a.remove_child_dependency()
    assert a.parent is a.parent_key is (await again(queue, a)).parent is None
    assert await state_of(queue, root) == BLOCKED
    assert await (await again(queue, b)).remove_child_dependency()
    assert await state_of(queue, root) == "waiting"
    assert not any((await root.get_dependencies_count()).values())


async def test_a_child_that_left_may_be_given_to_another(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf", job_id="leaf")))
    await added["children"][0]["job"].remove_child_dependency()
    other = await producer(queue).add(tree("other", tree("leaf", job_id="leaf")))
    assert other["children"][0]["job"].parent_id == other["job"].id


async def test_a_job_without_a_parent_cannot_leave_one(queue: Queue) -> None:
    job = await queue.add("a", job_id="mine")
    with pytest.raises(NotAChild, match="job mine has no parent"):
        await job.remove_child_dependency()
    assert await state_of(queue, job) == "waiting"


async def test_a_child_that_has_left_cannot_leave_again(queue: Queue) -> None:
    [_, child] = jobs_of(await producer(queue).add(tree("root", tree("leaf"))))
    seen_before = await again(queue, child)
    await child.remove_child_dependency()
    for job in (child, seen_before):
        with pytest.raises(NotAChild, match=f"job {child.id} has no parent"):
            await job.remove_child_dependency()


async def test_a_child_cannot_leave_a_parent_that_has_let_go_of_it(queue: Queue) -> None:
    leaf = tree("leaf", data=FAIL, remove_dependency_on_failure=True)
    [root, child] = jobs_of(await producer(queue).add(tree("root", leaf)))
    async with working(queue):
        await root.result(timeout="10s")
    with pytest.raises(NotAChild, match=f"job {child.id} is no child of job {root.id} of queue"):
        await child.remove_child_dependency()
    assert (await again(queue, child)).parent_id == root.id


async def test_a_job_that_is_gone_cannot_leave_its_parent(queue: Queue) -> None:
    [root, child] = jobs_of(await producer(queue).add(tree("root", tree("leaf"))))
    await child.remove()
    with pytest.raises(JobNotFound, match=f"job {child.id}"):
        await child.remove_child_dependency()
    assert await state_of(queue, root) == "waiting"


async def test_what_nobody_has_begun_below_a_job_can_be_removed(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("root", tree("a"), tree("b", tree("c", priority=1)), tree("d", delay=60_000))
    )
    assert await added["job"].remove_unprocessed_children() == 4
    assert await state_of(queue, added["job"]) == "waiting"
    assert await queue.count() == 1
    assert await added["job"].remove_unprocessed_children() == 0


# --- from another process ------------------------------------------------------------------------


async def test_a_child_added_by_somebody_else_counts_before_its_parent_waits(
    queue: Queue, location: str
) -> None:
    async with Queue("emails", location) as elsewhere:

        async def step(job: Job) -> Any:
            if job.name != "parent":
                return await work(job)
            if job.attempts_started == 1:
                await elsewhere.add("child", 3, parent={"id": job.id, "queue": "emails"})
            if await job.move_to_waiting_children():
                raise WaitingChildrenError
            return list((await job.get_children_values()).values())

        parent = await queue.add("parent")
        async with working(queue, processor=step):
            assert await parent.result(timeout="10s") == [3]
