"""The library without an event loop: everything that is awaited elsewhere is called here."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bullite
from bullite import errors, sync
from bullite.sync import (
    FlowProducer,
    Job,
    Queue,
    QueueEvents,
    QueueEventsProducer,
    Scheduler,
    Store,
    Worker,
    verify,
)
from tests.support.databases import Database
from tests.support.helpers import python

PATIENCE = 15_000
PROGRAM = Path(__file__).with_name("typed_sync_program.py")


@pytest.fixture
def store(location: str) -> Iterator[Store]:
    store = Store(location)
    yield store
    store.close()


@pytest.fixture
def queue(store: Store) -> Queue:
    return Queue("emails", store)


def until(condition: Callable[[], Any], limit: float = 15.0) -> None:
    ends = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < ends, inspect.getsource(condition)
        time.sleep(0.005)


def found(queue: Queue, job: Job) -> Job:
    now = queue.get_job(job.id)
    assert now is not None
    return now


# --- adding and looking --------------------------------------------------------------------------


def test_a_job_is_added_with_options_and_found_again(queue: Queue) -> None:
    job = queue.add("greet", {"name": "Ada"}, priority=3, attempts=2, job_id="a", tags=["t"])
    assert type(job) is Job
    again = found(queue, job)
    assert (again.id, again.name, again.data) == ("a", "greet", {"name": "Ada"})
    assert (again.state, again.priority, again.tags) == ("prioritized", 3, ("t",))
    assert repr(again) == "<Job a 'greet' of 'emails': prioritized>"
    assert queue.add("greet", job_id="a").pk == job.pk
    assert queue.get_job("nobody") is None


def test_many_jobs_are_added_listed_and_walked_through(queue: Queue) -> None:
    stored: list[int] = []
    jobs = queue.add_bulk(
        [{"name": "n", "data": n} for n in range(7)], chunk=3, on_chunk=stored.append
    )
    assert stored == [3, 6, 7]
    assert {type(job) for job in jobs} == {Job}
    assert [job.data for job in queue.get_waiting(0, 2)] == [0, 1, 2]
    assert [job.data for job in queue.iter_jobs("waiting", batch=2)] == list(range(7))
    assert queue.get_job_counts("waiting", "failed") == {"waiting": 7, "failed": 0}
    assert queue.count() == queue.get_waiting_count() == 7
    half = iter(queue.iter_jobs())
    assert next(half).data == 0


def test_jobs_are_found_page_by_page(queue: Queue) -> None:
    queue.add_bulk([{"name": "n", "data": n, "opts": {"tags": ["t"]}} for n in range(3)])
    page = queue.find(tag="t", limit=2)
    assert isinstance(page, sync.Found)
    assert [job.data for job in page.jobs] == [2, 1]
    assert {type(job) for job in page.jobs} == {Job}
    assert [job.data for job in queue.find(tag="t", limit=2, cursor=page.cursor).jobs] == [0]


def test_jobs_are_purged_by_a_function_that_gets_jobs(queue: Queue) -> None:
    jobs = queue.add_bulk([{"name": "n", "data": n} for n in range(4)])
    with Worker(queue, lambda job: None):
        for job in jobs:
            job.result(PATIENCE)
    seen: list[Any] = []

    def is_odd(job: Job) -> bool:
        seen.append(type(job))
        return bool(job.data % 2)

    time.sleep(0.005)
    assert queue.purge(1, fits=is_odd) == 2
    assert set(seen) == {Job}
    assert sorted(job.data for job in queue.get_completed()) == [0, 2]


def test_a_queue_is_paused_limited_configured_and_emptied(queue: Queue) -> None:
    queue.pause()
    assert queue.is_paused()
    queue.resume()
    assert not queue.is_paused()
    queue.set_global_concurrency(5)
    assert queue.get_global_concurrency() == 5
    queue.set_global_rate_limit(10, "1s")
    assert queue.get_global_rate_limit() == {"max": 10, "duration": 1_000}
    queue.set_rate_limit("ada", 1, "1m")
    assert queue.get_rate_limit("ada") == {"max": 1, "duration": 60_000}
    queue.rate_limit("1m")
    assert queue.get_rate_limit_ttl() > 0
    assert queue.remove_rate_limit_key()
    assert queue.configure(max_waiting=2)["max_waiting"] == 2
    queue.add_bulk([{"name": "n"}, {"name": "n"}])
    with pytest.raises(errors.QueueFull):
        queue.add("n")
    queue.drain()
    assert queue.count() == 0
    queue.obliterate()
    assert queue.get_meta()["max_waiting"] is None


def test_job_schedulers_are_made_paused_and_removed(queue: Queue) -> None:
    pending = queue.upsert_job_scheduler("daily", pattern="0 3 * * *", template={"name": "report"})
    assert type(pending) is Job
    assert pending.repeat_job_key == "daily"
    scheduler = queue.get_job_scheduler("daily")
    assert scheduler is not None
    assert scheduler.next_run_at == pending.process_at
    assert queue.pause_job_scheduler("daily")
    assert queue.resume_job_scheduler("daily")
    assert type(queue.run_job_scheduler("daily")) is Job
    assert [each.id for each in queue.get_job_schedulers()] == ["daily"]
    assert queue.remove_job_scheduler("daily")
    with pytest.raises(errors.SchedulerNotFound):
        queue.pause_job_scheduler("daily")


def test_a_job_is_told_about_moved_and_removed(queue: Queue) -> None:
    job = queue.add("n", delay="1h")
    assert "delay" in queue.why(job.id)
    assert job.is_delayed()
    job.change_delay("2h")
    job.promote()
    assert job.get_state() == "waiting"
    job.change_priority(5)
    job.update_data({"new": True})
    assert job.data == found(queue, job).data == {"new": True}
    assert job.log("one") == 1
    assert queue.add_job_log(job.id, "two") == 2
    assert [line["message"] for line in job.get_logs()["logs"]] == ["one", "two"]
    job.clear_logs()
    queue.update_job_progress(job.id, 10)
    job.remove()
    assert type(queue.restore(job.id)) is Job
    assert queue.cancel(job.id, reason="nobody wants it")
    with pytest.raises(errors.JobFailed, match="nobody wants it"):
        job.result(PATIENCE)
    assert found(queue, job).outcome == "cancelled"
    assert type(queue.retry_job(job.id)) is Job
    assert queue.doctor() == []
    assert queue.metrics().durations.count == 0
    assert queue.get_workers() == []


def test_errors_are_those_of_the_library(queue: Queue) -> None:
    with pytest.raises(errors.InvalidOption, match="priority"):
        queue.add("n", priority=10**9)
    job = queue.add("n")
    with pytest.raises(TimeoutError, match="was not finished within 20"):
        job.result(timeout=20)
    with pytest.raises(errors.IllegalMove):
        job.retry()
    with pytest.raises(errors.JobNotFound):
        queue.cancel("nobody")
    queue.remove(job.id)
    with pytest.raises(errors.JobNotFound):
        job.result(PATIENCE)


def test_two_objects_for_one_job_are_equal(queue: Queue) -> None:
    job = queue.add("n")
    assert job == Job(job._async)
    assert hash(job) == hash(Job(job._async))
    assert job != found(queue, job)
    assert job != job.id


def test_a_queue_is_let_go_of_at_the_end_of_its_block(location: str) -> None:
    with Queue("emails", location) as queue:
        queue.add("n")
    with pytest.raises(errors.StoreError):
        queue.add("n")
    with Queue("emails", location) as queue:
        assert queue.count() == 1


# --- flows ---------------------------------------------------------------------------------------


def test_a_flow_is_added_shown_and_run(queue: Queue, store: Store) -> None:
    leaf: bullite.FlowNode = {"name": "leaf", "queue_name": "emails", "data": 2}
    with FlowProducer(store) as flows:
        tree = flows.add({"name": "root", "queue_name": "emails", "children": [leaf, leaf]})
        [alone] = flows.add_bulk([leaf])
        assert type(alone["job"]) is Job
        assert "children" not in alone
        shown = flows.get_flow("emails", tree["job"].id)
        assert shown is not None
        assert [type(child["job"]) for child in shown["children"]] == [Job, Job]
        assert flows.get_flow("emails", "nobody") is None
    below = queue.get_dependencies(tree["job"].id)
    assert (below["total"], [type(job) for job in below["jobs"]]) == (2, [Job, Job])

    def process(job: Job) -> int:
        return int(job.data if job.name == "leaf" else sum(job.get_children_values().values()))

    with Worker(queue, process):
        assert tree["job"].result(PATIENCE) == 4


def test_a_flow_may_be_deeper_than_functions_may_call_each_other(store: Store) -> None:
    depth = sys.getrecursionlimit() + 10
    node: bullite.FlowNode = {"name": "n", "queue_name": "emails"}
    for _ in range(depth):
        node = {"name": "n", "queue_name": "emails", "children": [node]}
    tree = FlowProducer(store).add(node)
    levels = 0
    while "children" in tree:
        [tree] = tree["children"]
        levels += 1
    assert levels == depth


@pytest.mark.parametrize("kind", [lambda job: job, lambda job: job._async], ids=["ours", "theirs"])
def test_what_takes_jobs_takes_those_of_both_kinds(
    queue: Queue, kind: Callable[[Job], Any]
) -> None:
    first = queue.add("first")
    later = queue.add("later", depends_on=[kind(first)])
    assert later.depends_on == (first.id,)
    assert later.state == "waiting-children"
    child = queue.add("child", parent=kind(later))
    assert child.parent == {"id": later.id, "queue": "emails"}
    [bulk] = queue.add_bulk([{"name": "child", "opts": {"parent": kind(later)}}])
    assert bulk.parent_id == later.id


def test_a_run_adds_a_child_and_waits_for_it(queue: Queue) -> None:
    def process(job: Job) -> Any:
        if job.name == "child":
            return 5
        if job.attempts_started == 1:
            child = queue.add("child", parent=job)
            assert job.move_to_waiting_children(child=child)
            raise errors.WaitingChildrenError
        return job.get_children_values()

    with Worker(queue, process):
        parent = queue.add("parent")
        assert list(parent.result(PATIENCE).values()) == [5]


# --- locks, chores, checks -----------------------------------------------------------------------


def test_locks_are_held_by_threads(store: Store) -> None:
    with store.lock("one") as lock:
        assert lock.held
        with pytest.raises(errors.LockNotAcquired):
            store.lock("one", wait=0).acquire()
    other: sync.NamedLock = store.lock("one")
    other.acquire()
    assert other.token is not None
    other.release()


def test_the_chores_are_done_without_a_worker(queue: Queue) -> None:
    with Scheduler(queue.store):
        job = queue.add("n", expires="1ms")
        until(lambda: job.get_state() == "failed")


def test_a_database_is_verified(queue: Queue) -> None:
    queue.add("n")
    assert verify(queue.store).ok


# --- listeners -----------------------------------------------------------------------------------


def test_listeners_hear_what_this_object_does(queue: Queue) -> None:
    heard: list[Any] = []

    @queue.on("added")
    def added(job: Job) -> None:
        heard.append((type(job), job.name))

    queue.once("waiting", heard.append)
    assert queue.listeners("added") == [added]
    assert queue.hears("added")
    job = queue.add("n")
    queue.add("m")
    assert heard[0] == (Job, "n")
    assert heard[1] == job or type(heard[1]) is Job
    assert heard[2] == (Job, "m")
    queue.off("added", added)
    assert not queue.hears("added")
    assert queue.on("mine", heard.append) is queue
    assert queue.emit("mine", 1)
    queue.remove_all_listeners()
    assert not queue.emit("mine", 2)
    assert heard[3:] == [1]
    with pytest.raises(errors.InvalidOptionType):
        queue.on("added", 5)  # type: ignore[call-overload]
    with pytest.raises(errors.InvalidOptionType):
        queue.on(5)  # type: ignore[call-overload]


def test_what_is_told_on_an_event_loop_says_so(queue: Queue) -> None:
    with pytest.raises(errors.InvalidOption, match="QueueEvents"):
        queue.on("job.completed", print)
    with pytest.raises(errors.InvalidOption, match="QueueEvents"):

        @queue.on("job.completed")
        def never() -> None: ...


def test_events_are_read_and_published(queue: Queue) -> None:
    heard: list[tuple[str, Any]] = []
    greeted = threading.Event()
    with QueueEvents("emails", queue.store) as events:
        events.on("added", lambda payload, id: heard.append(("added", payload["job_id"])))
        events.on("greeting", lambda payload: heard.append(("greeting", payload)))
        events.on("greeting", lambda payload: greeted.set())
        job = queue.add("n")
        with QueueEventsProducer("emails", queue.store) as producer:
            producer.publish_event("greeting", {"to": "Ada"})
        assert greeted.wait(15)
    assert heard == [("added", job.id), ("greeting", {"to": "Ada"})]
    assert not events.running
    assert events.last_event_id is not None
    events.close()

    later = QueueEvents("emails", queue.store, last_event_id="0-0")
    greeted.clear()
    later.on("greeting", lambda payload: greeted.set())
    reader = threading.Thread(target=later.run)
    reader.start()
    assert greeted.wait(15)
    later.close()
    reader.join(15)
    assert not reader.is_alive()


# --- workers -------------------------------------------------------------------------------------


def test_plain_functions_get_jobs_whose_verbs_are_done_when_they_return(queue: Queue) -> None:
    def process(job: Job, token: str, signal: bullite.Signal) -> list[Any]:
        assert type(job) is Job
        assert token == job.token
        assert signal is job.signal
        job.update_progress(5)
        lines = job.log("half way")
        stored = found(queue, job)
        count: int = job.step("count", len, [1, 2])
        doubled: int = job.step("double", double, 4)
        return [lines, stored.progress, count, doubled]

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    with Worker(queue, process) as worker:
        assert worker.is_running
        assert worker.name
        job = queue.add("n")
        assert job.result(PATIENCE) == [1, 5, 2, 8]
        assert [step.name for step in job.get_steps()] == ["count", "double"]
    assert not worker.is_running
    assert job.get_logs()["count"] == 1


def test_coroutine_functions_get_jobs_to_be_awaited(queue: Queue) -> None:
    async def process(job: bullite.Job) -> int:
        assert type(job) is bullite.Job
        await job.update_progress(50)
        return await job.log("half way")

    with Worker(queue, {"n": (process, 2), "m": lambda job: type(job) is Job}):
        assert queue.add("n").result(PATIENCE) == 1
        assert queue.add("m").result(PATIENCE) is True


def test_a_run_sleeps_and_waits_for_events(queue: Queue) -> None:
    def process(job: Job) -> Any:
        job.sleep(1)
        return job.wait_event("word")

    with Worker(queue, process):
        job = queue.add("n")
        queue.send_event(job.id, "word", "done")
        assert job.result(PATIENCE) == "done"


def test_processors_may_be_added_and_concurrency_changed_while_it_works(queue: Queue) -> None:
    class Answers:
        def __call__(self, job: Job) -> str:
            return f"called with {type(job).__module__}"

    worker = Worker("emails", store=queue.store)

    @worker.process("first")
    def first(job: Job) -> str:
        return job.name

    with worker:
        worker.process("second", Answers(), concurrency=2)
        worker.concurrency = 3
        assert worker.concurrency == 3
        assert queue.add("first").result(PATIENCE) == "first"
        assert queue.add("second").result(PATIENCE) == f"called with {Job.__module__}"
    assert first(queue.add("by hand")) == "by hand"


def test_a_failing_run_is_retried_as_the_strategy_says(queue: Queue) -> None:
    asked: list[Any] = []

    def strategy(attempts_made: int, type_: str, error: BaseException, job: Job) -> int:
        asked.append((attempts_made, type_, type(job)))
        return 1

    def process(job: Job) -> str:
        if job.attempts_made == 0:
            raise OSError("the floor is wet")
        raise errors.UnrecoverableError("broken")

    heard: list[Any] = []
    worker = Worker(queue, process, backoff_strategy=strategy)
    worker.on("failed", lambda job, error: heard.append((type(job), str(error))))
    with worker:
        job = queue.add("n", attempts=3, backoff={"type": "mine"})
        with pytest.raises(errors.JobFailed, match="broken"):
            job.result(PATIENCE)
    assert asked == [(1, "mine", Job)]
    assert heard == [(Job, "the floor is wet"), (Job, "broken")]


def test_listeners_are_called_on_the_thread_of_the_loop(queue: Queue) -> None:
    heard: list[Any] = []

    async def awaited(job: bullite.Job, value: Any) -> None:
        heard.append((type(job), await job.get_state()))

    def called(job: Job, value: Any) -> None:
        heard.append((type(job), value, threading.current_thread().name))
        with pytest.raises(RuntimeError, match="await it"):
            job.get_state()
        heard.append(worker.cancel_job("nobody"))

    worker = Worker(queue, lambda job: 1)
    worker.on("completed", called).on("completed", awaited)
    with worker:
        queue.add("n").result(PATIENCE)
        until(lambda: len(heard) == 3)
        worker.off("completed", called)
        assert worker.listeners("completed") == [awaited]
    assert heard[0] == (Job, 1, "bullite-sync-worker")
    assert heard[1:] == [False, (bullite.Job, "completed")]


def test_running_jobs_are_cancelled_by_worker_and_queue(queue: Queue) -> None:
    def process(job: Job, token: str, signal: bullite.Signal) -> None:
        began.release()
        assert signal.wait_in_thread(15)
        signal.throw_if_aborted()

    began = threading.Semaphore(0)
    with Worker(queue, process, concurrency=2) as worker:
        first, second = queue.add("n"), queue.add("n")
        assert began.acquire(timeout=15)
        assert began.acquire(timeout=15)
        assert worker.cancel_job(first.id, reason="enough")
        assert not queue.cancel(second.id)
        with pytest.raises(errors.JobFailed, match="enough"):
            first.result(PATIENCE)
        with pytest.raises(errors.JobFailed):
            second.result(PATIENCE)
        assert worker.cancel_all_jobs() == 0


def test_a_worker_is_paused_and_resumed(queue: Queue) -> None:
    with Worker(queue, lambda job: 1) as worker:
        worker.pause()
        assert worker.is_paused()
        job = queue.add("n")
        with pytest.raises(TimeoutError):
            job.result(30)
        worker.resume()
        assert job.result(PATIENCE) == 1
        worker.rate_limit("1m")
        assert worker.queue == queue
        assert worker.queue.get_rate_limit_ttl() > 0
        assert queue.get_workers_count() == 1


def test_jobs_are_taken_and_ended_by_hand(queue: Queue) -> None:
    queue.add_bulk([{"name": "completes"}, {"name": "fails"}])
    with Worker(queue) as worker:
        job = worker.get_next_job("my word")
        assert type(job) is Job
        assert job.token == "my word"
        job.update_progress(1)
        job.extend_lock("1m")
        job.move_to_completed(5, "my word")
        other = worker.get_next_job(block=False)
        assert other is not None
        other.move_to_failed("by hand", retry=False)
        assert worker.get_next_job(block=False) is None
    assert worker.get_next_job() is None
    assert job.result(PATIENCE) == 5
    assert found(queue, other).failed_reason == "by hand"


def test_run_blocks_until_another_thread_closes_the_worker(queue: Queue) -> None:
    worker = Worker(queue, lambda job: 1)
    running = threading.Thread(target=worker.run)
    running.start()
    assert queue.add("n").result(PATIENCE) == 1
    worker.close()
    running.join(15)
    assert not running.is_alive()
    worker.close()
    worker.pause()
    worker.run()
    worker.start()
    assert "bullite-sync-worker" not in {thread.name for thread in threading.enumerate()}


def test_a_worker_that_never_began_is_closed(location: str) -> None:
    worker = Worker("emails", lambda job: 1, store=location)
    closed: list[str] = []
    worker.on("closed", lambda: closed.append("closed"))
    worker.close()
    worker.close()
    worker.run()
    assert closed == ["closed"]


def test_closing_waits_as_long_as_it_is_told_to(queue: Queue) -> None:
    async def process(job: bullite.Job) -> None:
        await asyncio.sleep(0 if job.attempts_started > 1 else 60)

    worker = Worker(queue, process)
    worker.start()
    worker.start()
    job = queue.add("n")
    until(job.is_active)
    with pytest.raises(errors.InvalidOptionType):
        worker.close(timeout=[])  # type: ignore[arg-type]
    assert worker.is_running
    worker.close(timeout=10)
    assert job.get_state() == "waiting"
    with Worker(queue, process) as other:
        assert job.result(PATIENCE) is None
        other.close(force=True)


def test_a_worker_that_cannot_begin_says_why(database: Database) -> None:
    worker = Worker("emails", lambda job: 1, store=database.missing())
    with pytest.raises(errors.StoreError, match="missing"):
        worker.start()
    assert "bullite-sync-worker" not in {thread.name for thread in threading.enumerate()}


def test_bad_arguments_are_refused_as_elsewhere(queue: Queue) -> None:
    with pytest.raises(errors.InvalidOptionType, match="processor must be a function"):
        Worker(queue, 5)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidOptionType, match="the processor of 'n' must take"):
        Worker(queue, {"n": lambda: None})  # type: ignore[dict-item]
    with pytest.raises(errors.InvalidOptionType, match="the processor of 'n' must be a function"):
        Worker(queue, {"n": ()})  # type: ignore[dict-item]
    with pytest.raises(errors.InvalidOptionType, match="backoff_strategy"):
        Worker(queue, lambda job: 1, backoff_strategy=5)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidOption, match="no processor"):
        Worker(queue).run()


INTERRUPTED = """
import sys, time
from bullite.sync import Queue, Worker
queue = Queue("emails", sys.argv[1])
job = queue.add("n")
def process(job):
    print("began", flush=True)
    time.sleep(0.3)
    return "ended"
