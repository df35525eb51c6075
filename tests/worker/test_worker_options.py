"""The options of a worker: leases, pauses, limits, names."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from itertools import product
from typing import Any

import pytest

from bullite import DelayedError, Job, JobFailed, LostLock, Queue, Signal, Worker
from bullite.errors import BulliteError, InvalidOption, InvalidOptionType
from tests.support.databases import Database
from tests.support.helpers import again, case, python, state_of, take_away, until


async def echo(job: Job) -> Any:
    return job.data


async def is_in(queue: Queue, job: Job, state: str) -> bool:
    return await state_of(queue, job) == state


# --- who it is -----------------------------------------------------------------------------------


async def test_a_worker_is_named_after_its_host_and_process(queue: Queue) -> None:
    async with Worker(queue, echo) as worker:
        await worker.wait_until_ready()
        assert worker.name == f"{socket.gethostname()}:{os.getpid()}"


async def test_a_worker_may_have_a_name(queue: Queue) -> None:
    async with Worker(queue, echo, name="mailer-1") as worker:
        await worker.wait_until_ready()
        job = await queue.add("a")
        await job.result(timeout="10s")
        await until(queue.get_workers_count)
        [info] = await queue.get_workers()
        assert (info.name, info.pid, info.host) == ("mailer-1", os.getpid(), socket.gethostname())
    assert (await again(queue, job)).processed_by == "mailer-1"


async def test_every_worker_is_on_the_register(queue: Queue) -> None:
    async with Worker(queue, echo, name="a"), Worker(queue, echo, name="b"), Worker(queue) as hand:
        await hand.wait_until_ready()
        await until(lambda: workers_are(queue, 3))
        assert await queue.get_workers_count() == 3
    assert await queue.get_workers_count() == 0


async def workers_are(queue: Queue, number: int) -> bool:
    return await queue.get_workers_count() == number


async def test_workers_of_other_queues_are_not_on_it(queue: Queue) -> None:
    async with Queue("other", queue.store) as other, Worker(other, echo) as worker:
        await worker.wait_until_ready()
        assert await queue.get_workers() == []


async def test_a_worker_may_be_given_the_name_of_its_queue(queue: Queue, location: str) -> None:
    async with Worker("emails", echo, store=location):
        assert await (await queue.add("a", 1)).result(timeout="10s") == 1


async def test_a_queue_brings_its_own_store(queue: Queue, location: str) -> None:
    with pytest.raises(InvalidOption, match="store"):
        Worker(queue, echo, store=location)


# --- whether it runs -----------------------------------------------------------------------------


async def test_whether_a_worker_runs_may_be_read_or_called(queue: Queue) -> None:
    worker = Worker(queue, echo, autorun=False)
    assert not worker.is_running
    assert worker.is_running() is False
    async with worker:
        await until(lambda: worker.is_running)
        assert worker.is_running() is True
        assert worker.is_paused() is False
        await worker.pause()
        assert worker.is_paused() is True
        assert worker.is_running() is False
        await worker.resume()
        assert worker.is_running() is True
    assert worker.is_running() is False


async def test_a_worker_without_a_processor_cannot_be_run(queue: Queue) -> None:
    with pytest.raises(InvalidOption, match="processor"):
        await Worker(queue).run()


# --- how often a job may begin -------------------------------------------------------------------


async def test_a_job_that_began_too_often_fails_without_running(queue: Queue) -> None:
    runs: list[int] = []

    async def put_off(job: Job) -> None:
        runs.append(job.attempts_started)
        await job.move_to_delayed(int(time.time() * 1000) + 5)
        raise DelayedError

    async with Worker(queue, put_off, max_started_attempts=3):
        job = await queue.add("a", attempts=10)
        with pytest.raises(JobFailed, match="started more than"):
            await job.result(timeout="10s")
    assert runs == [1, 2, 3]


async def test_threads_do_not_begin_a_job_too_often_either(queue: Queue) -> None:
    runs: list[int] = []

    def put_off(job: Job) -> None:
        runs.append(job.attempts_started)
        job.move_to_delayed(int(time.time() * 1000) + 5)
        raise DelayedError

    async with Worker(queue, put_off, max_started_attempts=2):
        job = await queue.add("a")
        with pytest.raises(JobFailed, match="started more than"):
            await job.result(timeout="10s")
    assert runs == [1, 2]


async def test_jobs_that_begin_seldom_enough_run(queue: Queue) -> None:
    async with Worker(queue, echo, max_started_attempts=1):
        jobs = await queue.add_bulk([{"name": "a", "data": n} for n in range(50)])
        assert [await job.result(timeout="10s") for job in jobs] == list(range(50))


# --- leases --------------------------------------------------------------------------------------


async def test_a_job_longer_than_its_lease_is_kept_by_renewal(queue: Queue) -> None:
    async def slow(job: Job) -> str:
        await asyncio.sleep(0.5)
        return "kept"

    async with Worker(queue, slow, lock_duration=150, maintenance_interval=50):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "kept"
    assert (await again(queue, job)).stalled_count == 0


async def test_renewal_needs_no_event_loop(queue: Queue) -> None:
    async def blocks(job: Job) -> str:
        time.sleep(0.5)  # noqa: ASYNC251 - what careless processors do
        return "kept"

    async with Worker(queue, blocks, lock_duration=150, maintenance_interval=50):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "kept"
    assert (await again(queue, job)).stalled_count == 0


@pytest.mark.parametrize("option", [{"skip_lock_renewal": True}, {"lock_renew_time": 0}])
async def test_without_renewal_a_job_longer_than_its_lease_is_lost(
    queue: Queue, option: Any, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Any] = []
    go_on = threading.Event()

    def slow(job: Job) -> str:
        if job.stalled_count == 0:
            go_on.wait(20)
        return "second" if job.stalled_count else "first"

    async with Worker(
        queue, slow, concurrency=2, lock_duration=150, maintenance_interval=50, **option
    ) as worker:
        worker.on("error", errors.append)
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "second"
        go_on.set()
        await until(lambda: errors)
    assert isinstance(errors[0], LostLock)
    done = await again(queue, job)
    assert (done.return_value, done.stalled_count) == ("second", 1)


async def test_how_often_a_lease_is_renewed_may_be_said(queue: Queue) -> None:
    renewed: list[Any] = []
    go_on = asyncio.Event()

    async def slow(job: Job) -> None:
        await go_on.wait()

    async with Worker(queue, slow, lock_renew_time=30) as worker:
        worker.on("locks_renewed", renewed.append)
        job = await queue.add("a")
        await until(lambda: len(renewed) >= 3)
        go_on.set()
        await job.result(timeout="10s")
    assert renewed[0] == {"count": 1, "job_ids": [job.id]}


async def test_a_run_that_lost_its_lease_gets_its_abort_signal(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[Any] = []
    reasons: list[Any] = []
    begun = asyncio.Event()

    async def slow(job: Job, token: str, signal: Signal) -> None:
        if job.stalled_count == 0:
            begun.set()
            reasons.append(await signal.wait())

    async with Worker(queue, slow, lock_renew_time=50) as worker:
        worker.on("lock_renewal_failed", lost.append)
        job = await queue.add("a")
        await begun.wait()
        await take_away(queue)
        await until(lambda: reasons)
        await until(lambda: is_in(queue, job, "completed"))
    assert lost == [[job.id]]
    assert isinstance(reasons[0], LostLock)


async def test_skip_stalled_check_recovers_no_jobs(queue: Queue) -> None:
    options: Any = {"lock_duration": 100, "skip_lock_renewal": True, "maintenance_interval": 50}
    await queue.add("a")
    async with Worker(queue, None, skip_stalled_check=True, **options) as worker:
        job = await worker.get_next_job()
        assert job is not None
        await asyncio.sleep(0.5)
        assert await state_of(queue, job) == "active"
        async with Worker(queue, None, **options) as checks:
            await checks.wait_until_ready()
            await until(lambda: is_in(queue, job, "waiting"))


async def test_worker_emits_stalled_for_recovered_jobs(queue: Queue) -> None:
    heard: list[Any] = []
    async with Worker(queue, echo) as listens, Worker(queue, None) as worker:
        listens.on("stalled", lambda job_id, prev: heard.append((job_id, prev)))
        await listens.pause()
        await queue.add("a")
        job = await worker.get_next_job()
        assert job is not None
        await take_away(queue)
        await until(lambda: heard)
    assert heard == [(job.id, "active")]


# --- looking and keeping house -------------------------------------------------------------------


async def test_jobs_added_by_another_process_are_found(queue: Queue, location: str) -> None:
    program = """
