"""Plain functions run in threads, so many at a time, each with what it has to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bullite import Job
from bullite.core.decide_outcome import Result, Returned
from bullite.worker.processors import ANY, Handler
from bullite.worker.thread_runner import ThreadRunner
from tests.support.job_rows import active_job

from .test_prefetch import worker_of


class Master:
    """Hears how runs end; the rest of what a runner may ask for is not asked here."""

    def __init__(self) -> None:
        self.ended_jobs: list[int] = []
        self.results: list[Result] = []
        self.urgent: list[bool] = []
        """Whether each of them was to be recorded at once."""
        self.busy: Callable[[], int] = lambda: 0
        self.looked: list[int] = []
        """How many jobs the runner had whenever it said that it may have none."""

    def ended_in_thread(self, job: Job, result: Result, is_urgent: bool) -> None:
        self.urgent.append(is_urgent)
        self.results.append(result)
        self.ended_jobs.append(job.pk)

    def check_soon(self) -> None:
        self.looked.append(self.busy())

    def retry_delay(self, job: Job, error: BaseException) -> None:
        raise AssertionError("no run failed")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was not expected")


class Crowd:
    """A processor that keeps its callers until they are let go, and counts them."""

    def __init__(self) -> None:
        self.inside = 0
        self._may_go = threading.Semaphore(0)
        self._counting = threading.Lock()

    def __call__(self, job: Job) -> int:
        with self._counting:
            self.inside += 1
        assert self._may_go.acquire(timeout=30)
        with self._counting:
            self.inside -= 1
        return job.pk

    def let_go(self, number: int) -> None:
        self._may_go.release(number)


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()


@pytest.fixture
def runner(master: Master, crowd: Crowd) -> Iterator[ThreadRunner]:
    handler = Handler(crowd, in_loop=False)
    runner = ThreadRunner({ANY: handler}, 3, worker_of(master), master, name="test-of-threads")
    yield runner
    runner.stop(interrupt=False)
    crowd.let_go(1_000)
    until(lambda: not threads())


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("test-of-threads")]


def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends, "it never came to be"
        time.sleep(0.001)


def test_as_many_run_at_a_time_as_there_may_be(
    runner: ThreadRunner, master: Master, crowd: Crowd
) -> None:
    runner.take([active_job(number) for number in range(1, 8)])
    until(lambda: crowd.inside == 3)
    assert runner.busy() == 7
    crowd.let_go(7)
    until(lambda: len(master.ended_jobs) == 7)

    assert sorted(master.ended_jobs) == [1, 2, 3, 4, 5, 6, 7]
    assert sorted(master.results) == [Returned(number) for number in range(1, 8)]
    until(lambda: not runner.busy())


def test_a_runner_reports_idleness_after_the_last_result(
    runner: ThreadRunner, master: Master, crowd: Crowd
) -> None:
    master.busy = runner.busy
    runner.take([active_job(1)])
    crowd.let_go(1)
    until(lambda: bool(master.looked))

    assert master.looked == [0]
    assert master.ended_jobs == [1]


def test_threads_that_have_nothing_to_do_are_used_again(
    runner: ThreadRunner, master: Master, crowd: Crowd
) -> None:
    for number in range(1, 6):
        runner.take([active_job(number), active_job(-number)])
        crowd.let_go(2)
        until(lambda: not runner.busy())

    assert len(threads()) <= 3


def test_with_less_concurrency_those_too_many_end_after_their_jobs(
    runner: ThreadRunner, master: Master, crowd: Crowd
) -> None:
    runner.take([active_job(number) for number in range(1, 9)])
    until(lambda: crowd.inside == 3)

    runner.change_concurrency(1)
    crowd.let_go(3)
    until(lambda: len(master.ended_jobs) == 3)
    until(lambda: len(threads()) == 1)
    until(lambda: crowd.inside == 1)
    assert len(runner.running()) == 1
    crowd.let_go(5)

    until(lambda: len(master.ended_jobs) == 8)


def test_with_more_concurrency_more_run(runner: ThreadRunner, crowd: Crowd) -> None:
    runner.take([active_job(number) for number in range(1, 4)])
    until(lambda: crowd.inside == 3)

    runner.change_concurrency(5)
    runner.take([active_job(number) for number in range(4, 9)])

    until(lambda: crowd.inside == 5)


def test_stop_returns_unstarted_jobs_and_ends_the_threads(
    runner: ThreadRunner, master: Master, crowd: Crowd
) -> None:
    runner.take([active_job(number) for number in range(1, 6)])
    until(lambda: crowd.inside == 3)

    given_up = runner.stop(interrupt=False)
    crowd.let_go(5)

    until(lambda: not threads())
    assert sorted([*master.ended_jobs, *(one.pk for one in given_up)]) == [1, 2, 3, 4, 5]
    assert len(given_up) == 2


def test_one_result_is_urgent_when_half_of_the_prefetched_jobs_have_started(
    runner: ThreadRunner, master: Master, crowd: Crowd
) -> None:
    for _ in range(200):
        runner.sizer.finished(0.01)
    ahead = runner.sizer.prefetch()
    runner.take([active_job(number) for number in range(3 + ahead)])
    until(lambda: crowd.inside == 3)
    crowd.let_go(ahead // 2 - 1)
    until(lambda: runner.busy() == 3 + ahead - ahead // 2 + 1)
    assert not any(master.urgent)
    crowd.let_go(1)
    until(lambda: runner.busy() == 3 + ahead - ahead // 2)
    assert master.urgent.pop()
    crowd.let_go(1)
    until(lambda: runner.busy() == 3 + ahead - ahead // 2 - 1)
    assert not any(master.urgent)
    runner.take([active_job(1_000)])
    crowd.let_go(1)
    until(lambda: runner.busy() == 3 + ahead - ahead // 2 - 1)
    assert master.urgent.pop()


def test_each_result_is_urgent_while_nothing_is_prefetched(
    runner: ThreadRunner, crowd: Crowd
) -> None:
    runner.take([active_job(number) for number in range(3)])
    until(lambda: crowd.inside == 3)
    assert runner.needs_more_work()
    assert runner.needs_more_work()


def test_jobs_that_wait_for_a_thread_to_wake_up_are_not_prefetched(runner: ThreadRunner) -> None:
    runner._buffer.put([active_job(1)])
    assert [runner.needs_more_work() for _ in range(2)] == [True, True]
    assert runner._buffer.clear()


def test_each_result_of_a_stopping_runner_is_urgent(runner: ThreadRunner, crowd: Crowd) -> None:
    runner.take([active_job(number) for number in range(3)])
    until(lambda: crowd.inside == 3)
    runner.stop(interrupt=False)
    assert [runner.needs_more_work() for _ in range(2)] == [True, True]


def test_each_result_of_very_quick_jobs_is_urgent(runner: ThreadRunner, crowd: Crowd) -> None:
    for _ in range(200):
        runner.sizer.finished(0.00001)
    runner.take([active_job(number) for number in range(3 + runner.sizer.prefetch())])
    until(lambda: crowd.inside == 3)
    assert [runner.needs_more_work() for _ in range(2)] == [True, True]
