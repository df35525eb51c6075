"""Job schedulers and `repeat`, as users have them."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bullite import (
    BulliteError,
    Job,
    JobScheduler,
    Priority,
    Queue,
    QueueEvents,
    Scheduler,
    SchedulerNotFound,
    SchedulerOwnsJob,
    Worker,
)
from bullite.client.queue.scheduler_spec import MAX_KEY_LENGTH, NOT_IN_TEMPLATES
from tests.support.helpers import again, case, until

DAILY = "0 3 * * *"
HOUR = 3_600_000


async def nothing(job: Job) -> None:
    pass


async def entry(queue: Queue, id: str) -> JobScheduler:
    found = await queue.get_job_scheduler(id)
    assert found is not None
    return found


# --- making one ----------------------------------------------------------------------------------


async def test_an_upsert_returns_the_pending_job(queue: Queue) -> None:
    job = await queue.upsert_job_scheduler(
        "report", pattern=DAILY, template={"name": "r", "data": {"a": 1}, "opts": {"attempts": 3}}
    )
    [pending] = await queue.get_delayed()
    assert (job.id, job.name, job.data, job.attempts) == (pending.id, "r", {"a": 1}, 3)
    assert job.state == "delayed"
    assert job.repeat_job_key == pending.repeat_job_key == "report"
    assert pending.opts["repeat"] == job.opts["repeat"]
    assert job.process_at == (await entry(queue, "report")).next_run_at


async def test_name_and_data_of_the_jobs_have_defaults(queue: Queue) -> None:
    job = await queue.upsert_job_scheduler("report", every="1h")
    assert (job.name, job.data, job.state) == ("report", {}, "waiting")


async def test_an_entry_tells_all_about_a_scheduler(queue: Queue) -> None:
    start = datetime(2090, 1, 1, tzinfo=UTC)
    end = datetime(2099, 1, 1, tzinfo=UTC)
    before = datetime.now(UTC) - timedelta(milliseconds=2)
    job = await queue.upsert_job_scheduler(
        "id",
        pattern="30 4 * * *",
        tz="Europe/Berlin",
        limit=9,
        start_date=start,
        end_date=end,
        missed="skip",
        template={"name": "n", "data": [1], "opts": {"priority": 2, "timeout": "5s"}},
    )
    found = await entry(queue, "id")
    assert (found.id, found.name, found.pattern, found.every) == ("id", "n", "30 4 * * *", None)
    assert (found.tz, found.offset, found.limit) == ("Europe/Berlin", 0, 9)
    assert (found.start_date, found.end_date) == (start, end)
    assert (found.immediately, found.missed, found.enabled) == (False, "skip", True)
    assert found.next_run_at == datetime(2090, 1, 1, 3, 30, tzinfo=UTC) == job.process_at
    assert (found.last_run_at, found.last_run_job_id, found.iteration_count) == (None, None, 1)
    opts = {"priority": 2, "timeout": 5_000}
    assert found.template == {"name": "n", "data": [1], "opts": opts}
    assert before <= found.created_at <= found.updated_at


async def test_an_entry_tells_of_the_last_run(queue: Queue) -> None:
    job = await queue.upsert_job_scheduler("id", every="1h")
    async with Worker(queue, nothing):
        await job.result()
    found = await entry(queue, "id")
    assert found.last_run_job_id == job.id
    assert found.last_run_at == (await again(queue, job)).processed_at
    assert found.iteration_count == 2


async def test_an_unknown_scheduler_is_none(queue: Queue) -> None:
    assert await queue.get_job_scheduler("nobody") is None


async def test_its_jobs_count_for_the_limit_of_their_key(queue: Queue) -> None:
    await queue.set_rate_limit("tenant", 1, "1h")
    for id in ("a", "b"):
        await queue.upsert_job_scheduler(id, every="1h", template={"opts": {"limit_key": "tenant"}})
    async with Worker(queue, nothing, concurrency=5):
        await until(lambda: queue.get_completed_count())
        await asyncio.sleep(0.1)
        assert await queue.get_completed_count() == 1


async def test_options_of_the_queue_hold_for_its_jobs(location: str) -> None:
    own = {"remove_on_complete": True, "delay": 5_000}
    async with Queue("work", location, default_job_options=own) as queue:  # type: ignore[arg-type]
        await queue.configure(default_job_options={"attempts": 4, "priority": 5})
        job = await queue.upsert_job_scheduler("id", every="1h", template={"opts": {"priority": 7}})
        assert (job.attempts, job.priority, job.state) == (4, 7, "prioritized")
        async with Worker(queue, nothing):
            await until(lambda: queue.get_delayed_count())
            await until(lambda: _none_left(queue))
        [following] = await queue.get_delayed()
        assert (following.attempts, following.priority) == (4, 7)
        assert (await entry(queue, "id")).template["opts"] == {"priority": 7}


async def _none_left(queue: Queue) -> bool:
    counts = await queue.get_job_counts("completed", "active", "prioritized")
    return not any(counts.values())


async def test_a_level_of_priority_means_the_same_in_either_order(location: str) -> None:
    async with Queue("work", location, priority_order="high") as queue:
        template: Any = {"opts": {"priority": Priority.HIGH}}
        job = await queue.upsert_job_scheduler("id", every="1h", template=template)
        assert job.priority == Priority.HIGH.value


async def test_listeners_of_the_queue_hear_of_the_pending_job(queue: Queue) -> None:
    heard: list[tuple[str, str]] = []
    for event in ("added", "waiting", "delayed"):
        queue.on(event, lambda job, event=event: heard.append((event, job.id)))
    job = await queue.upsert_job_scheduler("id", every="1h")
    assert heard == [("added", job.id), ("waiting", job.id)]


# --- listing -------------------------------------------------------------------------------------


async def make_some(queue: Queue) -> None:
    for id, hour in (("b", 2), ("a", 1), ("c", 3)):
        await queue.upsert_job_scheduler(
            id, every="1d", start_date=int(time.time() * 1000) + hour * HOUR
        )
    await queue.upsert_job_scheduler("paused", every="1d")
    await queue.pause_job_scheduler("paused")


async def ids(queue: Queue, *window: int, **options: Any) -> list[str]:
    return [s.id for s in await queue.get_job_schedulers(*window, **options)]


async def test_schedulers_are_listed_the_latest_first(queue: Queue) -> None:
    await make_some(queue)
    assert await ids(queue) == ["c", "b", "a", "paused"]
    assert await ids(queue, asc=True) == ["a", "b", "c", "paused"]
    assert await queue.get_job_schedulers_count() == 4


async def test_schedulers_are_listed_in_pages(queue: Queue) -> None:
    await make_some(queue)
    assert await ids(queue, 1, 2) == ["b", "a"]
    assert await ids(queue, 0, 0, asc=True) == ["a"]
    assert await ids(queue, -2) == ["a", "paused"]
    assert await ids(queue, 7) == []


async def test_schedulers_of_another_queue_are_not_listed(queue: Queue) -> None:
    await queue.upsert_job_scheduler("id", every="1h")
    other = Queue("other", queue.store)
    assert await other.get_job_schedulers() == []
    assert await other.get_job_schedulers_count() == 0
    await other.upsert_job_scheduler("id", every="2h")
    assert (await entry(queue, "id")).every == HOUR
    assert await other.remove_job_scheduler("id")
    assert (await entry(queue, "id")).enabled


# --- what it does --------------------------------------------------------------------------------


async def test_jobs_are_made_again_and_again(queue: Queue) -> None:
    ran: list[Any] = []
    await queue.upsert_job_scheduler("id", every=20, template={"data": {"n": 1}})
    async with Worker(queue, lambda job: ran.append((job.data, job.opts["repeat"]["count"]))):
        await until(lambda: len(ran) >= 5)
    assert ran[:5] == [({"n": 1}, count) for count in (1, 2, 3, 4, 5)]


async def test_the_service_alone_lets_the_pending_job_wait_in_line(queue: Queue) -> None:
    await queue.upsert_job_scheduler("soon", every="1h", start_date=_in(100))
    async with Scheduler(queue.store):
        await until(lambda: _is_waiting(queue, "soon"))


def _in(ms: int) -> int:
    return int(time.time() * 1000) + ms


async def _is_waiting(queue: Queue, key: str) -> bool:
    return key in [job.repeat_job_key for job in await queue.get_waiting()]


async def test_an_upsert_during_a_run_takes_effect(queue: Queue) -> None:
    ran: list[int] = []

    async def work(job: Job) -> None:
        ran.append(job.data)
        await queue.upsert_job_scheduler("id", every=20, template={"data": len(ran)})

    await queue.upsert_job_scheduler("id", every=20, template={"data": 0})
    async with Worker(queue, work):
        await until(lambda: len(ran) >= 4)
    assert ran[:4] == [0, 1, 2, 3]


async def test_pausing_and_resuming(queue: Queue) -> None:
    await queue.upsert_job_scheduler("id", every="1h")
    assert await queue.pause_job_scheduler("id")
    found = await entry(queue, "id")
    assert (found.enabled, found.next_run_at) == (False, None)
    assert await queue.count() == 0
    assert not await queue.pause_job_scheduler("id")
    assert await queue.resume_job_scheduler("id")
    assert not await queue.resume_job_scheduler("id")
    assert (await entry(queue, "id")).enabled
    assert await queue.get_waiting_count() == 1


async def test_running_one_now(queue: Queue) -> None:
    pending = await queue.upsert_job_scheduler("id", pattern=DAILY, template={"data": {"a": 1}})
    job = await queue.run_job_scheduler("id")
    assert (job.state, job.data, job.repeat_job_key) == ("waiting", {"a": 1}, "id")
    async with Worker(queue, nothing):
        await job.result()
    assert [job.id for job in await queue.get_delayed()] == [pending.id]
    assert (await entry(queue, "id")).iteration_count == 1


async def test_what_is_not_there_is_named(queue: Queue) -> None:
    for verb in ["pause", "resume", "run"]:
        with case(verb), pytest.raises(SchedulerNotFound, match="'nobody'"):
            await getattr(queue, f"{verb}_job_scheduler")("nobody")


async def test_removing_twice(queue: Queue) -> None:
    await queue.upsert_job_scheduler("id", every="1h")
    assert await queue.remove_job_scheduler("id")
    assert not await queue.remove_job_scheduler("id")


async def test_removing_tells_listeners(queue: Queue) -> None:
    removed: list[Any] = []
    job = await queue.upsert_job_scheduler("id", pattern=DAILY)
    async with QueueEvents(queue.name, queue.store) as events:
        events.on("removed", lambda payload, id: removed.append(payload))
        await queue.remove_job_scheduler("id")
        await until(lambda: removed)
    assert removed == [{"job_id": job.id, "prev": "delayed"}]


async def test_many_upserts_at_once_leave_one_pending_job(queue: Queue) -> None:
    upserts = [queue.upsert_job_scheduler("id", every=1_000 * (n % 3 + 1)) for n in range(30)]
    await asyncio.gather(*upserts)
    assert await queue.get_job_schedulers_count() == 1
    assert await queue.count() == 1


async def test_the_pending_job_is_protected(queue: Queue) -> None:
    job = await queue.upsert_job_scheduler("id", pattern=DAILY)
    for remove in (job.remove, lambda: queue.remove(job.id)):
        with pytest.raises(SchedulerOwnsJob, match="job scheduler 'id'"):
            await remove()
    await queue.drain(delayed=True)
    assert await queue.clean(0, 0, "delayed") == []
    assert await queue.get_delayed_count() == 1
    await job.change_delay("1h")
    await job.promote()
    assert await queue.clean(0, 0, "waiting") == []
    assert await queue.get_waiting_count() == 1


async def test_drain_takes_the_jobs_around_a_pending_one(queue: Queue) -> None:
    await queue.add("before")
    job = await queue.upsert_job_scheduler("id", every="1h")
    await queue.add("after")
    await queue.drain()
    assert [job.id for job in await queue.get_waiting()] == [job.id]


async def test_obliterate_takes_schedulers_along(queue: Queue) -> None:
    await queue.upsert_job_scheduler("id", every="1h")
    await queue.obliterate()
    assert await queue.get_job_schedulers() == []
    assert await queue.count() == 0


async def test_a_scheduler_moves_its_failed_jobs_to_the_dead_letter_queue(queue: Queue) -> None:
    async def fail(job: Job) -> None:
        raise ValueError("no")

    await queue.configure(dead_letter="dead")
    await queue.upsert_job_scheduler("id", every="1h")
    dead = Queue("dead", queue.store)
    async with Worker(queue, fail):
        await until(dead.get_failed_count)
    [job] = await dead.get_failed()
    assert job.repeat_job_key == "id"
    assert await queue.get_delayed_count() == 1


# --- repeat --------------------------------------------------------------------------------------


async def test_add_with_repeat_makes_a_scheduler(queue: Queue) -> None:
    job = await queue.add("mail", {"to": "a"}, repeat={"cron": DAILY}, priority=3, attempts=2)
    [found] = await queue.get_job_schedulers()
    assert job.repeat_job_key == found.id
    assert (found.name, found.pattern) == ("mail", DAILY)
    assert found.template == {
        "name": "mail",
        "data": {"to": "a"},
        "opts": {"priority": 3, "attempts": 2},
    }
    assert (job.priority, job.attempts, job.state) == (3, 2, "delayed")


async def test_the_same_add_twice_is_one_scheduler(queue: Queue) -> None:
    first = await queue.add("mail", 1, repeat={"every": "1h"})
    second = await queue.add("mail", 2, repeat={"every": HOUR})
    assert first.id == second.id
    assert [job.data for job in await queue.get_waiting()] == [2]
    await queue.add("post", 1, repeat={"every": HOUR})
    await queue.add("mail", 1, repeat={"every": 2 * HOUR})
    assert await queue.get_job_schedulers_count() == 3


async def test_a_key_can_be_chosen(queue: Queue) -> None:
    await queue.add("mail", repeat={"every": HOUR, "key": "mine"})
    job = await queue.add("post", repeat={"pattern": DAILY, "key": "mine"})
    assert (job.repeat_job_key, job.name) == ("mine", "post")
    assert await queue.get_job_schedulers_count() == 1
    assert await queue.remove_job_scheduler("mine")


async def test_every_key_of_repeat_is_understood(queue: Queue) -> None:
    await queue.add(
        "a",
        repeat={
            "cron": DAILY,
            "tz": "Asia/Kolkata",
            "limit": 5,
            "end_date": "2099-01-01T00:00:00+00:00",
            "immediate": True,
            "missed": "all",
            "most_missed": 3,
            "key": "first",
        },
    )
    first = await entry(queue, "first")
    assert (first.tz, first.limit, first.missed) == ("Asia/Kolkata", 5, "all")
    assert first.immediately
    assert await queue.get_waiting_count() == 1
    await queue.add("b", repeat={"every": "1h", "offset": "5m", "key": "second"})
    assert (await entry(queue, "second")).offset == 300_000


async def test_a_repeat_of_none_is_none(queue: Queue) -> None:
    job = await queue.add("a", repeat=None)
    assert (job.repeat_job_key, await queue.get_job_schedulers_count()) == (None, 0)


async def test_at_its_limit_a_repeat_is_disabled_and_kept(queue: Queue) -> None:
    ran: list[str] = []
    await queue.add("a", repeat={"every": 20, "limit": 2, "key": "k"})
    async with Worker(queue, lambda job: ran.append(job.id)):
        await until(lambda: len(ran) == 2)
    found = await entry(queue, "k")
    assert (found.enabled, found.next_run_at, found.iteration_count) == (False, None, 2)
    assert await queue.count() == 0


async def test_repeat_in_a_bulk(queue: Queue) -> None:
    jobs = await queue.add_bulk(
        [
            {"name": "a", "data": 1},
            {"name": "b", "data": 2, "opts": {"repeat": {"every": "1h"}}},
            {"name": "c", "data": 3, "opts": {"delay": 1_000}},
        ]
    )
    assert [(job.name, job.data) for job in jobs] == [("a", 1), ("b", 2), ("c", 3)]
    assert [job.repeat_job_key is not None for job in jobs] == [False, True, False]
    assert await queue.get_job_counts("waiting", "delayed") == {"waiting": 2, "delayed": 1}


async def test_one_bad_repeat_keeps_the_whole_bulk_out(queue: Queue) -> None:
    soon = int(time.time() * 1000) + 10_000
    for bad in ({"every": 0}, {"cron": "0 0 1 1 *", "end_date": soon}):
        with pytest.raises(BulliteError):
            await queue.add_bulk(
                [
                    {"name": "a"},
                    {"name": "b", "opts": {"repeat": {"every": 1_000}}},
                    {"name": "c", "opts": {"repeat": bad}},  # type: ignore[typeddict-item]
                ]
            )
    assert await queue.count() == 0
    assert await queue.get_job_schedulers_count() == 0


# --- bad input -----------------------------------------------------------------------------------

BAD: dict[str, dict[str, Any]] = {
    "neither": {},
    "both": {"pattern": DAILY, "every": 1},
    "garbled": {"pattern": "a b c d e"},
    "impossible": {"pattern": "0 0 31 2 *"},
    "four fields": {"pattern": "* * * *"},
    "seven fields": {"pattern": "* * * * * * *"},
    "unknown zone": {"pattern": DAILY, "tz": "Mars/Olympus"},
    "offset as zone": {"pattern": DAILY, "tz": "+02:00"},
    "path as zone": {"pattern": DAILY, "tz": "../../etc/passwd"},
    "every 0": {"every": 0},
    "every negative": {"every": -1},
    "every NaN": {"every": float("nan")},
    "every huge": {"every": 10**30},
    "limit 0": {"every": 1, "limit": 0},
    "limit negative": {"every": 1, "limit": -1},
    "offset negative": {"every": 10, "offset": -1},
    "offset above every": {"every": 10, "offset": 10},
    "end in the past": {"every": 1, "end_date": 1},
    "end before start": {"every": 1, "start_date": _in(10**7), "end_date": _in(10**6)},
    "no zone": {"every": 1, "start_date": datetime(2099, 1, 1)},
    "immediately with start": {"pattern": DAILY, "immediately": True, "start_date": _in(10**6)},
    "missed": {"every": 1, "missed": "sometimes"},
    "most missed": {"every": 1, "missed": "all", "most_missed": 0},
}


async def test_bad_settings_are_refused_and_nothing_is_stored(queue: Queue) -> None:
    for name, settings in BAD.items():
        with case(name):
            with pytest.raises(BulliteError) as error:
                await queue.upsert_job_scheduler("id", **settings)
            assert isinstance(error.value, ValueError | TypeError)
            with pytest.raises(BulliteError):
                await queue.add("a", repeat=settings or {"limit": 1})  # type: ignore[arg-type]
            assert await queue.get_job_schedulers_count() == await queue.count() == 0


async def test_what_is_one_jobs_own_is_refused(queue: Queue) -> None:
    for option in sorted(NOT_IN_TEMPLATES):
        with case(option):
            opts: Any = {option: {"id": "x"}}
            with pytest.raises(BulliteError, match=option):
                await queue.upsert_job_scheduler("id", every=1, template={"opts": opts})
            if option != "repeat":
                with pytest.raises(BulliteError, match=option):
                    await queue.add("a", repeat={"every": 1}, **opts)
            assert await queue.get_job_schedulers_count() == 0


async def test_a_bad_template_is_refused(queue: Queue) -> None:
    for template in [
        7,
        {"names": "a"},
        {"opts": 7},
        {"opts": {"color": "red"}},
        {"name": "\n"},
        {"data": {1, 2}},
    ]:
        with case(template):
            if template == {"data": {1, 2}}:
                template = {"data": object()}
            with pytest.raises(BulliteError):
                await queue.upsert_job_scheduler("id", every=1, template=template)
            assert await queue.get_job_schedulers_count() == 0


async def test_a_bad_repeat_is_refused(queue: Queue) -> None:
    for repeat in [
        7,
        DAILY,
        {"evry": 1},
        {"cron": DAILY, "pattern": DAILY},
        {"every": 1, "key": ""},
    ]:
        with case(repeat):
            with pytest.raises(BulliteError, match="repeat"):
                await queue.add("a", repeat=repeat)
            assert await queue.get_job_schedulers_count() == 0


async def test_a_bad_id_is_refused(queue: Queue) -> None:
    for id in ["", "x" * (MAX_KEY_LENGTH + 1), "a\x00b", 7, None]:
        with case(id):
            with pytest.raises(BulliteError):
                await queue.upsert_job_scheduler(id, every=1_000)
            with pytest.raises(BulliteError):
                await queue.get_job_scheduler(id)


async def test_the_longest_id_fits_in_the_ids_of_its_jobs(queue: Queue) -> None:
    far = datetime(9999, 12, 1, tzinfo=UTC)
    job = await queue.upsert_job_scheduler("x" * MAX_KEY_LENGTH, every="1d", start_date=far)
    assert len(job.id) == 255
    assert await queue.get_job(job.id) is not None


async def test_repeat_cannot_be_a_default(location: str) -> None:
    with pytest.raises(BulliteError, match="repeat"):
        Queue("work", location, default_job_options={"repeat": {"every": 1}})


async def test_ids_of_users_that_look_like_ours_break_nothing(queue: Queue) -> None:
    await queue.add("a", job_id="repeat:id:1")
    await queue.add("a", job_id="repeat:")
    job = await queue.upsert_job_scheduler("id", every="1h")
    assert (await again(queue, job)).repeat_job_key == "id"
    found = await queue.get_job("repeat:id:1")
    assert found is not None
    assert found.repeat_job_key is None
    assert await queue.remove("repeat:id:1")
