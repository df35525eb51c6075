"""Every event of the log, with what its listeners are told."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from bullite import Job, Queue, QueueEventsProducer, UnrecoverableError, Worker
from bullite.errors import InvalidOption, InvalidOptionType, UnserializableData
from tests.support.databases import Database
from tests.support.helpers import again, case, fresh, python, state_of, take_away, until
from tests.support.listening import names_of, payloads, told


def now() -> int:
    return time.time_ns() // 1_000_000


async def run_one(queue: Queue, job: Job, processor: Any, **settings: Any) -> None:
    """Let a worker finish a job."""
    async with Worker(queue, processor, **settings):
        await until(lambda: is_finished(queue, job))


async def is_finished(queue: Queue, job: Job) -> bool:
    return await queue.get_job_state(job.id) in ("completed", "failed", "unknown")


async def succeed(job: Job) -> Any:
    return job.data


async def fail(job: Job) -> None:
    raise ValueError("no")


# --- adding and beginning ------------------------------------------------------------------------


async def test_a_new_job_is_added_and_waits(queue: Queue) -> None:
    job = await queue.add("greet")
    heard = await told(queue)
    assert [event[:2] for event in heard] == [
        ("added", {"job_id": job.id, "name": "greet"}),
        ("waiting", {"job_id": job.id}),
    ]


async def test_a_custom_id_is_what_events_call_a_job(queue: Queue) -> None:
    await run_one(queue, await queue.add("a", job_id="order-7"), succeed)
    heard = await told(queue)
    assert names_of(heard, "order-7") == ["added", "waiting", "active", "completed"]


async def test_a_job_with_a_priority_is_added_and_waits_like_others(queue: Queue) -> None:
    job = await queue.add("a", priority=5)
    assert names_of(await told(queue), job.id) == ["added", "waiting"]


async def test_a_delayed_job_tells_the_moment_it_is_due(queue: Queue) -> None:
    job = await queue.add("a", delay="1h")
    heard = await told(queue)
    assert names_of(heard, job.id) == ["added", "delayed"]
    assert job.process_at is not None
    due = round(job.process_at.timestamp() * 1000)
    assert payloads(heard, "delayed") == [{"job_id": job.id, "delay": due}]


async def test_a_job_that_exists_already_is_duplicated(queue: Queue) -> None:
    for _ in range(2):
        await queue.add("a", job_id="x")
    heard = await told(queue)
    assert payloads(heard, "duplicated") == [{"job_id": "x"}]
    assert len(payloads(heard, "added")) == 1


async def test_a_job_that_begins_tells_where_it_was(queue: Queue) -> None:
    job = await queue.add("a")
    await run_one(queue, job, succeed)
    assert payloads(await told(queue), "active") == [{"job_id": job.id, "prev": "waiting"}]


# --- while it runs -------------------------------------------------------------------------------


async def test_progress_is_told_as_given(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.update_progress(job.data)

    for progress in [50, {"page": 3}, "half", None, [1, [2]]]:
        with case(progress):
            queue = fresh(queue)
            job = await queue.add("a", progress)
            await run_one(queue, job, work)
            assert payloads(await told(queue), "progress") == [{"job_id": job.id, "data": progress}]


async def test_a_line_of_a_jobs_log_is_told_as_it_is_stored(queue: Queue) -> None:
    job = await queue.add("a")
    await job.log("hello", level="warn")
    [line] = (await queue.get_job_logs(job.id))["logs"]
    assert line["message"] == "hello"
    assert payloads(await told(queue), "log_added") == [{"job_id": job.id, "log": line}]


# --- ending --------------------------------------------------------------------------------------


async def test_a_completed_job_tells_its_value(queue: Queue) -> None:
    for value in [7, None, "text", {"a": [1]}, ["x", None], [1, 2, 3], 0, False]:
        with case(value):
            queue = fresh(queue)
            job = await queue.add("a", value)
            await run_one(queue, job, succeed)
            [payload] = payloads(await told(queue), "completed")
            assert payload == {"job_id": job.id, "return_value": value, "prev": "active"}


@pytest.mark.parametrize("job_id", [None, "big-1"])
async def test_a_result_too_long_for_the_log_is_fetched(queue: Queue, job_id: str | None) -> None:
    value = {"text": "ä" * 5000}
    job = await queue.add("a", value, job_id=job_id)
    await run_one(queue, job, succeed)
    [payload] = payloads(await told(queue), "completed")
    assert payload == {"job_id": job.id, "return_value": value, "prev": "active"}


async def test_a_result_too_long_for_the_log_goes_with_its_job(queue: Queue) -> None:
    job = await queue.add("a", "x" * 5000, remove_on_complete=True)
    await run_one(queue, job, succeed)
    [payload] = payloads(await told(queue), "completed")
    assert payload == {"job_id": job.id, "return_value": None, "prev": "active"}


async def test_a_short_result_is_told_though_its_job_is_gone(queue: Queue) -> None:
    job = await queue.add("a", "short", remove_on_complete=True)
    await run_one(queue, job, succeed)
    [payload] = payloads(await told(queue), "completed")
    assert payload["return_value"] == "short"


async def test_a_job_that_fails_for_good_tells_why_and_that_it_is_final(queue: Queue) -> None:
    job = await queue.add("a")
    await run_one(queue, job, fail)
    heard = await told(queue)
    assert payloads(heard, "failed") == [
        {
            "job_id": job.id,
            "failed_reason": "no",
            "prev": "active",
            "final": True,
            "outcome": "error",
        }
    ]
    assert payloads(heard, "retries-exhausted") == [{"job_id": job.id, "attempts_made": 1}]
    assert payloads(heard, "attempt_failed") == []


async def test_the_outcome_of_a_run_that_took_too_long_is_told(queue: Queue) -> None:
    async def slow(job: Job) -> None:
        await asyncio.Event().wait()

    job = await queue.add("a", timeout=20)
    await run_one(queue, job, slow)
    [payload] = payloads(await told(queue), "failed")
    assert (payload["final"], payload["outcome"]) == (True, "timed-out")


async def test_a_failed_try_that_is_followed_by_another_is_not_final(queue: Queue) -> None:
    job = await queue.add("a", attempts=2)
    before = now()
    await run_one(queue, job, fail)
    heard = await told(queue)
    assert names_of(heard, job.id) == [
        *("added", "waiting"),
        *("active", "failed", "attempt_failed", "waiting", "retry_scheduled"),
        *("active", "failed", "retries-exhausted"),
    ]
    first, last = payloads(heard, "failed")
    assert first == {"job_id": job.id, "failed_reason": "no", "prev": "active", "final": False}
    assert (last["final"], last["outcome"]) == (True, "error")
    [attempt] = payloads(heard, "attempt_failed")
    assert attempt == {"job_id": job.id, "failed_reason": "no", "attempts_made": 1}
    assert payloads(heard, "waiting")[1] == {"job_id": job.id, "prev": "active"}
    assert payloads(heard, "retries-exhausted") == [{"job_id": job.id, "attempts_made": 2}]
    [scheduled] = payloads(heard, "retry_scheduled")
    assert before <= scheduled["delay"] <= now()


async def test_a_try_after_a_backoff_tells_when_it_will_be(queue: Queue) -> None:
    job = await queue.add("a", attempts=2, backoff="1h")
    async with Worker(queue, fail):
        await until(lambda: is_in(queue, job, "delayed"))
    heard = await told(queue)
    assert names_of(heard, job.id) == [
        *("added", "waiting"),
        *("active", "failed", "attempt_failed", "delayed", "retry_scheduled"),
    ]
    process_at = (await again(queue, job)).process_at
    assert process_at is not None
    due = round(process_at.timestamp() * 1000)
    assert payloads(heard, "delayed") == [{"job_id": job.id, "delay": due, "prev": "active"}]
    assert payloads(heard, "retry_scheduled") == [{"job_id": job.id, "delay": due}]


async def is_in(queue: Queue, job: Job, state: str) -> bool:
    return await state_of(queue, job) == state


async def test_an_error_that_forbids_retries_exhausts_them(queue: Queue) -> None:
    async def work(job: Job) -> None:
        raise UnrecoverableError("stolen")

    job = await queue.add("a", attempts=9)
    await run_one(queue, job, work)
    heard = await told(queue)
    assert payloads(heard, "retries-exhausted") == [{"job_id": job.id, "attempts_made": 1}]
    assert payloads(heard, "attempt_failed") == []


async def test_a_job_that_nobody_began_in_time_tells_where_it_was(queue: Queue) -> None:
    job = await queue.add("a", expires=1)
    late = await queue.add("b", expires=1, delay="1h")
    await asyncio.sleep(0.02)
    await run_one(queue, late, succeed)
    heard = payloads(await told(queue), "failed")
    for payload in heard:
        assert payload["failed_reason"]
        assert (payload["final"], payload["outcome"]) == (True, "expired")
    assert {payload["job_id"]: payload["prev"] for payload in heard} == {
        job.id: "waiting",
        late.id: "delayed",
    }


async def test_a_job_whose_worker_died_stalls_and_waits_again(queue: Queue) -> None:
    running, go = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> None:
        running.set()
        await go.wait()

    async with Worker(queue, work):
        job = await queue.add("a")
        await running.wait()
        await take_away(queue)
        go.set()
        await until(lambda: is_finished(queue, job))
    heard = await told(queue)
    assert names_of(heard, job.id) == [
        *("added", "waiting", "active", "stalled", "waiting", "active", "completed"),
    ]
    [stalled] = payloads(heard, "stalled")
    assert stalled["job_id"] == job.id
    assert payloads(heard, "waiting")[1] == {"job_id": job.id, "prev": "active"}


async def test_a_job_that_stalled_too_often_stalls_before_it_fails(queue: Queue) -> None:
    running, go = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> None:
        running.set()
        await go.wait()

    async with Worker(queue, work, max_stalled_count=0):
        job = await queue.add("a")
        await running.wait()
        await take_away(queue)
        go.set()
        await until(lambda: is_finished(queue, job))
    heard = await told(queue)
    names = names_of(heard, job.id)
    assert names.index("stalled") < names.index("failed")
    [failed] = payloads(heard, "failed")
    assert (failed["final"], failed["outcome"]) == (True, "stalled")


async def test_the_queue_is_drained_once_when_its_last_run_ends(queue: Queue) -> None:
    jobs = await queue.add_bulk([{"name": "a"}] * 5)
    await queue.add("later", delay="1h")
    async with Worker(queue, succeed):
        for job in jobs:
            await job.result()
    heard = await told(queue)
    assert payloads(heard, "drained") == [{}]
    assert [event.name for event in heard][-1] == "drained"


# --- moving by hand ------------------------------------------------------------------------------


async def test_a_job_whose_time_has_come_is_promoted(queue: Queue) -> None:
    job = await queue.add("a", delay=20)
    await run_one(queue, job, succeed)
    heard = await told(queue)
    assert names_of(heard, job.id) == [
        *("added", "delayed", "promoted", "waiting", "active", "completed"),
    ]
    assert payloads(heard, "waiting") == [{"job_id": job.id, "prev": "delayed"}]


async def test_a_job_promoted_by_hand_tells_the_same(queue: Queue) -> None:
    job = await queue.add("a", delay="1h")
    await job.promote()
    heard = await told(queue)
    assert names_of(heard, job.id) == ["added", "delayed", "promoted", "waiting"]
    assert payloads(heard, "promoted") == [{"job_id": job.id, "prev": "delayed"}]


async def test_a_changed_delay_tells_the_new_moment(queue: Queue) -> None:
    job = await queue.add("a", delay="1h")
    before = now()
    await job.change_delay("2h")
    payload = payloads(await told(queue), "delayed")[-1]
    assert payload["job_id"] == job.id
    assert before + 7_200_000 <= payload["delay"] <= now() + 7_200_000


async def test_a_run_that_puts_its_job_off_tells_until_when(queue: Queue) -> None:
    until_when = now() + 3_600_000

    async def work(job: Job) -> None:
        await job.move_to_delayed(until_when)

    job = await queue.add("a")
    async with Worker(queue, work):
        await until(lambda: is_in(queue, job, "delayed"))
    heard = await told(queue)
    assert names_of(heard, job.id) == ["added", "waiting", "active", "delayed"]
    assert abs(payloads(heard, "delayed")[0]["delay"] - until_when) < 1000


async def test_a_run_that_gives_its_job_back_tells_that_it_waits(queue: Queue) -> None:
    runs = []

    async def work(job: Job) -> None:
        runs.append(job)
        if len(runs) == 1:
            await job.move_to_waiting()

    job = await queue.add("a")
    await run_one(queue, job, work)
    heard = await told(queue)
    assert names_of(heard, job.id) == [
        *("added", "waiting", "active", "waiting", "active", "completed"),
    ]
    assert payloads(heard, "waiting")[1] == {"job_id": job.id, "prev": "active"}


async def test_a_removed_job_tells_where_it_was(queue: Queue) -> None:
    for state in ["waiting", "delayed", "completed", "failed"]:
        with case(state):
            queue = fresh(queue)
            job = await job_in(queue, state)
            await job.remove()
            assert payloads(await told(queue), "removed") == [{"job_id": job.id, "prev": state}]


async def job_in(queue: Queue, state: str) -> Job:
    job = await queue.add("a", delay="1h" if state == "delayed" else 0)
    if state in ("completed", "failed"):
        await run_one(queue, job, succeed if state == "completed" else fail)
    return await again(queue, job)


async def test_a_restored_job_tells_where_it_is_again(queue: Queue) -> None:
    for state, names in [
        ("waiting", ["restored", "waiting"]),
        ("delayed", ["restored", "delayed"]),
        ("completed", ["restored"]),
        ("failed", ["restored"]),
    ]:
        with case((state, names)):
            queue = fresh(queue)
            job = await job_in(queue, state)
            await job.remove()
            await queue.restore(job.id)
            heard = names_of(await told(queue), job.id)
            assert heard[heard.index("removed") + 1 :] == names


async def test_a_restored_delayed_job_tells_when_it_is_due(queue: Queue) -> None:
    job = await job_in(queue, "delayed")
    await job.remove()
    await queue.restore(job.id)
    added, restored = payloads(await told(queue), "delayed")
    assert restored["delay"] == added["delay"]


@pytest.mark.parametrize("state", ["completed", "failed"])
async def test_a_finished_job_that_is_to_run_again_tells_where_it_was(
    queue: Queue, state: str
) -> None:
    job = await job_in(queue, state)
    await job.retry(state)
    assert payloads(await told(queue), "waiting")[-1] == {"job_id": job.id, "prev": state}


async def test_a_failed_job_that_is_to_run_again_later_tells_when(queue: Queue) -> None:
    job = await job_in(queue, "failed")
    before = now()
    await queue.retry_job(job.id, delay="1h")
    [payload] = payloads(await told(queue), "delayed")
    assert (payload["job_id"], payload["prev"]) == (job.id, "failed")
    assert before + 3_600_000 <= payload["delay"] <= now() + 3_600_000


async def test_a_dead_letter_is_told_in_both_queues(queue: Queue) -> None:
    await queue.configure(dead_letter="morgue")
    job = await queue.add("a", job_id="x")
    async with Worker(queue, fail):
        await until(lambda: is_finished(queue, job))
    route = {"job_id": "x", "from": "emails", "to": "morgue"}
    here, there = await told(queue), await told(queue, name="morgue")
    assert names_of(here, "x")[-3:] == ["failed", "retries-exhausted", "dead_lettered"]
    assert payloads(here, "dead_lettered") == [route]
    assert [event[:2] for event in there] == [("dead_lettered", route)]


# --- the queue as a whole ------------------------------------------------------------------------


async def test_pausing_and_resuming_are_told_once_each(queue: Queue) -> None:
    for _ in range(2):
        await queue.pause()
    for _ in range(2):
        await queue.resume()
    assert [event[:2] for event in await told(queue)] == [("paused", {}), ("resumed", {})]


async def test_cleaning_tells_how_many_it_removed_after_telling_which(queue: Queue) -> None:
    jobs = await queue.add_bulk([{"name": "a"}] * 3)
    async with Worker(queue, succeed):
        for job in jobs:
            await job.result()
    await asyncio.sleep(0.005)
    cleaned = await queue.clean(0)
    heard = await told(queue)
    assert payloads(heard, "cleaned") == [{"count": 3}]
    assert [payload["job_id"] for payload in payloads(heard, "removed")] == cleaned
    assert heard[-1].name == "cleaned"


async def test_draining_tells_of_every_job_it_removes(queue: Queue) -> None:
    jobs = await queue.add_bulk([{"name": "a"}] * 3)
    await queue.drain()
    removed = payloads(await told(queue), "removed")
    assert removed == [{"job_id": job.id, "prev": "waiting"} for job in jobs]


# --- events of the user's own --------------------------------------------------------------------


async def test_a_custom_event_is_told_with_its_payload(queue: Queue) -> None:
    producer = QueueEventsProducer("emails", queue.store)
    await producer.publish_event("mail-opened", {"by": "ann", "times": [1, 2]})
    await producer.publish_event("bare")
    heard = await told(queue, "mail_opened", "bare")
    assert [event[:2] for event in heard] == [
        ("mail_opened", {"by": "ann", "times": [1, 2]}),
        ("bare", {}),
    ]


PUBLISHING = """
import asyncio, sys
from bullite import QueueEventsProducer

