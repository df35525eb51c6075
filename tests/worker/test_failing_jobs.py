"""Jobs that fail: retries, back-off, and failing for good."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from bullite import Job, JobFailed, Queue, UnrecoverableError, Worker
from bullite.core.backoff import RetryLater
from tests.support.databases import Database
from tests.support.helpers import again, until


async def test_what_a_processor_raises_is_the_reason(queue: Queue) -> None:
    async def work(job: Job) -> None:
        raise ValueError("no such customer")

    async with Worker(queue, work):
        job = await queue.add("a")
        with pytest.raises(JobFailed, match=r"^no such customer$"):
            await job.result()
    failed = await again(queue, job)
    assert (failed.state, failed.failed_reason) == ("failed", "no such customer")
    assert (failed.attempts_made, failed.return_value) == (1, None)
    assert failed.stack is not None
    assert failed.stack.startswith("Traceback")
    assert failed.stack.rstrip().endswith("ValueError: no such customer")


async def test_an_error_without_words_is_named_by_its_class(queue: Queue) -> None:
    async def work(job: Job) -> None:
        raise KeyError

    async with Worker(queue, work):
        with pytest.raises(JobFailed, match=r"^KeyError$"):
            await (await queue.add("a")).result()


async def test_a_failed_try_is_followed_by_another_until_one_succeeds(queue: Queue) -> None:
    async def work(job: Job) -> int:
        if job.attempts_made < 2:
            raise ValueError("not yet")
        return job.attempts_made

    async with Worker(queue, work):
        job = await queue.add("a", attempts=5)
        assert await job.result() == 2
    done = await again(queue, job)
    assert (done.attempts_started, done.attempts_made, done.outcome) == (3, 3, "completed")


async def test_a_job_that_succeeds_at_last_keeps_the_reason_of_its_last_failure(
    queue: Queue,
) -> None:
    async def work(job: Job) -> None:
        if job.attempts_made < 2:
            raise ValueError(f"failure {job.attempts_made + 1}")

    async with Worker(queue, work):
        job = await queue.add("a", attempts=5)
        await job.result()
    done = await again(queue, job)
    assert (done.state, done.failed_reason) == ("completed", "failure 2")
    assert len(done.stacktrace) == 2


async def test_the_reason_of_the_last_try_is_kept_while_it_waits_for_the_next(queue: Queue) -> None:
    async def work(job: Job) -> None:
        raise ValueError("not yet")

    async with Worker(queue, work):
        job = await queue.add("a", attempts=2, backoff="1h")
        await until(lambda: has_failed_once(queue, job))
    waiting = await again(queue, job)
    assert (waiting.state, waiting.failed_reason) == ("delayed", "not yet")
    assert waiting.stack is not None
    assert waiting.process_at is not None
    assert 3590 < (waiting.process_at - waiting.updated_at).total_seconds() <= 3600


async def has_failed_once(queue: Queue, job: Job) -> bool:
    return (await again(queue, job)).attempts_made == 1


async def test_tries_are_as_far_apart_as_the_backoff_says(queue: Queue) -> None:
    began: list[float] = []

    async def work(job: Job) -> None:
        began.append(time.time())
        if len(began) < 4:
            raise ValueError("not yet")

    async with Worker(queue, work):
        job = await queue.add("a", attempts=9, backoff={"type": "exponential", "delay": 40})
        await job.result()
    gaps = [later - earlier for earlier, later in itertools.pairwise(began)]
    for gap, wanted in zip(gaps, (0.040, 0.080, 0.160), strict=True):
        assert wanted - 0.002 < gap < wanted + 0.5


async def test_jitter_comes_from_the_queues_random(location: str) -> None:
    async def work(job: Job) -> None:
        raise ValueError("not yet")

    queue = Queue("emails", location, random=lambda: 0.5)
    async with queue, Worker(queue, work):
        backoff: Any = {"type": "fixed", "delay": 60_000, "jitter": 0.5}
        job = await queue.add("a", attempts=2, backoff=backoff)
        await until(lambda: has_failed_once(queue, job))
        assert (await again(queue, job)).delay == 45_000


async def test_without_attempts_left_it_fails_permanently(queue: Queue) -> None:
    ran = []

    async def work(job: Job) -> None:
        ran.append(job.attempts_made)
        raise ValueError(f"try {len(ran)}")

    async with Worker(queue, work):
        job = await queue.add("a", attempts=3)
        with pytest.raises(JobFailed, match="try 3"):
            await job.result()
    assert ran == [0, 1, 2]


async def test_an_unrecoverable_error_ends_it_at_once(queue: Queue) -> None:
    async def work(job: Job) -> None:
        raise UnrecoverableError("card stolen")

    async with Worker(queue, work):
        job = await queue.add("a", attempts=10)
        with pytest.raises(JobFailed, match="card stolen"):
            await job.result()
    assert (await again(queue, job)).attempts_made == 1


async def test_rules_by_error_decide_whether_to_try_again(queue: Queue) -> None:
    async def work(job: Job) -> str:
        if job.attempts_made:
            return "worked"
        raise ConnectionResetError if job.name == "net" else KeyError("bug")

    rules: Any = [{"on": "ConnectionError", "delay": 10}, {"retry": False}]
    async with Worker(queue, work):
        net = await queue.add("net", attempts=5, backoff=rules)
        bug = await queue.add("bug", attempts=5, backoff=rules)
        assert await net.result() == "worked"
        with pytest.raises(JobFailed, match="bug"):
            await bug.result()
    assert (await again(queue, bug)).attempts_made == 1


async def test_a_value_that_cannot_be_stored_fails_the_job(queue: Queue) -> None:
    async def work(job: Job) -> object:
        return {"when": object()}

    async with Worker(queue, work):
        with pytest.raises(JobFailed, match="the returned value cannot be stored as JSON"):
            await (await queue.add("a")).result()


# --- unusual errors ------------------------------------------------------------------------------


class Unspeakable(Exception):
    """Fails when it is asked for its text."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


