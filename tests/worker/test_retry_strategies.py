"""When to try again, as functions of the user's own decide."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from bullite import Job, JobFailed, Queue, UnrecoverableError, Worker
from bullite.errors import BulliteError, InvalidOption, InvalidOptionType
from tests.support.helpers import again, case, fresh, until


async def fail(job: Job) -> None:
    raise ValueError(f"try {job.attempts_made + 1}")


def fail_in_thread(job: Job) -> None:
    raise ValueError(f"try {job.attempts_made + 1}")


async def has_failed_once(queue: Queue, job: Job) -> bool:
    return (await again(queue, job)).attempts_made == 1


def always(answer: Any) -> Callable[[int, BaseException], Any]:
    """A strategy that has one answer."""
    return lambda attempts_made, error: answer


async def after_one_try(queue: Queue, processor: Any, strategy: Any) -> Job:
    async with Worker(queue, processor, retry_strategies={"mine": strategy}):
        job = await queue.add("a", attempts=5, retry_strategy="mine")
        await until(lambda: has_failed_once(queue, job))
    return await again(queue, job)


@pytest.mark.parametrize("processor", [fail, fail_in_thread])
async def test_a_function_says_when_to_try_again(queue: Queue, processor: Any) -> None:
    asked: list[Any] = []

    def strategy(attempts_made: int, error: BaseException) -> int:
        asked.append((attempts_made, str(error)))
        return 3_600_000

    job = await after_one_try(queue, processor, strategy)
    assert (job.state, job.delay, job.failed_reason) == ("delayed", 3_600_000, "try 1")
    assert asked == [(1, "try 1")]


@pytest.mark.parametrize("processor", [fail, fail_in_thread])
async def test_a_coroutine_says_when_to_try_again(queue: Queue, processor: Any) -> None:
    async def strategy(attempts_made: int, error: BaseException) -> int:
        await asyncio.sleep(0.01)
        return 7_200_000

    job = await after_one_try(queue, processor, strategy)
    assert (job.state, job.delay) == ("delayed", 7_200_000)


async def test_retry_strategy_is_called_after_every_failure(queue: Queue) -> None:
    began: list[float] = []

    async def work(job: Job) -> None:
        began.append(time.time())
        raise ValueError("broken")

    delays = {1: 40, 2: 0, 3: 80}
    async with Worker(queue, work, retry_strategies={"mine": lambda made, error: delays[made]}):
        job = await queue.add("a", attempts=4, retry_strategy="mine")
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
    gaps = [later - earlier for earlier, later in itertools.pairwise(began)]
    assert len(gaps) == 3
    assert gaps[0] > 0.035
    assert gaps[2] > 0.075


async def test_the_function_may_give_up(queue: Queue) -> None:
    for answer in [False, -1, -0.5]:
        strategies = {"mine": always(answer)}
        with case(answer):
            queue = fresh(queue)
            async with Worker(queue, fail, retry_strategies=strategies):
                job = await queue.add("a", attempts=5, retry_strategy="mine")
                with pytest.raises(JobFailed, match="try 1"):
                    await job.result(timeout="10s")
            assert (await again(queue, job)).attempts_made == 1


async def test_zero_means_at_once(queue: Queue) -> None:
    async with Worker(queue, fail, retry_strategies={"mine": lambda made, error: 0}):
        job = await queue.add("a", attempts=3, retry_strategy="mine")
        with pytest.raises(JobFailed, match="try 3"):
            await job.result(timeout="10s")


async def test_part_of_a_millisecond_is_rounded(queue: Queue) -> None:
    job = await after_one_try(queue, fail, lambda made, error: 3_600_000.4)
    assert job.delay == 3_600_000


async def test_another_answer_fails_the_job_with_the_reason(queue: Queue) -> None:
    for answer in [True, "soon", None, float("nan"), [5]]:
        strategies = {"mine": always(answer)}
        with case(answer):
            queue = fresh(queue)
            async with Worker(queue, fail, retry_strategies=strategies):
                job = await queue.add("a", attempts=3, retry_strategy="mine")
                with pytest.raises(JobFailed, match="retry strategy"):
                    await job.result(timeout="10s")


async def test_an_endless_delay_is_cut_to_the_longest_there_is(queue: Queue) -> None:
    """As every other delay: a time that no calendar has cannot be shown."""
    for answer in [float("inf"), 10**40, 2**53]:
        with case(answer):
            queue = fresh(queue)
            job = await after_one_try(queue, fail, always(answer))
            assert job.state == "delayed"
            assert job.process_at is not None


async def test_a_function_that_raises_fails_the_job_with_its_error(queue: Queue) -> None:
    def strategy(attempts_made: int, error: BaseException) -> int:
        raise KeyError("bug in the strategy")

    async with Worker(queue, fail, retry_strategies={"mine": strategy}):
        job = await queue.add("a", attempts=3, retry_strategy="mine")
        with pytest.raises(JobFailed, match="bug in the strategy"):
            await job.result(timeout="10s")
        assert await (await queue.add("a")).get_state()  # and the worker lives on


@pytest.mark.parametrize("processor", [fail, fail_in_thread])
async def test_a_strategy_that_the_worker_does_not_know_fails_the_job(
    queue: Queue, processor: Any
) -> None:
    async with Worker(queue, processor):
        job = await queue.add("a", attempts=3, retry_strategy="unknown")
        with pytest.raises(JobFailed, match=r"try 1.*unknown"):
            await job.result(timeout="10s")


async def test_retry_strategy_is_not_called_without_attempts_left(queue: Queue) -> None:
    asked: list[int] = []

    def strategy(attempts_made: int, error: BaseException) -> int:
        asked.append(attempts_made)
        return 0

    async with Worker(queue, fail, retry_strategies={"mine": strategy}):
        job = await queue.add("a", attempts=2, retry_strategy="mine")
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
    assert asked == [1]


async def test_retry_strategy_is_not_called_for_an_unrecoverable_error(queue: Queue) -> None:
    async def hopeless(job: Job) -> None:
        raise UnrecoverableError("hopeless")

    async with Worker(queue, hopeless, retry_strategies={"mine": lambda made, error: 1 / 0}):
        job = await queue.add("a", attempts=2, retry_strategy="mine")
        with pytest.raises(JobFailed, match="hopeless"):
            await job.result(timeout="10s")


async def test_retry_strategy_is_called_with_timeouts(queue: Queue) -> None:
    seen: list[BaseException] = []

    async def hang(job: Job) -> None:
        await asyncio.Event().wait()

    def strategy(attempts_made: int, error: BaseException) -> bool:
        seen.append(error)
        return False

    async with Worker(queue, hang, retry_strategies={"mine": strategy}):
        job = await queue.add("a", attempts=2, timeout=30, retry_strategy="mine")
        with pytest.raises(JobFailed, match="timeout"):
            await job.result(timeout="10s")
    assert isinstance(seen[0], TimeoutError)
    assert (await again(queue, job)).outcome == "timed-out"


async def test_a_strategy_may_be_spelled_out(queue: Queue) -> None:
    async with Worker(queue, fail):
        spelled: Any = {"type": "linear", "delay": 3_600_000}
        job = await queue.add("a", attempts=2, retry_strategy=spelled)
        await until(lambda: has_failed_once(queue, job))
    assert (await again(queue, job)).delay == 3_600_000


# --- one function for all types ------------------------------------------------------------------


@pytest.mark.parametrize("processor", [fail, fail_in_thread])
async def test_types_of_ones_own_are_for_the_backoff_strategy(queue: Queue, processor: Any) -> None:
    asked: list[Any] = []

    def strategy(made: int, kind: str, error: BaseException, job: Job) -> int:
        asked.append((made, kind, str(error), job.name))
        return 3_600_000

    async with Worker(queue, processor, backoff_strategy=strategy):
        job = await queue.add("a", attempts=3, backoff={"type": "moon", "delay": 5})
        await until(lambda: has_failed_once(queue, job))
    assert (await again(queue, job)).delay == 3_600_000
    assert asked == [(1, "moon", "try 1", "a")]


async def test_the_backoff_strategy_may_be_a_coroutine(queue: Queue) -> None:
    async def strategy(made: int, kind: str, error: BaseException, job: Job) -> int:
        await asyncio.sleep(0)
        return 3_600_000

    async with Worker(queue, fail, backoff_strategy=strategy):
        job = await queue.add("a", attempts=3, backoff={"type": "moon"})
        await until(lambda: has_failed_once(queue, job))
    assert (await again(queue, job)).delay == 3_600_000


async def test_the_backoff_strategy_may_give_up(queue: Queue) -> None:
    async with Worker(queue, fail, backoff_strategy=lambda made, kind, error, job: -1):
        job = await queue.add("a", attempts=3, backoff={"type": "moon"})
        with pytest.raises(JobFailed, match="try 1"):
            await job.result(timeout="10s")


async def test_known_types_are_not_for_the_backoff_strategy(queue: Queue) -> None:
    async with Worker(queue, fail, backoff_strategy=lambda *arguments: 1 / 0):
        job = await queue.add("a", attempts=2, backoff={"type": "fixed", "delay": 1})
        with pytest.raises(JobFailed, match="try 2"):
            await job.result(timeout="10s")


async def test_an_unknown_backoff_type_fails_the_job(queue: Queue) -> None:
    async with Worker(queue, fail):
        job = await queue.add("a", attempts=3, backoff={"type": "moon"})
        with pytest.raises(JobFailed, match="moon"):
            await job.result(timeout="10s")
    assert (await again(queue, job)).attempts_made == 1


async def test_a_rule_by_error_may_name_a_type_of_ones_own(queue: Queue) -> None:
    kinds: list[str] = []

    def strategy(made: int, kind: str, error: BaseException, job: Job) -> int:
        kinds.append(kind)
        return 0

    rules: Any = [{"on": "KeyError", "type": "sun"}, {"on": "ValueError", "type": "moon"}]
    async with Worker(queue, fail, backoff_strategy=strategy):
        job = await queue.add("a", attempts=2, backoff=rules)
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
    assert kinds == ["moon"]


# --- options -------------------------------------------------------------------------------------


async def test_a_function_cannot_be_stored_with_a_job(queue: Queue) -> None:
    strategy: Any = lambda made, error: 5  # noqa: E731
    with pytest.raises(InvalidOptionType, match="retry_strategies"):
        await queue.add("a", retry_strategy=strategy)
    assert await queue.count() == 0


async def test_bad_strategies_are_refused(queue: Queue) -> None:
    for bad in [5, [("mine", fail)], "mine", {"mine": 5}, {5: fail}, {"": fail}]:
        with case(bad), pytest.raises(BulliteError, match="retry_strateg"):
            Worker(queue, fail, autorun=False, retry_strategies=bad)


async def test_a_bad_backoff_strategy_is_refused(queue: Queue) -> None:
    bad: Any = 5
    with pytest.raises(InvalidOptionType, match="backoff_strategy"):
        Worker(queue, fail, autorun=False, backoff_strategy=bad)


async def test_a_bad_name_of_a_strategy_is_refused(queue: Queue) -> None:
    for bad in ["", "a\x00", 5, [1]]:
        with case(bad):
            with pytest.raises((InvalidOption, InvalidOptionType), match="retry_strategy"):
                await queue.add("a", retry_strategy=bad)
            assert await queue.count() == 0
