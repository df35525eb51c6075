"""Reading the event log: from where, how far, what was missed, and how a reader lives and ends."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from typing import Any

import pytest

from bullite import Job, Queue, QueueEvents, Scheduler, Store, Worker
from bullite.client.runtime import bridge
from bullite.errors import (
    EventsAlreadyRunning,
    InvalidOption,
    NotABulliteDatabase,
    SchemaTooNew,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreReplaced,
    StoreUnavailable,
    StoreUnsynced,
    StoreUnwritable,
)
from tests.support.databases import Database
from tests.support.helpers import case, fresh, python, until
from tests.support.listening import listen, names_of, payloads, place, told


async def echo(job: Job) -> Any:
    return job.data


async def run_some(queue: Queue, number: int, **settings: Any) -> list[Job]:
    jobs = await queue.add_bulk({"name": "a", "data": n} for n in range(number))
    async with Worker(queue, echo, **settings):
        for job in jobs:
            await job.result()
    return jobs


# --- ids -----------------------------------------------------------------------------------------


async def test_ids_are_a_row_and_a_place_in_it_and_always_grow(queue: Queue) -> None:
    await run_some(queue, 50, concurrency=10)
    heard = await told(queue)
    places = [place(event) for event in heard]
    assert all(earlier < later for earlier, later in itertools.pairwise(places))
    assert any(index > 0 for _, index in places)


async def test_the_places_in_a_row_are_counted_from_zero(queue: Queue) -> None:
    await queue.add_bulk([{"name": "a"}] * 3)
    places = [place(event) for event in await told(queue)]
    assert len({row for row, _ in places}) == 1
    assert [index for _, index in places] == list(range(6))


async def test_every_reader_gets_the_same_ids(queue: Queue) -> None:
    await run_some(queue, 5)
    assert await told(queue) == await told(queue)


# --- from where ----------------------------------------------------------------------------------


async def test_a_reader_can_go_on_after_any_event(queue: Queue) -> None:
    await run_some(queue, 10, concurrency=4)
    everything = await told(queue)
    for number, event in enumerate(everything):
        rest = await told(queue, after=event.id)
        assert [later.id for later in rest] == [later.id for later in everything[number + 1 :]]


READING = """
import asyncio, json, sys
from bullite import QueueEvents

async def main():
    location, after, number = sys.argv[1:]
    events = QueueEvents("emails", location, last_event_id=after)
    heard, enough = [], asyncio.Event()

    def hear(payload, id):
        if len(heard) < int(number):
            heard.append(id)
        if len(heard) == int(number):
            enough.set()

    for name in ("added", "waiting"):
        events.on(name, hear)
    async with events:
        await enough.wait()
    print(json.dumps(heard))

asyncio.run(main())
"""


async def test_one_process_goes_on_where_another_stopped_in_the_middle_of_a_row(
    queue: Queue, location: str
) -> None:
    await queue.add_bulk([{"name": "a"}] * 4)
    everything = [event.id for event in await told(queue)]
    first = json.loads(await asyncio.to_thread(python, READING, location, "0-0", 3))
    second = json.loads(await asyncio.to_thread(python, READING, location, first[-1], 5))
    assert first + second == everything


async def test_reading_from_the_beginning_replays_what_there_is(queue: Queue) -> None:
    jobs = await run_some(queue, 3)
    heard = await told(queue, after="0-0")
    assert [payload["job_id"] for payload in payloads(heard, "added")] == [job.id for job in jobs]


async def test_a_reader_hears_only_what_happens_from_now_on(queue: Queue) -> None:
    await queue.add("before")
    events = QueueEvents("emails", queue.store)
    heard = listen(events)
    async with events:
        job = await queue.add("after")
        await until(lambda: len(heard) == 2)
    assert [event.payload["job_id"] for event in heard] == [job.id, job.id]


ADDING = """
import asyncio, sys
from bullite import Queue