Worker(queue, process).run()
print(job.result('10s'))
queue.close()
"""


def test_ctrl_c_closes_a_worker_that_runs(location: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", INTERRUPTED, location],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "began\n"
    process.send_signal(signal.SIGINT)
    told, complaints = process.communicate(timeout=20)
    assert (process.returncode, told) == (0, "ended\n"), complaints
    assert "Traceback" not in complaints


FORKED = """
import os, sys
from bullite.errors import WrongProcess
from bullite.sync import Queue, Worker
queue = Queue("emails", sys.argv[1])
with Worker(queue, lambda job: 1) as worker:
    queue.add("n").result("15s")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                worker.pause()
            except WrongProcess:
                code = 0 if queue.add("of the child").state == "waiting" else 2
            queue.close()
        finally:
            os._exit(code)
    print(os.waitpid(child, 0)[1], queue.find(name="of the child").jobs[0].result("15s"))
queue.close()
"""


def test_after_a_fork_a_queue_works_on_and_a_worker_is_refused(location: str) -> None:
    assert python(FORKED, location) == "0 1\n"


# --- event loops ---------------------------------------------------------------------------------


async def test_inside_of_an_event_loop_everything_that_blocks_is_refused(location: str) -> None:
    queue = Queue("emails", location)
    refused = r"use bullite\.{} and await it"
    with pytest.raises(RuntimeError, match=refused.format("Queue")):
        queue.add("n")
    with pytest.raises(RuntimeError, match=refused.format("Queue")):
        queue.iter_jobs()
    with pytest.raises(RuntimeError, match=refused.format("Queue")), queue:
        pass
    job = await asyncio.to_thread(queue.add, "n")
    assert job.state == "waiting"
    with pytest.raises(RuntimeError, match=refused.format("Job")):
        job.update_progress(5)
    with pytest.raises(RuntimeError, match=refused.format("Worker")):
        Worker(queue, lambda job: 1)
    with pytest.raises(RuntimeError, match=refused.format("QueueEvents")):
        QueueEvents("emails", location)
    with pytest.raises(RuntimeError, match=refused.format("FlowProducer")):
        FlowProducer(location).add({"name": "n", "queue_name": "emails"})
    worker = await asyncio.to_thread(Worker, queue, lambda job: 1)
    uses: tuple[Callable[[], Any], ...] = (worker.start, worker.run, worker.close, worker.pause)
    for use in uses:
        with pytest.raises(RuntimeError, match=refused.format("Worker")):
            use()
    await asyncio.to_thread(worker.start)
    for use in (*uses, worker.cancel_all_jobs):
        with pytest.raises(RuntimeError, match=refused.format("Worker")):
            use()
    await asyncio.to_thread(worker.close)
    await asyncio.to_thread(queue.close)


def test_nobody_imports_asyncio_for_adding_and_reading(database: Database, location: str) -> None:
    program = """
