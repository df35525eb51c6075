"""Jobs taken one by one and ended by hand."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from bullite import IllegalMove, Job, LostLock, Queue, Worker
from bullite.errors import BulliteError, UnserializableData
from tests.support.helpers import again, case, state_of, take_away, until


async def take(worker: Worker) -> Job:
    job = await worker.get_next_job()
    assert job is not None
    return job


async def is_in(queue: Queue, job: Job, state: str) -> bool:
    return await state_of(queue, job) == state


# --- taking --------------------------------------------------------------------------------------


async def test_a_worker_without_a_processor_takes_nothing_by_itself(queue: Queue) -> None:
    job = await queue.add("a")
    async with Worker(queue, None) as worker:
        await worker.wait_until_ready()
        await asyncio.sleep(0.1)
        assert await state_of(queue, job) == "waiting"


async def test_get_next_job_returns_the_next_job(queue: Queue) -> None:
    added = await queue.add("a", {"n": 1})
    async with Worker(queue, None, name="me") as worker:
        job = await take(worker)
        assert (job.id, job.data, job.state) == (added.id, {"n": 1}, "active")
        held = await again(queue, job)
        assert (held.state, held.locked_by, held.attempts_started) == ("active", "me", 1)
        await job.move_to_completed()


async def test_jobs_are_taken_in_the_order_of_the_queue(queue: Queue) -> None:
    for number, priority in enumerate((0, 5, -5, 0)):
        await queue.add("a", number, priority=priority)
    async with Worker(queue, None) as worker:
        taken = [await take(worker) for _ in range(4)]
        assert [job.data for job in taken] == [2, 0, 3, 1]
        for job in taken:
            await job.move_to_completed()


async def test_a_job_is_taken_from_a_worker_that_is_just_starting(queue: Queue) -> None:
    async def nothing(job: Job) -> None:
        pass

    for _ in range(20):
        await queue.add("a")
        async with Worker(queue, {"other": nothing}) as worker:
            await (await take(worker)).move_to_completed()


async def test_without_a_job_there_is_none(queue: Queue) -> None:
    async with Worker(queue, None, drain_delay=50) as worker:
        assert await worker.get_next_job() is None
        assert await worker.get_next_job(block=False) is None


async def test_get_next_job_blocks_until_a_job_is_added(queue: Queue) -> None:
    async with Worker(queue, None) as worker:
        taking = asyncio.create_task(worker.get_next_job())
        await asyncio.sleep(0.05)
        added = await queue.add("a")
        job = await taking
        assert job is not None
        assert job.id == added.id
        await job.move_to_completed()


async def test_get_next_job_blocks_until_a_delayed_job_is_due(queue: Queue) -> None:
    added = await queue.add("a", delay=100)
    async with Worker(queue, None) as worker:
        job = await take(worker)
        assert job.id == added.id
        await job.move_to_completed()


async def test_several_may_wait_and_each_gets_a_job_of_its_own(queue: Queue) -> None:
    async with Worker(queue, None) as worker:
        taking = [asyncio.create_task(worker.get_next_job()) for _ in range(5)]
        await asyncio.sleep(0.05)
        await queue.add_bulk([{"name": "a", "data": number} for number in range(5)])
        jobs = [job for job in await asyncio.gather(*taking) if job is not None]
        assert sorted(job.data for job in jobs) == [0, 1, 2, 3, 4]
        await asyncio.gather(*(job.move_to_completed() for job in jobs))


async def test_get_next_job_claims_nothing_after_its_drain_delay(queue: Queue) -> None:
    async with Worker(queue, None, drain_delay=30) as worker:
        assert await worker.get_next_job() is None
        job = await queue.add("a")
        await asyncio.sleep(0.1)
        assert await state_of(queue, job) == "waiting"


@pytest.mark.parametrize("turns", [1, 2, 3, 5, 8])
async def test_a_job_is_not_lost_when_get_next_job_is_cancelled(queue: Queue, turns: int) -> None:
    """Its worker lives on and renews its lease: nobody else would ever get it."""
    await queue.add("a")
    async with Worker(queue, None, drain_delay=300) as worker:
        await worker.wait_until_ready()
        for _ in range(20):
            taking = asyncio.create_task(worker.get_next_job())
            for _ in range(turns):
                await asyncio.sleep(0)
            if taking.cancel():
                await asyncio.gather(taking, return_exceptions=True)
            if not taking.cancelled():
                job = taking.result()
                assert job is not None
                await job.move_to_waiting()
        await (await take(worker)).move_to_completed()


async def test_a_closed_worker_gives_no_jobs(queue: Queue) -> None:
    await queue.add("a")
    worker = Worker(queue, None)
    await worker.close()
    assert await worker.get_next_job() is None


async def test_get_next_job_works_on_a_worker_with_a_processor(queue: Queue) -> None:
    async def work(job: Job) -> None: ...

    await queue.add("a")
    worker = Worker(queue, work, autorun=False)
    job = await take(worker)
    await job.move_to_completed("by hand")
    await worker.close()
    assert (await again(queue, job)).return_value == "by hand"


async def test_get_next_job_emits_active_before_it_returns(queue: Queue) -> None:
    begun: list[str] = []
    await queue.add("a")
    async with Worker(queue, None) as worker:
        worker.on("active", lambda job, prev: begun.append(job.id))
        job = await take(worker)
        assert begun == [job.id]
        await job.move_to_completed()


async def test_get_next_job_returns_a_job_that_stalled_too_often_with_its_deferred_failure(
    queue: Queue,
) -> None:
    await queue.add("a", attempts=5)
    async with Worker(queue, None, max_stalled_count=0) as worker:
        assert (await take(worker)).deferred_failure is None
        await take_away(queue)
    async with Worker(queue, None) as other:
        job = await take(other)
        assert job.deferred_failure is not None
        assert "stalled" in job.deferred_failure
        await job.move_to_failed(job.deferred_failure, retry=False)
    assert await state_of(queue, job) == "failed"


# --- tokens --------------------------------------------------------------------------------------


async def test_get_next_job_returns_a_job_with_a_token(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        assert job.token
        await job.move_to_completed(1, job.token)
    assert await state_of(queue, job) == "completed"


async def test_a_word_of_ones_own_stands_for_the_token(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await worker.get_next_job("my-token")
        assert job is not None
        assert job.token == "my-token"
        with pytest.raises(LostLock):
            await job.move_to_completed(1, "another-token")
        await job.move_to_completed(1, "my-token")
    assert await state_of(queue, job) == "completed"


async def test_a_bad_token_takes_no_job_along(queue: Queue) -> None:
    for token in [5, "", "a\x00b", "x" * 300]:
        with case(token):
            job = await queue.add("a")
            async with Worker(queue, None) as worker:
                with pytest.raises(BulliteError, match="token"):
                    await worker.get_next_job(token)
                assert await state_of(queue, job) == "waiting"


async def test_with_a_wrong_token_nothing_happens(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        for call in (
            lambda: job.move_to_completed(1, "wrong"),
            lambda: job.move_to_failed("no", "wrong"),
            lambda: job.move_to_delayed(datetime.now(UTC), "wrong"),
            lambda: job.move_to_waiting("wrong"),
            lambda: job.extend_lock(1_000, "wrong"),
        ):
            with pytest.raises(LostLock):
                await call()
        assert await state_of(queue, job) == "active"
        await job.move_to_completed()


async def test_only_the_holder_may_end_a_run(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        other = await again(queue, job)
        for call in (other.move_to_completed, other.move_to_waiting):
            with pytest.raises(LostLock):
                await call()
        assert await state_of(queue, job) == "active"
        await job.move_to_completed()


async def test_a_job_that_does_not_run_has_no_run_to_end(queue: Queue) -> None:
    job = await queue.add("a")
    for call in (
        lambda: job.move_to_completed(1),
        lambda: job.move_to_failed("no"),
        lambda: job.move_to_waiting(),
        lambda: job.extend_lock(1_000),
    ):
        with pytest.raises(IllegalMove):
            await call()
    assert await state_of(queue, job) == "waiting"


# --- ending --------------------------------------------------------------------------------------


async def test_move_to_completed_ends_a_fetched_job(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        await job.move_to_completed({"sum": 3})
        assert (job.state, job.return_value, job.attempts_made) == ("completed", {"sum": 3}, 1)
    done = await again(queue, job)
    assert (done.state, done.return_value, done.attempts_made) == ("completed", {"sum": 3}, 1)
    assert done.finished_at is not None


async def test_result_returns_when_a_fetched_job_is_completed(queue: Queue) -> None:
    added = await queue.add("a")
    async with Worker(queue, None) as worker:
        waiting = asyncio.create_task(added.result(timeout="10s"))
        await (await take(worker)).move_to_completed("yes")
        assert await waiting == "yes"


async def test_a_run_ends_once(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        await job.move_to_completed(1)
        for call in (lambda: job.move_to_completed(2), lambda: job.move_to_failed("no")):
            with pytest.raises(BulliteError):
                await call()
    assert (await again(queue, job)).return_value == 1


async def test_move_to_completed_can_remove_the_job(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        await job.move_to_completed(1, remove_on_complete=True)
    assert await queue.get_job(job.id) is None


async def test_a_result_that_cannot_be_stored_is_refused_and_the_run_goes_on(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        for value in (float("nan"), object(), {"a": {1: object()}}):
            with pytest.raises(UnserializableData, match="returned value"):
                await job.move_to_completed(value)
        with pytest.raises(BulliteError, match="returned value"):
            await job.move_to_completed("x" * (1024 * 1024))
        assert await state_of(queue, job) == "active"
        await job.move_to_completed()


async def test_move_to_failed_ends_a_fetched_job(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        await job.move_to_failed("no paper")
    failed = await again(queue, job)
    assert (failed.state, failed.failed_reason, failed.attempts_made) == ("failed", "no paper", 1)
    assert failed.outcome == "error"


async def test_a_job_failed_with_an_exception_keeps_its_stack(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        try:
            raise KeyError("customer")
        except KeyError as error:
            await job.move_to_failed(error)
    stack = (await again(queue, job)).stack
    assert stack is not None
    assert "KeyError" in stack


async def test_move_to_failed_retries_while_attempts_are_left(queue: Queue) -> None:
    await queue.add("a", attempts=2)
    async with Worker(queue, None) as worker:
        first = await take(worker)
        await first.move_to_failed("not yet")
        assert await state_of(queue, first) == "waiting"
        second = await take(worker)
        assert (second.id, second.attempts_made) == (first.id, 1)
        await second.move_to_failed("never")
    assert await state_of(queue, first) == "failed"


async def test_move_to_failed_backs_off(queue: Queue) -> None:
    await queue.add("a", attempts=2, backoff="1h")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        await job.move_to_failed("not yet")
    waiting = await again(queue, job)
    assert (waiting.state, waiting.delay) == ("delayed", 3_600_000)


async def test_move_to_failed_can_be_permanent(queue: Queue) -> None:
    await queue.add("a", attempts=5)
    async with Worker(queue, None) as worker:
        job = await take(worker)
        await job.move_to_failed("hopeless", retry=False)
    assert await state_of(queue, job) == "failed"


async def test_move_to_failed_can_remove_the_job(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        await job.move_to_failed("no", remove_on_fail=True)
    assert await queue.get_job(job.id) is None


async def test_move_to_failed_uses_the_retry_strategies_of_the_worker(queue: Queue) -> None:
    asked: list[int] = []

    def strategy(attempts_made: int, error: BaseException) -> int:
        asked.append(attempts_made)
        return 3_600_000

    await queue.add("a", attempts=3, retry_strategy="mine")
    async with Worker(queue, None, retry_strategies={"mine": strategy}) as worker:
        job = await take(worker)
        await job.move_to_failed("not yet")
    waiting = await again(queue, job)
    assert (waiting.state, waiting.delay, asked) == ("delayed", 3_600_000, [1])


async def test_move_to_delayed_delays_a_fetched_job(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        due = datetime.now(UTC) + timedelta(hours=1)
        await job.move_to_delayed(due)
    later = await again(queue, job)
    assert (later.state, later.attempts_made, later.attempts_started) == ("delayed", 0, 1)
    assert later.process_at is not None
    assert abs(later.process_at - due) < timedelta(seconds=5)


async def test_a_job_put_off_to_a_time_that_is_over_is_next(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        await job.move_to_delayed(datetime.now(UTC) - timedelta(hours=1))
        await (await take(worker)).move_to_completed()
    assert await state_of(queue, job) == "completed"


async def test_move_to_wait_returns_a_fetched_job_to_the_front(queue: Queue) -> None:
    await queue.add("a", 1)
    await queue.add("a", 2)
    async with Worker(queue, None) as worker:
        job = await take(worker)
        await job.move_to_waiting()
        back = await again(queue, job)
        assert (back.state, back.attempts_made) == ("waiting", 0)
        assert (await take(worker)).data == 1


async def test_progress_and_logs_of_a_fetched_job_are_stored(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        await job.update_progress(40)
        await job.log("half way")
        assert (await again(queue, job)).progress == 40
        assert (await job.get_logs())["logs"][0]["message"] == "half way"
        await job.move_to_completed()


# --- losing a job --------------------------------------------------------------------------------


async def test_a_fetched_job_stays_locked_while_its_worker_lives(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None, lock_duration=200) as worker:
        job = await take(worker)
        await asyncio.sleep(0.5)
        assert await state_of(queue, job) == "active"
        await job.move_to_completed()


async def test_without_renewal_a_fetched_job_returns_to_the_queue(
    queue: Queue,
) -> None:
    await queue.add("a")
    async with Worker(
        queue, None, lock_duration=200, skip_lock_renewal=True, maintenance_interval=50
    ) as worker:
        job = await take(worker)
        await until(lambda: is_in(queue, job, "waiting"))
        with pytest.raises(LostLock):
            await job.move_to_completed("too late")
    lost = await again(queue, job)
    assert (lost.state, lost.stalled_count, lost.attempts_made) == ("waiting", 1, 0)


async def test_a_lock_may_be_extended(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(
        queue, None, lock_duration=200, skip_lock_renewal=True, maintenance_interval=50
    ) as worker:
        job = await take(worker)
        await job.extend_lock("1m")
        held = await again(queue, job)
        assert held.lock_expires_at is not None
        assert held.lock_expires_at > datetime.now(UTC) + timedelta(seconds=30)
        await asyncio.sleep(0.5)
        assert await state_of(queue, job) == "active"
        await job.move_to_completed()


async def test_a_lock_that_was_lost_cannot_be_extended(queue: Queue) -> None:
    await queue.add("a")
    async with Worker(queue, None) as worker:
        job = await take(worker)
        await take_away(queue)
        for call in (
            lambda: job.extend_lock(1_000),
            lambda: job.move_to_completed(1),
            lambda: job.move_to_failed("no"),
            lambda: job.move_to_waiting(),
            lambda: job.move_to_delayed(datetime.now(UTC)),
            lambda: job.update_progress(1),
            lambda: job.update_data(1),
            lambda: job.log("line"),
        ):
            with pytest.raises(LostLock):
                await call()
    back = await again(queue, job)
    assert (back.state, back.progress, back.data) == ("waiting", 0, None)


async def test_another_takes_over_what_was_lost_and_the_first_changes_nothing(
    queue: Queue,
) -> None:
    await queue.add("a")
    async with Worker(queue, None) as first, Worker(queue, None) as second:
        lost = await take(first)
        await take_away(queue)
        mine = await take(second)
        assert mine.id == lost.id
        with pytest.raises(LostLock):
            await lost.move_to_completed("first")
        await mine.move_to_completed("second")
    assert (await again(queue, lost)).return_value == "second"
