"""Workers: what happens after a failed try."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from bullite import Job, JobFailed, Queue, QueueEvents, UnrecoverableError, Worker
from tests.support.helpers import again, state_of, until


class Failing:
    """Fails so many times, then succeeds; remembers each try."""

    def __init__(self, times: int, error: Callable[[], Exception] = lambda: ValueError("not yet")):
        self._times = times
        self._error = error
        self.attempts_made: list[int] = []
        """As each try saw it."""

    async def __call__(self, job: Job) -> int:
        self.attempts_made.append(job.attempts_made)
        if len(self.attempts_made) <= self._times:
            raise self._error()
        return len(self.attempts_made)


def now() -> int:
    return time.time_ns() // 1_000_000


# --- delays --------------------------------------------------------------------------------------


async def delays_of(queue: Queue, attempts: int, backoff: Any) -> list[int]:
    """The delays that listeners see after each failed try."""
    delays: list[int] = []
    async with Worker(queue, Failing(attempts)) as worker:
        worker.on("failed", lambda job, *_: delays.append(job.delay))
        await queue.add("a", attempts=attempts, backoff=backoff)
        await until(lambda: len(delays) == attempts)
    return delays


async def test_W_062_a_plain_number_is_the_delay_before_every_try_and_is_seen_by_listeners(
    queue: Queue,
) -> None:
    delays: list[tuple[int, int]] = []

    async def hear(job: Job, error: Exception, prev: str) -> None:
        delays.append((job.delay, (await again(queue, job)).delay))

    async with Worker(queue, Failing(1)) as worker:
        worker.once("failed", hear)
        job = await queue.add("a", attempts=3, backoff=300)
        await until(lambda: delays)
        assert delays == [(300, 300)]
        assert await job.result() == 2


@pytest.mark.parametrize("chance", [0.0, 0.4, 0.999])
async def test_W_064_with_full_jitter_a_growing_delay_is_anything_up_to_its_whole(
    location: str, chance: float
) -> None:
    async with Queue("emails", location, random=lambda: chance) as queue:
        backoff = {"type": "exponential", "delay": 20, "jitter": 1}
        delays = await delays_of(queue, 4, backoff)
    assert delays == [round(chance * whole) for whole in (20, 40, 80)] + [0]


@pytest.mark.parametrize("chance", [0.0, 0.4, 0.999])
async def test_W_065_with_half_jitter_a_growing_delay_is_at_least_half_its_whole(
    location: str, chance: float
) -> None:
    async with Queue("emails", location, random=lambda: chance) as queue:
        backoff = {"type": "exponential", "delay": 20, "jitter": 0.5}
        delays = await delays_of(queue, 4, backoff)
    assert delays == [round(whole / 2 + chance * whole / 2) for whole in (20, 40, 80)] + [0]


async def test_W_066_after_the_last_try_no_delay_is_left(queue: Queue) -> None:
    failed: list[tuple[int, int]] = []
    async with Worker(queue, Failing(4)) as worker:
        worker.on("failed", lambda job, *_: failed.append((job.delay, job.finished_on)))
        added = await queue.add("a", attempts=4, backoff={"type": "fixed", "delay": 75})
        await until(lambda: len(failed) == 4)
    assert [delay for delay, _ in failed] == [75, 75, 75, 0]
    assert failed[-1][1] >= added.timestamp + 3 * 75
    assert (await again(queue, added)).delay == 0


@pytest.mark.parametrize(("jitter", "least"), [(1, 0), (0.5, 40)])
async def test_W_067_jitter_shortens_a_fixed_delay_by_its_part_at_most(
    queue: Queue, jitter: float, least: int
) -> None:
    delays = await delays_of(queue, 4, {"type": "fixed", "delay": 80, "jitter": jitter})
    assert delays[-1] == 0
    assert all(least <= delay <= 80 for delay in delays[:-1])


@pytest.mark.parametrize(("kind", "together"), [("fixed", 200), ("exponential", 300)])
async def test_W_075_a_job_that_succeeds_at_the_third_try_took_both_delays(
    queue: Queue, kind: str, together: int
) -> None:
    async with Worker(queue, Failing(2)):
        job = await queue.add("a", attempts=3, backoff={"type": kind, "delay": 100})
        assert await job.result() == 3
    done = await again(queue, job)
    assert done.finished_on is not None
    assert done.finished_on - job.timestamp >= together
    assert done.attempts_made == 3


# --- how often -----------------------------------------------------------------------------------


async def test_W_069_jobs_that_succeed_exhaust_no_retries(queue: Queue) -> None:
    told: list[str] = []
    async with QueueEvents("emails", queue.store) as events, Worker(queue, Failing(0)):
        events.on("completed", lambda *_: told.append("completed"))
        events.on("retries_exhausted", lambda *_: told.append("exhausted"))
        await queue.add_bulk([{"name": "a", "opts": {"attempts": 1}}] * 3)
        await until(lambda: told.count("completed") == 3)
        await queue.add("a")  # so that whatever the first three caused has been told
        await until(lambda: told.count("completed") == 4)
    assert told == ["completed"] * 4


async def test_W_070_the_reason_of_a_failed_try_is_stored_while_the_job_waits_for_another(
    queue: Queue,
) -> None:
    told: list[tuple[str, str | None]] = []
    seen: list[int] = []

    async def work(job: Job) -> None:
        seen.append(job.attempts_made)
        await queue.rate_limit(5_000)  # so that the next try cannot begin meanwhile
        raise ValueError("error")

    async def hear(job: Job, error: Exception, prev: str) -> None:
        stored = await again(queue, job)
        told.append((stored.state, stored.failed_reason))

    async with Worker(queue, work) as worker:
        worker.on("failed", hear)
        await queue.add("a", attempts=5)
        await until(lambda: told)
    assert told == [("waiting", "error")]
    assert seen == [0]


async def test_W_071_without_a_backoff_the_next_try_follows_at_once(queue: Queue) -> None:
    failing = Failing(1)
    delays: list[int] = []
    async with Worker(queue, failing) as worker:
        worker.on("failed", lambda job, *_: delays.append(job.delay))
        job = await queue.add("a", attempts=3)
        assert await job.result() == 2
        await until(lambda: delays)
    assert failing.attempts_made == [0, 1]
    assert delays == [0]


async def test_W_074_a_job_that_always_fails_has_its_tries_and_no_more(queue: Queue) -> None:
    failing = Failing(99)
    waited: list[str] = []
    exhausted: list[dict[str, Any]] = []
    completed: list[Any] = []
    async with QueueEvents("emails", queue.store) as events, Worker(queue, failing):
        events.on("waiting", lambda payload, _: waited.append(payload.get("prev")))
        events.on("completed", lambda payload, _: completed.append(payload))
        events.on("retries_exhausted", lambda payload, _: exhausted.append(payload))
        job = await queue.add("a", attempts=3)
        await until(lambda: exhausted)
    assert waited == [None, "active", "active"]
    assert exhausted == [{"job_id": job.id, "attempts_made": 3}]
    assert (failing.attempts_made, completed) == ([0, 1, 2], [])
    assert await state_of(queue, job) == "failed"


async def test_W_076_an_unrecoverable_error_at_the_second_try_forgoes_the_third(
    queue: Queue,
) -> None:
    errors: list[tuple[str, int]] = []

    async def work(job: Job) -> None:
        raise UnrecoverableError("never") if job.attempts_made else ValueError("not yet")

    async with Worker(queue, work) as worker:
        worker.on(
            "failed", lambda job, error, _: errors.append((type(error).__name__, job.attempts_made))
        )
        job = await queue.add("a", attempts=3, backoff=50)
        await until(lambda: len(errors) == 2)
    assert errors == [("ValueError", 1), ("UnrecoverableError", 2)]
    failed = await again(queue, job)
    assert (failed.state, failed.attempts_made) == ("failed", 2)


async def test_W_077_the_step_that_a_job_stored_in_its_data_survives_its_retries(
    queue: Queue,
) -> None:
    steps: list[int] = []

    async def work(job: Job) -> str:
        step = job.data["step"]
        steps.append(step)
        if step < 2:
            await job.update_data({"step": step + 1})
            raise ValueError("the next step, please")
        return "finished"

    async with Worker(queue, work):
        job = await queue.add("a", {"step": 0}, attempts=3, backoff=100)
        assert await job.result() == "finished"
    done = await again(queue, job)
    assert steps == [0, 1, 2]
    assert (done.data, done.attempts_made) == ({"step": 2}, 3)
    assert done.finished_on is not None
    assert done.finished_on - job.timestamp >= 200


# --- strategies of the user's own ----------------------------------------------------------------


async def test_W_084_a_strategy_is_asked_for_every_type_that_is_not_ours(queue: Queue) -> None:
    asked: list[tuple[int, str, str, str]] = []
    delays: list[int] = []

    def strategy(attempts_made: int, kind: str, error: BaseException, job: Job) -> int:
        asked.append((attempts_made, kind, str(error), job.id))
        return {"custom1": 30, "custom2": 60}[kind] + attempts_made

    for kind in ("custom1", "custom2"):
        async with Worker(queue, Failing(2), backoff_strategy=strategy) as worker:
            worker.on("failed", lambda job, *_: delays.append(job.delay))
            job = await queue.add("a", attempts=3, backoff={"type": kind})
            assert await job.result() == 3
        assert asked == [(1, kind, "not yet", job.id), (2, kind, "not yet", job.id)]
        asked.clear()
    assert delays == [31, 32, 61, 62]


async def test_W_085_a_strategy_can_forgo_the_tries_that_are_left(queue: Queue) -> None:
    failing = Failing(99)
    async with Worker(queue, failing, backoff_strategy=lambda *_: -1):
        job = await queue.add("a", attempts=3, backoff={"type": "custom"})
        with pytest.raises(JobFailed, match="not yet"):
            await job.result()
    assert failing.attempts_made == [0]
    assert await state_of(queue, job) == "failed"


async def test_W_086_a_strategy_can_decide_by_the_class_of_the_error(queue: Queue) -> None:
    class Overloaded(Exception):
        pass

    def strategy(attempts_made: int, kind: str, error: BaseException, job: Job) -> int:
        return 100 if isinstance(error, Overloaded) else 3_600_000

    async with Worker(queue, Failing(2, Overloaded), backoff_strategy=strategy):
        job = await queue.add("a", attempts=3, backoff={"type": "custom"})
        assert await job.result() == 3
    done = await again(queue, job)
    assert done.finished_on is not None
    assert done.finished_on - job.timestamp >= 200


async def test_W_087_a_strategy_may_take_its_time_and_change_the_data_of_the_job(
    queue: Queue,
) -> None:
    async def strategy(attempts_made: int, kind: str, error: BaseException, job: Job) -> int:
        await job.update_data({"seen": str(error)})
        return 150

    async def work(job: Job) -> Any:
        if "seen" not in job.data:
            await asyncio.sleep(0)
            raise ValueError("look at me")
        return job.data["seen"]

    async with Worker(queue, work, backoff_strategy=strategy):
        job = await queue.add("a", {}, attempts=3, backoff={"type": "custom"})
        assert await job.result() == "look at me"
    done = await again(queue, job)
    assert done.finished_on is not None
    assert done.finished_on - job.timestamp >= 150