async def raise_in_loop(job: Job) -> None:
    raise Unspeakable


def raise_in_thread(job: Job) -> None:
    raise Unspeakable


@pytest.mark.parametrize("processor", [raise_in_loop, raise_in_thread])
async def test_an_error_that_cannot_be_printed_fails_the_job(queue: Queue, processor: Any) -> None:
    worker = Worker(queue, processor)
    try:
        job = await queue.add("a")
        with pytest.raises(JobFailed, match="Unspeakable"):
            await job.result(timeout="5s")
    finally:
        await worker.close(force=True)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
async def test_whatever_is_raised_in_a_thread_fails_the_job_and_not_the_worker(
    queue: Queue, error: BaseException
) -> None:
    def work(job: Job) -> str:
        if job.name == "bad":
            raise error
        return "fine"

    async with Worker(queue, work):
        bad, good = await queue.add("bad"), await queue.add("good")
        with pytest.raises(JobFailed, match=str(error) or type(error).__name__):
            await bad.result()
        assert await good.result() == "fine"


async def test_a_sys_exit_in_a_thread_fails_the_job_with_its_message(queue: Queue) -> None:
    def work(job: Job) -> None:
        sys.exit("giving up")

    async with Worker(queue, work):
        with pytest.raises(JobFailed, match="giving up"):
            await (await queue.add("a")).result()


async def test_a_coroutine_that_raises_cancelled_fails_its_job_only(queue: Queue) -> None:
    async def work(job: Job) -> str:
        if job.name == "bad":
            raise asyncio.CancelledError
        return "fine"

    async with Worker(queue, work):
        bad, good = await queue.add("bad"), await queue.add("good")
        with pytest.raises(JobFailed, match="CancelledError"):
            await bad.result()
        assert await good.result() == "fine"


async def test_a_coroutine_may_time_itself_out(queue: Queue) -> None:
    async def work(job: Job) -> str:
        if job.name == "slow":
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        return "fine"

    async with Worker(queue, work):
        slow, good = await queue.add("slow"), await queue.add("good")
        with pytest.raises(JobFailed, match="TimeoutError"):
            await slow.result()
        assert await good.result() == "fine"


async def test_a_result_that_the_database_refuses_fails_its_job_and_no_other(
    queue: Queue, database: Database
) -> None:
    """Else it would be sent for ever, and its worker could never close."""
    await queue.wait_until_ready()
    database.write("create unique index no_two_alike on bullite_results (return_value)")
    together = asyncio.Barrier(2)

    async def work(job: Job) -> str:
        if job.name == "together":
            await together.wait()
        return job.data

    async with Worker(queue, work, concurrency=2):
        await (await queue.add("alone", "one")).result(timeout="10s")
        twin, other = await queue.add_bulk(
            [{"name": "together", "data": data} for data in ("one", "two")]
        )
        with pytest.raises(JobFailed, match=r"its result was refused: .*return_value|no_two_alike"):
            await twin.result(timeout="10s")
        assert await other.result(timeout="10s") == "two"


# --- errors that are no usual ones ---------------------------------------------------------------


class OwnKind(BaseException):
    """No `Exception`."""


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit("in __str__")


