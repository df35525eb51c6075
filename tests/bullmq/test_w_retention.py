"""Workers: how many finished jobs stay, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bullite import Job, JobFailed, Queue, Store, Worker
from bullite.core.clock import SystemClock
from tests.support.databases import Database

JOBS = 15

OPTION = {"completed": "remove_on_complete", "failed": "remove_on_fail"}


class StillClock(SystemClock):
    """Wall time stands still but for what tests add to it: ages are exact."""

    def __init__(self) -> None:
        super().__init__()
        self._now = super().now()

    def now(self) -> int:
        return self._now

    def advance(self, ms: int) -> None:
        self._now += ms


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def still(location: str, clock: StillClock) -> Iterator[Queue]:
    """A queue whose time is the test's."""
    queue = Queue("emails", Store(location, clock=clock))
    yield queue
    queue.store.close()


async def finish_jobs(
    queue: Queue,
    clock: StillClock,
    outcome: str,
    options: dict[str, Any],
    worker_options: dict[str, Any] | None = None,
) -> list[Job]:
    """Let jobs end like that, exactly a second apart, each with a line in its log."""

    async def work(job: Job) -> None:
        await job.log("here")
        if outcome == "failed":
            raise ValueError("as the test wants it")

    jobs = []
    async with Worker(queue, work, **(worker_options or {})) as worker:
        ended: list[str] = []
        worker.on(outcome, lambda job, *_: ended.append(job.id))
        for _ in range(JOBS):
            clock.advance(1_000)
            job = await queue.add("a", **options)  # type: ignore[arg-type]
            jobs.append(job)
            try:
                await job.result()
            except (JobFailed, LookupError):
                pass  # it failed as it should, or is gone already
    assert ended == [job.id for job in jobs]
    return jobs


async def kept(queue: Queue, outcome: str) -> list[str]:
    return [job.id for job in await queue.get_jobs(outcome, asc=True)]


def logged(database: Database) -> list[str]:
    """The jobs that have lines in a log, whether the jobs exist or not."""
    jobs = {row["job"] for row in database.rows("logs")}
    return [str(job) for job in sorted(jobs)]


def ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_W_027_only_the_newest_so_many_stay_and_the_logs_of_the_others_go_too(
    still: Queue, clock: StillClock, database: Database, outcome: str
) -> None:
    jobs = await finish_jobs(still, clock, outcome, {OPTION[outcome]: 3})
    assert await kept(still, outcome) == ids(jobs[-3:])
    assert logged(database) == ids(jobs[-3:])


async def test_W_029_a_job_exactly_as_old_as_the_age_allowed_goes_with_its_log(
    still: Queue, clock: StillClock, database: Database
) -> None:
    jobs = await finish_jobs(still, clock, "completed", {"remove_on_complete": {"age": 7}})
    assert await kept(still, "completed") == ids(jobs[-7:])
    assert logged(database) == ids(jobs[-7:])


@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_W_030_of_an_age_and_a_count_the_stricter_decides(
    still: Queue, clock: StillClock, outcome: str
) -> None:
    jobs = await finish_jobs(still, clock, outcome, {OPTION[outcome]: {"age": 7, "count": 5}})
    assert await kept(still, outcome) == ids(jobs[-5:])


async def test_W_031_failed_jobs_that_are_not_kept_leave_no_logs_either(
    still: Queue, clock: StillClock, database: Database
) -> None:
    await finish_jobs(still, clock, "failed", {"remove_on_fail": True})
    assert await kept(still, "failed") == []
    assert await still.get_failed_count() == 0
    assert logged(database) == []


@pytest.mark.parametrize("outcome", ["completed", "failed"])
@pytest.mark.parametrize(("keep", "left"), [({"age": 7}, 7), ({"age": 7, "count": 5}, 5)])
async def test_W_032_a_worker_says_what_stays_of_jobs_that_do_not_say_themselves(
    still: Queue, clock: StillClock, outcome: str, keep: dict[str, int], left: int
) -> None:
    jobs = await finish_jobs(still, clock, outcome, {}, {OPTION[outcome]: keep})
    assert await kept(still, outcome) == ids(jobs[-left:])


async def test_W_034_a_worker_that_keeps_a_count_of_none_keeps_no_failed_job(
    still: Queue, clock: StillClock
) -> None:
    await finish_jobs(still, clock, "failed", {}, {"remove_on_fail": {"count": 0}})
    assert await kept(still, "failed") == []
