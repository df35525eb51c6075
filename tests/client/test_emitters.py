"""Listeners in this process: the emitter itself, one shared by queues, and dotted names."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from bullite import EventEmitter, Job, JobFailed, Queue, QueueEventsProducer, Worker
from bullite.client.queue.local_events import LocalEventFeed
from bullite.client.runtime.emitter import OwnEmitter
from bullite.errors import InvalidOptionType, StoreError
from tests.support.helpers import take_away, until
from tests.support.listening import gather

# --- the emitter ---------------------------------------------------------------------------------


def test_listeners_are_called_in_order_with_what_is_emitted() -> None:
    emitter, heard = EventEmitter(), list[Any]()
    emitter.on("a", lambda *arguments: heard.append((1, arguments)))
    emitter.on("a", lambda *arguments: heard.append((2, arguments)))
    assert emitter.emit("a", "x", 7)
    assert heard == [(1, ("x", 7)), (2, ("x", 7))]


def test_emitting_says_whether_anybody_listened() -> None:
    emitter = EventEmitter()
    assert not emitter.emit("a")
    emitter.on("a", lambda: None)
    assert emitter.emit("a")
    assert not emitter.emit("b")


def test_on_and_once_can_be_chained_and_can_decorate() -> None:
    emitter, heard = EventEmitter(), list[str]()
    assert emitter.on("a", heard.append).once("a", heard.append) is emitter

    @emitter.on("b")
    def hear(text: str) -> None:
        heard.append(text)

    @emitter.once("b")
    def hear_once(text: str) -> None:
        heard.append(text)

    for event in ("a", "a", "b", "b"):
        emitter.emit(event, event)
    assert heard == ["a", "a", "a", "b", "b", "b"]
    assert emitter.listeners("b") == [hear]


def test_a_listener_for_one_time_may_emit_the_same_event() -> None:
    emitter, heard = EventEmitter(), list[int]()

    def again() -> None:
        heard.append(1)
        emitter.emit("a")

    emitter.once("a", again)
    emitter.emit("a")
    assert heard == [1]


def test_off_forgets_one_listener_or_all() -> None:
    emitter, heard = EventEmitter(), list[str]()

    def first() -> None:
        heard.append("first")

    def second() -> None:
        heard.append("second")

    emitter.on("a", first).on("a", second).on("b", first)
    assert emitter.off("a", first) is emitter
    emitter.emit("a")
    emitter.off("a")
    assert not emitter.emit("a")
    emitter.emit("b")
    emitter.remove_all_listeners()
    assert not emitter.emit("b")
    assert heard == ["second", "first"]


def test_forgetting_what_was_never_registered_is_no_error() -> None:
    EventEmitter().off("a", print).off("b")


def test_a_listener_may_forget_itself_while_it_is_told() -> None:
    emitter, heard = EventEmitter(), list[int]()

    def hear() -> None:
        heard.append(1)
        emitter.off("a", hear)

    emitter.on("a", hear).on("a", lambda: heard.append(2))
    emitter.emit("a")
    emitter.emit("a")
    assert heard == [1, 2, 2]


def test_once_stays_once_when_another_is_forgotten_meanwhile() -> None:
    emitter, heard = EventEmitter(), list[int]()

    def other() -> None:
        emitter.off("a", other)

    emitter.on("a", other).once("a", lambda: heard.append(1)).on("a", lambda: None)
    for _ in range(3):
        emitter.emit("a")
    assert heard == [1]


@pytest.mark.parametrize("spelling", ["log_added", "log-added", "job.log_added", "job.log-added"])
def test_an_event_goes_by_all_its_spellings(spelling: str) -> None:
    emitter, heard = EventEmitter(), list[str]()
    emitter.on(spelling, lambda: heard.append(spelling))
    emitter.emit("log-added")
    emitter.emit("job.log_added")
    assert heard == [spelling] * 2
    assert not emitter.off("log_added").emit(spelling)


@pytest.mark.parametrize(("event", "listener"), [(7, print), ("a", "print"), (None, print)])
def test_what_cannot_be_heard_is_refused(event: Any, listener: Any) -> None:
    with pytest.raises(InvalidOptionType):
        EventEmitter().on(event, listener)


def test_a_listener_that_raises_becomes_an_error() -> None:
    emitter, errors, heard = OwnEmitter(), list[Exception](), list[int]()

    def bad() -> None:
        raise ValueError("bad")

    emitter.on("a", bad).on("a", lambda: heard.append(1)).on("error", errors.append)
    emitter.emit("a")
    assert [str(error) for error in errors] == ["bad"]
    assert heard == [1]


def test_an_error_that_nobody_hears_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    emitter = EventEmitter()
    emitter.on("a", lambda: [][0])
    emitter.emit("a")
    assert "'a'" in caplog.text
    assert "IndexError" in caplog.text


def test_a_listener_of_errors_that_raises_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    emitter = EventEmitter()
    emitter.on("error", lambda queue, worker, error: [][0])
    emitter.emit("error", "mails", "bob", ValueError("first"))
    assert "IndexError" in caplog.text


async def test_a_coroutine_listener_runs_as_a_task_and_may_fail() -> None:
    emitter, errors, heard = OwnEmitter(), list[Exception](), list[str]()

    async def hear(text: str) -> None:
        await asyncio.sleep(0)
        heard.append(text)
        raise ValueError(text)

    emitter.on("a", hear).on("error", errors.append)
    emitter.emit("a", "x")
    assert heard == []
    await until(lambda: errors)
    assert heard == ["x"]
    assert str(errors[0]) == "x"


def test_a_coroutine_listener_without_a_loop_becomes_an_error() -> None:
    emitter, errors = OwnEmitter(), list[Exception]()

    async def hear() -> None:
        pass

    emitter.on("a", hear).on("error", errors.append)
    emitter.emit("a")
    assert len(errors) == 1


# --- one emitter for several queues --------------------------------------------------------------

JOB_EVENTS = (
    *("job.added", "job.active", "job.completed", "job.failed", "job.attempt_failed"),
    *("job.progress", "job.stalled", "job.delayed", "job.promoted", "job.removed"),
    *("job.log_added", "job.retry_scheduled"),
)


async def echo(job: Job) -> Any:
    return job.data


@pytest.fixture
def bus() -> EventEmitter:
    return EventEmitter()


async def test_a_shared_emitter_hears_of_every_queue_by_name(
    queue: Queue, bus: EventEmitter
) -> None:
    heard = gather(bus, "job.added", "job.completed")
    mails = Queue("mails", queue.store, events=bus)
    texts = Queue("texts", queue.store, events=bus)
    async with Worker(mails, echo), Worker(texts, echo):
        for one in (mails, texts):
            await (await one.add("a", one.name, job_id="x")).result()
        await until(lambda: len(heard) == 4)
    assert sorted(event[:3] for event in heard) == [
        ("job.added", "mails", "x"),
        ("job.added", "texts", "x"),
        ("job.completed", "mails", "x"),
        ("job.completed", "texts", "x"),
    ]
    for one in (mails, texts):
        await one.close()


async def test_two_objects_for_one_queue_tell_a_shared_emitter_once(
    queue: Queue, bus: EventEmitter
) -> None:
    heard = gather(bus, "job.added", "end")
    one, two = (Queue("mails", queue.store, events=bus) for _ in range(2))
    await two.wait_until_ready()
    job = await one.add("a")
    await QueueEventsProducer("mails", queue.store).publish_event("end")
    await until(lambda: ("end", "mails", {}) in heard or ("end", "mails") in heard)
    await one.close()
    await two.close()
    assert [event[2] for event in heard if event[0] == "job.added"] == [job.id]


async def test_a_shared_emitter_gets_the_arguments_of_the_queue_document(
    queue: Queue, bus: EventEmitter
) -> None:
    heard = gather(bus, *JOB_EVENTS)
    mails = Queue("mails", queue.store, events=bus)

    async def work(job: Job) -> Any:
        await job.update_progress(30)
        await job.log("hello")
        if job.attempts_made == 0:
            raise ValueError("not yet")
        return job.data

    async with Worker(mails, work):
        job = await mails.add("a", 7, delay=10, attempts=2, backoff=10)
        # A job that is gone by the time its event is read cannot be given to listeners.
        await until(lambda: any(event[0] == "job.completed" for event in heard))
        await job.remove()
        await until(lambda: any(event[0] == "job.removed" for event in heard))
    assert [event[0] for event in heard] == [
        *("job.added", "job.delayed", "job.promoted"),
        *("job.active", "job.progress", "job.log_added"),
        *("job.failed", "job.attempt_failed", "job.delayed", "job.retry_scheduled"),
        *("job.promoted", "job.active", "job.progress", "job.log_added"),
        *("job.completed", "job.removed"),
    ]
    assert all(event[1:3] == ("mails", job.id) for event in heard)
    about = {event[0]: event[3:] for event in heard}
    for name in ("job.added", "job.active"):
        [found] = about[name]
        assert found.id == job.id
    assert about["job.progress"] == (30,)
    assert about["job.log_added"][0]["message"] == "hello"
    error, failed = about["job.failed"]
    assert isinstance(error, JobFailed)
    assert str(error) == "not yet"
    assert failed.id == job.id
    assert isinstance(about["job.delayed"][0], int)
    assert about["job.promoted"] == about["job.removed"] == ()
    value, completed = about["job.completed"]
    assert (value, completed.id) == (7, job.id)
    await mails.close()


@pytest.mark.parametrize("backoff", [{}, {"backoff": 1}], ids=["at once", "later"])
async def test_a_job_that_failed_is_told_as_it_was_however_it_went_on(
    queue: Queue, bus: EventEmitter, monkeypatch: pytest.MonkeyPatch, backoff: Any
) -> None:
    """Here it has completed before the first failure is told."""
    heard: list[tuple[Any, ...]] = []
    done, tell_all = asyncio.Event(), LocalEventFeed._emit_all

    async def tell_later(feed: LocalEventFeed) -> None:
        await done.wait()
        await tell_all(feed)

    monkeypatch.setattr(LocalEventFeed, "_emit_all", tell_later)
    mails = Queue("mails", queue.store, events=bus)
    stacks: list[list[str]] = []

    @bus.on("job.failed")
    def hear(queue: str, id: str, error: JobFailed, job: Job) -> None:
        heard.append(facts(job))
        stacks.append([stack.splitlines()[-1] for stack in job.stacktrace])

    async def work(job: Job) -> str:
        if job.attempts_made < 2:
            raise ValueError(f"try {job.attempts_made + 1}")
        return "done"

    async with Worker(mails, work, name="bob") as worker:
        as_told: list[tuple[Any, ...]] = []
        worker.on("failed", lambda job: as_told.append(facts(job)))
        job = await mails.add("a", attempts=3, **backoff)
        await job.result()
        done.set()
        await until(lambda: len(heard) == 2)
    await mails.close()
    state = "delayed" if backoff else "waiting"
    assert heard == as_told
    one, two = "ValueError: try 1", "ValueError: try 2"
    assert stacks == [[one], [one, two]]
    assert [one[:4] for one in heard] == [(state, 1, 1, "try 1"), (state, 2, 2, "try 2")]


def facts(job: Job) -> tuple[Any, ...]:
    """What a failed run of a job shows."""
    return (
        *(job.state, job.attempts_made, job.attempts_started, job.failed_reason),
        *(job.processed_by, job.processed_on, job.finished_on, job.return_value, job.delay),
        *(job.process_at, job.updated_at, job.locked_by),
    )


async def test_a_long_result_reaches_a_shared_emitter_whole(
    queue: Queue, bus: EventEmitter
) -> None:
    heard = gather(bus, "job.completed")
    mails = Queue("mails", queue.store, events=bus)
    async with Worker(mails, echo):
        await mails.add("a", "x" * 5000)
        await until(lambda: heard)
    assert heard[0][3] == "x" * 5000
    await mails.close()


async def test_stalls_reach_a_shared_emitter(queue: Queue, bus: EventEmitter) -> None:
    heard = gather(bus, "job.stalled")
    mails, running = Queue("mails", queue.store, events=bus), asyncio.Event()
    go = asyncio.Event()

    async def work(job: Job) -> None:
        running.set()
        await go.wait()

    async with Worker(mails, work):
        job = await mails.add("a")
        await running.wait()
        await take_away(mails)
        go.set()
        await until(lambda: heard)
        await job.result()
    assert heard == [("job.stalled", "mails", job.id)]
    await mails.close()


async def test_queue_events_reach_a_shared_emitter(queue: Queue, bus: EventEmitter) -> None:
    heard = gather(bus, "queue.paused", "queue.resumed")
    mails = Queue("mails", queue.store, events=bus)
    await mails.pause()
    await mails.resume()
    await until(lambda: len(heard) == 2)
    assert heard == [("queue.paused", "mails"), ("queue.resumed", "mails")]
    await mails.close()


async def test_a_worker_without_work_tells_a_shared_emitter_its_name(
    queue: Queue, bus: EventEmitter
) -> None:
    heard = gather(bus, "worker.drained")
    mails = Queue("mails", queue.store, events=bus)
    async with Worker(mails, echo, name="bob"):
        await (await mails.add("a")).result()
        await until(lambda: heard)
    await mails.close()
    assert heard == [("worker.drained", "mails", "bob")]


async def test_the_trouble_of_a_worker_reaches_a_shared_emitter(
    queue: Queue, bus: EventEmitter
) -> None:
    heard = gather(bus, "worker.error")
    mails = Queue("mails", queue.store, events=bus)
    async with Worker(mails, echo, name="bob") as worker:
        await (await mails.add("a")).result()
        worker._notifications.store_failed(StoreError("the disk is gone"))
        await until(lambda: heard)
    assert heard[0][:3] == ("worker.error", "mails", "bob")
    assert isinstance(heard[0][3], StoreError)
    await mails.close()


async def test_a_listener_that_raises_is_told_to_a_shared_emitter_like_other_trouble(
    queue: Queue, bus: EventEmitter
) -> None:
    heard = gather(bus, "worker.error")
    mails = Queue("mails", queue.store, events=bus)

    @bus.on("job.completed")
    @bus.on("worker.drained")
    async def bad(queue: str) -> None:
        raise ValueError("bad listener")

    async with Worker(mails, echo, name="bob"):
        await (await mails.add("a")).result()
        await until(lambda: len(heard) == 2)
    await mails.close()
    told = sorted((queue, str(worker), str(error)) for _, queue, worker, error in heard)
    assert told == [("mails", "None", "bad listener"), ("mails", "bob", "bad listener")]


async def test_a_dotted_listener_is_told_of_bad_listeners_of_its_own_queue(
    queue: Queue, bus: EventEmitter, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Any] = []
    mails = Queue("mails", queue.store, events=bus)
    texts = Queue("texts", queue.store, events=bus)
    mails.on("worker.error", lambda *arguments: heard.append(arguments))
    bus.on("job.added", lambda queue: [][0])
    bus.emit("job.added", "mails", "1")
    bus.emit("job.added", "texts", "2")
    assert [(worker, type(error)) for worker, error in heard] == [(None, IndexError)]
    assert caplog.text.count("a listener of 'added' failed") == 1
    for one in (mails, texts):
        await one.close()


async def test_closing_a_queue_tells_first_what_it_has_heard(
    queue: Queue, bus: EventEmitter
) -> None:
    heard = gather(bus, "job.added")
    await queue.wait_until_ready()
    mails = Queue("mails", queue.store, events=bus)
    for _ in range(50):
        await mails.add("a")
    await mails.close()
    assert len(heard) == 50


async def test_a_closed_queue_tells_no_more(queue: Queue, bus: EventEmitter) -> None:
    heard = gather(bus, "job.added")
    mails = Queue("mails", queue.store, events=bus)
    await mails.add("a")
    await mails.close()
    told = len(heard)
    await Queue("mails", queue.store).add("b")
    await asyncio.sleep(0.02)
    assert len(heard) == told == 1


def test_only_an_emitter_can_be_shared(queue: Queue) -> None:
    with pytest.raises(InvalidOptionType, match="events"):
        Queue("mails", queue.store, events=print)  # type: ignore[arg-type]


async def test_a_custom_event_that_looks_like_ours_does_not_silence_the_others(
    queue: Queue, bus: EventEmitter, caplog: pytest.LogCaptureFixture
) -> None:
    heard = gather(bus, "completed", "failed", "added")
    mails = Queue("mails", queue.store, events=bus)
    await mails.wait_until_ready()
    producer = QueueEventsProducer("mails", queue.store)
    for name in ("completed", "failed"):
        await producer.publish_event(name, {"job_id": "7"})
    await mails.add("a")
    await until(lambda: any(event[0] == "added" for event in heard))
    await mails.close()
    gc.collect()  # a task that failed says so when it goes
    assert "never retrieved" not in caplog.text


# --- dotted names on a queue ---------------------------------------------------------------------


async def test_a_dotted_listener_of_a_queue_gets_the_job_id_first(queue: Queue) -> None:
    heard = gather(queue, "job.added", "job.completed")
    async with Worker(queue, echo):
        job = await queue.add("a", 7)
        await job.result()
        await until(lambda: len(heard) == 2)
    (_, id, added), (_, same, value, completed) = heard
    assert id == same == job.id
    assert (added.id, value, completed.id) == (job.id, 7, job.id)


async def test_a_dotted_decorator_of_a_queue_gets_the_job_id_first(queue: Queue) -> None:
    heard: list[tuple[Any, ...]] = []

    @queue.on("job.removed")
    def removed(*arguments: Any) -> None:
        heard.append(arguments)

    job = await queue.add("a")
    await job.remove()
    await until(lambda: heard)
    assert heard == [(job.id,)]


async def test_an_undotted_listener_gets_what_bullmq_gives(queue: Queue) -> None:
    dotted, plain = gather(queue, "job.added"), gather(queue, "added")
    job = await queue.add("a")
    await until(lambda: dotted and plain)
    assert dotted[0][1] == job.id
    [(_, added)] = plain
    assert added.id == job.id


async def test_a_dotted_listener_hears_what_other_objects_of_the_process_do(queue: Queue) -> None:
    await queue.wait_until_ready()
    heard = gather(queue, "job.added")
    job = await Queue("emails", queue.store).add("a")
    await until(lambda: heard)
    assert heard[0][1] == job.id


async def test_a_dotted_listener_of_a_queue_hears_nothing_of_another(
    queue: Queue, bus: EventEmitter
) -> None:
    mails = Queue("mails", queue.store, events=bus)
    texts = Queue("texts", queue.store, events=bus)
    heard, all = gather(mails, "job.added"), gather(bus, "job.added")
    await texts.add("a", job_id="text")
    await mails.add("a", job_id="mail")
    await until(lambda: len(all) == 2)
    assert [event[1] for event in heard] == ["mail"]
    for one in (mails, texts):
        await one.close()


async def test_dotted_once_is_told_once(queue: Queue) -> None:
    heard: list[str] = []
    every = gather(queue.events, "added")
    queue.once("job.added", lambda id, job: heard.append(id))
    first = await queue.add("a")
    await queue.add("b")
    await until(lambda: len(every) == 2)
    assert heard == [first.id]


async def test_once_for_one_queue_is_not_used_up_by_another(
    queue: Queue, bus: EventEmitter
) -> None:
    heard: list[str] = []
    mails = Queue("mails", queue.store, events=bus)
    texts = Queue("texts", queue.store, events=bus)
    mails.once("job.added", lambda id, job: heard.append(id))
    every = gather(bus, "added")
    await texts.add("a", job_id="text")
    await until(lambda: len(every) == 1)
    await mails.add("a", job_id="mail")
    await until(lambda: len(every) == 2)
    for one in (mails, texts):
        await one.close()
    assert heard == ["mail"]


async def test_forgetting_a_dotted_listener_leaves_those_of_other_queues(
    queue: Queue, bus: EventEmitter
) -> None:
    heard: list[str] = []

    def hear(id: str, job: Job) -> None:
        heard.append(id)

    mails = Queue("mails", queue.store, events=bus).on("job.added", hear)
    texts = Queue("texts", queue.store, events=bus).on("job.added", hear)
    every = gather(bus, "job.added")
    mails.off("job.added", hear)
    await mails.add("a", job_id="mail")
    await texts.add("a", job_id="text")
    await until(lambda: len(every) == 2)
    for one in (mails, texts):
        await one.close()
    assert heard == ["text"]


async def test_a_dotted_listener_that_raises_disturbs_nobody(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    every = gather(queue.events, "completed")

    @queue.on("job.added")
    def bad(id: str, job: Job) -> None:
        raise ValueError("bad listener")

    async with Worker(queue, echo):
        for _ in range(3):
            await (await queue.add("a")).result()
        await until(lambda: len(every) == 3)
    assert "bad listener" in caplog.text


async def test_a_dotted_listener_is_called_on_the_loops_thread(queue: Queue) -> None:
    threads: list[int] = []
    queue.once("job.completed", lambda *_: threads.append(threading.get_ident()))
    async with Worker(queue, lambda job: 1):
        await (await queue.add("a")).result()
        await until(lambda: threads)
    assert threads == [threading.get_ident()]
