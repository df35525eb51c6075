"""What a worker's listeners are told, with BullMQ's arguments."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from bullite import Job, JobFailed, Queue, Worker
from bullite.errors import StoreError
from bullite.worker import runner
from tests.support.databases import Database
from tests.support.helpers import again, take_away, until
from tests.support.listening import gather


async def echo(job: Job) -> Any:
    return job.data


async def test_active_has_the_job_and_its_previous_state(queue: Queue) -> None:
    worker = Worker(queue, echo)
    heard = gather(worker, "active")
    job = await queue.add("a", 7)
    await job.result()
    await worker.close()
    [(_, active, prev)] = heard
    assert (active.id, active.data, prev) == (job.id, 7, "waiting")


async def test_active_is_emitted_before_the_processor_runs(queue: Queue) -> None:
    order: list[str] = []

    async def work(job: Job) -> None:
        order.append(f"run {job.id}")

    async with Worker(queue, work) as worker:
        worker.on("active", lambda job, prev: order.append(f"active {job.id}"))
        jobs = await queue.add_bulk([{"name": "a"}] * 20)
        for job in jobs:
            await job.result()
    assert order == [f"{word} {job.id}" for job in jobs for word in ("active", "run")]


async def test_completed_has_the_job_its_value_and_its_previous_state(queue: Queue) -> None:
    worker = Worker(queue, echo)
    heard = gather(worker, "completed")
    job = await queue.add("a", {"x": 1})
    await until(lambda: heard)
    await worker.close()
    [(_, completed, value, prev)] = heard
    assert (completed.id, value, prev) == (job.id, {"x": 1}, "active")
    assert (completed.state, completed.return_value) == ("completed", {"x": 1})
    assert completed.attempts_made == 1
    assert completed.finished_at is not None


@pytest.mark.parametrize("in_thread", [False, True])
async def test_completed_has_a_job_with_the_reason_of_an_earlier_failure_as_in_the_database(
    queue: Queue, in_thread: bool
) -> None:
    seen: list[str | None] = []

    def plain(job: Job) -> str:
        seen.append(job.failed_reason)
        if not job.attempts_made:
            raise ValueError("not yet")
        return "done"

    async def work(job: Job) -> str:
        return plain(job)

    async with Worker(queue, plain if in_thread else work) as worker:
        heard = gather(worker, "completed")
        job = await queue.add("a", attempts=2)
        await job.result()
        await until(lambda: heard)
    assert seen == [None, "not yet"]
    [(_, completed, *_)] = heard
    assert (await again(queue, job)).failed_reason == "not yet"
    assert completed.failed_reason == "not yet"
    assert (completed.state, completed.outcome) == ("completed", "completed")


async def test_get_next_job_returns_a_job_with_the_reason_of_an_earlier_failure(
    queue: Queue,
) -> None:
    await queue.add("a", attempts=2)
    worker = Worker(queue, None)
    first = await worker.get_next_job()
    assert first is not None
    await first.move_to_failed("not yet")
    second = await worker.get_next_job()
    assert second is not None
    assert second.failed_reason == "not yet"
    await second.move_to_completed()
    assert (await again(queue, second)).failed_reason == second.failed_reason == "not yet"
    await worker.close()


async def test_completed_is_emitted_after_the_commit(queue: Queue) -> None:
    states: list[str] = []

    async def look(job: Job, value: Any, prev: str) -> None:
        states.append((await again(queue, job)).state)

    async with Worker(queue, echo) as worker:
        worker.on("completed", look)
        await queue.add("a")
        await until(lambda: states)
    assert states == ["completed"]


async def test_failed_is_emitted_for_every_attempt_with_the_exception_itself(queue: Queue) -> None:
    raised: list[Exception] = []

    async def work(job: Job) -> None:
        raised.append(ValueError(f"try {len(raised) + 1}"))
        raise raised[-1]

    worker = Worker(queue, work)
    heard = gather(worker, "failed")
    job = await queue.add("a", attempts=3)
    await until(lambda: len(heard) == 3)
    await worker.close()
    assert [event[2] for event in heard] == raised
    assert [event[3] for event in heard] == ["active"] * 3
    assert {event[1].id for event in heard} == {job.id}
    assert [event[1].attempts_made for event in heard] == [1, 2, 3]
    assert [event[1].failed_reason for event in heard] == ["try 1", "try 2", "try 3"]
    assert [event[1].state for event in heard] == ["waiting", "waiting", "failed"]


async def test_failed_is_emitted_for_a_value_that_cannot_be_stored(queue: Queue) -> None:
    async def work(job: Job) -> object:
        return object()

    worker = Worker(queue, work)
    heard = gather(worker, "failed", "completed")
    await queue.add("a")
    await until(lambda: heard)
    await worker.close()
    [(name, _, error, prev)] = heard
    assert (name, prev) == ("failed", "active")
    assert "JSON" in str(error)


async def test_failed_is_emitted_for_a_completion_without_a_value_that_the_database_refuses(
    queue: Queue, database: Database
) -> None:
    await queue.wait_until_ready()
    database.write(
        "create unique index one_completes on bullite_jobs (state) where state = 'completed'"
    )
    worker = Worker(queue, lambda job: None)
    heard = gather(worker, "completed", "failed")
    first = await queue.add("a")
    await first.result()
    second = await queue.add("a")
    await until(lambda: len(heard) == 2)
    await worker.close()
    assert [(name, job.id) for name, job, *_ in heard] == [
        ("completed", first.id),
        ("failed", second.id),
    ]
    _, refused, error, _ = heard[1]
    assert str(error).startswith("its result was refused")
    assert (refused.state, refused.failed_reason) == ("failed", str(error))


async def test_failed_is_emitted_for_a_job_that_must_not_run_any_more(queue: Queue) -> None:
    running, go = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> None:
        running.set()
        await go.wait()

    worker = Worker(queue, work, max_stalled_count=0)
    heard = gather(worker, "failed", "stalled")
    job = await queue.add("a")
    await running.wait()
    await take_away(queue)
    go.set()
    await until(lambda: len(heard) == 2)
    await worker.close()
    assert heard[0] == ("stalled", job.id, "active")
    name, failed, error, _ = heard[1]
    assert (name, failed.id) == ("failed", job.id)
    assert "stalled" in str(error)


async def test_progress_has_the_job_and_its_progress(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.update_progress({"page": 1})
        await job.update_progress(100)

    worker = Worker(queue, work)
    heard = gather(worker, "progress")
    job = await queue.add("a")
    await job.result()
    await worker.close()
    assert [(event[1].id, event[2]) for event in heard] == [(job.id, {"page": 1}), (job.id, 100)]


async def test_drained_is_emitted_once_when_no_job_is_left(queue: Queue) -> None:
    jobs = await queue.add_bulk([{"name": "a"}] * 20)
    worker = Worker(queue, echo, concurrency=3)
    heard = gather(worker, "drained", "completed")
    await until(lambda: heard and heard[-1] == ("drained",))
    assert [event[0] for event in heard] == ["completed"] * len(jobs) + ["drained"]
    await asyncio.sleep(0.05)
    assert heard.count(("drained",)) == 1
    await (await queue.add("a")).result()
    await until(lambda: heard.count(("drained",)) == 2)
    await worker.close()


async def test_an_idle_worker_is_not_drained_again_and_again(queue: Queue) -> None:
    worker = Worker(queue, echo, poll_interval=5)
    heard = gather(worker, "drained")
    await asyncio.sleep(0.1)
    assert heard == []
    await worker.close()


async def test_worker_emits_ready_paused_resumed_closing_and_closed(queue: Queue) -> None:
    worker = Worker(queue, echo)
    heard = gather(worker, "ready", "paused", "resumed", "closing", "closed")
    await until(lambda: heard)
    await worker.pause()
    await worker.pause()
    await worker.resume()
    await worker.resume()
    await worker.close()
    await worker.close()
    assert [event[0] for event in heard] == ["ready", "paused", "resumed", "closing", "closed"]
    assert isinstance(heard[3][1], str)
    assert [len(event) for event in heard] == [1, 1, 1, 2, 1]


async def test_paused_is_emitted_when_the_running_jobs_have_ended(queue: Queue) -> None:
    running = asyncio.Event()

    async def work(job: Job) -> None:
        running.set()
        await asyncio.sleep(0.05)

    worker = Worker(queue, work)
    heard = gather(worker, "completed", "paused")
    await queue.add("a")
    await running.wait()
    await worker.pause()
    await until(lambda: len(heard) == 2)
    await worker.close()
    assert heard[-1] == ("paused",)


async def test_stalled_has_the_id_and_the_previous_state(queue: Queue) -> None:
    running, go = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> None:
        running.set()
        await go.wait()

    worker = Worker(queue, work)
    heard = gather(worker, "stalled")
    job = await queue.add("a", job_id="x")
    await running.wait()
    await take_away(queue)
    go.set()
    await job.result()
    await worker.close()
    assert heard == [("stalled", "x", "active")]


async def test_error_is_emitted_when_the_database_fails_and_the_worker_goes_on(
    queue: Queue,
) -> None:
    worker = Worker(queue, echo)
    heard = gather(worker, "error")
    await (await queue.add("a")).result()
    worker._notifications.store_failed(StoreError("the disk is gone"))
    assert await (await queue.add("a", 7)).result() == 7
    await worker.close()
    [(_, error)] = heard
    assert isinstance(error, StoreError)


async def test_locks_renewed_has_the_ids_of_the_running_jobs(queue: Queue) -> None:
    go = asyncio.Event()

    async def work(job: Job) -> None:
        await go.wait()

    worker = Worker(queue, work, concurrency=2, lock_duration=1000, lock_renew_time=20)
    heard = gather(worker, "locks_renewed")
    jobs = await queue.add_bulk([{"name": "a"}] * 2)
    await until(lambda: any(event[1]["count"] == 2 for event in heard))
    go.set()
    await worker.close()
    told = [event[1] for event in heard if event[1]["count"] == 2]
    assert sorted(told[0]["job_ids"]) == sorted(job.id for job in jobs)


async def test_lock_renewal_failed_has_the_ids_of_the_lost_jobs(queue: Queue) -> None:
    running = asyncio.Event()
    reasons: list[Any] = []

    async def work(job: Job, token: str, signal: Any) -> None:
        running.set()
        if job.attempts_started == 1:
            reasons.append(await signal.wait())

    worker = Worker(queue, work, lock_duration=1000, lock_renew_time=20)
    heard = gather(worker, "lock_renewal_failed")
    job = await queue.add("a")
    await running.wait()
    await take_away(queue)
    await until(lambda: heard)
    await until(lambda: reasons)
    await job.result(timeout="10s")
    await worker.close()
    assert heard[0] == ("lock_renewal_failed", [job.id])


async def test_stuck_is_emitted_for_a_run_that_does_not_stop(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "STUCK_AFTER", 0.03)
    go = asyncio.Event()

    async def stubborn(job: Job) -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    worker = Worker(queue, stubborn)
    heard = gather(worker, "stuck")
    job = await queue.add("a", timeout=20)
    await until(lambda: heard)
    go.set()
    with pytest.raises(JobFailed):
        await job.result()
    await worker.close()
    assert [event[1].id for event in heard] == [job.id]


# --- listeners -----------------------------------------------------------------------------------

EVERY = ("ready", "active", "progress", "completed", "failed", "drained", "closing", "closed")


@pytest.mark.parametrize("in_thread", [False, True])
async def test_listeners_that_raise_never_kill_a_worker(
    queue: Queue, in_thread: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def in_a_thread(job: Job) -> Any:
        job.update_progress(1)
        return job.data

    async def in_loop(job: Job) -> Any:
        await job.update_progress(1)
        return job.data

    def bad(*arguments: Any) -> None:
        raise ValueError("bad listener")

    worker = Worker(queue, in_a_thread if in_thread else in_loop)
    for event in (*EVERY, "error"):
        worker.on(event, bad)
    for number in range(5):
        assert await (await queue.add("a", number)).result(timeout="10s") == number
    await worker.close()
    assert "bad listener" in caplog.text


async def test_a_listener_that_raises_becomes_the_workers_error(queue: Queue) -> None:
    worker, errors = Worker(queue, echo), list[Exception]()

    def bad(job: Job, prev: str) -> None:
        raise ValueError("bad listener")

    worker.on("active", bad).on("error", errors.append)
    await (await queue.add("a")).result()
    await worker.close()
    assert [str(error) for error in errors] == ["bad listener"]


async def test_a_worker_of_plain_functions_emits_in_the_thread_of_its_loop(queue: Queue) -> None:
    threads: dict[str, int] = {}

    def work(job: Job) -> None:
        threads["work"] = threading.get_ident()
        job.update_progress(1)
        if job.name == "bad":
            raise ValueError("no")

    def listener(event: str) -> Any:
        return lambda *_: threads.setdefault(event, threading.get_ident())

    names = ("active", "progress", "completed", "failed", "drained")
    worker = Worker(queue, work)
    for name in names:
        worker.on(name, listener(name))
    await queue.add("good")
    await queue.add("bad")
    await until(lambda: threads.keys() >= set(names))
    await worker.close()
    assert threads["work"] != threading.get_ident()
    assert {threads[name] for name in names} == {threading.get_ident()}


async def test_a_worker_of_plain_functions_emits_in_order(queue: Queue) -> None:
    def work(job: Job) -> None:
        job.update_progress(1)
        time.sleep(0.001)

    worker = Worker(queue, work, concurrency=4)
    heard = gather(worker, "active", "progress", "completed")
    jobs = await queue.add_bulk([{"name": "a"}] * 20)
    await until(lambda: len(heard) == 3 * len(jobs))
    await worker.close()
    for job in jobs:
        names = [event[0] for event in heard if event[1].id == job.id]
        assert names == ["active", "progress", "completed"]


async def test_listeners_may_come_and_go_while_it_works(queue: Queue) -> None:
    async with Worker(queue, echo) as worker:
        await (await queue.add("a")).result()
        heard = gather(worker, "active", "completed")
        job = await queue.add("a")
        await until(lambda: len(heard) == 2)
        worker.off("active").off("completed")
        await (await queue.add("a")).result()
        await asyncio.sleep(0)
    assert [event[1].id for event in heard] == [job.id] * 2


async def test_a_coroutine_listener_may_add_jobs(queue: Queue) -> None:
    async def more(job: Job, value: Any, prev: str) -> None:
        if job.name == "first":
            await queue.add("second", job_id="second")

    async with Worker(queue, echo) as worker:
        worker.on("completed", more)
        await queue.add("first")
        await until(lambda: completed(queue, "second"))


async def completed(queue: Queue, job_id: str) -> bool:
    return await queue.get_job_state(job_id) == "completed"


async def test_get_next_job_emits_active(queue: Queue) -> None:
    job = await queue.add("a")
    worker = Worker(queue, None)
    heard = gather(worker, "active")
    taken = await worker.get_next_job()
    assert taken is not None
    await taken.move_to_completed()
    await worker.close()
    assert [(event[1].id, event[2]) for event in heard] == [(job.id, "waiting")]
