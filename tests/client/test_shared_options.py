"""`add_bulk` with jobs that share one mapping of options, which is checked once for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bullite import Queue


async def test_jobs_that_share_their_options_have_all_of_them(queue: Queue) -> None:
    shared = {"priority": 3, "attempts": 5, "tags": ["a"], "delay": 60_000}
    own = {"priority": 7}
    opts = [shared, shared, own, shared, None, {}]
    given: Any = [{"name": f"n{n}", "data": n, "opts": one} for n, one in enumerate(opts)]
    jobs = await queue.add_bulk(given)
    found = [await queue.get_job(job.id) for job in jobs]
    assert [
        (job.name, job.data, job.priority, job.attempts, job.delay) for job in found if job
    ] == [
        ("n0", 0, 3, 5, 60_000),
        ("n1", 1, 3, 5, 60_000),
        ("n2", 2, 7, 1, 0),
        ("n3", 3, 3, 5, 60_000),
        ("n4", 4, 0, 1, 0),
        ("n5", 5, 0, 1, 0),
    ]
    assert [list(job.tags) for job in jobs] == [["a"], ["a"], [], ["a"], [], []]


async def test_a_shared_id_is_one_job(queue: Queue) -> None:
    shared = {"job_id": "same"}
    given: Any = [{"name": "n", "data": n, "opts": shared} for n in range(3)]
    jobs = await queue.add_bulk(given)
    assert {job.id for job in jobs} == {"same"}
    assert await queue.get_job_counts("waiting") == {"waiting": 1}


class Meddler(Mapping[str, Any]):
    """A job that changes the options of others when it is looked at."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._job = {"name": "meddler", "data": None}

    def __getitem__(self, key: str) -> Any:
        self._options["priority"] = 9
        return self._job[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._job)

    def __len__(self) -> int:
        return len(self._job)


async def test_options_that_change_between_two_jobs_are_checked_again(queue: Queue) -> None:
    shared = {"priority": 3}
    one: Any = {"name": "n", "opts": shared}
    jobs = await queue.add_bulk([one, Meddler(shared), one])  # type: ignore[list-item]
    assert jobs[2].priority == 9


async def test_bad_options_that_are_shared_are_told_by_the_first_that_has_them(
    queue: Queue,
) -> None:
    shared = {"priority": "high"}
    jobs: Any = [{"name": "n"}, {"name": "n", "opts": shared}, {"name": "n", "opts": shared}]
    with pytest.raises(TypeError, match=r"jobs\[1\]: priority"):
        await queue.add_bulk(jobs)
    assert await queue.count() == 0


async def test_many_different_options_are_all_heeded(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bullite.client.queue.add.MAX_ALIKE", 3)
    options = [{"priority": n} for n in range(8)]
    jobs: Any = [{"name": "n", "opts": options[n % 8]} for n in range(24)]
    added = await queue.add_bulk(jobs)
    assert [job.priority for job in added] == [n % 8 for n in range(24)]
