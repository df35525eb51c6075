"""Area F of the catalogue: what a failed child means for its parent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import Job, JobFailed, Queue, QueueEvents, Worker
from tests.support.flows import FAIL, jobs_of, key, producer, tree, work, working
from tests.support.helpers import again, state_of, until

BLOCKED = "waiting-children"


async def test_F_001_a_failed_child_that_is_removed_does_not_hold_its_parent(
    queue: Queue,
) -> None:
    added = await producer(queue).add(
        tree("root", tree("bad", data=FAIL, remove_on_fail=True), tree("good"))
    )
    async with working(queue):
        await added["job"].result()
    assert (await added["job"].get_dependencies_count())["processed"] == 1


async def test_F_009_children_whose_failures_are_ignored_let_their_parent_run(
    queue: Queue,
) -> None:
    async def look(job: Job) -> Any:
        if job.name != "root":
            raise ValueError("error")
        found = await job.get_dependencies()
        return [len(found["processed"]), len(found["ignored"])]

    leaf = tree("leaf", ignore_dependency_on_failure=True)
    added = await producer(queue).add(tree("root", leaf, leaf, leaf))
    root, *leaves = jobs_of(added)
    async with working(queue, processor=look):
        assert await root.result() == [0, 3]
    assert (await root.get_dependencies_count())["ignored"] == 3
    failures = await root.get_ignored_children_failures()
    assert failures == {key(one): "error" for one in leaves}
    shown = await producer(queue).get_flow("emails", root.id)
    assert shown is not None
    assert len(shown["children"]) == 3


async def test_F_010_children_that_are_removed_from_what_is_waited_for_leave_nothing(
    queue: Queue,
) -> None:
    leaf = tree("leaf", data=FAIL, remove_dependency_on_failure=True)
    added = await producer(queue).add(tree("root", leaf, leaf, leaf))
    async with working(queue):
        await added["job"].result()
    found = await added["job"].get_dependencies()
    assert found == {"processed": {}, "unprocessed": [], "ignored": {}, "failed": []}


async def test_F_024_a_parent_failed_by_its_child_is_failed_by_a_worker_of_its_own(
    queue: Queue,
) -> None:
    other, ran, heard = Queue("children", queue.store), list[str](), list[Any]()

    async def note(job: Job) -> None:
        ran.append(job.id)

    added = await producer(queue).add(
        tree("root", tree("leaf", queue="children", data=FAIL, fail_parent_on_failure=True))
    )
    root, leaf = jobs_of(added)
    async with QueueEvents(queue.name, queue.store) as events:
        events.on("failed", lambda payload, id: heard.append(payload))
        async with working(other):
            with pytest.raises(JobFailed):
                await leaf.result()
        waiting = await again(queue, root)
        assert waiting.state == "waiting"
        assert waiting.deferred_failure == f"child {key(leaf)} failed"
        async with working(queue, processor=note):
            with pytest.raises(JobFailed, match=f"child {key(leaf)} failed"):
                await root.result()
        await until(lambda: heard)
    assert ran == []
    assert (heard[0]["job_id"], heard[0]["prev"]) == (root.id, "active")


@pytest.mark.parametrize("where", ["delayed", "prioritized"])
async def test_F_025_a_parent_that_is_delayed_or_prioritized_is_failed_promptly(
    queue: Queue, where: str
) -> None:
    other = Queue("children", queue.store)
    opts: dict[str, Any] = {"delay": 60_000} if where == "delayed" else {"priority": 5}
    await queue.pause()
    parent = await queue.add("parent", attempts=3, **opts)
    leaf = await other.add("leaf", FAIL, parent=parent, fail_parent_on_failure=True)
    assert await parent.get_state() == where
    async with working(other):
        with pytest.raises(JobFailed):
            await leaf.result()
    await queue.resume()
    async with working(queue):
        with pytest.raises(JobFailed, match=f"child {key(leaf)} failed"):
            await parent.result()
    assert (await again(queue, parent)).attempts_made == 0


async def test_F_026_a_removed_middle_job_still_fails_its_parent(queue: Queue) -> None:
    added = await producer(queue).add(
        tree(
            "root",
            tree(
                "middle",
                tree("leaf", data=FAIL, fail_parent_on_failure=True),
                fail_parent_on_failure=True,
                remove_on_fail=True,
            ),
        )
    )
    root, middle, _ = jobs_of(added)
    async with working(queue):
        with pytest.raises(JobFailed, match=f"child {key(middle)} failed"):
            await root.result()
    assert await middle.get_state() == "unknown"
    assert (await root.get_dependencies_count())["failed"] == 1


async def test_F_027_a_middle_job_can_take_itself_out_of_what_is_waited_for(queue: Queue) -> None:
    added = await producer(queue).add(
        tree(
            "root",
            tree(
                "middle",
                tree("leaf", queue="below", data=FAIL, fail_parent_on_failure=True),
                queue="middle",
                remove_dependency_on_failure=True,
            ),
        )
    )
    root, middle, leaf = jobs_of(added)
    async with working(Queue("below", queue.store), Queue("middle", queue.store)):
        with pytest.raises(JobFailed, match=f"child {key(leaf)} failed"):
            await middle.result()
    assert await root.get_state() == "waiting"


async def test_F_029_a_child_can_let_its_parent_go_on(queue: Queue) -> None:
    async def look(job: Job) -> Any:
        if job.name != "root":
            raise ValueError("failed")
        return [await job.get_failed_children_values(), await job.get_dependencies_count()]

    added = await producer(queue).add(tree("root", tree("leaf", continue_parent_on_failure=True)))
    root, leaf = jobs_of(added)
    async with working(queue, processor=look):
        failures, counts = await root.result()
    assert failures == {key(leaf): "failed"}
    assert counts == {"processed": 0, "unprocessed": 0, "ignored": 1, "failed": 0}


async def test_F_030_a_parent_that_goes_on_leaves_its_other_children_running(
    queue: Queue,
) -> None:
    other, begun = Queue("children", queue.store), list[int]()

    async def parent(job: Job) -> Any:
        return await job.get_dependencies_count()

    async def child(job: Job) -> None:
        begun.append(job.data)
        if job.data == 2:
            raise ValueError("failed")
        await asyncio.sleep(0.05)

    added = await producer(queue).add(
        tree(
            "root",
            *[
                tree("leaf", queue="children", data=n, continue_parent_on_failure=n == 2)
                for n in range(5)
            ],
        )
    )
    async with working(queue, processor=parent), working(other, processor=child):
        counts = await added["job"].result()
        assert counts["unprocessed"] > 0
        assert counts["ignored"] == 1
        for leaf in added["children"][3:]:
            await leaf["job"].result()
    assert sorted(begun) == [0, 1, 2, 3, 4]
    assert await other.get_completed_count() == 4


@pytest.mark.parametrize("where", ["delayed", "prioritized"])
async def test_F_031_a_parent_that_goes_on_goes_where_it_belongs(queue: Queue, where: str) -> None:
    other, seen = Queue("children", queue.store), list[Any]()
    opts: dict[str, Any] = {"delay": 300} if where == "delayed" else {"priority": 42}
    added = await producer(queue).add(
        tree(
            "root",
            tree("leaf", queue="children", data=FAIL, continue_parent_on_failure=True),
            **opts,
        )
    )
    worker = Worker(other, work, autorun=False)

    @worker.on("failed")
    async def look(job: Job, error: Exception, prev: str) -> None:
        seen.append(await queue.get_job_counts("waiting", "prioritized", "delayed"))

    async with worker:
        await until(lambda: seen)
    expected = {"waiting": 0, "prioritized": 0, "delayed": 0} | {where: 1}
    assert seen == [expected]
    async with working(queue):
        await added["job"].result()


async def test_F_041_without_a_policy_a_failed_child_keeps_its_parent_waiting(
    queue: Queue,
) -> None:
    added = await producer(queue).add(tree("root", tree("leaf", data=FAIL)))
    root, leaf = jobs_of(added)
    async with working(queue):
        with pytest.raises(JobFailed):
            await leaf.result()
    assert await state_of(queue, root) == BLOCKED
    assert await queue.get_waiting_count() == 0
