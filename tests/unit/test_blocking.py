"""Coroutines of the library in a thread without an event loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullite import JobNotFound, Queue
from bullite.client.runtime.blocking import iterate_blocking, run_blocking


def test_a_job_is_added_and_found_without_an_event_loop(tmp_path: Path) -> None:
    queue = Queue("q", tmp_path / "jobs.db")
    job = run_blocking(queue.add("n", {"a": 1}, priority=3))
    found = run_blocking(queue.get_job(job.id))
    assert found is not None
    assert (found.data, found.state) == ({"a": 1}, "prioritized")
    run_blocking(queue.close())


def test_jobs_are_walked_through_one_by_one(tmp_path: Path) -> None:
    queue = Queue("q", tmp_path / "jobs.db")
    run_blocking(queue.add_bulk([{"name": "n", "data": n} for n in range(7)]))
    walked = [job.data for job in iterate_blocking(queue.iter_jobs("waiting", batch=2))]
    assert walked == list(range(7))
    run_blocking(queue.close())


def test_waiting_for_a_result_ends_after_its_timeout(tmp_path: Path) -> None:
    queue = Queue("q", tmp_path / "jobs.db")
    job = run_blocking(queue.add("n"))
    with pytest.raises(TimeoutError, match="was not finished within 20"):
        run_blocking(job.result(timeout=20))
    run_blocking(queue.close())


def test_a_result_is_waited_for_until_it_can_be_none(tmp_path: Path) -> None:
    queue = Queue("q", tmp_path / "jobs.db")
    job = run_blocking(queue.add("n"))
    run_blocking(queue.pause())
    run_blocking(queue.remove(job.id))
    with pytest.raises(JobNotFound):
        run_blocking(job.result(timeout=5_000))
    run_blocking(queue.close())


def test_what_is_wrong_is_raised(tmp_path: Path) -> None:
    queue = Queue("q", tmp_path / "jobs.db")
    with pytest.raises(ValueError, match="priority"):
        run_blocking(queue.add("n", priority=10**9))
    run_blocking(queue.close())


def test_what_needs_an_event_loop_says_so() -> None:
    class Forever:
        def __await__(self):  # type: ignore[no-untyped-def]
            yield

    async def wait() -> None:
        await Forever()

    with pytest.raises(RuntimeError, match="needs an event loop"):
        run_blocking(wait())
