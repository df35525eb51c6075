"""Jobs that wait for others which are not their children: `depends_on`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullite import DependencyCycle, DependencyNotFound, Job, JobFailed, Queue
from bullite.errors import InvalidOption, InvalidOptionType
from tests.support.flows import FAIL, key, producer, tree, work, working
from tests.support.helpers import again, case, fresh, state_of, until
from tests.support.listening import gather, names_of, told

BLOCKED = "waiting-children"


async def completed(queue: Queue, data: Any = None, **options: Any) -> Job:
    """A job that has run."""
    job = await queue.add("done", data, **options)
    async with working(queue):
        await job.result(timeout="10s")
    return job


async def failed(queue: Queue, **options: Any) -> Job:
    job = await queue.add("failed", FAIL, **options)
    async with working(queue):
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
    return job


# --- naming others -------------------------------------------------------------------------------


async def test_what_a_job_depends_on_can_be_named_in_several_ways(queue: Queue) -> None:
    for spelling in ["id", "ids", "job", "jobs", "pair", "pairs", "document", "set", "twice"]:
        with case(spelling):
            queue = fresh(queue)
            job = await queue.add("a")
            named: dict[str, Any] = {
                "id": job.id,
                "ids": [job.id],
                "job": job,
                "jobs": [job],
                "pair": (queue.name, job.id),
                "pairs": [(queue.name, job.id)],
                "document": [job.id],
                "set": {job.id},
                "twice": [job.id, job.id],
            }
            option = "depends_on_job_ids" if spelling == "document" else "depends_on"
            waits = await queue.add("waits", **{option: named[spelling]})
            assert waits.state == BLOCKED
            assert waits.depends_on == (await again(queue, waits)).depends_on == (job.id,)
            async with working(queue):
                await waits.result(timeout="10s")
            assert (await again(queue, waits)).depends_on == (job.id,)


async def test_jobs_of_other_queues_can_be_depended_on(queue: Queue) -> None:
    other = Queue("other", queue.store)
    first, second = await other.add("a", 1), await other.add("b", 2, job_id="mine")
    waits = await queue.add("waits", depends_on=[first, ("other", "mine")])
    assert waits.depends_on == (first.id, "mine")
    async with working(queue, other):
        await waits.result(timeout="10s")
    assert await waits.get_dependency_values() == {key(first): 1, key(second): 2}
    assert await waits.get_children_values() == {}


async def test_a_processor_sees_what_its_job_waited_for(queue: Queue) -> None:
    async def see(job: Job) -> Any:
        return await job.get_dependency_values() or job.data

    first = await queue.add("first", {"found": 3})
    waits = await queue.add("waits", depends_on=first)
    async with working(queue, processor=see):
        assert await waits.result(timeout="10s") == {key(first): {"found": 3}}


async def test_nothing_may_be_named(queue: Queue) -> None:
    for given in [None, [], ()]:
        with case(given):
            queue = fresh(queue)
            job = await queue.add("a", depends_on=given)
            assert (job.state, job.depends_on) == ("waiting", ())


async def test_an_unknown_job_is_refused_and_nothing_is_added(queue: Queue) -> None:
    known = await queue.add("known")
    removed = await queue.add("removed")
    await removed.remove()
    for unknown in ("99", "nobody", ("nowhere", "1"), ("other", known.id), removed.id, "007"):
        with pytest.raises(DependencyNotFound, match="which does not exist"):
            await queue.add("a", depends_on=[known.id, unknown])
    assert await queue.count() == 1


async def test_jobs_added_together_can_depend_on_each_other(queue: Queue) -> None:
    jobs = await queue.add_bulk(
        [
            {"name": "last", "opts": {"depends_on": ["left", "right"], "job_id": "last"}},
            {"name": "left", "opts": {"depends_on": "top", "job_id": "left"}},
            {"name": "right", "opts": {"depends_on": "top", "job_id": "right"}},
            {"name": "top", "opts": {"job_id": "top"}},
        ]
    )
    assert [job.state for job in jobs] == [BLOCKED, BLOCKED, BLOCKED, "waiting"]
    ran: list[str] = []

    async def note(job: Job) -> None:
        ran.append(job.name)

    async with working(queue, processor=note):
        await jobs[0].result(timeout="10s")
    assert ran == ["top", "left", "right", "last"]


async def test_nodes_of_a_flow_can_depend_on_each_other(queue: Queue) -> None:
    added = await producer(queue).add(
        tree("root", tree("b", depends_on=[("other", "a")]), tree("a", queue="other", job_id="a"))
    )
    b, a = (child["job"] for child in added["children"])
    assert (b.state, a.state) == (BLOCKED, "waiting")
    other = Queue("other", queue.store)
    async with working(queue, other):
        await added["job"].result(timeout="10s")


# --- circles -------------------------------------------------------------------------------------


async def test_a_job_that_would_wait_for_itself_is_refused(queue: Queue) -> None:
    with pytest.raises(DependencyCycle, match="nothing was added"):
        await queue.add("a", job_id="a", depends_on="a")
    assert await queue.count() == 0


async def test_a_circle_in_one_bulk_is_refused(queue: Queue) -> None:
    with pytest.raises(DependencyCycle):
        await queue.add_bulk(
            [
                {"name": name, "opts": {"job_id": name, "depends_on": other}}
                for name, other in (("a", "b"), ("b", "c"), ("c", "a"))
            ]
        )
    assert await queue.count() == 0


async def test_a_circle_of_parents_and_dependencies_is_refused(queue: Queue) -> None:
    with pytest.raises(DependencyCycle):
        await producer(queue).add(tree("root", tree("leaf", depends_on="root"), job_id="root"))
    top = await queue.add("top", job_id="top", delay=60_000)
    below = await queue.add("below", depends_on=top)
    with pytest.raises(DependencyCycle):
        await queue.add("child", parent=top, depends_on=below)
    assert await queue.count() == 2


# --- being met -----------------------------------------------------------------------------------


async def test_what_has_completed_counts_as_met(queue: Queue) -> None:
    done = await completed(queue, 5)
    waits = await queue.add("waits", depends_on=done)
    assert waits.state == "waiting"
    assert await waits.get_dependency_values() == {key(done): 5}
    late = await queue.add("late", depends_on=done, delay=60_000)
    assert late.state == "delayed"


async def test_a_job_whose_time_is_yet_to_come_is_delayed_when_its_dependencies_are_met(
    queue: Queue,
) -> None:
    first = await queue.add("first")
    waits = await queue.add("waits", depends_on=first, run_at="2100-01-01T00:00:00Z")
    soon = await queue.add("soon", depends_on=first, delay=1)
    assert waits.state == soon.state == BLOCKED
    async with working(queue):
        await soon.result(timeout="10s")
    assert await state_of(queue, waits) == "delayed"


async def test_a_job_with_a_priority_goes_to_its_rank(queue: Queue) -> None:
    ran: list[str] = []

    async def note(job: Job) -> None:
        ran.append(job.name)

    first = await queue.add("first")
    last = await queue.add("last", depends_on=first, priority=9)
    await queue.add("early", depends_on=first, priority=1)
    await queue.add("plain")
    async with working(queue, processor=note):
        await last.result(timeout="10s")
    assert ran == ["first", "plain", "early", "last"]


async def test_the_log_tells_in_causal_order_that_dependencies_were_met(queue: Queue) -> None:
    first = await queue.add("first")
    waits = await queue.add("waits", depends_on=first)
    late = await queue.add("late", depends_on=first, delay=60_000)
    async with working(queue):
        await waits.result(timeout="10s")
    heard = await told(queue, BLOCKED, "dependencies_completed")
    assert names_of(heard, waits.id)[:5] == [
        *("added", BLOCKED, "dependencies_completed", "promoted", "waiting")
    ]
    assert names_of(heard, late.id) == ["added", BLOCKED, "dependencies_completed", "delayed"]
    order = [(event.name, event.payload["job_id"]) for event in heard if "job_id" in event.payload]
    ends = order.index(("completed", first.id))
    assert ends < order.index(("dependencies_completed", waits.id))


async def test_dotted_listeners_hear_of_it(queue: Queue) -> None:
    await queue.wait_until_ready()
    heard: list[str] = []
    queue.on("job.dependencies_completed", lambda id: heard.append(id))
    first = await queue.add("first")
    waits = await queue.add("waits", depends_on=first)
    async with working(queue):
        await waits.result(timeout="10s")
    await until(lambda: heard)
    assert heard == [waits.id]


async def test_a_diamond_runs_its_last_job_once(queue: Queue) -> None:
    ran: list[str] = []

    async def note(job: Job) -> None:
        ran.append(job.name)

    top = await queue.add("top")
    sides = await queue.add_bulk([{"name": "side", "opts": {"depends_on": top}}] * 5)
    last = await queue.add("last", depends_on=sides)
    async with working(queue, processor=note, concurrency=5):
        await last.result(timeout="10s")
        await asyncio.sleep(0.05)
    assert ran == ["top", *["side"] * 5, "last"]


async def test_a_job_that_is_removed_when_it_completes_is_met_first(queue: Queue) -> None:
    first = await queue.add("first", 7, remove_on_complete=True)
    waits = await queue.add("waits", depends_on=first)
    async with working(queue):
        await waits.result(timeout="10s")
    assert await queue.get_job(first.id) is None
    assert await waits.get_dependency_values() == {key(first): 7}


async def test_dependencies_a_parent_and_children_hold_together(queue: Queue) -> None:
    ran: list[str] = []

    async def note(job: Job) -> None:
        ran.append(job.name)

    needed = await queue.add("needed", priority=5)
    grandparent = await queue.add("grandparent", delay=60_000)
    middle = await queue.add(
        "middle", depends_on=needed, parent=grandparent, children=[{"name": "child"}]
    )
    assert middle.state == BLOCKED
    async with working(queue, processor=note):
        await middle.result(timeout="10s")
    assert ran == ["child", "needed", "middle"]
    assert (await grandparent.get_dependencies_count())["processed"] == 1


async def test_a_job_that_waits_for_others_can_expire(queue: Queue) -> None:
    first = await queue.add("first", delay=60_000)
    waits = await queue.add("waits", depends_on=first, expires=50)
    after = await queue.add("after", depends_on=waits, on_dependency_failure="run")
    async with working(queue, maintenance_interval=50):
        with pytest.raises(JobFailed, match="expired"):
            await waits.result(timeout="10s")
        await after.result(timeout="10s")
    assert (await again(queue, waits)).outcome == "expired"


# --- failing -------------------------------------------------------------------------------------


async def test_by_default_a_failed_dependency_keeps_a_job_waiting_until_it_is_retried(
    queue: Queue,
) -> None:
    first = await queue.add("first", FAIL)
    waits = await queue.add("waits", "fine", depends_on=first)
    async with working(queue):
        with pytest.raises(JobFailed):
            await first.result(timeout="10s")
        assert await state_of(queue, waits) == BLOCKED
        assert f"{key(first)}, which failed (it broke)" in await queue.why(waits.id)
        assert len(await queue.doctor()) == 1
        await first.update_data("good")
        await (await again(queue, first)).retry()
        assert await waits.result(timeout="10s") == "fine"
    assert await queue.doctor() == []


async def test_a_failed_dependency_can_fail_a_job_and_so_on_down_the_chain(queue: Queue) -> None:
    ran: list[str] = []

    async def note(job: Job) -> Any:
        ran.append(job.name)
        return await work(job)

    first = await queue.add("first", FAIL)
    second = await queue.add("second", depends_on=first, on_dependency_failure="fail", attempts=4)
    third = await queue.add("third", depends_on=second, on_dependency_failure="fail")
    async with working(queue, processor=note):
        with pytest.raises(JobFailed, match=f"dependency {key(second)} failed"):
            await third.result(timeout="10s")
    done = await again(queue, second)
    assert done.failed_reason == f"dependency {key(first)} failed"
    assert (done.attempts_made, ran) == (0, ["first"])


async def test_a_failed_dependency_can_count_as_met(queue: Queue) -> None:
    first = await queue.add("first", FAIL)
    waits = await queue.add("waits", "ran", depends_on=first, on_dependency_failure="run")
    async with working(queue):
        assert await waits.result(timeout="10s") == "ran"
    assert await waits.get_dependency_values() == {}


@pytest.mark.parametrize(
    ("policy", "state"), [("wait", BLOCKED), ("fail", "waiting"), ("run", "waiting")]
)
async def test_what_failed_before_the_add_means_the_same(
    queue: Queue, policy: str, state: str
) -> None:
    first = await failed(queue)
    waits = await queue.add("waits", depends_on=first, on_dependency_failure=policy)
    assert await state_of(queue, waits) == state
    if policy == "fail":
        async with working(queue):
            with pytest.raises(JobFailed, match=f"dependency {key(first)} failed"):
                await waits.result(timeout="10s")


@pytest.mark.parametrize("policy", ["wait", "fail", "run"])
async def test_removing_what_is_depended_on_lets_the_policy_decide(
    queue: Queue, policy: str
) -> None:
    first = await queue.add("first")
    waits = await queue.add("waits", "ran", depends_on=first, on_dependency_failure=policy)
    await first.remove()
    if policy == "wait":
        assert await state_of(queue, waits) == BLOCKED
        await queue.restore(first.id)
    async with working(queue):
        if policy == "fail":
            with pytest.raises(JobFailed, match=f"dependency {key(first)} was removed"):
                await waits.result(timeout="10s")
        else:
            assert await waits.result(timeout="10s") == "ran"


async def test_what_is_depended_on_is_not_removed_when_it_fails(queue: Queue) -> None:
    first = await queue.add("first", FAIL, remove_on_fail=True)
    await queue.add("waits", depends_on=first)
    async with working(queue):
        with pytest.raises(JobFailed):
            await first.result(timeout="10s")
    assert await state_of(queue, first) == "failed"


async def test_what_is_depended_on_is_not_removed_when_it_expires(queue: Queue) -> None:
    first = await queue.add("first", FAIL, remove_on_fail=True, expires=1)
    waits = await queue.add("waits", "ran", depends_on=first)
    async with working(queue, maintenance_interval=50):
        await until(queue.get_failed_count)
        await (await again(queue, first)).update_data("good")
        await (await again(queue, first)).retry()
        assert await waits.result(timeout="10s") == "ran"


async def test_a_child_that_is_removed_when_it_expires_lets_its_parent_run(queue: Queue) -> None:
    added = await producer(queue).add(tree("root", tree("leaf", remove_on_fail=True, expires=1)))
    async with working(queue, maintenance_interval=50):
        await added["job"].result(timeout="10s")
    assert await queue.get_job(added["children"][0]["job"].id) is None


async def test_a_dead_letter_can_still_be_depended_on(queue: Queue) -> None:
    await queue.configure(dead_letter="dead")
    dead = Queue("dead", queue.store)
    first = await queue.add("first", FAIL)
    before = await queue.add("before", depends_on=first)
    async with working(queue):
        await until(dead.get_failed_count)
        there = await queue.add("there", depends_on=("dead", first.id))
        here = await queue.add("here", depends_on=first.id)
        assert before.state == there.state == here.state == BLOCKED
        letter = await again(dead, first)
        await letter.update_data("good")
        await dead.retry_job(first.id)
        for waits in (before, there, here):
            await waits.result(timeout="10s")


# --- those that wait -----------------------------------------------------------------------------


async def test_those_that_wait_can_be_removed_and_brought_back(queue: Queue) -> None:
    first = await queue.add("first")
    waits = await queue.add("waits", depends_on=first)
    await waits.remove()
    assert await queue.count() == 1
    back = await queue.restore(waits.id)
    assert back.state == BLOCKED
    await back.remove()
    async with working(queue):
        await first.result(timeout="10s")
        back = await queue.restore(waits.id)
        await back.result(timeout="10s")


async def test_draining_and_cleaning_leave_those_that_wait_for_what_they_took(
    queue: Queue,
) -> None:
    first = await queue.add("first")
    waits = await queue.add("waits", depends_on=first)
    await queue.drain()
    assert await state_of(queue, waits) == BLOCKED
    assert await queue.clean(0, 0, BLOCKED) == []
    assert await queue.count() == 1


async def test_a_queue_can_be_obliterated_with_those_that_wait(queue: Queue) -> None:
    other = Queue("other", queue.store)
    first = await other.add("first")
    await queue.add("waits", depends_on=first)
    await queue.obliterate()
    assert await queue.count() == 0
    async with working(other):
        await first.result(timeout="10s")


async def test_listeners_of_the_queue_hear_of_jobs_that_wait(queue: Queue) -> None:
    first = await queue.add("first")
    heard = gather(queue, "added", "waiting", BLOCKED)
    await queue.add("waits", depends_on=first)
    assert [name for name, _ in heard] == ["added", BLOCKED]


# --- bad input -----------------------------------------------------------------------------------


async def test_bad_dependencies_are_refused(queue: Queue) -> None:
    for options, message in [
        ({"depends_on": 3}, "depends_on must be ids"),
        ({"depends_on": {"id": "1"}}, "depends_on must be ids"),
        ({"depends_on": iter(["1"])}, "depends_on must be ids"),
        ({"depends_on": [3]}, "depends_on must be text"),
        ({"depends_on": ("a", "b", "c")}, "depends_on takes a list of ids, or pairs"),
        ({"depends_on": [("a",)]}, "depends_on takes a list of ids, or pairs"),
        ({"depends_on": [("a", 3)]}, "depends_on must be text"),
        ({"depends_on": [(3, "a")]}, "the queue in depends_on must be text"),
        ({"depends_on": [""]}, "depends_on must have 1 to 255"),
        ({"depends_on": ["a\x00"]}, "control characters"),
        ({"depends_on": ["\ud800"]}, "control characters"),
        ({"depends_on": ["x"] * 100_001}, "at most 100000 jobs, not 100001"),
        ({"depends_on": "1", "depends_on_job_ids": ["1"]}, "are the same; give one of them"),
        ({"depends_on": "1", "on_dependency_failure": "stop"}, "on_dependency_failure must be"),
        ({"depends_on": "1", "on_dependency_failure": []}, "on_dependency_failure must be"),
        ({"depends_on": "1", "deduplication": {"id": "k"}}, "together with depends_on"),
        ({"depends_on": "1", "repeat": {"every": 1_000}}, "depends_on"),
    ]:
        with case((options, message)):
            with pytest.raises((InvalidOption, InvalidOptionType), match=message):
                await queue.add("a", **options)
            assert await queue.count() == 0
