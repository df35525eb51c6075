"""Time passes from one due moment to the next, and everything happens exactly then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from bullite import Job, LockNotAcquired, Worker
from bullite.testing import START, Playground, Run


def seconds(runs: Sequence[Run]) -> list[float]:
    """When they began, counted from the start."""
    return [(run.at - START).total_seconds() for run in runs]


def fail(job: Job) -> None:
    raise ValueError("it broke")


def nothing(job: Job) -> None:
    pass


async def test_a_delayed_job_runs_when_it_is_due_and_not_before(play: Playground) -> None:
    play.process("test", None, nothing)
    play.add("test", "job", delay="2h")
    assert len(await play.advance(7_199_999)) == 0
    assert seconds(await play.advance(1)) == [7200]


def test_it_ends_exactly_at_the_target(play: Playground) -> None:
    play.process("test", None, nothing)
    play.add("test", "job", delay=1_234)
    play.advance("1d")
    assert play.clock.time == START + timedelta(days=1)


def test_what_is_ready_already_runs_before_time_passes(play: Playground) -> None:
    play.process("test", None, nothing)
    play.add("test", "late", delay="1s")
    play.add("test", "now")
    assert seconds(play.advance("1m")) == [0, 1]


@pytest.mark.parametrize(
    ("backoff", "times"),
    [
        ({"type": "fixed", "delay": "10s"}, [0, 10, 20, 30]),
        ({"type": "linear", "delay": "10s"}, [0, 10, 30, 60]),
        ({"type": "exponential", "delay": "10s"}, [0, 10, 30, 70]),
    ],
)
def test_retries_run_after_their_backoff(
    play: Playground, backoff: dict[str, str], times: list[float]
) -> None:
    play.process("test", None, fail)
    job = play.add("test", "job", attempts=4, backoff=backoff)  # type: ignore[typeddict-item]
    ran = play.advance("1h")
    assert seconds(ran) == times
    assert [run.came_to for run in ran] == ["delayed"] * 3 + ["failed"]
    play.assert_failed(job, "it broke")


def test_delayed_jobs_of_a_queue_without_a_worker_become_ready_too(play: Playground) -> None:
    job = play.add("test", "job", delay="1h")
    play.advance("2h")
    now = play.refreshed(job)
    assert now is not None
    assert (now.state, now.updated_at) == ("waiting", START + timedelta(hours=1))


def test_a_year_of_a_nightly_job(play: Playground) -> None:
    play.process("test", None, nothing)
    schedule = play.queue("test").upsert_job_scheduler(
        "nightly", pattern="30 3 * * *", tz="Europe/Berlin", template={"name": "report"}
    )
    play.run(schedule)
    ran = play.advance("365d")
    assert len(ran) == 365
    # In winter Berlin is an hour ahead of UTC, in summer two.
    assert {run.at.strftime("%H:%M:%S") for run in ran} == {"01:30:00", "02:30:00"}
    assert len({run.at.date() for run in ran}) == 365


def test_a_quarter_of_a_job_every_six_hours(play: Playground) -> None:
    play.process("test", None, nothing)
    play.run(play.queue("test").upsert_job_scheduler("often", every="6h"))
    ran = play.advance("90d")
    assert seconds(ran) == [6 * 3600 * tick for tick in range(90 * 4 + 1)]


def test_a_cron_schedule_on_the_first_of_the_month(play: Playground) -> None:
    play.process("test", None, nothing)
    play.run(play.queue("test").upsert_job_scheduler("monthly", pattern="0 9 1 * *"))
    assert [run.at for run in play.advance("90d")] == [
        datetime(2029, month, 1, 9, tzinfo=UTC) for month in (1, 2, 3)
    ]


def test_a_rate_limit_lets_jobs_begin_window_by_window(play: Playground) -> None:
    play.process("test", None, nothing)
    play.run(play.queue("test").set_global_rate_limit(2, "10s"))
    for _ in range(5):
        play.add("test", "job")
    assert len(play.drain()) == 2
    assert seconds(play.advance("1m")) == [10, 10, 20]


def test_the_limiter_of_a_worker(play: Playground) -> None:
    play.worker_options("test", limiter={"max": 1, "duration": "1m"})
    play.process("test", None, nothing)
    for _ in range(3):
        play.add("test", "job")
    assert seconds(play.advance("10m")) == [0, 60, 120]


def test_a_job_that_nobody_takes_expires(play: Playground) -> None:
    job = play.add("test", "job", expires="1h")
    play.advance("59m")
    play.assert_enqueued("test", "job")
    play.advance("2m")
    now = play.assert_failed(job)
    assert (now.outcome, now.finished_at) == ("expired", START + timedelta(hours=1))


def test_failed_jobs_are_tried_again_by_themselves(play: Playground) -> None:
    play.process("test", None, fail)
    play.run(play.queue("test").configure(retry_failed_after="1h", retry_failed_times=2))
    play.add("test", "job")
    assert seconds(play.advance("1d")) == [0, 3600, 7200]


def test_what_may_not_stay_is_deleted(play: Playground) -> None:
    play.process("test", None, nothing)
    play.run(play.queue("test").configure(keep_completed="1h"))
    job = play.add("test", "job")
    play.drain()
    play.advance("1h")
    play.assert_completed(job)
    play.advance("1m")
    assert play.refreshed(job) is None


def test_a_job_that_sleeps_goes_on_when_it_wakes_up(play: Playground) -> None:
    async def reminder(job: Job) -> str:
        first = await job.step("first", lambda: play.clock.now())
        await job.sleep("3d")
        return f"{(play.clock.now() - first) / 86_400_000:g} days"

    play.process("test", None, reminder)
    job = play.add("test", "job")
    assert seconds(play.advance("7d")) == [0, 3 * 86_400]
    play.assert_completed(job, "3 days")


def test_a_processor_may_take_its_time(play: Playground) -> None:
    play.process("test", None, lambda job: play.clock.advance("5m"))
    job = play.add("test", "job")
    play.add("test", "next")
    assert seconds(play.drain()) == [0, 300]
    now = play.assert_completed(job)
    assert now.finished_at is not None
    assert now.processed_at is not None
    assert now.finished_at - now.processed_at == timedelta(minutes=5)


async def test_the_lock_of_a_job_that_is_not_renewed_expires(play: Playground) -> None:
    queue = play.queue("test")
    play.process("test", None, lambda job: job.attempts_started)
    job = await queue.add("job")
    async with Worker(queue, None, skip_lock_renewal=True, lock_duration="1m") as forgetful:
        assert await forgetful.get_next_job(block=False) is not None
        assert len(await play.advance("1m")) == 0
        [run] = await play.advance("1s")
        assert run.at == START + timedelta(milliseconds=60_001)
    assert play.assert_completed(job, 2).stalled_count == 1


async def test_a_named_lock_is_held_as_long_as_its_holder_lives(play: Playground) -> None:
    async def work(job: Job) -> str:
        async with play.store.lock("the printer", wait=0):
            return "printed"

    play.process("test", None, work)
    play.add("test", "job", attempts=3, backoff={"type": "fixed", "delay": "1h"})
    async with play.store.lock("the printer", ttl="30s") as lock:
        [run] = await play.advance("59m")
        assert isinstance(run.error, LockNotAcquired)
        assert lock.held
    assert (await play.advance("1m")).values == ["printed"]


def test_the_named_lock_of_a_killed_process_is_free(play: Playground) -> None:
    held = []

    async def work(job: Job) -> bool:
        store = job._queue.store
        held.append(await store.lock("the printer", ttl="1h", wait=0).acquire())
        return True

    play.process("test", None, work)
    job = play.add("test", "job")
    play.kill_at("after_run")
    play.advance("1s")
    play.assert_completed(job, True)
    assert held[0] < held[1]


def test_jobs_wait_for_real_things_in_real_time(play: Playground) -> None:
    async def slow(job: Job) -> None:
        await asyncio.sleep(0.001 if job.data == "quick" else 10)

    play.process("test", None, slow)
    quick, slow_one = (play.add("test", "job", how, timeout=50) for how in ("quick", "slow"))
    play.drain()
    play.assert_completed(quick)
    play.assert_failed(slow_one, "timeout")
