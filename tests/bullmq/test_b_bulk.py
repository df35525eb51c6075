"""B: adding many jobs at once."""

from __future__ import annotations

from bullite import Job, Queue, Worker
from tests.support.helpers import again, until


async def test_B_001_jobs_added_together_come_back_and_run_in_their_order(queue: Queue) -> None:
    seen: list[tuple[str, object]] = []

    async def work(job: Job) -> None:
        seen.append((job.id, job.data["idx"]))

    jobs = await queue.add_bulk(
        [{"name": "test", "data": {"idx": n, "foo": "bar"}} for n in range(2)]
    )
    assert [job.data["idx"] for job in jobs] == [0, 1]
    assert all(job.id for job in jobs)
    async with Worker(queue, work):
        await until(lambda: len(seen) == 2)
    assert seen == [(jobs[0].id, 0), (jobs[1].id, 1)]


async def test_B_004_jobs_added_together_have_the_ids_chosen_for_them(queue: Queue) -> None:
    jobs = await queue.add_bulk(
        [{"name": "test", "data": n, "opts": {"job_id": f"test{n}"}} for n in (1, 2)]
    )
    assert [job.id for job in jobs] == ["test1", "test2"]
    assert [(await again(queue, job)).data for job in jobs] == [1, 2]
