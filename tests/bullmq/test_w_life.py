"""Workers: their options, how many jobs they run at a time, pausing, trouble and closing."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from bullite import DelayedError, Job, Queue, Worker
from bullite.errors import BulliteError
from tests.support.databases import Database
from tests.support.helpers import again, until


async def do_nothing(job: Job) -> None:
    pass


# --- closing -------------------------------------------------------------------------------------


async def test_W_017_closing_waits_for_a_job_that_will_fail(queue: Queue) -> None:
    begun = asyncio.Event()
    told: list[Exception] = []
    error = ValueError("in the end it failed")

    async def work(job: Job) -> None:
        begun.set()
        await asyncio.sleep(0.2)
        raise error

    worker = Worker(queue, work)
    worker.on("failed", lambda job, error, prev: told.append(error))
    await queue.add("a")
    await begun.wait()
    await worker.close()
    assert told == [error]
    counts = await queue.get_job_counts("active", "failed")
    assert counts == {"active": 0, "failed": 1}


async def delay_itself(job: Job) -> None:
    """Ask to run again at once, and end a little later."""
    await job.move_to_delayed(time.time_ns() // 1_000_000)
    await asyncio.sleep(0.05)
    raise DelayedError


async def close_during_the_first(queue: Queue, pauses: bool) -> int:
    """How many runs began until a worker was closed whose 50 jobs delay themselves for ever."""
    runs = 0
    begun = asyncio.Event()

    async def work(job: Job) -> None:
        nonlocal runs
        runs += 1
        begun.set()
        await delay_itself(job)

    await queue.add_bulk([{"name": "a"}] * 50)
    worker = Worker(queue, work, drain_delay=10_000)
    await begun.wait()
    if pauses:
        await worker.pause()
    await worker.close()
    return runs


async def test_W_019_closing_does_not_go_on_fetching_jobs_that_delay_themselves(
    queue: Queue,
) -> None:
    assert await close_during_the_first(queue, pauses=False) <= 2
    counts = await queue.get_job_counts()
    assert (counts["waiting"] + counts["delayed"], counts["active"]) == (50, 0)


async def test_W_020_a_paused_worker_closes_although_its_jobs_delay_themselves(
    queue: Queue,
) -> None:
    assert await close_during_the_first(queue, pauses=True) <= 2
    counts = await queue.get_job_counts()
    assert (counts["waiting"] + counts["delayed"], counts["active"]) == (50, 0)


async def test_W_051_locks_are_renewed_while_a_closing_worker_waits_for_its_job(
    queue: Queue,
) -> None:
    begun = asyncio.Event()
    told: list[str] = []

    async def work(job: Job) -> str:
        begun.set()
        await until(lambda: told.count("renewed") >= 3)
        return "done"

    options: Any = {"lock_duration": 200, "lock_renew_time": 50, "stalled_interval": 100}
    worker = Worker(queue, work, **options)
    worker.on("failed", lambda *_: told.append("failed"))
    worker.on("stalled", lambda *_: told.append("stalled"))
    job = await queue.add("a")
    await begun.wait()
    worker.on("locks_renewed", lambda _: told.append("renewed"))
    await worker.close()
    done = await again(queue, job)
    assert (done.state, done.return_value, done.attempts_started) == ("completed", "done", 1)
    assert set(told) == {"renewed"}


# --- trouble -------------------------------------------------------------------------------------


async def test_W_022_a_fetch_that_fails_is_told_and_tried_again(
    queue: Queue, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.give_up_on_locks(0.05, monkeypatch)
    errors: list[Exception] = []

    async def work(job: Job) -> str:
        return "done"

    async with Worker(queue, work, run_retry_delay=50) as worker:
        worker.on("error", errors.append)
        await worker.wait_until_ready()
        job = await queue.add("a", delay=400)
        with database.locked():
            await until(lambda: errors)
        assert worker.is_running()
        assert await job.result(timeout="10s") == "done"
    assert isinstance(errors[0], BulliteError)


async def test_W_046_a_worker_goes_on_when_its_locks_are_renewed_too_late(queue: Queue) -> None:
    async def work(job: Job) -> str:
        await asyncio.sleep(0.4)
        return job.name

    options: Any = {"lock_duration": 100, "lock_renew_time": 600, "stalled_interval": 50}
    async with Worker(queue, work, maintenance_interval=50, **options) as worker:
        assert await (await queue.add("a")).result(timeout="15s") == "a"
        assert worker.is_running()
        assert await (await queue.add("b")).result(timeout="15s") == "b"


# --- options that make no sense ------------------------------------------------------------------


async def test_W_047_a_job_cannot_be_allowed_to_stall_less_than_never(queue: Queue) -> None:
    with pytest.raises(ValueError, match="max_stalled_count must be"):
        Worker(queue, do_nothing, max_stalled_count=-1)


async def test_W_049_looking_for_stalled_jobs_cannot_be_for_ever(queue: Queue) -> None:
    with pytest.raises(ValueError, match="stalled_interval must be"):
        Worker(queue, do_nothing, stalled_interval=0)


async def test_W_050_a_drain_delay_of_nothing_is_refused(queue: Queue) -> None:
    with pytest.raises(ValueError, match="drain_delay must be"):
        Worker(queue, do_nothing, drain_delay=0)


@pytest.mark.parametrize("concurrency", [0, -1, float("nan"), float("inf")])
async def test_W_052_a_worker_must_run_at_least_one_job_at_a_time(
    queue: Queue, concurrency: Any
) -> None:
    with pytest.raises(BulliteError, match="concurrency must be"):
        Worker(queue, do_nothing, concurrency=concurrency)


# --- several at a time ---------------------------------------------------------------------------


class Crowd:
    """Counts how many jobs run at a time, and lets them go one by one."""

    def __init__(self) -> None:
        self.running = 0
        self.ended = 0
        self.seen: list[int] = []
        """For each job that began, how many ran then, itself included."""
        self._gates: list[asyncio.Event] = []
        self._let_go = 0

    async def work(self, job: Job) -> None:
        self.running += 1
        self.seen.append(self.running)
        gate = asyncio.Event()
        self._gates.append(gate)
        await gate.wait()
        self.running -= 1
        self.ended += 1
        if isinstance(job.data, str):
            raise ValueError(job.data)

    def let_go(self, number: int = 1) -> None:
        for gate in self._gates[:number]:
            gate.set()
        del self._gates[:number]
        self._let_go += number

    async def stays(self, number: int) -> None:
        """So many run when those let go have ended, and nobody else begins."""
        await until(lambda: self.ended == self._let_go and self.running == number)
        await asyncio.sleep(0.03)
        assert self.running == number


async def test_W_054_as_many_run_at_a_time_as_the_worker_may_and_never_more(queue: Queue) -> None:
    crowd = Crowd()
    await queue.add_bulk([{"name": "a"}] * 8)
    async with Worker(queue, crowd.work, concurrency=4):
        for _ in range(5):
            await crowd.stays(4)
            crowd.let_go()
        for left in (3, 2, 1):
            await crowd.stays(left)
            crowd.let_go()
        await until(lambda: crowd.ended == 8)
    assert max(crowd.seen) == 4


async def test_W_055_a_worker_told_to_run_more_at_a_time_does_so_from_then_on(
    queue: Queue,
) -> None:
    crowd = Crowd()
    await queue.add_bulk([{"name": "a"}] * 16)
    async with Worker(queue, crowd.work, concurrency=4) as worker:
        for _ in range(8):
            await crowd.stays(4)
            crowd.let_go()
        await until(lambda: crowd.ended == 8)
        worker.concurrency = 8
        await crowd.stays(8)
        crowd.let_go(8)
        await until(lambda: crowd.ended == 16)
    assert worker.concurrency == 8
    assert max(crowd.seen[:12]) == 4


async def test_W_056_a_worker_told_to_run_fewer_at_a_time_lets_those_that_run_end(
    queue: Queue,
) -> None:
    crowd = Crowd()
    failed: list[Job] = []
    jobs = await queue.add_bulk([{"name": "a"}] * 20)
    async with Worker(queue, crowd.work, concurrency=4) as worker:
        worker.on("failed", lambda job, *_: failed.append(job))
        for _ in range(8):
            await crowd.stays(4)
            crowd.let_go()
        await crowd.stays(4)
        worker.concurrency = 2
        for running in (4, 3, *[2] * 9, 1):
            await crowd.stays(running)
            crowd.let_go()
        for job in jobs:
            await job.result()
    assert failed == []
    assert max(crowd.seen[12:]) == 2


async def test_W_057_ends_are_told_in_the_order_of_ending_and_an_odd_one_disturbs_nobody(
    queue: Queue,
) -> None:
    gates = {name: asyncio.Event() for name in ("a", "b", "odd", "c")}
    told: list[str] = []

    async def work(job: Job) -> None:
        await gates[job.name].wait()
        if job.name == "odd":
            await job.move_to_completed()
            raise ValueError("after its job had ended")

    async with Worker(queue, work, concurrency=4) as worker:
        worker.on("completed", lambda job, *_: told.append(job.name))
        worker.on("error", lambda _: told.append("error"))
        await queue.add_bulk({"name": name} for name in gates)
        for number, name in enumerate(["c", "odd", "a", "b"], start=1):
            gates[name].set()
            await until(lambda number=number: len(told) == number)
    assert told == ["c", "error", "a", "b"]


# --- pausing -------------------------------------------------------------------------------------


async def test_W_059_a_worker_that_is_paused_rests_when_its_running_jobs_have_ended(
    queue: Queue,
) -> None:
    crowd = Crowd()
    paused: list[int] = []
    await queue.add_bulk({"name": "a", "data": "fails" if n % 3 == 0 else n} for n in range(8))
    worker = Worker(queue, crowd.work, concurrency=4, autorun=False)
    worker.on("paused", lambda: paused.append(crowd.ended))
    run = asyncio.create_task(worker.run())
    await crowd.stays(4)

    pausing = asyncio.create_task(worker.pause())
    await asyncio.sleep(0.05)
    assert (pausing.done(), paused) == (False, [])
    crowd.let_go(4)
    await pausing
    await asyncio.wait_for(run, 10)
    assert paused == [4]
    assert not worker.is_running()
    assert worker.is_paused()

    await worker.resume()
    await crowd.stays(4)
    assert worker.is_running()
    crowd.let_go(4)
    await until(lambda: crowd.ended == 8)
    await worker.close()
    counts = await queue.get_job_counts("completed", "failed")
    assert counts == {"completed": 5, "failed": 3}


async def test_W_060_no_job_stays_behind_unbegun_with_a_worker_that_was_paused(
    queue: Queue,
) -> None:
    told: list[tuple[bool, int]] = []

    async def work(job: Job) -> None:
        await asyncio.sleep(0.001 * job.data)

    await queue.add_bulk({"name": "a", "data": n} for n in range(8))
    async with Worker(queue, work, concurrency=4) as worker:

        async def hear() -> None:
            told.append((worker.is_running(), await queue.get_active_count()))

        worker.on("paused", hear)
        worker.once("completed", lambda *_: worker.pause())
        await until(lambda: told)
        counts = await queue.get_job_counts("waiting", "completed")
        assert counts["waiting"] + counts["completed"] == 8
    assert told == [(False, 0)]


async def test_W_061_a_worker_can_be_paused_without_waiting_for_what_runs(queue: Queue) -> None:
    crowd = Crowd()
    async with Worker(queue, crowd.work) as worker:
        await queue.add("a")
        await crowd.stays(1)
        await worker.pause(do_not_wait_active=True)
        assert worker.is_paused()
        assert worker.is_running()
        await queue.add("b")
        crowd.let_go()
        await crowd.stays(0)
        await worker.resume()
        assert not worker.is_paused()
        await crowd.stays(1)
        crowd.let_go()
        await until(lambda: crowd.ended == 2)