async def main():
    async with Queue(sys.argv[2], sys.argv[1]) as queue:
        for _ in range(int(sys.argv[3])):
            await queue.add("a")
        if len(sys.argv) > 4:
            await queue.trim_events(int(sys.argv[4]))

asyncio.run(main())
"""


async def test_nothing_is_missed_once_a_reader_is_ready(queue: Queue, location: str) -> None:
    events = QueueEvents("emails", queue.store)
    heard = listen(events)
    await events.wait_until_ready()
    python(ADDING, location, "emails", 3)  # blocks this loop, so the reader cannot see it happen
    await until(lambda: len(heard) == 6)
    await events.close()


async def test_the_last_event_is_remembered_and_leads_on(queue: Queue) -> None:
    events = QueueEvents("emails", queue.store)
    assert events.last_event_id is None
    heard = listen(events)
    async with events:
        await queue.add("a")
        await until(lambda: len(heard) == 2)
    assert events.last_event_id == heard[-1].id
    job = await queue.add("b")
    rest = await told(queue, after=events.last_event_id)
    assert names_of(rest, job.id) == ["added", "waiting"]
    assert len(rest) == 2


async def test_an_id_that_cannot_be_one_is_refused(queue: Queue) -> None:
    for value in ["", "x", "-1", "1-", "1-2-3", 5, None, "1-x"]:
        with case(value), pytest.raises(InvalidOption, match="last_event_id"):
            QueueEvents("emails", queue.store, autorun=False, last_event_id=value)


async def test_a_read_that_fails_in_the_middle_of_a_row_repeats_nothing(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    together = asyncio.Barrier(3)

    async def work(job: Job) -> str:
        await together.wait()
        return "x" * job.data

    jobs = await queue.add_bulk([{"name": "a", "data": size} for size in (1, 5000, 1)])
    async with Worker(queue, work, concurrency=3):
        for job in jobs:
            await job.result()
    fetch, failures = QueueEvents._fetch_value, iter([StoreError("the disk is gone")])

    async def fails_once(self: QueueEvents, queue: int, job_id: str) -> Any:
        for failure in failures:
            raise failure
        return await fetch(self, queue, job_id)

    monkeypatch.setattr(QueueEvents, "_fetch_value", fails_once)
    ids = [event.id for event in await told(queue)]
    assert len(ids) == len(set(ids))


# --- what was missed -----------------------------------------------------------------------------


async def test_a_reader_that_fell_behind_is_told_how_much_it_missed(
    queue: Queue, location: str
) -> None:
    events = QueueEvents("emails", queue.store)
    heard = listen(events)
    async with events:
        await queue.add("a")
        await until(lambda: len(heard) == 2)
        python(ADDING, location, "emails", 10, 4)  # 20 events, of which the last 4 stay
        await until(lambda: len(heard) == 7)
    assert [event.name for event in heard[2:]] == ["gap", *["added", "waiting"] * 2]
    assert heard[2].payload == {"missed": 16}


async def test_a_reader_that_has_heard_nothing_yet_is_told_what_it_missed(
    queue: Queue, location: str
) -> None:
    await queue.add("before")
    events = QueueEvents("emails", queue.store)
    heard = listen(events)
    async with events:
        python(ADDING, location, "emails", 10, 2)
        await until(lambda: len(heard) == 3)
    assert heard[0][:2] == ("gap", {"missed": 18})


async def test_the_first_reader_of_a_new_queue_is_told_what_it_missed(
    queue: Queue, location: str
) -> None:
    events = QueueEvents("emails", queue.store)
    heard = listen(events)
    async with events:
        python(ADDING, location, "emails", 10, 2)
        await until(lambda: len(heard) >= 2 and heard[-1].name == "waiting")
    assert heard[0][:2] == ("gap", {"missed": 18})


async def test_a_log_that_was_emptied_is_one_gap(queue: Queue, location: str) -> None:
    events = QueueEvents("emails", queue.store)
    heard = listen(events)
    async with events:
        await queue.add("a")
        await until(lambda: len(heard) == 2)
        python(ADDING, location, "emails", 5, 0)
        await queue.add("b")
        await until(lambda: heard[-1].name == "waiting" and len(heard) > 4)
    assert [event.name for event in heard[2:]] == ["gap", "added", "waiting"]
    assert heard[2].payload == {"missed": 10}


async def test_a_reader_that_comes_back_after_trimming_is_told_of_a_gap(
    queue: Queue, location: str
) -> None:
    await queue.add("a")
    *_, last = await told(queue)
    await asyncio.to_thread(python, ADDING, location, "emails", 10, 2)
    first, *_ = await told(queue, after=last.id)
    assert first.name == "gap"


async def test_reading_on_after_a_gap_misses_nothing_more(queue: Queue, location: str) -> None:
    events = QueueEvents("emails", queue.store)
    heard = listen(events)
    async with events:
        await queue.add("a")
        await until(lambda: len(heard) == 2)
        python(ADDING, location, "emails", 10, 4)
        await until(lambda: len(heard) == 7)
    rest = [event for event in await told(queue, after=heard[2].id) if event.name != "gap"]
    assert [event.id for event in rest] == [event.id for event in heard[3:]]


async def test_nothing_is_missed_while_others_trim_what_was_read(queue: Queue) -> None:
    events = QueueEvents("emails", queue.store)
    heard = listen(events)
    async with events:
        for number in range(1, 11):
            await queue.add("a")
            await until(lambda number=number: len(heard) == 2 * number)
            await queue.trim_events(number % 3)
    assert {event.name for event in heard} == {"added", "waiting"}


async def test_trimming_keeps_about_as_many_as_asked_for_and_the_newest(queue: Queue) -> None:
    for _ in range(20):
        await queue.add("a")
    before = await told(queue)
    assert await queue.trim_events(10) > 0
    after = await told(queue)
    assert 8 <= len(after) <= 12
    assert after[-1].name == "waiting"
    assert {event.id for event in after} <= {event.id for event in before}


async def test_an_emptied_log_never_hands_out_an_id_again(queue: Queue) -> None:
    seen: list[tuple[int, int]] = []
    for _ in range(5):
        await queue.add("a")
        seen += [place(event) for event in await told(queue, after="0-0")]
        await queue.trim_events(0)
        assert await told(queue) == []
        await queue.trim_events(0)
    assert seen == sorted(set(seen))
    assert len(seen) == 10


async def test_an_obliterated_queue_never_hands_out_an_id_again(queue: Queue) -> None:
    await queue.add("a")
    *_, last = await told(queue)
    await queue.obliterate()
    await queue.add("b")
    first, *_ = await told(queue)
    assert place(first) > place(last)


async def test_housekeeping_keeps_the_log_at_its_cap(queue: Queue) -> None:
    await queue.configure(max_events=10)
    for _ in range(50):
        await queue.add("a")
    assert len(await told(queue)) == 100
    async with Scheduler(queue.store):
        await until(lambda: is_short(queue))


async def is_short(queue: Queue) -> bool:
    return len(await told(queue)) <= 12


# --- several queues ------------------------------------------------------------------------------


async def test_one_reader_hears_all_queues_and_is_told_which(queue: Queue) -> None:
    await queue.add("a")
    texts = Queue("texts", queue.store)
    await texts.pause()
    await texts.add("b")
    heard = await told(queue, name=None)
    assert [(event.name, event.payload["queue"]) for event in heard] == [
        ("added", "emails"),
        ("waiting", "emails"),
        ("paused", "texts"),
        ("added", "texts"),
        ("waiting", "texts"),
    ]


async def test_a_reader_of_all_queues_hears_of_queues_made_later(
    queue: Queue, location: str
) -> None:
    await queue.wait_until_ready()
    events = QueueEvents(None, queue.store)
    heard = listen(events)
    async with events:
        python(ADDING, location, "late", 1)
        await until(lambda: len(heard) == 2)
    assert [event.payload["queue"] for event in heard] == ["late", "late"]


async def test_a_reader_of_all_queues_is_told_what_it_missed_and_of_which(
    queue: Queue, location: str
) -> None:
    await queue.add("a")
    events = QueueEvents(None, queue.store)
    heard = listen(events)
    async with events:
        python(ADDING, location, "emails", 10, 2)
        await until(lambda: len(heard) >= 2 and heard[-1].name == "waiting")
    assert heard[0][:2] == ("gap", {"missed": 18, "queue": "emails"})


async def test_a_reader_of_one_queue_hears_nothing_of_another(queue: Queue) -> None:
    await Queue("texts", queue.store).add("a")
    await queue.add("b", job_id="mine")
    heard = await told(queue)
    assert {event.payload["job_id"] for event in heard} == {"mine"}
    assert all("queue" not in event.payload for event in heard)


# --- one job -------------------------------------------------------------------------------------


async def test_a_channel_of_its_own_tells_of_one_job_only(queue: Queue) -> None:
    events = QueueEvents("emails", queue.store)
    mine: list[tuple[dict[str, Any], str]] = []
    heard = listen(events)
    events.on("completed:x", lambda payload, id: mine.append((payload, id)))
    async with events, Worker(queue, echo):
        for job_id in ("w", "x", "y"):
            await (await queue.add("a", job_id, job_id=job_id)).result()
        await until(lambda: len(payloads(heard, "completed")) == 3)
    [(payload, id)] = mine
    assert payload == {"job_id": "x", "return_value": "x", "prev": "active"}
    assert id in [event.id for event in heard if event.name == "completed"]


async def test_the_channels_of_jobs_with_similar_ids_are_not_mixed_up(queue: Queue) -> None:
    events = QueueEvents("emails", queue.store)
    told: list[str] = []
    heard = listen(events)
    events.on("added:a_b", lambda payload, id: told.append(payload["job_id"]))
    async with events:
        for job_id in ("a-b", "a_b"):
            await queue.add("a", job_id=job_id)
        await until(lambda: len(heard) == 4)
    assert told == ["a_b"]


# --- its life ------------------------------------------------------------------------------------


async def test_a_reader_without_autorun_reads_when_it_is_run(queue: Queue) -> None:
    await queue.wait_until_ready()
    events = QueueEvents("emails", queue.store, autorun=False, last_event_id="0-0")
    heard = listen(events)
    assert not events.running
    await queue.add("a")
    await asyncio.sleep(0.02)
    assert heard == []
    running = asyncio.create_task(events.run())
    await until(lambda: len(heard) == 2)
    assert events.running
    await events.close()
    await running
    assert not events.running


async def test_a_reader_may_be_run_and_waited_for_at_the_same_time(queue: Queue) -> None:
    events = QueueEvents("emails", queue.store, autorun=False)
    heard = listen(events)
    running = asyncio.create_task(events.run())
    await events.wait_until_ready()
    await queue.add("a")
    await until(lambda: len(heard) == 2 or running.done())
    await events.close()
    await running
    assert len(heard) == 2


async def test_nothing_is_missed_between_being_ready_and_being_run(queue: Queue) -> None:
    events = QueueEvents("emails", queue.store, autorun=False)
    heard = listen(events)
    await events.wait_until_ready()
    await queue.add("a")
    running = asyncio.create_task(events.run())
    await until(lambda: len(heard) == 2)
    await events.close()
    await running


async def test_a_reader_that_reads_cannot_be_run_again(queue: Queue) -> None:
    async with QueueEvents("emails", queue.store) as events:
        with pytest.raises(EventsAlreadyRunning):
            await events.run()


def test_a_reader_made_without_a_loop_reads_when_it_is_run(queue: Queue) -> None:
    events = QueueEvents("emails", queue.store)
    assert not events.running
    heard = listen(events)

    async def main() -> None:
        async with events:
            await queue.add("a")
            await until(lambda: len(heard) == 2)

    asyncio.run(main())


async def test_a_closed_reader_hears_no_more(queue: Queue) -> None:
    events = QueueEvents("emails", queue.store)
    heard = listen(events)
    async with events:
        await queue.add("a")
        await until(lambda: len(heard) == 2)
    await queue.add("b")
    await asyncio.sleep(0.05)
    assert len(heard) == 2
    await events.close()  # twice is once


async def test_a_reader_closes_the_store_it_opened_and_no_other(
    queue: Queue, location: str
) -> None:
    own = QueueEvents("emails", location)
    await own.wait_until_ready()
    await own.close()
    assert not own.store.is_open
    shared = QueueEvents("emails", queue.store)
    await shared.wait_until_ready()
    await shared.close()
    assert queue.store.is_open


async def test_a_reader_may_be_closed_by_its_own_listener(queue: Queue) -> None:
    events = QueueEvents("emails", queue.store, autorun=False, last_event_id="0-0")
    heard = listen(events)
    closing: list[asyncio.Task[None]] = []
    events.once("added", lambda *_: closing.append(asyncio.create_task(events.close())))
    for _ in range(10):
        await queue.add("a")
    await asyncio.wait_for(events.run(), 10)
    await closing[0]
    assert 0 < len(heard) <= 20


async def test_a_reader_whose_database_cannot_be_opened_says_so(database: Database) -> None:
    events = QueueEvents("emails", database.missing())
    with pytest.raises(StoreError, match="missing"):
        await events.wait_until_ready()
    await events.close()


class Flaky:
    """Makes the next openings of an event log fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: list[Exception] = []
        self.tries = 0
        read = bridge.query

        def fails(store: Store, statement: str, params: Any) -> Any:
            if statement == "log_position":
                self.tries += 1
                if self.errors:
                    raise self.errors.pop(0)
            return read(store, statement, params)

        monkeypatch.setattr(bridge, "query", fails)
        self.pauses: list[float] = []
        notified_within = QueueEvents._notified_within

        async def waits_less(events: QueueEvents, seconds: float) -> bool:
            if seconds >= 1:
                self.pauses.append(seconds)
            return await notified_within(events, min(seconds, 0.001))

        monkeypatch.setattr(QueueEvents, "_notified_within", waits_less)


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> Flaky:
    return Flaky(monkeypatch)