async def main():
    async with QueueEventsProducer("emails", sys.argv[1]) as producer:
        await producer.publish_event("mail-opened", {"by": "ann"})

asyncio.run(main())
"""


async def test_a_custom_event_of_another_process_is_heard_in_this(
    queue: Queue, location: str
) -> None:
    await asyncio.to_thread(python, PUBLISHING, location)
    assert payloads(await told(queue, "mail-opened"), "mail-opened") == [{"by": "ann"}]


async def test_a_custom_event_may_keep_the_log_short(queue: Queue) -> None:
    producer = QueueEventsProducer("emails", queue.store)
    for number in range(50):
        await producer.publish_event("tick", {"n": number}, max_events=5)
    ticks = payloads(await told(queue, "tick"), "tick")
    assert ticks[-1] == {"n": 49}
    assert 5 <= len(ticks) <= 10


@pytest.mark.parametrize("payload", [{"truncated": True}, {"truncated": True, "job_id": "7"}])
async def test_a_custom_event_may_say_anything(queue: Queue, payload: dict[str, Any]) -> None:
    producer = QueueEventsProducer("emails", queue.store)
    await producer.publish_event("cut", payload)
    assert payloads(await told(queue, "cut"), "cut") == [payload]


async def test_a_custom_event_that_cannot_be_told_is_refused(queue: Queue) -> None:
    for name, payload, error in [
        ("", {}, InvalidOption),
        (7, {}, InvalidOptionType),
        ("x", [1], InvalidOptionType),
        ("x", {"a": object()}, UnserializableData),
    ]:
        with case((name, payload, error)):
            producer = QueueEventsProducer("emails", queue.store)
            with pytest.raises(error):
                await producer.publish_event(name, payload)


# --- order ---------------------------------------------------------------------------------------


async def test_the_events_of_each_job_are_in_order_however_many_share_a_transaction(
    queue: Queue,
) -> None:
    async def work(job: Job) -> None:
        if job.attempts_made == 0 and job.data % 2:
            raise ValueError("first")

    jobs = await queue.add_bulk(
        {"name": "a", "data": n, "opts": {"attempts": 2}} for n in range(100)
    )
    async with Worker(queue, work, concurrency=20):
        for job in jobs:
            await job.result()
    heard = await told(queue)
    once = ["added", "waiting", "active", "completed"]
    again = ["failed", "attempt_failed", "waiting", "retry_scheduled", "active", "completed"]
    for job in jobs:
        wanted = [*once[:-1], *again] if job.data % 2 else once
        assert names_of(heard, job.id) == wanted


async def test_what_quick_jobs_say_comes_after_their_beginning(queue: Queue) -> None:
    """Quick jobs are fetched ahead, and that they begin is written with their end."""

    async def work(job: Job) -> None:
        job.update_progress(1)
        if job.data % 10 == 0:
            await job.log("a line")

    jobs = await queue.add_bulk({"name": "a", "data": n} for n in range(300))
    async with Worker(queue, work):
        for job in jobs:
            await job.result()
    heard = await told(queue)
    for job in jobs:
        names = names_of(heard, job.id)
        assert names[:3] == ["added", "waiting", "active"]
        assert names[-1] == "completed"


async def test_a_line_comes_before_the_end_of_its_run_also_inside_a_batch(
    queue: Queue, database: Database
) -> None:
    await queue.add_bulk([{"name": "a"}, {"name": "b"}])
    worker = Worker(queue, None)
    first, second = await worker.get_next_job(), await worker.get_next_job()
    assert first is not None
    assert second is not None
    with database.locked():  # while this lasts, requests pile up to one batch
        adding = asyncio.create_task(queue.add("c"))
        await asyncio.sleep(0.05)
        asked = [first.move_to_completed(), second.log("a line"), second.move_to_completed()]
        await asyncio.sleep(0.05)
    for pending in (adding, *asked):
        await pending
    await worker.close()
    heard = await told(queue)
    assert names_of(heard, second.id) == ["added", "waiting", "active", "log_added", "completed"]