import asyncio, sys
from bullite import Queue

async def main():
    async with Queue("emails", sys.argv[1]) as queue:
        await queue.add_bulk([{"name": "a", "data": number} for number in range(20)])

asyncio.run(main())
"""
    async with Worker(queue, echo, poll_interval=50) as worker:
        await worker.wait_until_ready()
        await asyncio.to_thread(python, program, location)
        await until(lambda: twenty_completed(queue))


async def twenty_completed(queue: Queue) -> bool:
    return await queue.get_completed_count() == 20


async def test_a_worker_keeps_house_for_queues_without_workers(queue: Queue) -> None:
    async with Queue("other", queue.store) as other:
        job = await other.add("a", delay=50)
        late = await other.add("b", expires=50)
        async with Worker(queue, echo, maintenance_interval=50):
            await until(lambda: is_in(other, job, "waiting"))
            await until(lambda: is_in(other, late, "failed"))


async def test_a_worker_waits_for_a_job_as_long_as_its_drain_delay(queue: Queue) -> None:
    async with Worker(queue, None, drain_delay=100) as worker:
        await worker.wait_until_ready()
        began = time.monotonic()
        assert await worker.get_next_job() is None
        assert time.monotonic() - began > 0.09


async def test_how_soon_a_failing_database_is_tried_again_may_be_said(
    queue: Queue,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    database.give_up_on_locks(0.02, monkeypatch)
    await queue.wait_until_ready()
    errors: list[Any] = []
    job = await queue.add("a", 1)
    with database.locked():
        worker = Worker(queue, echo, run_retry_delay=20)
        worker.on("error", errors.append)
        # At the usual pace, from 1 s and doubling, this would take more than a minute.
        await until(lambda: len(errors) >= 8, limit=20)
    assert await job.result(timeout="10s") == 1
    await worker.close()


# --- bad values ----------------------------------------------------------------------------------

DURATIONS = (
    "lock_duration",
    "lock_renew_time",
    "stalled_interval",
    "poll_interval",
    "maintenance_interval",
    "drain_delay",
    "run_retry_delay",
)


async def test_a_bad_duration_is_named(queue: Queue) -> None:
    for bad, option in product([-1, 10**18, 1.5, "soon", True, [5], "5 parsecs", b"5s"], DURATIONS):
        with case((bad, option)):
            options: Any = {option: bad}
            with pytest.raises(BulliteError, match=option) as raised:
                Worker(queue, echo, **options)
            assert isinstance(raised.value, ValueError | TypeError)


async def test_nothing_is_done_all_the_time(queue: Queue) -> None:
    for option in [o for o in DURATIONS if o not in ("lock_renew_time", "run_retry_delay")]:
        with case(option):
            options: Any = {option: 0}
            with pytest.raises(InvalidOption, match=option):
                Worker(queue, echo, **options)


async def test_a_bad_flag_is_named(queue: Queue) -> None:
    for bad, option in product(
        [1, 0, "yes", None], ["autorun", "skip_stalled_check", "skip_lock_renewal"]
    ):
        with case((bad, option)):
            options: Any = {option: bad}
            with pytest.raises(InvalidOptionType, match=option):
                Worker(queue, echo, **options)


async def test_a_bad_number_is_named(queue: Queue) -> None:
    for bad, option in product(
        [-1, 2**31, 1.5, "3", True], ["max_stalled_count", "max_started_attempts"]
    ):
        with case((bad, option)):
            options: Any = {option: bad}
            with pytest.raises(BulliteError, match=option):
                Worker(queue, echo, **options)


async def test_bad_retention_is_named(queue: Queue) -> None:
    for bad, option in product(
        [-2, 1.5, "all", {"age": -1}, {"count": -2}, {"limit": 1.5}, {"days": 1}, [1], 2**40],
        ["remove_on_complete", "remove_on_fail"],
    ):
        with case((bad, option)):
            options: Any = {option: bad}
            with pytest.raises(BulliteError, match=option):
                Worker(queue, echo, **options)


async def test_a_bad_name_is_refused(queue: Queue) -> None:
    for bad in [5, "", "a\x00b", "a\nb", "\ud800", "x" * 256]:
        with case(bad), pytest.raises(BulliteError, match="name"):
            Worker(queue, echo, name=bad)


async def test_an_unknown_option_is_refused(queue: Queue) -> None:
    with pytest.raises(TypeError, match="colour"):
        Worker(queue, echo, colour="red")  # type: ignore[call-arg]


async def test_a_bad_time_limit_of_closing_is_refused_and_the_worker_works_on(queue: Queue) -> None:
    for bad in [-1, 1.5, "later", True]:
        with case(bad):
            async with Worker(queue, echo) as worker:
                with pytest.raises(BulliteError, match="timeout"):
                    await worker.close(timeout=bad)
                assert await (await queue.add("a", 1)).result(timeout="10s") == 1


async def test_a_refused_worker_leaves_no_trace(queue: Queue) -> None:
    await queue.wait_until_ready()
    with pytest.raises(InvalidOption):
        Worker(queue, echo, poll_interval=0)
    await asyncio.sleep(0.05)
    assert await queue.get_workers() == []
