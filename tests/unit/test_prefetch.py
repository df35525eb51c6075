"""What a worker holds and has not begun: in which order, and how much of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bullite.worker.prefetch import (
    PREFETCH_MAX,
    PREFETCH_MAX_JOB_SECONDS,
    PREFETCH_MIN,
    PrefetchBuffer,
    PrefetchSizer,
)
from tests.support.job_rows import active_job


def worker_of(double: Any) -> Any:
    """A worker's context in which one test double has all the parts that runners use."""
    options = SimpleNamespace(strategies=double, max_started_attempts=None)
    return SimpleNamespace(options=options, notifications=double, loop=double, activity=double)


def popped(line: PrefetchBuffer) -> list[int]:
    return [job.pk for job in line.clear()]


def test_prefetched_jobs_start_in_the_order_of_the_queue() -> None:
    line = PrefetchBuffer()
    line.put([active_job(1), active_job(2)])
    line.put([active_job(3)])
    assert popped(line) == [1, 2, 3]


def test_a_job_of_better_rank_that_comes_later_starts_first() -> None:
    line = PrefetchBuffer()
    line.put([active_job(1, rank=5), active_job(2, rank=5)])
    line.put([active_job(3, rank=1)])
    assert popped(line) == [3, 1, 2]


def test_a_job_at_the_front_that_comes_later_starts_first() -> None:
    line = PrefetchBuffer()
    line.put([active_job(1), active_job(2)])
    line.put([active_job(-3)])
    assert popped(line) == [-3, 1, 2]


def test_an_empty_buffer_has_no_jobs() -> None:
    line = PrefetchBuffer()
    assert line.pop() is None
    assert line.clear() == []


def test_nothing_is_prefetched_until_runs_were_quick() -> None:
    assert PrefetchSizer(100).prefetch() == 0


def paced(concurrency: int, seconds: float) -> PrefetchSizer:
    pace = PrefetchSizer(concurrency)
    for _ in range(200):
        pace.finished(seconds)
    return pace


@pytest.mark.parametrize(
    ("concurrency", "seconds", "ahead"),
    [
        (1, 0.0, PREFETCH_MAX),
        (1, 0.0001, 20),
        (10, 0.001, 20),
        (100, 0.004, 50),
        (1, 0.004, PREFETCH_MIN),
        (1, 0.01, 8),
        (100, PREFETCH_MAX_JOB_SECONDS + 0.001, 0),
        (1, 1.0, 0),
    ],
)
def test_about_two_milliseconds_of_work_are_prefetched_but_a_few_jobs_in_any_case(
    concurrency: int, seconds: float, ahead: int
) -> None:
    assert paced(concurrency, seconds).prefetch() == pytest.approx(ahead, abs=1)


def test_a_slow_job_is_believed_at_once() -> None:
    pace = paced(100, 0.0)
    pace.finished(2 * PREFETCH_MAX_JOB_SECONDS)
    assert pace.prefetch() == 0


def test_nothing_is_prefetched_soon_after_prefetched_jobs_were_returned() -> None:
    pace = paced(100, 0.0)
    pace.stuck()
    assert pace.prefetch() == 0
    for _ in range(50):
        pace.finished(0.0)
    assert pace.prefetch() == PREFETCH_MAX