import sys
import bullite
assert "bullite.sync" not in sys.modules
from bullite import sync
with sync.Queue("q", sys.argv[1]) as queue:
    job = queue.add("n", 1, attempts=2)
    queue.add_bulk([{"name": "n"}])
    flow = sync.FlowProducer(queue.store).add({"name": "r", "queue_name": "q"})
    assert queue.get_job(job.id).data == 1
    assert len(list(queue.iter_jobs())) == 3
    job.update_progress(1)
    queue.find(name="n"), queue.metrics(), queue.why(job.id)
    with queue.store.lock("l"):
        pass
    assert sync.verify(queue.store).ok
print("asyncio" in sys.modules)
"""
    # psycopg imports asyncio by itself.
    assert python(program, location) == f"{'psycopg' in database.libraries}\n"


def test_importing_it_starts_nothing() -> None:
    program = "import bullite.sync, threading, sys; print(threading.active_count())"
    assert python(program) == "1\n"


# --- the same names ------------------------------------------------------------------------------

DIFFERENCES: dict[str, dict[str, str]] = {
    "Job": {},
    "Queue": {"events": "tells what a process does to a queue, on an event loop"},
    "FlowProducer": {},
    "Scheduler": {},
    "QueueEvents": {"start": "begins it: there is no loop in which it could begin by itself"},
    "QueueEventsProducer": {"events": "as for Queue"},
    "Worker": {"start": "begins it: there is no loop in which it could begin by itself"},
}


@pytest.fixture
def pairs(tmp_path: Path) -> Iterator[dict[str, tuple[Any, Any]]]:
    """Of each class an object, and the one that it stands for."""
    store = Store(tmp_path / "jobs.db")
    queue = Queue("q", store)
    objects = (
        *(queue, queue.add("n"), FlowProducer(store), Scheduler(store), QueueEvents("q", store)),
        *(QueueEventsProducer("q", store), Worker(queue, lambda job: 1)),
    )
    yield {type(each).__name__: (each, each._async) for each in objects}
    store.close()


@pytest.mark.parametrize("name", DIFFERENCES)
def test_public_names_are_the_same(pairs: dict[str, tuple[Any, Any]], name: str) -> None:
    ours, theirs = (
        {name for name in dir(each) if not name.startswith("_")} for each in pairs[name]
    )
    assert ours ^ theirs == DIFFERENCES[name].keys()


ARGUMENTS = {
    ("Queue", "__init__"): {"events"},
    ("QueueEvents", "__init__"): {"autorun"},
    ("Worker", "__init__"): {"autorun"},
}
"""Those that make no sense where there is no loop to be made in, or told on."""


@pytest.mark.parametrize("name", DIFFERENCES)
def test_arguments_and_defaults_are_the_same(name: str) -> None:
    ours, theirs = getattr(sync, name), getattr(bullite, name)
    for method, function in inspect.getmembers(ours, inspect.isfunction):
        if not hasattr(theirs, method) or (method.startswith("_") and method != "__init__"):
            continue
        if name == "Job" and method == "__init__":
            continue  # users make none
        expected = [
            (each.name, each.kind, each.default)
            for each in inspect.signature(getattr(theirs, method)).parameters.values()
            if each.name not in ARGUMENTS.get((name, method), ())
        ]
        parameters = inspect.signature(function).parameters.values()
        assert [(each.name, each.kind, each.default) for each in parameters] == expected, method


def test_what_holds_jobs_has_the_same_fields() -> None:
    ours, theirs = dataclasses.fields(sync.Found), dataclasses.fields(bullite.Found)
    assert [field.name for field in ours] == [field.name for field in theirs]
    assert sync.FlowJob.__annotations__.keys() == bullite.FlowJob.__annotations__.keys()


def test_what_is_the_same_in_threads_is_the_same_object() -> None:
    assert (sync.Store, sync.NamedLock, sync.verify) == (
        *(bullite.Store, bullite.NamedLock, bullite.verify),
    )
    assert sorted(sync.__all__) == sync.__all__
    asynchronous = {
        name
        for name in bullite.__all__
        if inspect.isclass(thing := getattr(bullite, name))
        and any(inspect.iscoroutinefunction(each) for each in vars(thing).values())
    }
    # A signal waits in threads, too; an application hosts an event loop, and its tasks and their
    # jobs have enqueue_sync and result_sync.
    assert asynchronous - set(sync.__all__) == {"Signal", "Bullite", "TaskJob"}


# --- types ---------------------------------------------------------------------------------------


def test_the_typed_program_works(location: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", PROGRAM, location],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "no problems found\n"), done.stderr


def test_type_checkers_have_nothing_to_say() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", PROGRAM],
        capture_output=True,
        text=True,
        cwd=PROGRAM.parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stdout
