"""A program that uses every public name, method and option; type checkers must accept all of it."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import bullite
from bullite import (
    Attempt,
    Backoff,
    BackoffRule,
    BulkJob,
    Bullite,
    BulliteError,
    ChildFailed,
    ControlError,
    Deduplication,
    DelayedError,
    DependencyCycle,
    DependencyNotFound,
    Duration,
    Durations,
    EventEmitter,
    EventTimedOut,
    FlowJob,
    FlowNode,
    FlowProducer,
    Found,
    IllegalMove,
    InvalidArguments,
    Job,
    JobCancelled,
    JobDelayedError,
    JobFailed,
    JobFields,
    JobIdTaken,
    JobLocked,
    JobNotFound,
    JobOptions,
    JobScheduler,
    JobSuspended,
    JobTemplate,
    JobTimedOut,
    JobWaitingChildrenError,
    KeepJobs,
    LockNotAcquired,
    LostLock,
    Metrics,
    Minute,
    Moment,
    NamedLock,
    NotAChild,
    OnFailure,
    ParentNotFound,
    ParentRef,
    ParentTaken,
    PendingChildren,
    Priority,
    Processor,
    Queue,
    QueueEvents,
    QueueEventsProducer,
    QueueFull,
    QueueHasActiveJobs,
    QueueOptionMismatch,
    QueueSettings,
    RateLimit,
    RateLimitError,
    Repeat,
    Scheduler,
    SchedulerNotFound,
    SchedulerOwnsJob,
    SchedulerSlotsTaken,
    Signal,
    Step,
    Store,
    StoreError,
    Task,
    TaskJob,
    TaskTaken,
    UnrecoverableError,
    Verification,
    WaitingChildrenError,
    WaitingError,
    Worker,
    WorkerInfo,
    current_job,
    scheduler,
    verify,
)

SOON: Duration = 10
PATIENCE: Duration = timedelta(seconds=10)
KEPT: KeepJobs = {"age": 3600, "count": 1000, "limit": 10}
RULE: BackoffRule = {
    "type": "polynomial",
    "delay": "1ms",
    "max_delay": timedelta(minutes=1),
    "jitter": 0.5,
    "exponent": 2,
    "settings": {"jitter": False},
}
ONCE: Deduplication = {
    "id": "once",
    "ttl": "1h",
    "extend": False,
    "replace": False,
    "keep_last_if_active": False,
}
BACKOFF: Backoff = [{"on": "OSError", "retry": False}, RULE]
NOTICE: OnFailure = {
    "queue": "typed-news",
    "name": "failed",
    "data": {"to": "operators"},
    "attempts": 3,
    "backoff": "1s",
}


@contextmanager
def refused(*errors: type[BulliteError]) -> Generator[None, None, None]:
    """What is done in it must raise an error that is all of these."""
    try:
        yield
    except BulliteError as error:
        if not all(isinstance(error, each) for each in errors):
            raise
    else:
        raise AssertionError(f"not refused with {errors}")


# --- adding --------------------------------------------------------------------------------------


async def add(queue: Queue) -> list[Job]:
    long_ago: Moment = datetime(2026, 1, 1, tzinfo=UTC)
    job: Job = await queue.add(
        "greet",
        {"name": "Ada"},
        attempts=3,
        backoff=BACKOFF,
        priority=Priority.HIGH,
        delay=SOON,
        timestamp=int(time.time() * 1000),
        lifo=False,
        job_id="greet-ada",
        timeout="5s",
        expires="1h",
        remove_on_complete=KEPT,
        remove_on_fail=False,
        keep_logs=10,
        stack_trace_limit=5,
        size_limit=10_000,
        tags=["greeting", "typed"],
        on_failure=NOTICE,
    )
    options: JobOptions = {"run_at": long_ago, "attempts": 2, "retry_strategy": "patient"}
    bulk: list[BulkJob] = [
        {"name": "count", "data": [1, 2, 3]},
        {"name": "stumble", "data": [], "opts": options},
    ]
    told: list[int] = []
    others: list[Job] = await queue.add_bulk(bulk, chunk=1, on_chunk=told.append)
    assert told == [1, 2]
    return [job, *others]


# --- processing ----------------------------------------------------------------------------------


async def greet(job: Job) -> dict[str, str]:
    try:
        await job.update_progress({"percent": 50})
    except LostLock:
        raise UnrecoverableError("somebody else has it") from None
    lines: int = await job.log("half way", "warn")
    assert lines == 1
    await job.update_data({**job.data, "seen": True})
    await job.extend_lock("30s")
    return {"greeted": job.data["name"]}


def count(job: Job, token: str) -> int:
    assert token == job.token
    job.update_progress(100).result(timeout=5)
    return len(job.data)


async def stumble(job: Job, token: str, signal: Signal) -> str:
    signal.throw_if_aborted()
    assert not signal.aborted
    assert job.signal is signal
    if job.attempts_made == 0:
        raise OSError("the floor is wet")
    return "up again"


async def change_its_mind(job: Job) -> str:
    """Goes back, and back later, before it ends; that costs no attempt."""
    match job.attempts_started:
        case 1:
            await job.move_to_delayed(int(time.time() * 1000) + 1)
            raise DelayedError
        case 2:
            await job.move_to_waiting()
            raise WaitingError
        case 3:
            raise RateLimitError
        case _:
            pass
    assert issubclass(WaitingError, ControlError)
    return f"run {job.attempts_started}, attempt {job.attempts_made + 1}"


async def dawdle(job: Job) -> None:
    await asyncio.sleep(60)


async def patient(attempts_made: int, error: BaseException) -> int:
    return attempts_made


def strategy(attempts_made: int, type: str, error: BaseException, job: Job) -> int:
    return attempts_made


async def work(queue: Queue, jobs: list[Job]) -> None:
    processors: dict[str, Processor | tuple[Processor, int]] = {
        "greet": greet,
        "count": (count, 2),
        "stumble": stumble,
        "dawdle": dawdle,
    }
    heard: list[str] = []
    worker = Worker(
        queue,
        processors,
        concurrency=2,
        name="typed-worker",
        autorun=False,
        lock_duration="30s",
        lock_renew_time="10s",
        stalled_interval="30s",
        max_stalled_count=1,
        stalled_backoff=True,
        max_started_attempts=10,
        poll_interval="1s",
        maintenance_interval="1s",
        drain_delay="5s",
        run_retry_delay="1s",
        skip_stalled_check=False,
        skip_lock_renewal=False,
        remove_on_complete=KEPT,
        remove_on_fail={"count": 100},
        retry_strategies={"patient": patient},
        backoff_strategy=strategy,
    )

    def note(job: Job, value: Any, prev: str) -> None:
        heard.append(job.name)

    worker.on("completed", note)

    @worker.process("change its mind", concurrency=1)
    async def decorated(job: Job) -> str:
        return await change_its_mind(job)

    async with worker:
        await worker.wait_until_ready()
        assert worker.is_running
        assert worker.is_running()
        assert not worker.is_paused()
        worker.concurrency = 3
        assert worker.concurrency == 3
        assert await jobs[0].result(timeout=PATIENCE) == {"greeted": "Ada"}
        results: list[Any] = [await job.result() for job in jobs[1:]]
        assert results == [3, "up again"]
        fickle = await queue.add("change its mind")
        assert await fickle.wait_until_finished(PATIENCE) == "run 4, attempt 1"
        slow = await queue.add("dawdle", timeout=SOON)
        with refused(JobFailed):
            await slow.result()
        assert not worker.cancel_job(slow.id, reason="it has ended")
        none: int = worker.cancel_all_jobs("there are none")
        busy_with: list[Job] = worker.running_jobs()
        assert busy_with == []
        assert none == 0
        await worker.pause(do_not_wait_active=True)
        assert worker.is_paused
        await worker.resume()
        infos: list[WorkerInfo] = await queue.get_workers()
        assert {(info.name, info.pid > 0, info.host != "") for info in infos} == {
            ("typed-worker", True, True)
        }
        assert all(info.id and info.names and info.started_at for info in infos)
        assert sum(info.active for info in infos) == 0 < sum(info.concurrency for info in infos)
        assert await queue.get_workers_count() == 1
        running = asyncio.create_task(worker.run())
        await worker.close(force=False, timeout="5s")
        await running
    assert set(heard) == {"greet", "count", "stumble", "change its mind"}


async def work_by_hand(store: Store) -> None:
    worker = Worker("by hand", None, store=store)
    queue = worker.queue
    for name in ("completes", "fails", "is delayed", "waits"):
        await queue.add(name)

    async def next_job() -> Job:
        job = await worker.get_next_job("my word", block=False)
        assert job is not None
        return job

    await (await next_job()).move_to_completed("by hand", "my word", remove_on_complete=10)
    await (await next_job()).move_to_failed("by hand", retry=False, remove_on_fail=False)
    await (await next_job()).move_to_delayed(datetime.now(UTC) + timedelta(hours=1))
    job = await next_job()
    with refused(JobLocked, IllegalMove):
        await job.remove()
    with refused(QueueHasActiveJobs):
        await queue.obliterate()
    await job.move_to_wait(token=job.token)
    await queue.obliterate(force=True, count=100)
    await worker.close()


# --- looking at a job ----------------------------------------------------------------------------


async def look_at(job: Job) -> None:
    assert (job.id, job.custom_id, job.name, job.queue_name) == ("greet-ada",) * 2 + (
        "greet",
        "typed",
    )
    assert job.pk > 0
    assert (job.data, job.tags) == ({"name": "Ada", "seen": True}, ("greeting", "typed"))
    assert (job.attempts, job.attempts_made, job.attempts_started) == (3, 1, 1)
    assert (job.stalled_count, job.stalled_counter, job.deferred_failure) == (0, 0, None)
    assert (job.state, job.outcome, job.failed_reason) == ("completed", "completed", None)
    assert job.return_value == job.returnvalue == {"greeted": "Ada"}
    assert (job.progress, job.priority, job.delay) == ({"percent": 50}, 100_000, 0)
    assert (job.stack, job.stacktrace, job.lifo) == (None, [], False)
    assert (job.timeout, job.opts["attempts"], job.original_queue) == (5000, 3, None)
    nobody: list[object] = [job.parent, job.parent_id, job.parent_key]
    assert nobody == [job.repeat_job_key, job.deduplication_id, None]
    assert job.depends_on == ()
    assert (job.processed_by, job.locked_by, job.token) == ("typed-worker", None, None)
    finished: datetime | None = job.finished_at
    assert finished is not None
    assert job.processed_at is not None
    assert job.created_at <= job.processed_at <= finished == job.updated_at
    assert job.timestamp <= (job.processed_on or 0) <= (job.finished_on or 0)
    assert (job.process_at, job.lock_expires_at) == (None, None)
    assert job.expires_at is not None
    attempts: list[Attempt] = await job.get_attempts()
    assert [
        (run.number, run.worker, run.outcome, run.error, run.stack, run.started_at, run.ended_at)
        for run in attempts
    ] == [(1, "typed-worker", "completed", None, None, job.processed_at, finished)]
    logs: dict[str, Any] = await job.get_logs(0, -1, asc=True)
    assert [line["message"] for line in logs["logs"]] == ["half way"]
    await job.clear_logs(keep=0)


async def change(queue: Queue) -> None:
    job = await queue.add("changed", job_id="changed", delay="1h", deduplication=ONCE)
    holder: str | None = await queue.get_deduplication_job_id("once")
    assert holder == "changed"
    freed: bool = await job.remove_deduplication_key()
    assert (freed, await queue.remove_deduplication_key("once")) == (True, False)
    assert await job.get_state() == "delayed"
    assert await job.is_delayed()
    await job.change_delay("2h")
    await job.promote()
    assert await job.is_waiting()
    await job.change_priority(Priority.LOW, lifo=True)
    assert await job.is_prioritized()
    for untrue in (job.is_active, job.is_completed, job.is_failed, job.is_waiting_children):
        assert not await untrue()
    await queue.update_job_progress("changed", 10)
    assert await queue.add_job_log("changed", "from outside", "info", keep_logs=1) == 1
    assert (await queue.get_job_logs("changed", 0, 0))["count"] == 1
    await job.remove(remove_children=True)
    await queue.restore("changed")
    assert await queue.remove("changed")
    await queue.add("taken", job_id="changed")
    with refused(JobIdTaken):
        await queue.restore("changed")
    assert await queue.remove_job("changed")
    with refused(JobNotFound):
        await queue.retry_job("nobody", delay=SOON, reset_attempts=True)


async def try_again(queue: Queue) -> None:
    [failed] = await queue.get_failed()
    assert failed.outcome == "timed-out"
    assert issubclass(JobTimedOut, TimeoutError)
    await failed.retry("failed", delay="1h", reset_attempts=True)
    await failed.promote()
    assert (await queue.get_job_state(failed.id)) == "waiting"
    assert await queue.retry_jobs(count=10, state="failed", timestamp=datetime.now(UTC)) == []
    again = await queue.retry_jobs(delay="5m", fits=lambda job: job.name == "a", on_piece=print)
    assert again == []
    assert await queue.promote_jobs(count=10) == []


# --- looking at a queue --------------------------------------------------------------------------


async def look_into(queue: Queue) -> None:
    counts: dict[str, int] = await queue.get_job_counts("completed", "failed")
    assert counts == {"completed": 4, "failed": 1}
    assert await queue.get_job_count_by_types("completed", "failed") == 5
    assert await queue.count() == 0
    numbers: list[int] = [
        await queue.get_waiting_count(),
        await queue.get_prioritized_count(),
        await queue.get_delayed_count(),
        await queue.get_active_count(),
        await queue.get_waiting_children_count(),
        await queue.get_completed_count(),
        await queue.get_failed_count(),
    ]
    assert numbers == [0, 0, 0, 0, 0, 4, 1]
    lists: list[list[Job]] = [
        await queue.get_waiting(0, 9),
        await queue.get_prioritized(0, 9),
        await queue.get_delayed(0, 9),
        await queue.get_active(0, 9),
        await queue.get_waiting_children(0, 9),
        await queue.get_completed(0, 9),
        await queue.get_failed(0, 9),
    ]
    assert [len(jobs) for jobs in lists] == numbers
    assert len(await queue.get_jobs(["completed", "failed"], 0, -1, asc=True)) == 5
    assert [job.state async for job in queue.iter_jobs("failed", batch=10)] == ["failed"]
    assert await queue.get_counts_per_priority([0]) == {0: 0}
    assert (await queue.get_meta())["priority_order"] == queue.priority_order == "high"
    await find(queue)
    assert await queue.get_version() == f"bullite:{bullite.__version__}"


async def find(queue: Queue) -> None:
    long_ago = datetime(2026, 1, 1, tzinfo=UTC)
    found: Found = await queue.find(
        name="greet", tag="typed", since=long_ago, text="ada", state=["completed"], limit=1
    )
    assert [job.id for job in found.jobs] == ["greet-ada"]
    more: str | None = found.cursor
    assert (await queue.find(name="greet", tag="typed", cursor=more)).jobs == []
    metrics: Metrics = await queue.metrics(last=timedelta(hours=1))
    assert (metrics.completed, metrics.failed) == (4, 1)
    minutes: list[Minute] = metrics.minutes
    assert sum(minute.completed + minute.failed for minute in minutes) == 5
    assert all(minute.at.tzinfo is UTC and minute.waits.count >= 0 for minute in minutes)
    durations: Durations = metrics.durations
    quantiles: list[float | None] = [durations.p50, durations.p95, durations.p99]
    assert None not in (*quantiles, durations.mean, durations.least, durations.most)
    assert durations.count >= 5


async def govern(queue: Queue) -> None:
    settings: QueueSettings = {
        "default_job_options": {"attempts": 2},
        "priority_order": "low",
        "dead_letter": "typed-dead",
        "keep_completed": "30d",
        "keep_failed": {"count": 10},
        "trash_age": "1h",
        "max_events": 1000,
        "max_waiting": 1_000,
        "max_payload_bytes": 10_000,
        "max_rate": {"max": 1_000, "duration": "1s"},
        "on_failure": NOTICE,
        "retry_failed_after": "1h",
        "retry_failed_times": 2,
    }
    stored: dict[str, Any] = await queue.configure(**settings)
    assert stored["dead_letter"] == "typed-dead"
    with refused(QueueOptionMismatch):
        await Queue("typed", queue.store, priority_order="high").wait_until_ready()
    await queue.pause()
    assert await queue.is_paused()
    await queue.resume()
    await queue.add("dull")
    unwanted = await queue.add("unwanted", remove_on_fail=True)
    assert await queue.cancel(unwanted.id, reason="nobody wants it")
    assert issubclass(JobCancelled, BulliteError)
    await queue.drain(delayed=True)
    await queue.empty()
    assert len(await queue.clean(0, limit=10, state="completed")) == 4
    purged: int = await queue.purge("1h", "completed", limit=10)
    assert purged == 0
    assert await queue.trim_events(0) > 0


async def limit(store: Store) -> None:
    rate: RateLimit = {"max": 1, "duration": "1m"}
    async with Queue("limited", store, max_waiting=3, max_rate=None) as queue:
        await queue.set_global_concurrency(5)
        concurrency: int | None = await queue.get_global_concurrency()
        assert concurrency == 5
        assert not await queue.is_maxed()
        assert await queue.remove_global_concurrency()
        await queue.set_global_rate_limit(100, timedelta(seconds=1))
        found: RateLimit | None = await queue.get_global_rate_limit()
        assert found == {"max": 100, "duration": 1_000}
        assert await queue.remove_global_rate_limit()
        await queue.set_rate_limit("ada", 1, "1m")
        await queue.set_rate_limit(None, 9, 1_000)
        assert await queue.get_rate_limit("ada") == {"max": 1, "duration": 60_000}
        assert await queue.remove_rate_limit(None)
        job = await queue.add("a", limit_key="ada")
        assert job.limit_key == "ada"
        await queue.add_bulk([{"name": "a"}, {"name": "a"}])
        with refused(QueueFull):
            await queue.add("a")
        worker = Worker(queue, limiter=rate, maximum_rate_limit_delay="10s")
        await worker.rate_limit(60_000)
        ttl: int = await queue.get_rate_limit_ttl(max_jobs=1)
        assert 0 < ttl <= 60_000
        assert await queue.get_rate_limit_ttl(key="ada") == 0
        assert await queue.remove_rate_limit_key()
        await queue.rate_limit("1s")
        await worker.close()
        await queue.obliterate()


# --- listening -----------------------------------------------------------------------------------


async def listen(store: Store) -> None:
    shared = EventEmitter()
    heard: list[tuple[Any, ...]] = []

    @shared.on("ping")
    def answer(*words: Any) -> None:
        heard.append(words)

    assert shared.listeners("ping") == [answer]
    assert shared.emit("ping", 1)
    shared.off("ping", answer).once("ping", answer)
    shared.emit("ping", 2)
    assert not shared.emit("ping", 3)
    shared.remove_all_listeners()
    assert not shared.hears("ping")
    assert heard == [(1,), (2,)]

    events = QueueEvents("heard", store, autorun=False, last_event_id="$")
    published = asyncio.Event()

    def greeted(payload: Any, event_id: str) -> None:
        published.set()

    events.on("greeting", greeted)
    running = asyncio.create_task(events.run())
    await asyncio.sleep(0)
    await events.wait_until_ready()
    assert events.running
    producer = QueueEventsProducer("heard", store)
    await producer.publish_event("greeting", {"to": "Ada"}, max_events=100)
    await asyncio.wait_for(published.wait(), 10)
    assert events.last_event_id is not None
    await events.close()
    await running
    await producer.close()


async def heed_signals() -> None:
    signal, called = Signal(), list[str]()
    signal.on_abort(lambda: called.append("stop"))
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    signal.abort("enough")
    assert await waiting == signal.reason == "enough"
    assert signal.wait_in_thread(timeout=1)
    assert called == ["stop"]


async def work_in_steps(store: Store) -> None:
    async def charge(amount: int) -> dict[str, int]:
        return {"charged": amount}

    async def process(job: Job) -> str:
        receipt: dict[str, int] = await job.step("charge", charge, 5)
        count: int = await job.step("count", len, receipt)
        await job.sleep(SOON, name="rest")
        await job.sleep("1ms")
        try:
            await job.wait_event("never", timeout=1)
        except EventTimedOut:
            return f"{count} {await job.wait_event('word')}"
        except JobSuspended:
            raise
        raise JobDelayedError

    queue = Queue("in-steps", store)
    async with Worker(queue, process):
        job = await queue.add("order")
        await queue.send_event(job.id, "word", "done")
        assert await job.result(timeout=PATIENCE) == "1 done"
    steps: list[Step] = await job.get_steps()
    first = steps[0]
    assert (first.kind, first.name, first.number) == ("step", "charge", 1)
    assert first.value == {"charged": 5}
    assert first.ended_at == first.started_at
    assert first.until is None
    with refused(IllegalMove):
        await job.send_event("word")


async def hold_locks(store: Store) -> None:
    lock: NamedLock = store.lock("typed", ttl=1_000, wait="1s")
    token: int = await lock.acquire()
    assert lock.held
    assert lock.token == token
    assert lock.name == "typed"
    await lock.extend("2s")
    with refused(LockNotAcquired):
        await store.lock("typed", wait=0).acquire()
    await lock.release()
    with refused(LostLock):
        await lock.release()
    async with store.lock("typed"):
        pass

    def in_thread() -> None:
        with store.lock("typed"):
            pass

    await asyncio.to_thread(in_thread)


async def keep_house(store: Store) -> None:
    async with Scheduler(store) as service:
        await service.start()
    await service.close()
    forever = asyncio.create_task(scheduler.run(store))
    await asyncio.sleep(0)
    forever.cancel()


# --- jobs that wait for others -------------------------------------------------------------------


async def grow(store: Store) -> None:
    async with FlowProducer(store) as flows:
        await flows.wait_until_ready()
        leaf: FlowNode = {
            "name": "leaf",
            "queue_name": "leaves",
            "data": 1,
            "opts": {"attempts": 1},
        }
        tree: FlowJob = await flows.add(
            {"name": "root", "queue_name": "roots", "children": [leaf, leaf]},
            queues_options={"leaves": {"default_job_options": {"priority": 1}}},
        )
        await flows.add_bulk([leaf], chunk=10, on_chunk=lambda stored: None)
        shown = await flows.get_flow("roots", tree["job"].id, depth=2, max_children=5)
        assert shown is not None
        assert len(shown.get("children", ())) == 2
        await climb(store, tree["job"], tree.get("children", [])[0]["job"])
    await flows.disconnect()


async def climb(store: Store, root: Job, leaf: Job) -> None:
    parent: ParentRef | None = leaf.parent
    assert parent == {"id": root.id, "queue": "roots"}
    assert (leaf.parent_id, leaf.parent_key) == (root.id, f"roots:{root.id}")
    roots = Queue("roots", store)
    await root.get_dependencies(processed=True, unprocessed={"cursor": 0, "count": 5})
    await root.get_dependencies(ignored=True, failed=True)
    assert (await root.get_dependencies_count(unprocessed=True))["unprocessed"] == 2
    assert await roots.get_dependencies(root.id, "pending", 0, 1)
    assert await root.get_children_values() == {}
    assert await root.get_ignored_children_failures() == await root.get_failed_children_values()
    assert await leaf.remove_child_dependency()
    assert await root.remove_unprocessed_children() == 1
    waits = await roots.add(
        "later",
        depends_on=[root],
        on_dependency_failure="fail",
        children=[{"name": "below", "opts": {"fail_parent_on_failure": True}}],
    )
    await roots.add("same", depends_on_job_ids=[root.id], continue_parent_on_failure=True)
    await roots.add("child", parent=waits, ignore_dependency_on_failure=True)
    await roots.add("child", parent_id=waits.id, remove_dependency_on_failure=True)
    assert waits.depends_on == (root.id,)
    assert await waits.get_dependency_values() == {}
    assert "waits for" in await roots.why(waits.id)
    assert await roots.doctor() == []
    with refused(ParentNotFound):
        await roots.add("lost", parent={"id": "99999", "queue": "roots"})
    with refused(DependencyNotFound):
        await roots.add("lost", depends_on="99999")
    with refused(DependencyCycle):
        await roots.add("circle", job_id="me", depends_on="me")
    with refused(IllegalMove):
        await root.move_to_waiting_children(child=waits)
    assert issubclass(ChildFailed, UnrecoverableError)
    assert issubclass(PendingChildren, IllegalMove)
    assert issubclass(ParentTaken, IllegalMove)
    assert issubclass(NotAChild, IllegalMove)
    assert JobWaitingChildrenError is WaitingChildrenError


# --- applications: more of them in tests/app/typed_app.py ----------------------------------------


async def serve_an_application(store: Store) -> None:
    app = Bullite(store)

    @app.task(queue="typed-app", name="double")
    def double(number: int) -> int:
        return 2 * number

    @app.task(queue="typed-app", name="who")
    async def who() -> str:
        return current_job().name

    plain: Task[[int], int] = double
    coroutine: Task[[], Coroutine[Any, Any, str]] = who
    with refused(TaskTaken):
        app.process("typed-app", "who", str)
    with refused(InvalidArguments):
        await double.enqueue("1")  # type: ignore[arg-type]
    logging.getLogger("typed").addFilter(JobFields())
    async with app:
        job: TaskJob[int] = await plain.enqueue(21)
        assert await job.result("10s") == 42
        assert await (await coroutine.enqueue()).result("10s") == "who"


# --- all of it -----------------------------------------------------------------------------------


async def schedule(store: Store) -> None:
    queue = Queue("scheduled", store)
    template: JobTemplate = {"name": "report", "data": {"of": "today"}, "opts": {"attempts": 3}}
    pending: Job = await queue.upsert_job_scheduler(
        "daily",
        pattern="0 3 * * *",
        tz="Europe/Paris",
        limit=10,
        end_date=datetime(2099, 1, 1, tzinfo=UTC),
        missed="all",
        most_missed=5,
        template=template,
    )
    key: str | None = pending.repeat_job_key
    assert key == "daily"
    found: JobScheduler | None = await queue.get_job_scheduler("daily")
    assert found is not None
    next_run: datetime | None = found.next_run_at
    assert next_run == pending.process_at
    repeat: Repeat = {"every": timedelta(hours=1), "key": "hourly"}
    await queue.add("tick", repeat=repeat)
    listed: list[JobScheduler] = await queue.get_job_schedulers(0, -1, asc=True)
    assert len(listed) == await queue.get_job_schedulers_count() == 2
    paused: bool = await queue.pause_job_scheduler("hourly")
    assert paused
    assert await queue.resume_job_scheduler("hourly")
    at_once: Job = await queue.run_job_scheduler("daily")
    assert at_once.state == "waiting"
    with refused(SchedulerOwnsJob):
        await pending.remove()
    with refused(SchedulerNotFound):
        await queue.pause_job_scheduler("nobody")
    assert issubclass(SchedulerSlotsTaken, BulliteError)
    assert await queue.remove_job_scheduler("daily")
    await queue.obliterate()


async def main(location: str) -> None:
    store = Store(location)
    assert not store.is_open
    queue = Queue(
        "typed",
        store,
        priority_order="high",
        default_job_options={"attempts": 1},
        events=EventEmitter(),
        random=lambda: 0.5,
        dead_letter=None,
        keep_completed=timedelta(days=7),
        keep_failed=None,
        trash_age="1d",
        max_events=10_000,
    )
    async with queue:
        jobs = await add(queue)
        await work(queue, jobs)
        found: Job | None = await queue.get_job("greet-ada")
        assert found is not None
        await look_at(found)
        await look_into(queue)
        await change(queue)
        await try_again(queue)
        await govern(queue)
        await schedule(store)
        await limit(store)
        await work_by_hand(store)
        await listen(store)
        await heed_signals()
        await keep_house(store)
        await work_in_steps(store)
        await hold_locks(store)
        await grow(store)
        await serve_an_application(store)
        checked: Verification = await asyncio.to_thread(verify, store)
        assert checked.ok, checked.problems
    await queue.disconnect()
    store.close()
    with refused(StoreError):
        await queue.add("too late")
    print(bullite.__version__, checked)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
