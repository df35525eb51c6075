"""Flows: trees of jobs, added together, in which each waits for its children."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import (
    FlowNode,
    FlowProducer,
    Job,
    JobFailed,
    ParentNotFound,
    ParentTaken,
    Queue,
    UnrecoverableError,
    Worker,
)
from bullite.client.runtime import bridge
from bullite.errors import InvalidOption, InvalidOptionType, JobLocked
from bullite.operations.queues import Configure
from tests.support.flows import FAIL, jobs_of, key, lose, producer, tree, work, working
from tests.support.helpers import again, case, state_of, until
from tests.support.listening import gather, names_of, payloads, told

BLOCKED = "waiting-children"

# --- adding --------------------------------------------------------------------------------------


async def test_a_producer_opens_its_store_and_lets_go_of_it(location: str) -> None:
    async with FlowProducer(location) as flows:
        added = await flows.add(tree("a", tree("b")))
        assert added["job"].state == BLOCKED
        shown = await flows.get_flow("emails", added["job"].id)
        assert shown is not None
    assert not flows.store.is_open
    async with Queue("emails", location) as queue:
        assert await queue.count() == 2


async def test_a_flow_is_answered_as_a_tree(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("left"), tree("right", tree("leaf"))))
    assert [job.name for job in jobs_of(added)] == ["root", "left", "right", "leaf"]
    assert "children" not in added["children"][0]
    root, left, right, leaf = jobs_of(added)
    assert [job.state for job in jobs_of(added)] == [BLOCKED, "waiting", BLOCKED, "waiting"]
    assert left.parent == {"id": root.id, "queue": "emails"}
    assert (leaf.parent_id, leaf.parent_key) == (right.id, f"emails:{right.id}")
    assert root.parent is root.parent_id is root.parent_key is None


async def test_what_was_answered_is_what_is_stored(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("root", tree("a", priority=3), tree("b", delay=60_000), data={"x": 1}, attempts=4)
    )
    for job in jobs_of(added):
        stored = await again(queue, job)
        for what in ("name", "data", "opts", "state", "priority", "attempts", "parent", "_flags"):
            assert getattr(stored, what) == getattr(job, what), what


async def test_without_children_a_node_is_a_plain_job(queue: Queue) -> None:
    node: FlowNode = {"name": "a", "queue_name": "emails", "children": []}
    added = await producer(queue).add(node)
    assert added.keys() == {"job"}
    assert (added["job"].state, added["job"]._flags) == ("waiting", 0)


async def test_a_flow_over_queues_that_nobody_has_made_yet(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("report", tree("fetch", queue="fetching"), tree("draw", queue="drawing"))
    )
    assert [job.queue_name for job in jobs_of(added)] == ["emails", "fetching", "drawing"]
    fetching, drawing = Queue("fetching", queue.store), Queue("drawing", queue.store)
    assert await fetching.count() == await drawing.count() == 1
    async with working(queue, fetching, drawing):
        await added["job"].result(timeout="10s")


async def test_a_child_is_for_its_parents_queue_unless_it_says_otherwise(queue: Queue) -> None:
    node: FlowNode = {"name": "a", "queue_name": "there", "children": [{"name": "b"}]}
    added = await producer(queue).add(node)
    assert added["children"][0]["job"].queue_name == "there"


async def test_one_bad_node_keeps_the_whole_flow_out(queue: Queue) -> None:
    flow = tree("a", tree("b", queue="other"), tree("c", tree("d", priority="high")))
    with pytest.raises(InvalidOptionType, match=r"flow, children\[1\], children\[0\]: priority"):
        await producer(queue).add(flow)
    assert await queue.count() == await Queue("other", queue.store).count() == 0


async def test_data_that_cannot_be_stored_is_found_before_anything_is(queue: Queue) -> None:
    with pytest.raises(ValueError, match=r"the flow, children\[0\]"):
        await producer(queue).add(tree("a", tree("b", data=float("nan"))))
    assert await queue.count() == 0


async def test_flows_added_together_are_all_added_or_none(queue: Queue) -> None:
    flows = [tree("good"), tree("bad", parent={"id": "99", "queue": "emails"})]
    with pytest.raises(ParentNotFound, match="emails:99"):
        await producer(queue).add_bulk(flows)
    with pytest.raises(ParentNotFound, match="emails:99"):
        await producer(queue).add(flows[1])
    assert await queue.count() == 0
    added = await producer(queue).add_bulk([tree("a", tree("b")), tree("c")])
    assert [[job.name for job in jobs_of(flow)] for flow in added] == [["a", "b"], ["c"]]
    assert await producer(queue).add_bulk([]) == []


async def test_the_bad_one_of_many_flows_is_named(queue: Queue) -> None:
    with pytest.raises(InvalidOptionType, match=r"flows\[1\], children\[0\]"):
        await producer(queue).add_bulk([tree("a"), tree("b", tree("c", attempts="3"))])


async def test_with_chunk_each_is_a_transaction_of_its_own(queue: Queue) -> None:
    stored: list[int] = []
    flows = [tree("root", tree("leaf")) for _ in range(5)]
    added = await producer(queue).add_bulk(flows, chunk=2, on_chunk=stored.append)
    assert stored == [2, 4, 5]
    assert len(added) == await queue.get_waiting_children_count() == 5
    rows = [event for event in await told(queue) if event.name == "added"]
    assert len({event.id.split("-")[0] for event in rows}) == 6


async def test_in_chunks_too_the_flows_are_checked_before_any_is_added(queue: Queue) -> None:
    with pytest.raises(InvalidOptionType):
        await producer(queue).add_bulk([tree("a"), tree("b", lifo=1)], chunk=1)
    assert await queue.count() == 0


async def test_a_flow_of_too_many_jobs_is_refused_naming_chunk(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match=r"at most 100000 jobs below its root.*chunk=n"):
        await producer(queue).add(tree("root", *[tree("leaf")] * 100_001))
    assert await queue.count() == 0


async def test_a_node_that_holds_itself_is_refused(queue: Queue) -> None:
    deep = node = tree("a", tree("b"))
    for _ in range(200):
        deep = tree("above", deep)
    node["children"][0]["children"] = [deep]  # type: ignore[index]
    with pytest.raises(InvalidOption, match=r"levels down.*holds itself"):
        await producer(queue).add(deep)
    assert await queue.count() == 0


async def test_one_node_may_stand_for_several_jobs(queue: Queue) -> None:
    leaf = tree("leaf")
    added = await producer(queue).add(tree("root", leaf, leaf))
    first, second = added["children"]
    assert first["job"].id != second["job"].id


async def test_two_children_of_one_custom_id_are_one_job(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("root", tree("leaf", job_id="x", data=1), tree("leaf", job_id="x", data=2))
    )
    assert [child["job"].id for child in added["children"]] == ["x", "x"]
    async with working(queue):
        await added["job"].result(timeout="10s")
    assert await added["job"].get_children_values() == {"emails:x": 1}


async def test_the_options_of_queues_hold_for_their_nodes(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("root", tree("leaf", queue="other"), tree("own", queue="other", attempts=2)),
        queues_options={"other": {"default_job_options": {"attempts": 7, "priority": 2}}},
    )
    root, leaf, own = jobs_of(added)
    assert [root.attempts, leaf.attempts, own.attempts] == [1, 7, 2]
    assert leaf.state == "prioritized"


async def test_stored_defaults_of_each_queue_hold_for_its_nodes(queue: Queue) -> None:
    await queue.configure(default_job_options={"attempts": 3})
    other = Queue("other", queue.store)
    await other.configure(default_job_options={"attempts": 5})
    added = await producer(queue).add(tree("root", tree("leaf", queue="other")))
    assert [job.attempts for job in jobs_of(added)] == [3, 5]
    root = await queue.add("root", children=[{"name": "leaf", "queue_name": "other"}])
    shown = await producer(queue).get_flow("emails", root.id)
    assert shown is not None
    assert [job.attempts for job in jobs_of(shown)] == [3, 5]


async def test_the_options_of_queues_beat_what_is_stored_and_the_jobs_own_beat_both(
    queue: Queue,
) -> None:
    await queue.configure(default_job_options={"attempts": 3, "priority": 3})
    added = await producer(queue).add(
        tree("a", attempts=9),
        queues_options={"emails": {"default_job_options": {"attempts": 5, "lifo": True}}},
    )
    job = added["job"]
    assert (job.attempts, job.priority, job.lifo) == (9, 3, True)


async def test_defaults_that_changed_meanwhile_are_resolved_anew(queue: Queue) -> None:
    parent = await queue.add("parent", delay=60_000)
    changes = {"default_job_options": '{"attempts":6}'}
    await bridge.submit(queue.store, Configure(queue._pk, changes))
    child = await queue.add("child", parent=parent)
    assert child.attempts == (await again(queue, child)).attempts == 6


async def test_a_policy_may_be_a_default_of_a_queue(queue: Queue) -> None:
    await queue.configure(default_job_options={"ignore_dependency_on_failure": True})
    added = await producer(queue).add(tree("root", tree("leaf", data=FAIL)))
    async with working(queue):
        await added["job"].result(timeout="10s")
    assert list((await added["job"].get_ignored_children_failures()).values()) == ["it broke"]


async def test_a_jobs_own_policy_beats_the_default_one(queue: Queue) -> None:
    await queue.configure(default_job_options={"ignore_dependency_on_failure": True})
    added = await producer(queue).add(
        tree("root", tree("leaf", data=FAIL, fail_parent_on_failure=True))
    )
    async with working(queue):
        with pytest.raises(JobFailed, match=f"child {key(added['children'][0]['job'])} failed"):
            await added["job"].result(timeout="10s")


async def test_what_one_job_waits_for_cannot_be_a_default(queue: Queue) -> None:
    for name, value in {
        "parent": {"id": "1", "queue": "a"},
        "depends_on": ["1"],
        "children": [{"name": "a"}],
    }.items():
        with pytest.raises(InvalidOption, match=f"cannot hold {name}"):
            await queue.configure(default_job_options={name: value})  # type: ignore[misc]


async def test_the_root_of_a_flow_may_have_a_parent(queue: Queue) -> None:
    grandparent = await queue.add("grandparent", delay=60_000)
    added = await producer(queue).add(
        tree("root", tree("leaf"), parent={"id": grandparent.id, "queue": "emails"})
    )
    assert added["job"].parent_key == key(grandparent)
    assert await grandparent.get_dependencies_count(unprocessed=True) == {"unprocessed": 1}


async def test_a_child_of_a_flow_cannot_have_another_parent(queue: Queue) -> None:
    other = await queue.add("other")
    with pytest.raises(InvalidOption, match="has its parent already"):
        await producer(queue).add(tree("root", tree("leaf", parent=other)))


# --- children in `add` ---------------------------------------------------------------------------


async def test_children_may_be_given_to_add(queue: Queue) -> None:
    job = await queue.add(
        "report",
        {"year": 2030},
        children=[
            {"name": "fetch", "data": 1},
            {"name": "draw", "data": 2, "queue_name": "other", "opts": {"priority": 5}},
        ],
    )
    assert (job.state, job.data) == (BLOCKED, {"year": 2030})
    other = Queue("other", queue.store)
    assert [child.name for child in await queue.get_waiting()] == ["fetch"]
    assert [child.priority for child in await other.get_prioritized()] == [5]
    async with working(queue, other):
        await job.result(timeout="10s")
    assert sorted((await job.get_children_values()).values()) == [1, 2]


async def test_children_may_be_given_to_add_bulk(queue: Queue) -> None:
    jobs = await queue.add_bulk(
        [
            {"name": "a", "opts": {"children": [{"name": "b"}, {"name": "c"}]}},
            {"name": "plain"},
        ]
    )
    assert [(job.name, job.state) for job in jobs] == [("a", BLOCKED), ("plain", "waiting")]
    assert await queue.count() == 4


async def test_children_of_children_in_add(queue: Queue) -> None:
    await queue.add("a", children=[{"name": "b", "children": [{"name": "c"}]}])
    assert await queue.get_job_counts("waiting", BLOCKED) == {"waiting": 1, BLOCKED: 2}


async def test_a_bad_child_in_add_is_named(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match=r"the job, children\[0\]: unknown key 'queueName'"):
        await queue.add("a", children=[{"name": "b", "queueName": "c"}])
    with pytest.raises(InvalidOptionType, match=r"jobs\[1\], children\[0\]"):
        await queue.add_bulk([{"name": "a"}, {"name": "b", "opts": {"children": [3]}}])  # type: ignore[list-item]
    assert await queue.count() == 0


# --- waiting and being released ------------------------------------------------------------------


async def test_a_parent_runs_when_its_children_have_and_knows_what_they_returned(
    queue: Queue,
) -> None:
    ran: list[str] = []

    async def note(job: Job) -> Any:
        ran.append(job.name)
        if job.name == "root":
            return await job.get_children_values()
        return job.data

    added = await producer(queue).add(tree("root", tree("a", data=1), tree("b", data=[2])))
    async with working(queue, processor=note, concurrency=4):
        values = await added["job"].result(timeout="10s")
    _, a, b = jobs_of(added)
    assert values == {key(a): 1, key(b): [2]}
    assert ran[-1] == "root"
    assert len(ran) == 3


async def test_keys_of_children_cannot_be_mistaken(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("root", tree("a", queue="x:y", job_id="z"), tree("b", queue="x", job_id="y:z"))
    )
    keys = (await added["job"].get_dependencies(unprocessed=True))["unprocessed"]
    assert keys == ["x%3Ay:z", "x:y:z"]


async def test_a_thread_can_read_what_the_children_returned(queue: Queue) -> None:
    seen: list[Any] = []

    def in_a_thread(job: Job) -> Any:
        if job.name == "root":
            seen.append(job.parent)
            return "done"
        return job.parent_id

    added = await producer(queue).add(tree("root", tree("leaf")))
    async with working(queue, processor=in_a_thread):
        assert await added["job"].result(timeout="10s") == "done"
    assert list((await added["job"].get_children_values()).values()) == [added["job"].id]
    assert seen == [None]


async def test_being_released_costs_no_attempt(queue: Queue) -> None:
    made: list[int] = []

    async def note(job: Job) -> None:
        made.append(job.attempts_made)

    added = await producer(queue).add(tree("a", tree("b", tree("c"))))
    async with working(queue, processor=note):
        await added["job"].result(timeout="10s")
    assert made == [0, 0, 0]


async def test_a_parent_in_a_paused_queue_waits_in_line(queue: Queue) -> None:
    other = Queue("other", queue.store)
    added = await producer(queue).add(tree("root", tree("leaf", queue="other")))
    await queue.pause()
    async with working(queue, other):
        await added["children"][0]["job"].result(timeout="10s")
        assert await state_of(queue, added["job"]) == "waiting"
        await queue.resume()
        await added["job"].result(timeout="10s")


async def test_a_child_that_is_delayed_is_waited_for(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf", delay=100)))
    assert [job.state for job in jobs_of(added)] == [BLOCKED, "delayed"]
    async with working(queue):
        await added["job"].result(timeout="10s")


async def test_a_run_at_of_a_parent_is_kept(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf"), run_at="2100-01-01T00:00:00Z"))
    async with working(queue):
        await added["children"][0]["job"].result(timeout="10s")
    root = await again(queue, added["job"])
    assert root.state == "delayed"
    assert root.process_at is not None
    assert root.process_at.year == 2100


async def test_a_child_with_attempts_is_given_up_only_after_the_last(queue: Queue) -> None:
    runs: list[str] = []

    async def at_second_try(job: Job) -> str:
        runs.append(job.name)
        if job.name == "leaf" and job.attempts_made == 0:
            raise ValueError("not yet")
        return "fine"

    added = await producer(queue).add(
        tree("root", tree("leaf", attempts=2, fail_parent_on_failure=True))
    )
    async with working(queue, processor=at_second_try):
        assert await added["job"].result(timeout="10s") == "fine"
    assert runs == ["leaf", "leaf", "root"]


# --- what is heard of it -------------------------------------------------------------------------


async def test_the_log_tells_of_waiting_and_being_released_in_causal_order(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf")))
    root = added["job"]
    async with working(queue):
        await root.result(timeout="10s")
    heard = await told(queue, BLOCKED, "dependencies_completed")
    assert names_of(heard, root.id) == [
        *("added", BLOCKED, "dependencies_completed", "promoted", "waiting"),
        *("active", "completed"),
    ]
    [released] = [p for p in payloads(heard, "waiting") if p["job_id"] == root.id]
    assert released == {"job_id": root.id, "prev": BLOCKED}
    assert payloads(heard, BLOCKED) == [{"job_id": root.id}]


async def test_a_parent_that_is_delayed_when_released_is_told_with_its_time(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf"), delay=60_000))
    async with working(queue):
        await added["children"][0]["job"].result(timeout="10s")
    heard = await told(queue, BLOCKED, "dependencies_completed")
    root = added["job"]
    assert names_of(heard, root.id) == ["added", BLOCKED, "dependencies_completed", "delayed"]
    [delayed] = payloads(heard, "delayed")
    due = (await again(queue, root)).process_at
    assert due is not None
    assert delayed == {"job_id": root.id, "prev": BLOCKED, "delay": round(due.timestamp() * 1000)}


async def test_dotted_listeners_hear_of_it_with_the_id_first(queue: Queue) -> None:
    heard: list[tuple[Any, ...]] = []
    queue.on("job.waiting_children", lambda id: heard.append(("waits", id)))
    queue.on("job.dependencies_completed", lambda id: heard.append(("may run", id)))
    await queue.wait_until_ready()
    added = await producer(queue).add(tree("root", tree("leaf")))
    async with working(queue):
        await added["job"].result(timeout="10s")
    await until(lambda: len(heard) == 2)
    root = added["job"].id
    assert heard == [("waits", root), ("may run", root)]


async def test_the_queue_tells_of_jobs_that_it_added_with_ties(queue: Queue) -> None:
    heard = gather(queue, "added", "waiting", BLOCKED, "delayed")
    parent = await queue.add("parent", children=[{"name": "child"}])
    late = await queue.add("late", delay=60_000, parent=parent)
    assert [(name, job.name) for name, job in heard] == [
        *(("added", "parent"), (BLOCKED, "parent"), ("added", "child"), ("waiting", "child")),
        *(("added", "late"), ("delayed", "late")),
    ]
    assert heard[0][1].id == parent.id
    assert heard[-1][1].id == late.id


async def test_a_worker_tells_that_a_job_failed_by_its_child_was_active(queue: Queue) -> None:
    heard: list[tuple[Any, ...]] = []
    added = await producer(queue).add(
        tree("root", tree("leaf", data=FAIL, fail_parent_on_failure=True))
    )
    ran: list[str] = []

    async def note(job: Job) -> Any:
        ran.append(job.name)
        return await work(job)

    worker = Worker(queue, note, autorun=False)
    worker.on("failed", lambda job, error, prev: heard.append((job.name, str(error), prev)))
    async with worker:
        with pytest.raises(JobFailed):
            await added["job"].result(timeout="10s")
        await until(lambda: len(heard) == 2)
    reason = f"child {key(added['children'][0]['job'])} failed"
    assert heard == [("leaf", "it broke", "active"), ("root", reason, "active")]
    assert ran == ["leaf"]


# --- failing -------------------------------------------------------------------------------------


async def test_a_failed_child_without_a_policy_leaves_its_parent_waiting(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf", data=FAIL)))
    root, leaf = jobs_of(added)
    async with working(queue):
        with pytest.raises(JobFailed):
            await leaf.result(timeout="10s")
    assert await state_of(queue, root) == BLOCKED
    why = await queue.why(root.id)
    assert f"job {root.id} waits for {key(leaf)}" in why
    assert "which failed (it broke)" in why
    [problem] = await queue.doctor()
    assert f"job {root.id} waits for {key(leaf)}, which failed (it broke)" in problem


async def test_jobs_that_will_go_on_are_no_case_for_the_doctor(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf")))
    assert await queue.doctor() == []
    assert await queue.why(added["job"].id) == (
        f"job {added['job'].id} waits for {key(added['children'][0]['job'])}"
    )
    assert "is the next in its line" in await queue.why(added["children"][0]["job"].id)
    assert "there is no job 99" in await queue.why("99")


async def test_why_tells_of_a_child_that_was_removed(queue: Queue) -> None:
    needed = await queue.add("needed")
    waits = await queue.add("waits", depends_on=needed)
    await needed.remove()
    assert "which was removed" in await queue.why(waits.id)
    await queue.obliterate()


async def test_failed_event_is_written_for_a_failed_child_of_a_waiting_parent(queue: Queue) -> None:
    """A parent that waits on says nothing; the child that keeps it waiting does."""
    added = await producer(queue).add(tree("root", tree("leaf", data=FAIL)))
    leaf = added["children"][0]["job"]
    async with working(queue):
        with pytest.raises(JobFailed):
            await leaf.result(timeout="10s")
    [failed] = payloads(await told(queue), "failed")
    assert (failed["job_id"], failed["final"]) == (leaf.id, True)


async def test_a_parent_that_was_failed_is_not_retried(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("root", tree("leaf", data=FAIL, fail_parent_on_failure=True), attempts=5)
    )
    async with working(queue):
        with pytest.raises(JobFailed, match=r"child .* failed"):
            await added["job"].result(timeout="10s")
    root = await again(queue, added["job"])
    assert (root.attempts_made, root.attempts_started) == (0, 0)


async def test_siblings_of_a_child_that_fails_its_parent_go_on(queue: Queue) -> None:
    added = await producer(queue).add(
        tree(
            "root",
            tree("bad", data=FAIL, fail_parent_on_failure=True),
            tree("good", data=1, priority=9),
        )
    )
    root, _, good = jobs_of(added)
    async with working(queue):
        with pytest.raises(JobFailed):
            await root.result(timeout="10s")
        assert await good.result(timeout="10s") == 1
    assert await root.get_dependencies_count() == {
        "processed": 1, "unprocessed": 0, "ignored": 0, "failed": 1
    }  # fmt: skip


@pytest.mark.parametrize("end", ["unrecoverable", "timed-out", "expired", "stalled", "by hand"])
async def test_a_policy_acts_on_every_end_for_good(queue: Queue, end: str) -> None:
    other = Queue("other", queue.store)
    opts: dict[str, Any] = {"attempts": 5 if end == "unrecoverable" else 1}
    opts |= {"timeout": 30} if end == "timed-out" else {}
    opts |= {"expires": 1} if end == "expired" else {}
    leaf = tree("leaf", queue="other", ignore_dependency_on_failure=True, **opts)
    added = await producer(queue).add(tree("root", leaf))

    async def end_badly(job: Job) -> None:
        if end == "unrecoverable":
            raise UnrecoverableError("no use")
        if end == "by hand":
            await job.move_to_failed("by hand", retry=False)
        await asyncio.sleep(1)

    if end == "stalled":
        await lose(other)
    stalls = {"stalled_interval": 50, "max_stalled_count": 0}
    async with working(queue), working(other, processor=end_badly, **stalls):
        await added["job"].result(timeout="10s")
    [reason] = (await added["job"].get_ignored_children_failures()).values()
    expected = {"timed-out": "timeout", "expired": "expired", "stalled": "stalled more than"}
    assert expected.get(end, "") in reason
    child = await again(other, added["children"][0]["job"])
    assert child.outcome == (end if end in expected else "error")


async def test_a_dead_letter_still_counts_for_its_parent(queue: Queue) -> None:
    await queue.configure(dead_letter="dead")
    dead = Queue("dead", queue.store)
    added = await producer(queue).add(
        tree("root", tree("leaf", data=FAIL, ignore_dependency_on_failure=True))
    )
    async with working(queue):
        await added["job"].result(timeout="10s")
    assert await added["job"].get_ignored_children_failures() == {
        key(added["children"][0]["job"]): "it broke"
    }
    assert await dead.get_failed_count() == 1


async def test_a_child_retried_from_the_dead_letters_is_waited_for(queue: Queue) -> None:
    await queue.configure(dead_letter="dead")
    dead = Queue("dead", queue.store)
    fail = True

    async def fail_once(job: Job) -> str:
        if fail and job.name == "leaf":
            raise ValueError("not yet")
        return "fine"

    added = await producer(queue).add(tree("root", tree("leaf")))
    root, leaf = jobs_of(added)
    async with working(queue, processor=fail_once):
        await until(dead.get_failed_count)
        assert "which failed (not yet)" in await queue.why(root.id)
        fail = False
        await dead.retry_job(leaf.id)
        assert await root.result(timeout="10s") == "fine"
    assert await root.get_children_values() == {key(leaf): "fine"}


async def test_a_dead_letter_knows_the_child_that_failed_it(queue: Queue) -> None:
    await queue.configure(dead_letter="dead")
    dead = Queue("dead", queue.store)
    added = await producer(queue).add(
        tree("root", tree("leaf", data=FAIL, fail_parent_on_failure=True))
    )
    async with working(queue):
        await until(lambda: has_failed(dead, 2))
    root = await again(dead, added["job"])
    leaf = key(added["children"][0]["job"])
    assert (root.original_queue, root.failed_reason) == ("emails", f"child {leaf} failed")
    assert (await root.get_dependencies(failed=True))["failed"] == [leaf]


async def has_failed(queue: Queue, number: int) -> bool:
    return await queue.get_failed_count() == number


# --- children that were there already ------------------------------------------------------------


async def test_a_job_that_runs_can_become_a_child(queue: Queue) -> None:
    go = asyncio.Event()

    async def wait(job: Job) -> str:
        if job.name == "mon":
            await go.wait()
        return job.name

    async with working(queue, processor=wait):
        mon = await queue.add("mon", job_id="mon")
        await until(lambda: mon.is_active())
        added = await producer(queue).add(tree("tue", tree("mon", job_id="mon"), job_id="tue"))
        assert [job.state for job in jobs_of(added)] == [BLOCKED, "active"]
        go.set()
        await added["job"].result(timeout="10s")
    assert (await again(queue, mon)).parent_id == "tue"


async def test_a_job_with_another_parent_is_not_taken_away(queue: Queue) -> None:
    await producer(queue).add(tree("tue", tree("mon", job_id="mon"), job_id="tue"))
    with pytest.raises(ParentTaken, match="emails:mon has another parent"):
        await producer(queue).add(tree("wed", tree("mon", job_id="mon"), job_id="wed"))
    assert await queue.get_job("wed") is None


# --- removing and bringing back ------------------------------------------------------------------


async def test_removing_a_parent_removes_all_below_it_and_restoring_brings_it_back(
    queue: Queue,
) -> None:
    other = Queue("other", queue.store)
    added = await producer(queue).add(
        tree("root", tree("a", queue="other", data=1), tree("b", tree("c", data=3), data=2))
    )
    root = added["job"]
    await root.remove()
    assert await queue.count() == await other.count() == 0
    assert await queue.get_job_state(root.id) == "unknown"
    back = await queue.restore(root.id)
    assert back.state == BLOCKED
    async with working(queue, other):
        await back.result(timeout="10s")
    assert sorted((await back.get_children_values()).values()) == [1, 2]


async def test_children_can_be_spared(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf")))
    assert await queue.remove(added["job"].id, remove_children=False)
    assert await state_of(queue, added["children"][0]["job"]) == "waiting"
    async with working(queue):
        await added["children"][0]["job"].result(timeout="10s")


async def test_a_tree_with_a_running_member_is_not_removed(queue: Queue) -> None:
    go = asyncio.Event()

    async def wait(job: Job) -> None:
        await go.wait()

    added = await producer(queue).add(tree("root", tree("leaf", queue="other"), tree("b")))
    other = Queue("other", queue.store)
    async with working(other, processor=wait):
        await until(other.get_active_count)
        with pytest.raises(JobLocked, match=added["children"][0]["job"].id):
            await added["job"].remove()
        assert not await queue.remove(added["job"].id)
        assert await queue.count() == 2
        go.set()


async def test_a_child_removed_and_brought_back_is_waited_for_again(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("a"), tree("b", data=2)))
    root, a, _ = jobs_of(added)
    await a.remove()
    assert await root.get_dependencies_count(unprocessed=True) == {"unprocessed": 1}
    await queue.restore(a.id)
    assert await root.get_dependencies_count(unprocessed=True) == {"unprocessed": 2}
    async with working(queue):
        await root.result(timeout="10s")


async def test_a_child_brought_back_after_its_parent_ran_has_no_say(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("a")))
    root, a = jobs_of(added)
    await a.remove()
    async with working(queue):
        await root.result(timeout="10s")
        await queue.restore(a.id)
        await (await again(queue, a)).result(timeout="10s")
    assert await state_of(queue, root) == "completed"


async def test_draining_takes_parents_along_whose_last_child_it_took(queue: Queue) -> None:
    await producer(queue).add_bulk([tree("root", tree("leaf")) for _ in range(3)])
    kept = await producer(queue).add(tree("root", tree("leaf", queue="other")))
    await queue.drain()
    assert [job.id for job in await queue.get_waiting_children()] == [kept["job"].id]
    assert await queue.count() == 1


async def test_obliterating_children_lets_parents_elsewhere_run(queue: Queue) -> None:
    other = Queue("other", queue.store)
    added = await producer(queue).add(tree("root", tree("leaf", queue="other")))
    await other.obliterate()
    assert await state_of(queue, added["job"]) == "waiting"


DEEP = 1_100
"""Deeper than Python would call itself."""


async def test_a_very_deep_flow_is_added_shown_removed_and_brought_back(queue: Queue) -> None:
    node = tree("leaf")
    for _ in range(DEEP - 1):
        node = tree("above", node)
    root = (await producer(queue).add(node))["job"]
    shown = await producer(queue).get_flow("emails", root.id, depth=2 * DEEP)
    assert shown is not None
    assert len(jobs_of(shown)) == DEEP
    await root.remove()
    assert await queue.count() == 0
    await queue.restore(root.id)
    assert await queue.count() == DEEP
    assert await root.remove_unprocessed_children() == DEEP - 1
    assert await state_of(queue, root) == "waiting"


async def test_a_failure_goes_up_a_deep_flow(queue: Queue) -> None:
    node = tree("leaf", data=FAIL, fail_parent_on_failure=True)
    for _ in range(200):
        node = tree("above", node, fail_parent_on_failure=True)
    root = (await producer(queue).add(node))["job"]
    async with working(queue):
        with pytest.raises(JobFailed, match="child"):
            await root.result(timeout="20s")
    assert await queue.get_failed_count() == 201


# --- looking -------------------------------------------------------------------------------------


async def test_a_flow_is_shown_as_deep_and_wide_as_asked_for(queue: Queue) -> None:
    flows = producer(queue)
    added = await flows.add(tree("root", *[tree("b", tree("c", tree("d"))) for _ in range(3)]))
    root = added["job"].id

    async def sizes(**bounds: int) -> list[int]:
        shown = await flows.get_flow("emails", root, **bounds)
        levels, level = [], [] if shown is None else [shown]
        while level:
            levels.append(len(level))
            level = [child for node in level for child in node.get("children", [])]
        return levels

    assert await sizes() == [1, 3, 3, 3]
    assert await sizes(depth=1) == [1]
    assert await sizes(depth=3, max_children=2) == [1, 2, 2]
    assert await flows.get_flow("emails", "unknown") is None
    assert await flows.get_flow("nowhere", root) is None


async def test_a_flow_shows_children_of_every_kind(queue: Queue) -> None:
    added = await producer(queue).add(
        tree(
            "root",
            tree("done", data=1),
            tree("ignored", data=FAIL, ignore_dependency_on_failure=True),
            tree("failed", data=FAIL, fail_parent_on_failure=True),
            tree("later", delay=60_000),
        )
    )
    async with working(queue):
        with pytest.raises(JobFailed):
            await added["job"].result(timeout="10s")
    shown = await producer(queue).get_flow("emails", added["job"].id)
    assert shown is not None
    states = {child["job"].name: child["job"].state for child in shown["children"]}
    assert states == {
        "done": "completed", "ignored": "failed", "failed": "failed", "later": "delayed"
    }  # fmt: skip


async def test_a_flow_has_to_be_asked_for_with_positive_bounds(queue: Queue) -> None:
    for bounds in [{"depth": 0}, {"depth": -1}, {"max_children": 0}]:
        with case(bounds):
            [name] = bounds
            with pytest.raises(InvalidOption, match=name):
                await producer(queue).get_flow("emails", "1", **bounds)


# --- bad input -----------------------------------------------------------------------------------


async def test_a_bad_node_is_refused_by_name(queue: Queue) -> None:
    for flow, message in [
        (3, "the flow: a node must be a mapping"),
        ("a", "the flow: a node must be a mapping"),
        ({"name": "a"}, "queue_name is missing"),
        ({"queue_name": "a"}, "name is missing"),
        ({"name": "a", "queue_name": ""}, "queue_name must have 1 to 255"),
        ({"name": "a", "queue_name": "x" * 256}, "queue_name must have 1 to 255"),
        ({"name": "a", "queue_name": "x\x00"}, "control characters"),
        ({"name": "a\x00", "queue_name": "x"}, "control characters"),
        ({"name": "a" * 256, "queue_name": "x"}, "1 to 255 characters"),
        ({"name": 3, "queue_name": "x"}, "must be text"),
        ({"name": "a", "queue_name": 3}, "queue_name must be text"),
        ({"name": "a", "queue_name": "x", "queueName": "y"}, "unknown key 'queueName'"),
        ({"name": "a", "queue_name": "x", "opts": 3}, "opts must be a mapping"),
        ({"name": "a", "queue_name": "x", "opts": {"prio": 3}}, "unknown job option 'prio'"),
        ({"name": "a", "queue_name": "x", "children": {"name": "b"}}, "children must be a list"),
        ({"name": "a", "queue_name": "x", "children": "b"}, "children must be a list"),
        ({"name": "a", "queue_name": "x", "children": 3}, "children must be a list"),
        ({"name": "a", "queue_name": "x", "children": iter([])}, "children must be a list"),
        ({"name": "a", "queue_name": "x", "children": [None]}, r"children\[0\]: a node must be"),
    ]:
        with case((flow, message)):
            with pytest.raises((InvalidOption, InvalidOptionType), match=message):
                await producer(queue).add(flow)
            assert await Queue("x", queue.store).count() == 0


async def test_many_flows_have_to_be_a_list(queue: Queue) -> None:
    for flows in [{"name": "a"}, "a", 3]:
        with case(flows), pytest.raises(InvalidOptionType, match="takes a list of flows"):
            await producer(queue).add_bulk(flows)


async def test_bad_options_of_queues_are_refused(queue: Queue) -> None:
    for options in [
        3,
        {"a": 3},
        {"a": {"attempts": 3}},
        {"a": {"default_job_options": {"prio": 1}}},
    ]:
        with case(options):
            with pytest.raises((InvalidOption, InvalidOptionType)):
                await producer(queue).add(tree("a", queue="a"), queues_options=options)
            assert await Queue("a", queue.store).count() == 0


# --- deduplication -------------------------------------------------------------------------------


async def test_what_others_wait_for_or_what_waits_is_not_deduplicated(queue: Queue) -> None:
    key = {"id": "k"}
    for flow in (
        tree("root", tree("leaf"), deduplication=key),
        tree("root", tree("leaf", deduplication=key)),
        tree("root", tree("middle", tree("leaf"), deduplication=key)),
    ):
        with pytest.raises(InvalidOption, match="deduplication cannot be used on a node"):
            await producer(queue).add(flow)
    assert await queue.count() == 0


async def test_a_root_without_children_can_be_deduplicated(queue: Queue) -> None:
    root = tree("root", deduplication={"id": "k"})
    first, other, second = await producer(queue).add_bulk([root, tree("other", tree("b")), root])
    assert first["job"].id == second["job"].id
    assert [job.name for job in jobs_of(other)] == ["other", "b"]
    again = await producer(queue).add(root)
    assert again["job"].id == first["job"].id
    assert await queue.count() == 3


async def test_a_schedule_and_a_tie_cannot_be_added_together(queue: Queue) -> None:
    parent = await queue.add("parent")
    with pytest.raises(InvalidOption, match="add them apart"):
        await queue.add_bulk(
            [
                {"name": "a", "opts": {"repeat": {"every": 1_000}}},
                {"name": "b", "opts": {"parent": parent}},
            ]
        )
    assert await queue.count() == 1
