"""The connection breaks around a COMMIT: what was acknowledged exists, and exists once."""

from __future__ import annotations

import collections
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bullite import Job, Queue, Worker
from bullite.database.postgres.statements import REFUSAL
from tests.database.postgres.proxy import Fault, Proxy
from tests.support.helpers import again, state_of, until
from tests.support.postgres_database import PostgresDatabase, with_options
from tests.support.processes import jobs_of

CUT = (Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.CUT_ANSWER)
CUTS = pytest.mark.parametrize("cut", CUT, ids=lambda cut: cut.name)


def told(database: PostgresDatabase, kind: str) -> collections.Counter[Any]:
    """How often the event log tells of each job that it made a move."""
    rows = database.query("select jobs from bullite_events where kind = ?", kind)
    return collections.Counter(job for (jobs,) in rows for job in jobs_of(jobs))


def jobs(database: PostgresDatabase) -> list[int]:
    return [row["id"] for row in database.rows("jobs")]


async def take(worker: Worker) -> Job:
    job = await worker.get_next_job()
    assert job is not None
    return job


@CUTS
async def test_a_job_whose_commit_was_cut_off_is_added_once(
    behind_proxy: str, proxy: Proxy, database: PostgresDatabase, cut: Fault
) -> None:
    async with Queue("work", behind_proxy) as queue:
        proxy.fail_next_commit(cut)
        job = await queue.add("a")
    assert proxy.faults == 1
    assert jobs(database) == [job.pk]
    assert told(database, "add") == {job.pk: 1}


@CUTS
async def test_many_jobs_whose_commit_was_cut_off_are_added_once(
    behind_proxy: str, proxy: Proxy, database: PostgresDatabase, cut: Fault
) -> None:
    async with Queue("work", behind_proxy) as queue:
        proxy.fail_next_commit(cut)
        added = await queue.add_bulk({"name": "a", "data": n} for n in range(500))
    assert proxy.faults == 1
    assert jobs(database) == [job.pk for job in added]
    assert told(database, "add") == {job.pk: 1 for job in added}


@CUTS
async def test_a_job_with_an_id_of_its_own_is_no_duplicate_of_itself(
    behind_proxy: str, proxy: Proxy, database: PostgresDatabase, cut: Fault
) -> None:
    async with Queue("work", behind_proxy) as queue:
        proxy.fail_next_commit(cut)
        job = await queue.add("a", job_id="mine")
    assert proxy.faults == 1
    assert jobs(database) == [job.pk]
    assert told(database, "duplicated") == {}


@CUTS
async def test_a_result_whose_commit_was_cut_off_is_recorded_once(
    behind_proxy: str, proxy: Proxy, database: PostgresDatabase, cut: Fault
) -> None:
    runs: list[int] = []

    async def work(job: Job) -> str:
        runs.append(job.pk)
        proxy.fail_next_commit(cut, of="complete")
        return "done"

    async with Queue("work", behind_proxy) as queue, Worker(queue, work):
        job = await queue.add("a")
        assert await job.result(timeout="10s") == "done"
    assert proxy.faults == 1
    assert runs == [job.pk]
    assert told(database, "complete") == {job.pk: 1}


@CUTS
async def test_a_job_whose_claim_was_cut_off_is_run_once(
    behind_proxy: str, proxy: Proxy, database: PostgresDatabase, cut: Fault
) -> None:
    runs: list[int] = []

    async def work(job: Job) -> None:
        runs.append(job.pk)

    async with Queue("work", behind_proxy) as queue:
        job = await queue.add("a")
        proxy.fail_next_commit(cut, of="claim")
        async with Worker(queue, work):
            await job.result(timeout="10s")
    assert proxy.faults == 1
    assert runs == [job.pk]


@CUTS
async def test_a_failure_whose_commit_was_cut_off_costs_one_attempt(
    behind_proxy: str, proxy: Proxy, database: PostgresDatabase, cut: Fault
) -> None:
    async with Queue("work", behind_proxy) as queue, Worker(queue, None) as worker:
        await queue.add("a", attempts=3)
        job = await take(worker)
        proxy.fail_next_commit(cut, of="retry")
        await job.move_to_failed(RuntimeError("it broke"))
        found = await again(queue, job)
    assert proxy.faults == 1
    assert (found.state, found.attempts_made) == ("waiting", 1)
    assert len(database.rows("attempts")) == 1


