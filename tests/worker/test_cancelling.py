"""Jobs that somebody cancels: what their processors notice, and what their workers do next."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bullite import Job, JobCancelled, JobFailed, Queue, Signal, Worker
from bullite.core.states import CANCELLED
from bullite.engine.subscription import CancelRunning
from bullite.errors import IllegalMove, InvalidOptionType, JobNotFound
from tests.support.helpers import again, state_of, until
from tests.support.listening import told

REASON = "not wanted any more"

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="untouched")


class Hanging:
    """A processor whose jobs named "hang" run until they are cancelled."""

    def __init__(self, then: Callable[[], Any] | None = None) -> None:
        self.begun: list[str] = []
        self.seen: list[BaseException] = []
        """What was raised inside of those that hang."""
        self.left: list[str] = []
        self._then = then

    async def __call__(self, job: Job) -> Any:
        self.begun.append(job.id)
        if job.name != "hang":
            return "done"
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            self.seen.append(error)
            if self._then is None:
                raise
            return self._then()
        finally:
            self.left.append(job.id)


async def hang_in(queue: Queue, work: Hanging, **options: Any) -> Job:
    """A job that runs until it is cancelled."""
    job = await queue.add("hang", **options)
    await until(lambda: job.id in work.begun)
    return job


async def is_cancelled(queue: Queue, job: Job, reason: str = REASON) -> None:
    """Wait for its end, which must be this."""
    with pytest.raises(JobFailed) as raised:
        await job.result(timeout="10s")
    assert str(raised.value) == reason
    found = await again(queue, job)
    assert (found.state, found.outcome, found.failed_reason) == ("failed", CANCELLED, reason)


async def goes_on(queue: Queue) -> None:
    """The worker takes the next job."""
    assert await (await queue.add("next")).result(timeout="10s") == "done"


# --- jobs that wait ------------------------------------------------------------------------------


async def test_a_job_that_waits_ends_at_once(queue: Queue) -> None:
    job = await queue.add("a")
    assert await queue.cancel(job.id, REASON) is True
    await is_cancelled(queue, job)


async def test_result_of_a_cancelled_job_is_raised_immediately(queue: Queue) -> None:
    job = await queue.add("a", remove_on_fail=True)
    waiting = asyncio.ensure_future(job.result())
    await asyncio.sleep(0)
    await queue.cancel(job.id, REASON)
    with pytest.raises(JobFailed, match=REASON):
        await asyncio.wait_for(waiting, 5)


async def test_a_job_is_cancelled_by_its_own_id(queue: Queue) -> None:
    job = await queue.add("a", job_id="mine")
    assert await queue.cancel("mine") is True
    await is_cancelled(queue, job, "the job was cancelled")


async def test_there_must_be_something_to_cancel(queue: Queue) -> None:
    job = await queue.add("a")
    await queue.cancel(job.id)
    with pytest.raises(IllegalMove, match="failed already"):
        await queue.cancel(job.id)
    with pytest.raises(JobNotFound, match="job 77 does not exist"):
        await queue.cancel("77")
    with pytest.raises(JobNotFound, match="job nobody does not exist"):
        await queue.cancel("nobody")


async def test_a_job_that_was_removed_cannot_be_cancelled(queue: Queue) -> None:
    job = await queue.add("a")
    await job.remove()
    with pytest.raises(JobNotFound):
        await queue.cancel(job.id)


async def test_the_reason_must_be_text(queue: Queue) -> None:
    job = await queue.add("a")
    wrong: Any = 7
    with pytest.raises(InvalidOptionType, match="reason"):
        await queue.cancel(job.id, wrong)
    assert await state_of(queue, job) == "waiting"
    async with Worker(queue, Hanging()) as worker:
        with pytest.raises(InvalidOptionType, match="reason"):
            worker.cancel_job(job.id, wrong)
        with pytest.raises(InvalidOptionType, match="reason"):
            worker.cancel_all_jobs(wrong)


async def test_any_reason_can_be_stored(queue: Queue) -> None:
    job = await queue.add("a")
    await queue.cancel(job.id, "a\x00b\ud800")
    await is_cancelled(queue, job, "a\\x00b\\ud800")


# --- coroutines ----------------------------------------------------------------------------------


async def test_a_coroutine_is_cancelled(queue: Queue) -> None:
    work = Hanging()
    async with Worker(queue, work):
        job = await hang_in(queue, work)
        assert await queue.cancel(job.id, REASON) is False
        await is_cancelled(queue, job)
    assert [type(error) for error in work.seen] == [asyncio.CancelledError]
    assert work.left == [job.id]


@pytest.mark.parametrize("options", [{}, {"timeout": "30s"}], ids=["plain", "with a timeout"])
async def test_the_only_slot_of_its_worker_takes_the_next_job(
    queue: Queue, options: dict[str, Any]
) -> None:
    work = Hanging()
    async with Worker(queue, work, concurrency=1):
        for _ in range(3):
            job = await hang_in(queue, work, **options)
            await queue.cancel(job.id, REASON)
            await is_cancelled(queue, job)
        await goes_on(queue)


async def test_other_runs_of_the_worker_go_on(queue: Queue) -> None:
    work = Hanging()
    async with Worker(queue, work, concurrency=3) as worker:
        job, *others = [await hang_in(queue, work) for _ in range(3)]
        await queue.cancel(job.id, REASON)
        await is_cancelled(queue, job)
        assert [await state_of(queue, other) for other in others] == ["active", "active"]
        worker.cancel_all_jobs()


async def test_what_waits_behind_a_cancelled_job_is_run(queue: Queue) -> None:
    work = Hanging()
    async with Worker(queue, work, concurrency=1):
        job = await hang_in(queue, work)
        behind = await queue.add_bulk([{"name": "next"}] * 5)
        await queue.cancel(job.id)
        assert [await one.result(timeout="10s") for one in behind] == ["done"] * 5


@pytest.mark.parametrize("options", [{}, {"timeout": "30s"}], ids=["plain", "with a timeout"])
async def test_a_coroutine_that_returns_all_the_same_has_completed(
    queue: Queue, options: dict[str, Any]
) -> None:
    work = Hanging(lambda: "rescued")
    async with Worker(queue, work, concurrency=1):
        job = await hang_in(queue, work, **options)
        await queue.cancel(job.id)
        assert await job.result(timeout="10s") == "rescued"
        await goes_on(queue)
    assert (await again(queue, job)).outcome == "completed"


@pytest.mark.parametrize("options", [{}, {"timeout": "30s"}], ids=["plain", "with a timeout"])
async def test_a_coroutine_that_raises_something_else_is_cancelled_and_not_tried_again(
    queue: Queue, options: dict[str, Any]
) -> None:
    def break_down() -> None:
        raise ValueError("broken")

    work = Hanging(break_down)
    async with Worker(queue, work, concurrency=1):
        job = await hang_in(queue, work, attempts=5, backoff=1, **options)
        await queue.cancel(job.id, REASON)
        await is_cancelled(queue, job)
        await goes_on(queue)
    assert work.begun.count(job.id) == 1
    assert [a.outcome for a in await (await again(queue, job)).get_attempts()] == [CANCELLED]


async def test_a_coroutine_that_goes_on_after_its_cancellation_may_await(queue: Queue) -> None:
    async def work(job: Job) -> str:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            await job.update_progress(50)
        return "cleaned up"

    begun = asyncio.Event()
    async with Worker(queue, work):
        job = await queue.add("a")
        await begun.wait()
        await queue.cancel(job.id)
        assert await job.result(timeout="10s") == "cleaned up"


async def test_a_run_past_its_timeout_that_is_cancelled_is_cancelled(queue: Queue) -> None:
    late, go_on = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> str:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                late.set()
        return "too late"

    async with Worker(queue, work) as worker:
        job = await queue.add("a", timeout=20)
        await late.wait()
        late.clear()
        await queue.cancel(job.id, REASON)
        await late.wait()
        go_on.set()
        await is_cancelled(queue, job)
        assert worker.is_running()


async def test_a_coroutine_gets_its_signal_with_the_reason(queue: Queue) -> None:
    reasons: list[Any] = []
    begun = asyncio.Event()

    async def work(job: Job, token: str, signal: Signal) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(signal.reason)

    async with Worker(queue, work):
        job = await queue.add("a")
        await begun.wait()
        await queue.cancel(job.id, REASON)
        await is_cancelled(queue, job)
    assert [(type(reason), str(reason)) for reason in reasons] == [(JobCancelled, REASON)]


async def test_two_cancellations_of_a_job_count_once(queue: Queue) -> None:
    cancellations = 0
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> str:
        nonlocal cancellations
        if job.name == "next":
            return "done"
        begun.set()
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                cancellations += 1
        return "at last"

    async with Worker(queue, work, concurrency=1) as worker:
        job = await queue.add("a")
        await begun.wait()
        assert worker.cancel_job(job.id)
        assert await queue.cancel(job.id) is False
        assert await queue.cancel(job.id) is False
        assert worker.cancel_job(job.id)
        await until(lambda: cancellations)
        go_on.set()
        assert await job.result(timeout="10s") == "at last"
        await goes_on(queue)
    assert cancellations == 1


async def test_a_run_that_reports_its_progress_can_be_cancelled(queue: Queue) -> None:
    begun = asyncio.Event()

    async def work(job: Job) -> str:
        while job.name != "next":
            await job.update_progress(1)
            begun.set()
        return "done"

    async with Worker(queue, work, concurrency=1):
        job = await queue.add("a")
        await begun.wait()
        await queue.cancel(job.id, REASON)
        await is_cancelled(queue, job)
        await goes_on(queue)


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_run_that_is_cancelled_while_it_moves_its_job_ends(
    queue: Queue, swallows: bool
) -> None:
    """Whichever of both comes first: the run leaves its slot, and the job is not held any more."""

    async def work(job: Job) -> str:
        if job.name == "next":
            return "done"
        moving = job.move_to_delayed(datetime.now(UTC) + timedelta(hours=1))
        worker.cancel_job(job.id)
        try:
            await moving
        except asyncio.CancelledError:
            if not swallows:
                raise
        return "moved"

    async with Worker(queue, work, concurrency=1) as worker:
        worker.on("error", lambda error: None)
        job = await queue.add("a")
        await goes_on(queue)
        await until(lambda: worker._pools[0].busy() == 0)
        assert await state_of(queue, job) == "delayed"


@pytest.mark.parametrize("raises", [False, True])
async def test_a_run_may_cancel_its_own_job(queue: Queue, raises: bool) -> None:
    async def work(job: Job) -> str:
        if job.name != "next":
            assert worker.cancel_job(job.id, REASON)
            if raises:
                raise ValueError("broken")
        return "done"

    async with Worker(queue, work, concurrency=1) as worker:
        job = await queue.add("a", attempts=5)
        if raises:
            await is_cancelled(queue, job)
        else:
            assert await job.result(timeout="10s") == "done"
        for _ in range(3):
            await goes_on(queue)


async def test_retry_strategy_is_not_called_for_a_cancelled_run(queue: Queue) -> None:
    asked: list[Any] = []

    async def strategy(attempts_made: int, error: BaseException) -> int:
        asked.append(error)
        return 1

    work = Hanging()
    async with Worker(queue, work, retry_strategies={"mine": strategy}):
        job = await hang_in(queue, work, attempts=5, retry_strategy="mine")
        await queue.cancel(job.id, REASON)
        await is_cancelled(queue, job)
    assert asked == []


async def test_context_variables_of_a_cancelled_run_do_not_reach_the_next(queue: Queue) -> None:
    begun = asyncio.Event()
    found: list[str] = []

    async def work(job: Job) -> str:
        if job.name == "hang":
            variable.set("changed")
            begun.set()
            await asyncio.Event().wait()
        found.append(variable.get())
        return "done"

    async with Worker(queue, work, concurrency=1):
        job = await queue.add("hang")
        await begun.wait()
        await queue.cancel(job.id, REASON)
        await is_cancelled(queue, job)
        await goes_on(queue)
    assert found == ["untouched"]


async def test_a_run_that_ends_in_a_group_of_tasks_is_cancelled(queue: Queue) -> None:
    begun = asyncio.Event()

    async def work(job: Job) -> str:
        if job.name != "next":
            async with asyncio.TaskGroup() as group, asyncio.timeout(60):
                group.create_task(asyncio.Event().wait())
                begun.set()
                await asyncio.Event().wait()
        return "done"

    async with Worker(queue, work, concurrency=1):
        job = await queue.add("a")
        await begun.wait()
        await queue.cancel(job.id, REASON)
        await is_cancelled(queue, job)
        await goes_on(queue)


async def test_a_cancelled_job_that_is_retried_runs_like_any_other(queue: Queue) -> None:
    work = Hanging()
    async with Worker(queue, work):
        job = await hang_in(queue, work)
        await queue.cancel(job.id, REASON)
        await is_cancelled(queue, job)
        await (await again(queue, job)).retry()
        await until(lambda: work.begun.count(job.id) == 2)
        assert await state_of(queue, job) == "active"
        await queue.cancel(job.id, "once more")
        await is_cancelled(queue, job, "once more")


# --- threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"timeout": "30s"}], ids=["plain", "with a timeout"])
async def test_a_function_that_raises_at_its_abort_signal_is_cancelled(
    queue: Queue, options: dict[str, Any]
) -> None:
    reasons: list[Any] = []

    def work(job: Job, token: str, signal: Signal) -> str:
        if job.name == "next":
            return "done"
        begun.set()
        assert signal.wait_in_thread(20)
        reasons.append(signal.reason)
        raise ValueError("stopped")

    begun = threading.Event()
    async with Worker(queue, work, concurrency=1):
        job = await queue.add("a", attempts=5, **options)
        await until(begun.is_set)
        assert await queue.cancel(job.id, REASON) is False
        await is_cancelled(queue, job)
        await goes_on(queue)
    assert [(type(reason), str(reason)) for reason in reasons] == [(JobCancelled, REASON)]
    assert (await again(queue, job)).attempts_made == 1


async def test_a_function_that_returns_all_the_same_has_completed(queue: Queue) -> None:
    def work(job: Job, token: str, signal: Signal) -> str:
        begun.set()
        assert signal.wait_in_thread(20)
        return "saved"

    begun = threading.Event()
    async with Worker(queue, work):
        job = await queue.add("a")
        await until(begun.is_set)
        await queue.cancel(job.id)
        assert await job.result(timeout="10s") == "saved"


async def test_a_function_that_takes_no_signal_is_cancelled_when_it_fails(queue: Queue) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work(job: Job) -> None:
        begun.set()
        go_on.wait(20)
        raise ValueError("broken")

    async with Worker(queue, work) as worker:
        job = await queue.add("a", attempts=5)
        await until(begun.is_set)
        await queue.cancel(job.id, REASON)
        await until(lambda: worker._pools[0].running()[0]._run.cancellation)
        go_on.set()
        await is_cancelled(queue, job)


async def test_coroutines_and_functions_of_one_worker_are_cancelled(queue: Queue) -> None:
    begun: list[str] = []

    async def wait(job: Job) -> None:
        begun.append(job.id)
        await asyncio.Event().wait()

    def block(job: Job, token: str, signal: Signal) -> None:
        begun.append(job.id)
        assert signal.wait_in_thread(20)
        raise ValueError("stopped")

    async with Worker(queue, {"wait": wait, "block": block}, concurrency=2):
        jobs = [await queue.add("wait"), await queue.add("block")]
        await until(lambda: len(begun) == 2)
        for job in jobs:
            assert await queue.cancel(job.id, REASON) is False
        for job in jobs:
            await is_cancelled(queue, job)


# --- jobs that were fetched and not begun --------------------------------------------------------


Canceller = Callable[[Queue, Worker, str], Awaitable[Any]]


async def by_queue(queue: Queue, worker: Worker, job_id: str) -> Any:
    assert await queue.cancel(job_id, REASON) is False


async def by_worker(queue: Queue, worker: Worker, job_id: str) -> Any:
    assert worker.cancel_job(job_id, REASON)


def unbegun(worker: Worker) -> list[Job]:
    return [job for pool in worker._pools for job in pool.unstarted()]


@pytest.mark.parametrize("cancel", [by_queue, by_worker])
async def test_a_cancelled_prefetched_job_never_starts(queue: Queue, cancel: Canceller) -> None:
    begun: list[str] = []
    cancelled: list[Job] = []

    async def work(job: Job) -> None:
        begun.append(job.id)
        waiting = unbegun(worker)
        if len(waiting) > 5 and not cancelled:
            cancelled.append(waiting[3])
            await cancel(queue, worker, waiting[3].id)
            await until(lambda: waiting[3] not in unbegun(worker))

    jobs = await queue.add_bulk([{"name": "a"}] * 1_000)
    async with Worker(queue, work) as worker:
        await jobs[-1].result(timeout="20s")
        [ahead] = cancelled
        await is_cancelled(queue, ahead)
    assert ahead.id not in begun
    assert len(begun) == len(jobs) - 1


async def test_a_cancelled_prefetched_job_of_a_thread_never_starts(queue: Queue) -> None:
    begun: list[str] = []
    cancelled: list[Job] = []

    def work(job: Job) -> None:
        begun.append(job.id)
        waiting = unbegun(worker)
        if len(waiting) > 5 and not cancelled:
            gone = threading.Event()

            def cancel() -> None:
                # What waits for too long meanwhile is given back: then another is tried.
                if worker.cancel_job(waiting[3].id, REASON):
                    cancelled.append(waiting[3])
                gone.set()

            loop.call_soon_threadsafe(cancel)
            gone.wait(20)

    loop = asyncio.get_running_loop()
    jobs = await queue.add_bulk([{"name": "a"}] * 1_000)
    async with Worker(queue, work) as worker:
        await jobs[-1].result(timeout="20s")
        [ahead] = cancelled
        await is_cancelled(queue, ahead)
    assert ahead.id not in begun
    assert len(begun) == len(jobs) - 1


# --- the worker ----------------------------------------------------------------------------------


async def test_a_worker_cancels_a_job_that_it_runs(queue: Queue) -> None:
    work = Hanging()
    async with Worker(queue, work, concurrency=2) as worker:
        job, other = [await hang_in(queue, work, attempts=3) for _ in range(2)]
        assert worker.cancel_job(job.id, REASON) is True
        await is_cancelled(queue, job)
        assert await state_of(queue, other) == "active"
        assert worker.cancel_job(other.id) is True
        await is_cancelled(queue, other, "the job was cancelled")
    assert work.begun == [job.id, other.id]


async def test_a_worker_does_not_cancel_what_it_does_not_run(queue: Queue) -> None:
    work = Hanging()
    async with Worker(queue, work) as worker:
        assert worker.cancel_job("77") is False
        assert worker.cancel_all_jobs() == 0
        job = await hang_in(queue, work)
        waiting = await queue.add("next", delay="1h")
        assert worker.cancel_job(waiting.id) is False
        assert await state_of(queue, waiting) == "delayed"
        assert worker.cancel_job(job.id) is True
        await is_cancelled(queue, job, "the job was cancelled")
        assert worker.cancel_job(job.id) is False


async def test_word_of_an_earlier_run_does_not_stop_the_one_of_now(queue: Queue) -> None:
    work = Hanging()
    async with Worker(queue, work) as worker:
        job = await hang_in(queue, work)
        [pool] = worker._pools
        [run] = pool.running()
        token = run._run.token_number
        pool.subscription.stop([CancelRunning(job.pk, token - 1, "an earlier reason")])
        assert run._run.cancellation is None
        pool.subscription.stop([CancelRunning(job.pk, token, REASON)])
        await is_cancelled(queue, job)


async def test_a_worker_that_has_not_started_runs_nothing_to_cancel(queue: Queue) -> None:
    worker = Worker(queue, Hanging(), autorun=False)
    assert worker.cancel_job("1") is False
    assert worker.cancel_all_jobs() == 0
    await worker.close()


async def test_a_worker_cancels_all_jobs_that_it_runs(queue: Queue) -> None:
    work = Hanging()
    async with Worker(queue, work, concurrency=3) as worker:
        jobs = [await hang_in(queue, work) for _ in range(3)]
        assert worker.cancel_all_jobs(REASON) == 3
        for job in jobs:
            await is_cancelled(queue, job)
        await goes_on(queue)


@pytest.mark.parametrize("cancel", [by_queue, by_worker])
async def test_worker_emits_failed_for_a_cancelled_job(queue: Queue, cancel: Canceller) -> None:
    heard: list[Any] = []
    work = Hanging()
    async with Worker(queue, work) as worker:
        worker.on("failed", lambda job, error, prev: heard.append((job, error, prev)))
        job = await hang_in(queue, work, attempts=3)
        await cancel(queue, worker, job.id)
        await until(lambda: heard)
    [(told, error, prev)] = heard
    assert (type(error), str(error), prev) == (JobCancelled, REASON, "active")
    assert (told.id, told.state, told.outcome) == (job.id, "failed", CANCELLED)


async def test_so_they_do_when_the_run_fails_before_its_worker_knows(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> None:
        begun.set()
        await go_on.wait()
        raise ValueError("broken")

    async with Worker(queue, work) as worker:
        worker.on("failed", lambda job, error, prev: heard.append((job, error)))
        job = await queue.add("a", attempts=3, backoff="1h")
        await begun.wait()
        monkeypatch.setattr(worker._pools[0].subscription, "stop", lambda stops: None)
        await queue.cancel(job.id, REASON)
        go_on.set()
        await is_cancelled(queue, job)
        await until(lambda: heard)
    [(told, error)] = heard
    assert (type(error), str(error)) == (JobCancelled, REASON)
    assert (told.state, told.outcome, told.failed_reason) == ("failed", CANCELLED, REASON)


async def test_queue_events_have_the_outcome_cancelled(queue: Queue) -> None:
    job = await queue.add("a")
    await queue.cancel(job.id, REASON)
    [payload] = [heard.payload for heard in await told(queue) if heard.name == "failed"]
    assert (payload["job_id"], payload["failed_reason"]) == (job.id, REASON)
    assert (payload["outcome"], payload["prev"]) == (CANCELLED, "waiting")


async def test_queue_emits_failed_for_a_cancelled_job(queue: Queue) -> None:
    heard: list[Any] = []
    queue.on("job.failed", lambda id, error, job: heard.append((id, str(error), job.outcome)))
    job = await queue.add("a")
    await queue.cancel(job.id, REASON)
    await until(lambda: heard)
    assert heard == [(job.id, REASON, CANCELLED)]


@pytest.mark.parametrize("force", [False, True])
async def test_a_worker_can_be_closed_while_a_cancelled_job_ends(queue: Queue, force: bool) -> None:
    begun, told, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(job: Job) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.set()
            await go_on.wait()

    worker = Worker(queue, work)
    job = await queue.add("a", attempts=3)
    await begun.wait()
    await queue.cancel(job.id, REASON)
    await told.wait()
    closing = asyncio.ensure_future(worker.close(force=force))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(closing, 10)
    await is_cancelled(queue, job)


async def test_a_closing_worker_still_cancels_running_jobs(
    queue: Queue,
) -> None:
    work = Hanging()
    worker = Worker(queue, work)
    job = await hang_in(queue, work)
    closing = asyncio.ensure_future(worker.close())
    await asyncio.sleep(0)
    assert await queue.cancel(job.id, REASON) is False
    await asyncio.wait_for(closing, 10)
    await is_cancelled(queue, job)


async def test_a_manually_fetched_job_is_cancelled_when_its_caller_fails_it(
    queue: Queue,
) -> None:
    async with Worker(queue) as worker:
        await queue.add("a", attempts=3)
        job = await worker.get_next_job("mine")
        assert job is not None
        assert await queue.cancel(job.id, REASON) is False
        assert worker.cancel_job(job.id) is False
        await job.move_to_failed(ValueError("broken"), "mine")
        await is_cancelled(queue, job)
