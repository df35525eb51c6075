"""Settings and defaults: what holds for a job, an object, or everybody."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bullite import Job, Priority, Queue, QueueOptionMismatch, Worker
from bullite.errors import BulliteError, InvalidOption, InvalidOptionType
from tests.support.helpers import again, case, python


async def echo(job: Job) -> Any:
    return job.data


# --- default options -----------------------------------------------------------------------------


async def test_defaults_of_the_object_hold_for_its_jobs(location: str) -> None:
    async with Queue(
        "emails", location, default_job_options={"attempts": 4, "priority": 2}
    ) as queue:
        job = await queue.add("a")
        assert (job.attempts, job.priority, job.state) == (4, 2, "prioritized")
        [bulk] = await queue.add_bulk([{"name": "a"}])
        assert (bulk.attempts, bulk.priority) == (4, 2)


async def test_defaults_of_the_object_do_not_hold_for_others(location: str) -> None:
    async with (
        Queue("emails", location, default_job_options={"attempts": 4}) as mine,
        Queue("emails", location) as other,
    ):
        assert (await mine.add("a")).attempts == 4
        assert (await other.add("a")).attempts == 1


async def test_stored_defaults_hold_for_everybody(queue: Queue, location: str) -> None:
    meta = await queue.configure(default_job_options={"attempts": 4})
    assert meta["default_job_options"] == {"attempts": 4}
    async with Queue("emails", location) as other:
        assert (await queue.add("a")).attempts == 4
        assert (await other.add("a")).attempts == 4


async def test_the_job_beats_the_object_and_the_object_what_is_stored(location: str) -> None:
    async with Queue(
        "emails", location, default_job_options={"attempts": 5, "priority": 5}
    ) as queue:
        await queue.configure(default_job_options={"attempts": 9, "priority": 9, "lifo": True})
        job = await queue.add("a", priority=1)
        assert (job.attempts, job.priority, job.lifo) == (5, 1, True)


async def test_stored_defaults_are_seen_by_other_objects_at_once(
    queue: Queue, location: str
) -> None:
    async with Queue("emails", location) as other:
        assert (await other.add("a")).attempts == 1
        await queue.configure(default_job_options={"attempts": 7})
        assert (await other.add("a")).attempts == 7
        [bulk] = await other.add_bulk([{"name": "a"}])
        assert bulk.attempts == 7
        await queue.configure(default_job_options={})
        assert (await other.add("a")).attempts == 1


async def test_stored_defaults_of_another_process_are_seen_at_once(
    queue: Queue, location: str
) -> None:
    program = """
import asyncio, sys
from bullite import Queue

async def main():
    async with Queue("emails", sys.argv[1]) as queue:
        await queue.configure(default_job_options={"attempts": 7}, priority_order="high")