async def test_queue_events_try_again_to_open_a_database_that_cannot_be_reached(
    queue: Queue, flaky: Flaky
) -> None:
    passing: list[Exception] = [StoreUnavailable("gone"), StoreBusy("busy"), StoreFull("full")]
    flaky.errors = passing * 2
    events = QueueEvents("emails", queue.store)
    heard, errors = listen(events), list[Exception]()
    events.on("error", errors.append)
    await events.wait_until_ready()
    assert errors == passing * 2
    assert flaky.pauses == [1, 2, 4, 8, 15, 15]
    await queue.add("a")
    await until(lambda: len(heard) == 2)
    await events.close()


async def test_queue_events_report_that_a_database_can_never_be_opened(
    queue: Queue, flaky: Flaky
) -> None:
    for error in (NotABulliteDatabase("a picture"), StoreUnwritable("not ours"), SchemaTooNew()):
        flaky.errors, flaky.tries = [error], 0
        events = QueueEvents("emails", queue.store)
        errors: list[Exception] = []
        events.on("error", errors.append)
        waiting = [asyncio.create_task(events.wait_until_ready()) for _ in range(2)]
        for wait in waiting:
            with pytest.raises(type(error)):
                await wait
        assert (errors, flaky.tries, flaky.pauses) == ([error], 1, [])
        assert not events.running
        await events.wait_until_ready()  # whatever it was, it was put right
        assert events.running
        await events.close()


