"""Area F of the catalogue: flows, in which parents run after their children."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from bullite import (
    FlowNode,
    Job,
    JobFailed,
    ParentTaken,
    Queue,
    QueueEvents,
    WaitingChildrenError,
    Worker,
)
from bullite.errors import InvalidOption
from tests.support.flows import FAIL, jobs_of, key, producer, tree, working
from tests.support.helpers import again, state_of, until

BLOCKED = "waiting-children"


async def test_F_002_values_of_children_that_are_removed_on_completion_stay(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("root", *[tree("leaf", data=n, remove_on_complete=True) for n in range(2)])
    )
    root, *leaves = jobs_of(added)
    async with working(queue):
        await root.result()
    processed = (await root.get_dependencies())["processed"]
    assert processed == {key(leaf): n for n, leaf in enumerate(leaves)}


async def test_F_004_a_flow_runs_its_parent_after_its_children(queue: Queue) -> None:
    other = Queue("children", queue.store)
    added = await producer(queue).add(
        tree("root", *[tree("leaf", queue="children", data=n) for n in range(3)])
    )
    root, *leaves = jobs_of(added)
    assert added.keys() == {"job", "children"}
    assert await root.get_state() == BLOCKED
    assert len(leaves) == 3
    for leaf in leaves:
        assert leaf.parent == {"id": root.id, "queue": "emails"}

    async def parent(job: Job) -> Any:
        assert await other.get_completed_count() == 3
        found = await job.get_dependencies(processed={"cursor": 0, "count": 50})
        assert len(found["processed"]) == 3
        assert found["next_processed_cursor"] == 0
        return await job.get_children_values()

    async with working(other), working(queue, processor=parent):
        assert await root.result() == {key(leaf): n for n, leaf in enumerate(leaves)}


@pytest.mark.parametrize("bulk", [False, True])
async def test_F_005_the_root_of_a_flow_may_have_a_parent_in_another_queue(
    queue: Queue, bulk: bool
) -> None:
    above = Queue("above", queue.store)
    grandparent = await above.add("grandparent", delay=60_000)
    node = tree("root", tree("leaf"), parent={"id": grandparent.id, "queue": "above"})
    flows = producer(queue)
    added = (await flows.add_bulk([node]))[0] if bulk else await flows.add(node)
    assert added["job"].parent_key == f"above:{grandparent.id}"
    async with working(queue):
        await added["job"].result()
    assert await grandparent.get_dependencies_count(processed=True) == {"processed": 1}


async def test_F_006_the_only_child_can_leave_its_parent(queue: Queue) -> None:
    other = Queue("children", queue.store)
    added = await producer(queue).add(tree("root", tree("leaf", queue="children")))
    root, leaf = jobs_of(added)
    assert await leaf.remove_child_dependency() is True
    assert leaf.parent is leaf.parent_key is None
    fresh = await again(other, leaf)
    assert fresh.parent is fresh.parent_key is None
    assert await root.get_state() == "waiting"
    async with working(queue):
        await root.result()
    assert await root.get_dependencies_count() == {
        "processed": 0, "unprocessed": 0, "ignored": 0, "failed": 0
    }  # fmt: skip


async def test_F_007_of_two_children_one_can_leave(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("a"), tree("b")))
    root, leaving, _ = jobs_of(added)
    assert await leaving.remove_child_dependency()
    assert await root.get_state() == BLOCKED
    async with working(queue):
        await root.result()
    counts = await root.get_dependencies_count(processed=True, unprocessed=True)
    assert counts == {"processed": 1, "unprocessed": 0}


async def test_F_011_a_step_job_waits_for_a_flow_that_it_added(queue: Queue) -> None:
    answers: list[bool] = []

    async def step(job: Job) -> Any:
        if job.name != "parent":
            return job.name
        if job.attempts_started == 1:
            mine = {"id": job.id, "queue": "emails"}
            await producer(queue).add(tree("child", tree("grandchild"), parent=mine))
        answers.append(await job.move_to_waiting_children())
        if answers[-1]:
            raise WaitingChildrenError
        return list((await job.get_children_values()).values())

    parent = await queue.add("parent")
    async with working(queue, processor=step):
        assert await parent.result() == ["child"]
    assert answers == [True, False]


@pytest.mark.parametrize("policy", [{}, {"fail_parent_on_failure": True}])
async def test_F_012_a_job_that_returns_with_a_child_pending_fails(
    queue: Queue, policy: dict[str, Any]
) -> None:
    heard: list[Any] = []

    async def forget(job: Job) -> None:
        await queue.add("child", parent=job, delay=60_000, **policy)

    async with QueueEvents(queue.name, queue.store) as events:
        events.on("failed", lambda payload, id: heard.append(payload))
        parent = await queue.add("parent")
        async with working(queue, processor=forget):
            with pytest.raises(JobFailed, match=f"job {parent.id} has pending children"):
                await parent.result()
        await until(lambda: heard)
    assert heard[0]["prev"] == "active"
    assert "has pending children" in heard[0]["failed_reason"]


async def test_F_014_the_own_error_of_a_parent_is_its_reason(queue: Queue) -> None:
    async def fail(job: Job) -> None:
        await queue.add("child", parent=job, delay=60_000, fail_parent_on_failure=True)
        raise ValueError("fail")

    parent = await queue.add("parent")
    async with working(queue, processor=fail):
        with pytest.raises(JobFailed):
            await parent.result()
    assert (await again(queue, parent)).failed_reason == "fail"


async def test_F_015_moving_a_parent_to_its_line_is_no_attempt(queue: Queue) -> None:
    made: list[int] = []

    async def note(job: Job) -> None:
        made.append(job.attempts_made)

    added = await producer(queue).add(
        tree("a", tree("b", tree("c", attempts=1), attempts=1), attempts=1)
    )
    async with working(queue, processor=note):
        await added["job"].result()
    assert made == [0, 0, 0]
    assert await queue.get_completed_count() == 3


async def test_F_016_options_for_a_queue_hold_for_its_nodes_only(queue: Queue) -> None:
    other = Queue("children", queue.store)
    added = await producer(queue).add(
        tree("root", tree("a", queue="children"), tree("b", queue="children")),
        queues_options={"emails": {"default_job_options": {"remove_on_complete": True}}},
    )
    async with working(queue, other):
        await added["job"].result()
    assert await added["job"].get_state() == "unknown"
    assert await other.get_completed_count() == 2


async def test_F_017_released_jobs_go_to_their_priority(queue: Queue) -> None:
    ran: list[str] = []

    async def note(job: Job) -> None:
        ran.append(job.name)

    below = Queue("below", queue.store)
    added = await producer(queue).add(
        tree(
            "root",
            *[
                tree(f"p{n}", tree("grandchild", queue="below"), queue="middle", priority=n)
                for n in (2, 3, 1)
            ],
        )
    )
    middle = Queue("middle", queue.store)
    await middle.add("plain")
    async with working(below):
        await until(lambda: middle.get_prioritized_count())
        await until(lambda: _counts(middle, 3))
    async with working(middle, processor=note), working(queue):
        await added["job"].result()
    assert ran == ["plain", "p1", "p2", "p3"]


async def _counts(queue: Queue, number: int) -> bool:
    return await queue.get_prioritized_count() == number


async def test_F_017_direct_children_run_by_priority(queue: Queue) -> None:
    ran: list[str] = []

    async def note(job: Job) -> None:
        ran.append(job.name)

    added = await producer(queue).add(
        tree("root", *[tree(f"p{n}", priority=n) for n in (2, 3, 1)], tree("plain"))
    )
    async with working(queue, processor=note):
        await added["job"].result()
    assert ran == ["plain", "p1", "p2", "p3", "root"]


async def test_F_019_a_job_that_exists_becomes_a_child_and_is_not_doubled(queue: Queue) -> None:
    flows, ran = producer(queue), list[str]()

    async def note(job: Job) -> None:
        ran.append(job.id)

    await flows.add(tree("day", tree("day", job_id="mon"), job_id="tue"))
    wed = await flows.add(tree("day", tree("day", job_id="tue"), job_id="wed"))
    assert await queue.count() == 3
    async with working(queue, processor=note):
        await wed["job"].result()
        assert ran == ["mon", "tue", "wed"]
        thu = await flows.add(tree("day", tree("day", job_id="wed"), job_id="thu"))
        await thu["job"].result()
    assert ran == ["mon", "tue", "wed", "thu"]


async def test_F_020_a_job_that_runs_becomes_a_child(queue: Queue) -> None:
    go = asyncio.Event()

    async def wait(job: Job) -> None:
        if job.id == "mon":
            await go.wait()

    async with working(queue, processor=wait):
        mon = await queue.add("day", job_id="mon")
        await until(lambda: mon.is_active())
        tue = await producer(queue).add(tree("day", tree("day", job_id="mon"), job_id="tue"))
        assert await tue["job"].get_state() == BLOCKED
        go.set()
        await tue["job"].result()


async def test_F_021_a_job_keeps_the_parent_it_has(queue: Queue) -> None:
    await producer(queue).add(tree("day", tree("day", job_id="mon"), job_id="tue"))
    wed = await queue.add("day", job_id="wed")
    with pytest.raises(ParentTaken, match="has another parent, which it keeps"):
        await queue.add("day", job_id="mon", parent=wed)
    assert (await queue.get_job("mon")).parent_id == "tue"  # type: ignore[union-attr]


async def test_F_022_a_flow_added_again_does_not_run_its_completed_child_again(
    queue: Queue,
) -> None:
    ran: list[str] = []

    async def note(job: Job) -> None:
        ran.append(job.id)

    flow = tree("day", tree("day", job_id="mon"), job_id="tue", remove_on_complete=True)
    async with working(queue, processor=note):
        for _ in range(2):
            added = await producer(queue).add(flow)
            await added["job"].result()
    assert ran == ["mon", "tue", "tue"]


async def test_F_032_processed_children_come_in_pages(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", *[tree("leaf")] * 72))
    async with working(queue, concurrency=20):
        await added["job"].result()
    first = await added["job"].get_dependencies(processed={"cursor": 0, "count": 50})
    cursor = first["next_processed_cursor"]
    second = await added["job"].get_dependencies(processed={"cursor": cursor, "count": 50})
    assert len(first["processed"]) == 50
    assert len(second["processed"]) == 22
    assert second["next_processed_cursor"] == 0
    assert not first["processed"].keys() & second["processed"].keys()


async def test_F_034_a_flow_is_shown_within_bounds(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", *[tree("leaf", tree("below"))] * 3))
    shown = await producer(queue).get_flow("emails", added["job"].id, depth=2, max_children=2)
    assert shown is not None
    assert len(shown["children"]) == 2
    assert all("children" not in child for child in shown["children"])


async def test_F_035_what_children_left_goes_with_a_removed_parent(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf"), remove_on_complete=True))
    async with working(queue):
        await added["job"].result()
    assert await queue.get_job(added["job"].id) is None
    assert (await added["job"].get_dependencies())["processed"] == {}


async def test_F_036_empty_children_are_none(queue: Queue) -> None:
    node: FlowNode = {"name": "root", "queue_name": "emails", "children": []}
    added = await producer(queue).add(node)
    assert "children" not in added
    assert await added["job"].get_state() == "waiting"
    async with working(queue):
        await added["job"].result()


async def test_F_037_a_parent_with_an_id_of_its_own_counts_its_children(queue: Queue) -> None:
    async def count(job: Job) -> Any:
        return await job.get_dependencies_count() if job.name == "root" else None

    added = await producer(queue).add(tree("root", *[tree("leaf")] * 3, job_id="mine"))
    before = await added["job"].get_dependencies_count()
    assert before["unprocessed"] == 3
    async with working(queue, processor=count):
        counts = await added["job"].result()
    assert (counts["processed"], counts["unprocessed"]) == (3, 0)


async def test_F_039_the_delay_of_a_parent_begins_when_its_children_are_done(
    queue: Queue,
) -> None:
    heard: list[Any] = []
    async with QueueEvents(queue.name, queue.store) as events:
        events.on("delayed", lambda payload, id: heard.append(payload))
        added = await producer(queue).add(tree("root", tree("leaf", delay=100), delay=300))
        async with working(queue):
            await until(lambda: len(heard) == 2)
            now = time.time() * 1000
            assert await added["job"].get_state() == "delayed"
            await added["job"].result()
    leaf, root = heard
    assert root["job_id"] == added["job"].id
    assert now < root["delay"] <= now + 300
    assert root["delay"] >= leaf["delay"] + 300
    assert (await again(queue, added["job"])).processed_on >= root["delay"]  # type: ignore[operator]


async def test_F_040_a_parent_waits_for_a_delayed_child(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf", delay=100)))
    root, leaf = jobs_of(added)
    assert await leaf.get_state() == "delayed"
    assert await root.get_state() == BLOCKED
    async with working(queue):
        await root.result()
    assert await leaf.get_state() == "completed"


async def test_F_042_a_parent_in_a_paused_queue_waits_until_it_is_resumed(queue: Queue) -> None:
    other = Queue("children", queue.store)
    added = await producer(queue).add(tree("root", tree("leaf", queue="children")))
    await queue.pause()
    async with working(queue, other):
        await added["children"][0]["job"].result()
        assert await queue.get_waiting_count() == 1
        await queue.resume()
        await added["job"].result()
    assert await queue.get_waiting_count() == 0


async def test_F_052_a_failed_child_that_is_retried_lets_its_parent_run(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf", data=FAIL)))
    root, leaf = jobs_of(added)
    async with working(queue):
        with pytest.raises(JobFailed):
            await leaf.result()
        assert await root.get_state() == BLOCKED
        child = await again(queue, leaf)
        await child.update_data("good")
        await child.retry("failed")
        await root.result()
    assert len(await root.get_children_values()) == 1


async def test_F_054_a_completed_child_that_is_retried_is_waited_for_again(queue: Queue) -> None:
    async with Worker(queue, None) as worker:
        added = await producer(queue).add(tree("root", tree("a"), tree("b")))
        root, a, b = jobs_of(added)

        async def complete(expected: Job) -> None:
            job = await worker.get_next_job()
            assert job is not None
            assert job.id == expected.id
            await job.move_to_completed()

        await complete(a)
        await (await again(queue, a)).retry("completed")
        await complete(b)
        assert await root.get_state() == BLOCKED
        await complete(a)
        assert await root.get_state() == "waiting"
        await complete(root)
    assert (await root.get_dependencies_count())["processed"] == 2
    assert await state_of(queue, root) == "completed"


async def test_F_055_deduplication_is_refused_on_nodes_with_children(queue: Queue) -> None:
    for flow in (
        tree("root", tree("leaf"), deduplication={"id": "k"}),
        tree("root", tree("middle", tree("leaf"), deduplication={"id": "k"})),
    ):
        with pytest.raises(InvalidOption, match="deduplication cannot be used on a node with"):
            await producer(queue).add(flow)
    assert await queue.count() == 0


@pytest.mark.parametrize("how", ["one after the other", "in bulk", "at once"])
async def test_F_056_childless_roots_of_one_key_are_the_first_job(queue: Queue, how: str) -> None:
    flows, root = producer(queue), tree("root", deduplication={"id": "k"})
    if how == "in bulk":
        added = await flows.add_bulk([root, root])
    elif how == "at once":
        added = await asyncio.gather(*[flows.add(root) for _ in range(8)])
    else:
        added = [await flows.add(root) for _ in range(2)]
    [id] = {flow["job"].id for flow in added}
    assert await queue.get_deduplication_job_id("k") == id
    assert await queue.count() == 1