@CUTS
async def test_a_job_moved_by_hand_whose_commit_was_cut_off_moves_once(
    behind_proxy: str, proxy: Proxy, database: PostgresDatabase, cut: Fault
) -> None:
    async with Queue("work", behind_proxy) as queue:
        job = await queue.add("a", delay=60_000)
        proxy.fail_next_commit(cut)
        await job.promote()
        assert await state_of(queue, job) == "waiting"
    assert proxy.faults == 1
    assert told(database, "promote") == {job.pk: 1}


@CUTS
async def test_a_removal_whose_commit_was_cut_off_succeeds(
    behind_proxy: str, proxy: Proxy, database: PostgresDatabase, cut: Fault
) -> None:
    async with Queue("work", behind_proxy) as queue:
        job = await queue.add("a")
        proxy.fail_next_commit(cut)
        await job.remove()
        assert await queue.get_job(job.id) is None
    assert proxy.faults == 1
    assert told(database, "remove") == {job.pk: 1}


@CUTS
async def test_a_log_line_whose_commit_was_cut_off_is_there_once(
    behind_proxy: str, proxy: Proxy, database: PostgresDatabase, cut: Fault
) -> None:
    async with Queue("work", behind_proxy) as queue:
        job = await queue.add("a")
        proxy.fail_next_commit(cut)
        assert await job.log("hello") == 1
    assert proxy.faults == 1
    assert [row["message"] for row in database.rows("logs")] == ["hello"]


async def test_a_commit_that_arrives_late_finds_its_session_ended(
    behind_proxy: str, proxy: Proxy, database: PostgresDatabase
) -> None:
    async with Queue("work", behind_proxy) as queue:
        proxy.fail_next_commit(Fault.HOLD)
        job = await queue.add("a")
        [late] = proxy.held
        late.let_go_if_open()
        await until(lambda: b"terminating connection" in late.answers)
    assert jobs(database) == [job.pk]


@pytest.mark.parametrize("before", [0, 1], ids=["the first", "a later one"])
async def test_a_commit_that_arrives_after_it_was_given_up_is_refused(
    behind_proxy: str, proxy: Proxy, database: PostgresDatabase, before: int
) -> None:
    # Behind a pooler nobody can end the session of a lost connection: its messages still arrive.
    pooled = with_options(behind_proxy, pooler="transaction")
    async with Queue("work", pooled) as queue:
        for _ in range(before):
            await queue.add("before")
        proxy.fail_next_commit(Fault.HOLD)
        await queue.add("a")
        [late] = proxy.held
        late.let_go()
        await until(lambda: REFUSAL.encode() in late.answers)
        await queue.add("b")
    names = [row["name"] for row in database.rows("jobs")]
    assert names == ["before"] * before + ["a", "b"]


async def test_of_100_commits_that_were_cut_off_every_one_happened_once(
    behind_proxy: str, proxy: Proxy, database: PostgresDatabase
) -> None:
    dice = random.Random(20_26)
    expected: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    queue = Queue("work", behind_proxy)
    worker = Worker(queue, None, lock_duration=60_000)

    async def add() -> None:
        expected["add"][(await queue.add("a")).pk] += 1

    async def add_many() -> None:
        made = await queue.add_bulk({"name": "a"} for _ in range(dice.randint(2, 30)))
        expected["add"].update(job.pk for job in made)

    async def promote() -> None:
        job = await calmly(lambda: queue.add("a", delay=60_000))
        await job.promote()
        expected["promote"][job.pk] += 1

    async def remove() -> None:
        job = await calmly(lambda: queue.add("a", delay=60_000))
        await job.remove()
        expected["remove"][job.pk] += 1

    async def complete() -> None:
        await calmly(lambda: queue.add("a"), count=True)
        job = await calmly(lambda: take(worker))
        await job.move_to_completed()
        expected["complete"][job.pk] += 1

    async def calmly(call: Callable[[], Awaitable[Any]], count: bool = False) -> Any:
        """Do something to which nothing happens; the fault is for what comes next."""
        judge, proxy.judge = proxy.judge, lambda message: None
        answer = await call()
        expected["add"].update([answer.pk] if count else [])
        proxy.judge = judge
        return answer

    async with queue, worker:
        await worker.wait_until_ready()
        for _ in range(100):
            proxy.fail_next_commit(dice.choice(CUT))
            await dice.choice([add, add_many, promote, remove, complete])()
    assert proxy.faults == 100
    for kind, jobs_moved in expected.items():
        assert told(database, kind) == jobs_moved