async def test_queue_events_that_are_closed_try_no_more_to_open(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(store: Store, statement: str, params: Any) -> Any:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(bridge, "query", fails)
    events = QueueEvents("emails", queue.store)
    waiting = asyncio.create_task(events.wait_until_ready())
    errors: list[Exception] = []
    events.on("error", errors.append)
    await until(lambda: errors)
    await events.close()
    with pytest.raises(StoreClosed):
        await waiting
    assert len(errors) == 1


async def test_queue_events_end_with_their_store(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (StoreReplaced("replaced"), StoreUnsynced("lost"), StoreClosed("closed")):
        events = QueueEvents("emails", queue.store)
        errors: list[Exception] = []
        events.on("error", errors.append)
        await events.wait_until_ready()

        async def fails(self: QueueEvents, error: Exception = error) -> int:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(QueueEvents, "_emit_next", fails)
            await until(lambda events=events: not events.running)  # type: ignore[misc]
        assert errors == [error]
        await events.close()


async def test_a_database_that_fails_for_a_while_is_told_and_tried_again(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = QueueEvents("emails", queue.store)
    heard, errors = listen(events), list[Exception]()
    events.on("error", errors.append)
    tell, failures = QueueEvents._emit_next, iter([StoreError("the disk is gone")] * 2)

    async def fails_twice(self: QueueEvents) -> int:
        for failure in failures:
            raise failure
        return await tell(self)

    await events.wait_until_ready()
    monkeypatch.setattr(QueueEvents, "_emit_next", fails_twice)
    await queue.add("a")
    await until(lambda: len(heard) == 2)
    assert [str(error) for error in errors] == ["the disk is gone"] * 2
    await events.close()


# --- listeners -----------------------------------------------------------------------------------


async def test_a_listener_that_raises_becomes_an_error_and_disturbs_nobody(queue: Queue) -> None:
    events = QueueEvents("emails", queue.store)
    errors: list[Exception] = []

    def bad(payload: dict[str, Any], id: str) -> None:
        raise ValueError("bad listener")

    events.on("added", bad)
    events.on("error", errors.append)
    heard = listen(events)
    async with events:
        for _ in range(3):
            await queue.add("a")
        await until(lambda: len(heard) == 6)
    assert [str(error) for error in errors] == ["bad listener"] * 3


async def test_a_listener_may_be_a_coroutine_function(queue: Queue) -> None:
    events = QueueEvents("emails", queue.store)
    seen: list[Job | None] = []

    @events.on("added")
    async def look(payload: dict[str, Any], id: str) -> None:
        seen.append(await queue.get_job(payload["job_id"]))

    async with events:
        job = await queue.add("a")
        await until(lambda: seen)
    assert seen[0] is not None
    assert seen[0].id == job.id


async def test_an_event_goes_by_all_its_spellings(queue: Queue) -> None:
    for name in ["log_added", "log-added", "job.log_added", "job.log-added"]:
        with case(name):
            queue = fresh(queue)
            job = await queue.add("a")
            await job.log("hello")
            assert [event.name for event in await told(queue, name)].count(name) >= 1


async def test_events_are_told_on_the_readers_loop(queue: Queue) -> None:
    events = QueueEvents("emails", queue.store)
    threads: list[threading.Thread] = []
    events.on("completed", lambda *_: threads.append(threading.current_thread()))
    async with events, Worker(queue, lambda job: 1):
        await (await queue.add("a")).result()
        await until(lambda: threads)
    assert threads == [threading.current_thread()]


async def test_a_row_that_another_version_wrote_otherwise_is_a_gap(
    queue: Queue, database: Database
) -> None:
    for name in ("before", "strange", "after"):
        await queue.add(name, job_id=name)
    _, strange, _ = [row["id"] for row in database.rows("events")]
    database.write(
        f"update bullite_events set kind = 'fail', jobs = '[[1,[\"why\"]]]' where id = {strange}"
    )
    heard = [(event.name, event.payload.get("job_id")) for event in await told(queue)]
    assert heard == [
        *(("added", "before"), ("waiting", "before")),
        ("gap", None),
        *(("added", "after"), ("waiting", "after")),
    ]
