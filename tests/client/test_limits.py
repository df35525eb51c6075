"""Limits of a queue: how many jobs run, how many begin in a time, in all or of a key."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from bullite import BulliteError, Job, Queue, RateLimitError, WaitingError, Worker
from tests.support.helpers import again, case, python, state_of, until


class Gauge:
    """How many jobs run, and how many did at most."""

    def __init__(self, seconds: float = 0.005) -> None:
        self.seconds = seconds
        self.running = self.most = 0
        self.began: list[Any] = []

    async def __call__(self, job: Job) -> None:
        self.began.append(job.data)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.seconds)
        self.running -= 1


async def some(queue: Queue, number: int) -> list[Job]:
    return await queue.add_bulk([{"name": "a", "data": n} for n in range(number)])


async def all_done(jobs: list[Job]) -> None:
    await asyncio.gather(*(job.result(timeout="15s") for job in jobs))


async def nothing(job: Job) -> None:
    pass


# --- global concurrency --------------------------------------------------------------------------


async def test_as_many_run_as_the_global_concurrency_allows_and_no_more(queue: Queue) -> None:
    await queue.set_global_concurrency(3)
    jobs, gauge = await some(queue, 20), Gauge()
    async with Worker(queue, gauge, concurrency=5), Worker(queue, gauge, concurrency=5):
        await all_done(jobs)
    assert gauge.most == 3


async def test_it_holds_for_jobs_that_are_over_in_no_time(queue: Queue) -> None:
    """Such jobs are fetched ahead elsewhere."""
    jobs, seen = await some(queue, 300), Counter[int]()
    await queue.set_global_concurrency(2)

    async def look(job: Job) -> None:
        if job.data % 50 == 0:
            seen[await queue.get_active_count()] += 1

    async with Worker(queue, look, concurrency=10):
        await all_done(jobs)
    assert max(seen) <= 2


async def test_a_queue_is_maxed_while_as_many_run_as_may(queue: Queue) -> None:
    go_on = asyncio.Event()

    async def hold(job: Job) -> None:
        await go_on.wait()

    assert not await queue.is_maxed()
    await queue.set_global_concurrency(1)
    assert not await queue.is_maxed()
    async with Worker(queue, hold, concurrency=2):
        job = await queue.add("a")
        await until(queue.is_maxed)
        go_on.set()
        await job.result(timeout="10s")
        assert not await queue.is_maxed()


async def test_it_can_be_raised_while_workers_wait(queue: Queue) -> None:
    gauge = Gauge(0.1)
    await queue.set_global_concurrency(1)
    jobs = await some(queue, 6)
    async with Worker(queue, gauge, concurrency=5, poll_interval=60_000):
        await until(lambda: gauge.running == 1)
        await queue.set_global_concurrency(4)
        await until(lambda: gauge.running == 4)
        await all_done(jobs)


async def test_removing_what_is_not_there_says_so(queue: Queue) -> None:
    assert await queue.remove_global_concurrency() is False
    assert await queue.remove_global_rate_limit() is False
    assert await queue.remove_rate_limit_key() is False
    assert await queue.remove_rate_limit("a") is False


async def test_a_bad_global_concurrency_is_refused(queue: Queue) -> None:
    for bad in [0, -1, 1.5, "2", True, None, 10**30, float("nan")]:
        with case(bad):
            with pytest.raises(BulliteError, match="concurrency") as raised:
                await queue.set_global_concurrency(bad)
            assert isinstance(raised.value, ValueError | TypeError)
            assert await queue.get_global_concurrency() is None


# --- rate limits ---------------------------------------------------------------------------------


async def test_the_limit_of_a_queue_is_read_back_in_ms(queue: Queue) -> None:
    assert await queue.get_global_rate_limit() is None
    await queue.set_global_rate_limit(5, "2s")
    assert await queue.get_global_rate_limit() == {"max": 5, "duration": 2_000}
    assert await queue.remove_global_rate_limit() is True
    assert await queue.get_global_rate_limit() is None


async def test_meta_shows_all_limits(queue: Queue) -> None:
    meta = await queue.get_meta()
    limits = ("concurrency", "max", "duration", "max_waiting", "max_payload_bytes", "max_rate")
    assert [meta[name] for name in limits] == [None] * 6
    await queue.set_global_concurrency(3)
    await queue.set_global_rate_limit(5, timedelta(seconds=1))
    await queue.configure(max_waiting=7, max_payload_bytes=8, max_rate={"max": 9, "duration": "1m"})
    meta = await queue.get_meta()
    assert [meta[name] for name in limits] == [3, 5, 1_000, 7, 8, {"max": 9, "duration": 60_000}]


async def test_obliterate_removes_all_limits(queue: Queue) -> None:
    await queue.set_global_concurrency(3)
    await queue.set_global_rate_limit(5, 1_000)
    await queue.set_rate_limit("a", 1, 1_000)
    await queue.rate_limit(60_000)
    await queue.configure(max_waiting=7, max_rate={"max": 9, "duration": 1})
    await queue.obliterate()
    meta = await queue.get_meta()
    names = ("concurrency", "max", "duration", "max_waiting", "max_rate")
    assert [meta[name] for name in names] == [None] * 5
    assert await queue.get_rate_limit("a") is None
    assert await queue.get_rate_limit_ttl() == 0


async def test_a_bad_rate_is_refused_wherever_it_is_given(queue: Queue) -> None:
    for most, duration in [
        (0, 1_000),
        (-1, 1_000),
        (1.5, 1_000),
        ("5", 1_000),
        (True, 1_000),
        (10**30, 1_000),
        (5, 0),
        (5, -1),
        (5, 1.5),
        (5, float("nan")),
        (5, None),
        (5, "soon"),
        (5, 10**18),
    ]:
        with case((most, duration)):
            rate: Any = {"max": most, "duration": duration}
            with pytest.raises(BulliteError, match=r"max|duration") as raised:
                await queue.set_global_rate_limit(most, duration)
            assert isinstance(raised.value, ValueError | TypeError)
            with pytest.raises(BulliteError, match=r"max|duration"):
                await queue.set_rate_limit("a", most, duration)
            with pytest.raises(BulliteError, match="limiter"):
                Worker(queue, nothing, limiter=rate, autorun=False)
            with pytest.raises(BulliteError, match="max_rate"):
                await queue.configure(max_rate=rate)
            assert await queue.get_global_rate_limit() is None
            assert await queue.get_rate_limit("a") is None


def test_a_limiter_that_is_none_is_refused(location: str) -> None:
    for bad in [
        5,
        "10/s",
        [],
        {},
        {"max": 1},
        {"max": 1, "duration": 1, "burst": 2},
        {"duration": 1},
    ]:
        with case(bad):
            with pytest.raises(BulliteError, match="limiter") as raised:
                Worker(Queue("emails", location), nothing, limiter=bad, autorun=False)
            assert isinstance(raised.value, ValueError | TypeError)


async def test_a_bad_time_is_refused(queue: Queue) -> None:
    for bad in [0, -1, "soon", None, 1.5, 10**18]:
        with case(bad):
            with pytest.raises(BulliteError, match="duration"):
                await queue.rate_limit(bad)
            with pytest.raises(BulliteError, match="maximum_rate_limit_delay"):
                Worker(queue, nothing, maximum_rate_limit_delay=bad, autorun=False)


async def test_a_bad_number_of_jobs_to_judge_by_is_refused(queue: Queue) -> None:
    for bad in [0, -1, "5", 1.5]:
        with case(bad), pytest.raises(BulliteError, match="max_jobs"):
            await queue.get_rate_limit_ttl(bad)


async def test_the_time_left_is_0_when_nothing_limits(queue: Queue) -> None:
    assert await queue.get_rate_limit_ttl() == 0
    assert await queue.get_rate_limit_ttl(5) == 0
    await queue.set_global_rate_limit(2, 60_000)
    assert await queue.get_rate_limit_ttl() == 0
    async with Worker(queue, nothing):
        await (await queue.add("a")).result(timeout="10s")
        assert await queue.get_rate_limit_ttl() == 0
        assert await queue.get_rate_limit_ttl(2) == 0
        assert 50_000 < await queue.get_rate_limit_ttl(1) <= 60_000
        await (await queue.add("a")).result(timeout="10s")
        assert 50_000 < await queue.get_rate_limit_ttl() <= 60_000


async def test_workers_of_a_limited_queue_hear_of_no_end_that_is_none(queue: Queue) -> None:
    drained: list[str] = []
    jobs = await some(queue, 3)
    async with Worker(queue, nothing, limiter={"max": 1, "duration": 60}) as worker:
        worker.on("drained", lambda: drained.append("yes"))
        await all_done(jobs)
        await until(lambda: drained)
    assert drained == ["yes"]


async def test_a_job_by_hand_waits_for_the_limit(queue: Queue) -> None:
    await some(queue, 2)
    worker = Worker(queue, limiter={"max": 1, "duration": 300})
    began = time.monotonic()
    first = await worker.get_next_job()
    assert first is not None
    assert await worker.get_next_job(block=False) is None
    second = await worker.get_next_job()
    assert second is not None
    assert time.monotonic() - began >= 0.29
    for job in (first, second):
        await job.move_to_completed()
    await worker.close()


# --- by hand -------------------------------------------------------------------------------------


async def test_a_limit_by_hand_stops_all_workers_of_all_processes(
    queue: Queue, location: str
) -> None:
    await queue.rate_limit(60_000)
    await queue.add("a")
    program = (
        "import asyncio, sys\n"
        "from bullite import Worker\n"
        "async def main():\n"
        "    worker = Worker('emails', store=sys.argv[1], drain_delay=200)\n"
        "    print(await worker.get_next_job())\n"
        "    await worker.close()\n"
        "asyncio.run(main())\n"
    )
    assert python(program, location) == "None\n"
    assert await queue.remove_rate_limit_key() is True
    async with Worker(queue, nothing):
        await until(lambda: has_completed(queue, 1))


async def has_completed(queue: Queue, number: int) -> bool:
    return await queue.get_completed_count() == number


async def test_what_was_fetched_ahead_does_not_begin_after_a_limit_by_hand(queue: Queue) -> None:
    jobs = await some(queue, 500)
    after: list[int] = []
    limited = False

    async def work(job: Job) -> None:
        nonlocal limited
        if limited:
            after.append(job.data)
        if job.data == 200:
            await queue.rate_limit(60_000)
            limited = True
            raise RateLimitError

    async def is_nothing_held() -> bool:
        return limited and await queue.get_active_count() == 0

    async with Worker(queue, work):
        await until(is_nothing_held)
        assert after == []
    assert await state_of(queue, jobs[200]) == "waiting"


async def test_giving_a_job_back_tells_how_long_nothing_begins(queue: Queue) -> None:
    ttls: list[int] = []

    async def work(job: Job) -> None:
        if job.attempts_started == 1:
            ttls.append(await job.move_to_waiting())
            raise WaitingError
        if job.attempts_started == 2:
            await queue.rate_limit(100)
            ttls.append(await job.move_to_wait())
            raise WaitingError

    async with Worker(queue, work):
        await (await queue.add("a")).result(timeout="10s")
    assert ttls[0] == 0
    assert 0 < ttls[1] <= 100


async def test_an_error_for_a_limit_without_one_lets_the_job_run_again_soon(queue: Queue) -> None:
    async def work(job: Job) -> int:
        if job.attempts_started == 1:
            raise RateLimitError
        return job.attempts_made

    async with Worker(queue, work):
        assert await (await queue.add("a")).result(timeout="10s") == 0


# --- of a key ------------------------------------------------------------------------------------


async def test_a_key_that_is_used_up_holds_up_nobody_else(queue: Queue) -> None:
    await queue.set_rate_limit("tenant-7", 2, 60_000)
    gauge = Gauge(0)
    jobs = [
        await queue.add("a", key, limit_key=key)
        for key in ("tenant-7", "tenant-7", "tenant-7", "tenant-8", "tenant-8", "tenant-8")
    ]
    assert (jobs[0].limit_key, jobs[0].opts["limit_key"]) == ("tenant-7", "tenant-7")
    async with Worker(queue, gauge, concurrency=4):
        await all_done([*jobs[:2], *jobs[3:]])
        assert await state_of(queue, jobs[2]) == "waiting"
        assert 50_000 < await queue.get_rate_limit_ttl(key="tenant-7") <= 60_000
        assert await queue.get_rate_limit_ttl(key="tenant-8") == 0
    assert Counter(gauge.began) == {"tenant-7": 2, "tenant-8": 3}


async def test_the_rest_of_a_key_runs_when_its_window_has_ended(queue: Queue) -> None:
    await queue.set_rate_limit(None, 1, 100)
    jobs = [await queue.add("a", n, limit_key="a") for n in range(4)]
    gauge = Gauge(0)
    began = time.monotonic()
    async with Worker(queue, gauge, concurrency=4, poll_interval=60_000):
        await all_done(jobs)
    assert time.monotonic() - began >= 0.29
    assert gauge.began == [0, 1, 2, 3]


async def test_limits_of_keys_are_set_read_changed_and_removed(queue: Queue) -> None:
    assert await queue.get_rate_limit("a") is None
    await queue.set_rate_limit("a", 1, "1s")
    await queue.set_rate_limit(None, 9, "1m")
    assert await queue.get_rate_limit("a") == {"max": 1, "duration": 1_000}
    assert await queue.get_rate_limit(None) == {"max": 9, "duration": 60_000}
    await queue.set_rate_limit("a", 2, "2s")
    assert await queue.get_rate_limit("a") == {"max": 2, "duration": 2_000}
    assert await queue.remove_rate_limit("a") is True
    assert await queue.get_rate_limit("a") is None


async def test_jobs_that_stand_aside_are_listed_counted_cleaned_and_drained(queue: Queue) -> None:
    await queue.set_rate_limit("a", 1, 60_000)
    jobs = [await queue.add("a", n, limit_key="a") for n in range(5)]
    await queue.add("a", limit_key="a", priority=3)
    async with Worker(queue, nothing):
        await jobs[0].result(timeout="10s")
        await until(lambda: stands_aside(queue, 5))
    waiting = await queue.get_waiting()
    assert [job.id for job in waiting] == [job.id for job in jobs[1:]]
    assert len(await queue.get_prioritized()) == 1
    assert [job.id async for job in queue.iter_jobs("waiting")] == [job.id for job in waiting]
    assert await queue.get_job_counts("waiting", "prioritized") == {"waiting": 4, "prioritized": 1}
    assert await queue.clean(0, 1, "waiting") == [jobs[1].id]
    assert (await queue.restore(jobs[1].id)).state == "waiting"
    await queue.drain()
    assert await queue.count() == 0


async def stands_aside(queue: Queue, number: int) -> bool:
    rows = queue.store.open().driver.reader()
    try:
        lanes = rows.read(
            "parked_lanes", {"queue": queue._pk, "first_lane": "\x1f", "last_lane": "\x20"}
        ).rows
    finally:
        rows.close()
    return (
        len(lanes) == 1 and await queue.get_job_count_by_types("waiting", "prioritized") == number
    )


async def test_a_bad_key_is_refused_and_nothing_is_stored(queue: Queue) -> None:
    for bad in ["", "x" * 256, "a\x1fb", 5, b"a", True]:
        with case(bad):
            with pytest.raises(BulliteError, match="limit_key") as raised:
                await queue.add("a", limit_key=bad)
            assert isinstance(raised.value, ValueError | TypeError)
            with pytest.raises(BulliteError, match="limit_key"):
                await queue.set_rate_limit(bad, 1, 1)
            with pytest.raises(BulliteError, match="limit_key"):
                await queue.get_rate_limit_ttl(key=bad)
            assert await queue.count() == 0


async def test_a_key_may_be_a_default(queue: Queue) -> None:
    await queue.configure(default_job_options={"limit_key": "all"})
    job = await queue.add("a")
    assert (await again(queue, job)).limit_key == "all"
    assert (await queue.add("a", limit_key=None)).limit_key is None
