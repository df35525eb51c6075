"""Area F of the catalogue: taking out members of a flow."""

from __future__ import annotations

import asyncio

import pytest

from bullite import Job, JobFailed, JobLocked, Queue
from tests.support.flows import FAIL, jobs_of, producer, tree, working
from tests.support.helpers import again, until

BLOCKED = "waiting-children"


async def states(*jobs: Job) -> list[str]:
    return [await job.get_state() for job in jobs]


async def test_F_044_only_what_nobody_has_begun_is_removed(queue: Queue) -> None:
    go = asyncio.Event()

    async def wait(job: Job) -> None:
        if job.data == FAIL:
            raise ValueError(FAIL)
        if job.name == "active":
            await go.wait()

    below = Queue("below", queue.store)
    added = await producer(queue).add(
        tree(
            "root",
            tree("completed", queue="below"),
            tree("failed", queue="below", data=FAIL),
            tree("active", queue="below"),
            tree("waiting"),
            tree("prioritized", priority=2),
            tree("delayed", delay=60_000),
            tree("nested", tree("waiting")),
        )
    )
    root, done, bad, active, *rest = jobs_of(added)
    async with working(below, processor=wait):
        await done.result()
        with pytest.raises(JobFailed):
            await bad.result()
        await until(lambda: active.is_active())
        assert await root.remove_unprocessed_children() == 5
        assert await states(done, bad, active) == ["completed", "failed", "active"]
        assert await states(*rest) == ["unknown"] * 5
        for job in (done, bad, active):
            assert (await again(below, job)).parent_id == root.id
        go.set()


async def test_F_045_completed_descendants_stay(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("root", tree("a", tree("b"), tree("c")), tree("d", tree("e", tree("f"))))
    )
    await queue.add("filler", delay=60_000)
    async with working(queue):
        await added["job"].result()
    assert await added["job"].remove_unprocessed_children() == 0
    assert await queue.get_completed_count() == 7


async def test_F_046_a_parent_is_removed_with_all_its_descendants(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("a"), tree("b", tree("c"))))
    await added["job"].remove()
    assert await states(*jobs_of(added)) == ["unknown"] * 4
    assert await queue.get_waiting_count() == 0


async def test_F_047_children_can_be_left_alone(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("a"), tree("b", tree("c"))))
    await added["job"].remove(remove_children=False)
    assert await states(*jobs_of(added)) == ["unknown", "waiting", BLOCKED, "waiting"]
    assert await queue.get_waiting_count() == 2


async def test_F_049_removing_a_completed_middle_job_takes_its_descendants(queue: Queue) -> None:
    below = Queue("below", queue.store)
    added = await producer(queue).add(
        tree("root", tree("middle", tree("a", queue="below"), queue="below"))
    )
    root, middle, leaf = jobs_of(added)
    async with working(below):
        await middle.result()
    await middle.remove()
    assert await states(root, middle, leaf) == ["waiting", "unknown", "unknown"]


async def test_F_050_nothing_is_removed_while_a_child_runs(queue: Queue) -> None:
    go = asyncio.Event()

    async def wait(job: Job) -> None:
        await go.wait()

    added = await producer(queue).add(tree("root", tree("a"), tree("b", queue="below")))
    root, a, b = jobs_of(added)
    async with working(Queue("below", queue.store), processor=wait):
        await until(lambda: b.is_active())
        with pytest.raises(JobLocked, match=f"job {root.id} could not be removed.*locked"):
            await root.remove()
        assert await states(root, a, b) == [BLOCKED, "waiting", "active"]
        go.set()


async def test_F_051_removing_the_last_child_lets_its_parent_run(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("middle", tree("leaf"))))
    root, middle, leaf = jobs_of(added)
    await leaf.remove()
    assert await states(root, middle) == [BLOCKED, "waiting"]


async def test_F_051_with_two_children_only_the_second_removal_lets_it_run(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("a"), tree("b")))
    root, a, b = jobs_of(added)
    await a.remove()
    assert await root.get_state() == BLOCKED
    await b.remove()
    assert await root.get_state() == "waiting"