asyncio.run(main())
"""
    assert (await queue.add("a", priority=1)).attempts == 1
    await asyncio.to_thread(python, program, location)
    assert (await queue.add("a", priority=5)).attempts == 7
    assert [job.priority for job in await queue.get_prioritized()] == [5, 1]
    assert queue.priority_order == "high"


async def test_what_is_stored_with_the_job_stays_when_defaults_change(queue: Queue) -> None:
    await queue.configure(default_job_options={"attempts": 7})
    job = await queue.add("a")
    await queue.configure(default_job_options={"attempts": 2})
    assert (await again(queue, job)).attempts == 7


async def test_every_kind_of_value_can_be_a_stored_default(queue: Queue) -> None:
    defaults: Any = {
        "delay": timedelta(seconds=90),
        "attempts": 3,
        "backoff": [{"on": "OSError", "delay": timedelta(seconds=2)}, {"retry": False}],
        "timeout": "5s",
        "remove_on_complete": {"age": timedelta(hours=1), "count": 5},
        "remove_on_fail": True,
        "keep_logs": 3,
        "stack_trace_limit": 2,
        "size_limit": 2_000_000,
        "tags": ("a", "b"),
        "lifo": False,
    }
    await queue.configure(default_job_options=defaults)
    job = await queue.add("a")
    assert (job.delay, job.timeout, job.tags) == (90_000, 5_000, ("a", "b"))
    assert job.opts["backoff"] == [
        {"on": "OSError", "type": "fixed", "delay": 2_000},
        {"retry": False},
    ]
    assert job.opts["remove_on_complete"] == {"age": 3_600, "count": 5}
    assert (job.opts["remove_on_fail"], job.opts["keep_logs"]) == (True, 3)


@pytest.mark.parametrize("stored", [False, True])
async def test_a_level_of_priority_can_be_a_default(location: str, stored: bool) -> None:
    defaults: Any = {"priority": Priority.HIGH}
    async with Queue("emails", location, default_job_options=None if stored else defaults) as queue:
        if stored:
            await queue.configure(default_job_options=defaults)
        usual, urgent = await queue.add("a"), await queue.add("a", priority=Priority.CRITICAL)
        ids = [job.id for job in await queue.get_prioritized()]
        assert ids == [urgent.id, usual.id]


async def test_a_time_of_its_own_beats_a_default_delay(queue: Queue) -> None:
    await queue.configure(default_job_options={"delay": "1h"})
    job = await queue.add("a", run_at="2001-01-01T00:00:00+00:00")
    assert job.state == "waiting"


async def test_a_default_backoff_of_the_object_beats_a_stored_strategy(location: str) -> None:
    """Both define the retry delay: the option set closer to the job wins."""
    async with Queue("emails", location, default_job_options={"backoff": 50}) as queue:
        await queue.configure(default_job_options={"retry_strategy": "mine"})
        options = (await queue.add("a", attempts=3)).opts
        assert options["backoff"] == {"type": "fixed", "delay": 50}
        assert "retry_strategy" not in options


async def test_a_strategy_of_the_job_beats_a_default_backoff(queue: Queue) -> None:
    await queue.configure(default_job_options={"backoff": 50})
    assert "backoff" not in (await queue.add("a", retry_strategy="mine")).opts


async def test_what_is_one_jobs_own_is_no_default(queue: Queue, location: str) -> None:
    for name in ["job_id", "run_at", "timestamp"]:
        with case(name):
            defaults: Any = {name: "2030-01-01T00:00:00+00:00"}
            with pytest.raises(InvalidOption, match=name):
                await queue.configure(default_job_options=defaults)
            with pytest.raises(InvalidOption, match=name):
                Queue("emails", location, default_job_options=defaults)


async def test_bad_defaults_are_refused_and_nothing_is_stored(queue: Queue) -> None:
    for bad in [{"attempts": 0}, {"colour": "red"}, {"delay": -1}, [1], 5]:
        with case(bad):
            with pytest.raises(BulliteError):
                await queue.configure(default_job_options=bad)
            assert (await queue.get_meta())["default_job_options"] == {}


def test_bad_defaults_of_an_object_are_refused(location: str) -> None:
    for bad in [{"attempts": 0}, {"colour": "red"}, [1], 5]:
        with case(bad), pytest.raises(BulliteError):
            Queue("emails", location, default_job_options=bad)


# --- settings ------------------------------------------------------------------------------------


async def test_settings_that_are_not_named_stay(queue: Queue) -> None:
    await queue.configure(trash_age=5)
    meta = await queue.configure(max_events=7)
    assert (meta["trash_age"], meta["max_events"]) == (5, 7)


async def test_settings_of_the_object_are_stored(location: str) -> None:
    async with Queue("emails", location, trash_age="1m", keep_failed={"count": 9}) as queue:
        await queue.add("a")
    async with Queue("emails", location) as queue:
        meta = await queue.get_meta()
        assert (meta["trash_age"], meta["keep_failed_count"]) == (60_000, 9)


async def test_an_unknown_setting_is_refused_with_those_there_are(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match=r"'colour'.*trash_age"):
        await queue.configure(colour="red")  # type: ignore[call-arg]


async def test_a_bad_setting_is_named_and_nothing_is_stored(queue: Queue) -> None:
    for setting, value in [
        ("priority_order", "sideways"),
        ("priority_order", None),
        ("priority_order", 5),
        ("keep_completed", -1),
        ("keep_completed", True),
        ("keep_completed", {"age": -1}),
        ("keep_completed", {"age": float("nan")}),
        ("keep_completed", {"count": -1}),
        ("keep_completed", {"count": 1.5}),
        ("keep_completed", {"limit": 5}),
        ("keep_failed", "soon"),
        ("keep_failed", [5]),
        ("trash_age", -1),
        ("trash_age", None),
        ("trash_age", 10**18),
        ("trash_age", "1 fortnight"),
        ("max_events", -1),
        ("max_events", 1.5),
        ("max_events", True),
        ("max_events", 10**30),
        ("dead_letter", 5),
        ("dead_letter", ""),
    ]:
        with case((setting, value)):
            before = await queue.get_meta()
            settings: Any = {"trash_age": 77, setting: value}
            with pytest.raises(BulliteError, match=setting) as raised:
                await queue.configure(**settings)
            assert isinstance(raised.value, ValueError | TypeError)
            assert await queue.get_meta() == before


async def test_the_meta_tells_the_name_the_order_and_the_library(queue: Queue) -> None:
    meta = await queue.get_meta()
    assert (meta["name"], meta["priority_order"], meta["paused"]) == ("emails", "low", False)
    assert await queue.get_version() == meta["version"]
    assert meta["version"].startswith("bullite:")
    await queue.pause()
    assert (await queue.get_meta())["paused"] is True


# --- the order of priorities ---------------------------------------------------------------------


async def order_of(queue: Queue) -> list[int]:
    return [job.priority for job in await queue.get_prioritized()]


async def test_changing_the_order_ranks_what_waits_anew(queue: Queue) -> None:
    for priority in (5, -3, 9):
        await queue.add("a", priority=priority)
    assert await order_of(queue) == [-3, 5, 9]
    await queue.configure(priority_order="high")
    await queue.add("a", priority=7)
    assert await order_of(queue) == [9, 7, 5, -3]
    assert queue.priority_order == "high"


async def test_jobs_run_in_the_new_order(queue: Queue) -> None:
    ran: list[int] = []

    async def note(job: Job) -> None:
        ran.append(job.priority)

    for priority in (0, 5, -3, 9):
        await queue.add("a", priority=priority)
    await queue.configure(priority_order="high")
    async with Worker(queue, note):
        for job in await queue.get_jobs():
            await job.result(timeout="10s")
    assert ran == [9, 5, 0, -3]


async def test_delayed_and_removed_jobs_are_ranked_anew_too(queue: Queue) -> None:
    delayed, removed = [await queue.add("a", priority=p, delay="1h") for p in (4, 8)]
    await removed.promote()
    await removed.remove()
    await queue.configure(priority_order="high")
    await queue.add("a", priority=6)
    await delayed.promote()
    await queue.restore(removed.id)
    assert await order_of(queue) == [8, 6, 4]


async def test_other_objects_add_in_the_new_order_at_once(queue: Queue, location: str) -> None:
    async with Queue("emails", location) as other:
        await other.add("a", priority=1)
        await queue.configure(priority_order="high")
        await other.add("a", priority=5)
        assert await order_of(other) == [5, 1]


async def test_other_objects_change_priorities_in_the_new_order_at_once(
    queue: Queue, location: str
) -> None:
    async with Queue("emails", location) as other:
        job = await other.add("a", priority=3)
        await other.add("a", priority=4)
        await queue.configure(priority_order="high")
        await job.change_priority(9)
        assert await order_of(queue) == [9, 4]


async def test_an_object_that_insists_on_the_old_order_is_refused(location: str) -> None:
    async with Queue("emails", location, priority_order="low") as queue:
        await queue.add("a")
        await queue.configure(priority_order="high")
        await queue.add("b", priority=1)
    with pytest.raises(QueueOptionMismatch, match="priority_order"):
        async with Queue("emails", location, priority_order="low"):
            raise AssertionError("it was entered")


@pytest.mark.parametrize("order", ["low", "high"])
async def test_levels_of_priority_mean_the_same_in_either_order(location: str, order: str) -> None:
    async with Queue("emails", location, priority_order=order) as queue:
        for level in (Priority.LOW, Priority.NORMAL, Priority.CRITICAL, Priority.HIGH):
            await queue.add(level.name, priority=level)
        ran: list[str] = []

        async def note(job: Job) -> None:
            ran.append(job.name)

        async with Worker(queue, note):
            for job in await queue.get_jobs():
                await job.result(timeout="10s")
    assert ran == ["CRITICAL", "HIGH", "NORMAL", "LOW"]


async def test_a_level_may_be_changed_to(queue: Queue) -> None:
    first, second = await queue.add("a", priority=-5), await queue.add("a", priority=5)
    await second.change_priority(Priority.CRITICAL)
    assert [job.id for job in await queue.get_prioritized()] == [second.id, first.id]


async def test_a_bad_priority_is_refused(queue: Queue) -> None:
    for bad in [2_097_152, -2_097_152, "high", 1.5, True, None]:
        with case(bad):
            with pytest.raises((InvalidOption, InvalidOptionType), match="priority"):
                await queue.add("a", priority=bad)
            assert await queue.count() == 0