class Nameless(Exception):
    def __str__(self) -> str:
        raise ValueError

    __repr__ = __str__


class Shifty(Exception):
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise OwnKind


class Hidden(Exception):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise OwnKind


class Impatient(RetryLater):
    retry_after = float("nan")


def in_groups(depth: int, width: int = 1) -> BaseException:
    error: Exception = ValueError("innermost")
    for _ in range(depth):
        error = ExceptionGroup("group", [error] * width)
    return error


def in_a_circle() -> BaseException:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one


def behind_many() -> BaseException:
    error = ValueError("first")
    for _ in range(5_000):
        following = ValueError("next")
        following.__cause__ = error
        error = following
    return error


UNUSUAL: dict[str, Callable[[], BaseException]] = {
    "GeneratorExit": GeneratorExit,
    "sys.exit": lambda: SystemExit(3),
    "own kind": OwnKind,
    "deep group": lambda: in_groups(5_000),
    "wide group": lambda: in_groups(60, width=2),
    "group of sys.exit": lambda: BaseExceptionGroup("group", [SystemExit(3)]),
    "str that exits": Mute,
    "str that raises": Nameless,
    "class that raises": Shifty,
    "traceback that raises": Hidden,
    "wait that is no number": Impatient,
    "circle of causes": in_a_circle,
    "many causes": behind_many,
    "recursion": lambda: RecursionError("x" * 10_000_000),
}


@pytest.mark.parametrize("kind", UNUSUAL)
@pytest.mark.parametrize("how", ["coroutine", "coroutine in time", "thread"])
async def test_a_job_that_fails_in_an_unusual_way_costs_the_worker_nothing(
    queue: Queue, kind: str, how: str
) -> None:
    def fail(job: Job) -> str:
        if job.name == "bad":
            raise UNUSUAL[kind]()
        return "well"

    async def work(job: Job) -> str:
        await asyncio.sleep(0)
        return fail(job)

    async with Worker(queue, fail if how == "thread" else work) as worker:
        options: dict[str, Any] = {"timeout": "1m"} if how == "coroutine in time" else {}
        bad = await queue.add("bad", attempts=2, **options)
        with pytest.raises(JobFailed):
            await bad.result(timeout="8s")
        for _ in range(3):
            assert await (await queue.add("good", **options)).result(timeout="8s") == "well"
        assert worker.running_jobs() == []
    failed = await again(queue, bad)
    assert (failed.state, failed.attempts_made, failed.stalled_count) == ("failed", 2, 0)
    assert failed.failed_reason


@pytest.mark.parametrize("how", ["coroutine", "thread"])
async def test_the_reason_of_a_job_that_exits_says_so(queue: Queue, how: str) -> None:
    def leave(job: Job) -> None:
        sys.exit("enough")

    async def leave_in_loop(job: Job) -> None:
        sys.exit("enough")

    async with Worker(queue, leave if how == "thread" else leave_in_loop):
        with pytest.raises(JobFailed, match=r"^SystemExit: enough$"):
            await (await queue.add("a")).result(timeout="8s")


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, OwnKind])
@pytest.mark.parametrize("how", ["coroutine", "thread"])
async def test_a_strategy_that_exits_fails_the_job_alone(
    queue: Queue, error: type[BaseException], how: str
) -> None:
    def decide(attempts_made: int, problem: BaseException) -> int:
        raise error

    def fail(job: Job) -> None:
        if job.name == "bad":
            raise ValueError

    async def work(job: Job) -> None:
        fail(job)

    strategies = {"exits": decide}
    async with Worker(queue, fail if how == "thread" else work, retry_strategies=strategies):
        bad = await queue.add("bad", attempts=2, retry_strategy="exits")
        with pytest.raises(JobFailed):
            await bad.result(timeout="8s")
        await (await queue.add("good")).result(timeout="8s")


class Awkward:
    """A value whose fields cannot be read."""

    def __init__(self) -> None:
        self.x = 1

    @property
    def __class__(self) -> Any:
        raise OwnKind


@pytest.mark.parametrize("how", ["coroutine", "thread"])
async def test_a_result_that_cannot_be_looked_at_fails_the_job_alone(
    queue: Queue, how: str
) -> None:
    def give(job: Job) -> Any:
        return Awkward() if job.name == "bad" else 1

    async def give_in_loop(job: Job) -> Any:
        return give(job)

    async with Worker(queue, give if how == "thread" else give_in_loop):
        with pytest.raises(JobFailed):
            await (await queue.add("bad")).result(timeout="8s")
        assert await (await queue.add("good")).result(timeout="8s") == 1
