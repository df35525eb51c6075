"""Why a job is where it is: `queue.why` names what keeps it there."""

from __future__ import annotations

from datetime import UTC, datetime

from bullite import Job, Queue, UnrecoverableError, Worker
from tests.support.databases import Database
from tests.support.helpers import state_of, until


def near(told: str, moment: float) -> bool:
    """Whether the time at the end of a sentence is that moment, to the second."""
    when = datetime.fromisoformat(told.rpartition(" ")[2])
    return abs(when.timestamp() - moment) < 5


def now() -> float:
    return datetime.now(UTC).timestamp()


async def nothing(job: Job) -> None:
    pass


async def test_a_job_that_is_not_there(queue: Queue) -> None:
    assert await queue.why("7") == "there is no job 7 in 'emails'"


async def test_a_job_that_nobody_serves(queue: Queue) -> None:
    job = await queue.add("a")
    assert await queue.why(job.id) == (
        f"job {job.id} waits: no worker serves the queue; it is the next in its line"
    )


async def test_a_job_whose_name_nobody_takes(queue: Queue) -> None:
    job = await queue.add("a")
    async with Worker(queue, {"b": nothing}):
        await (await queue.add("b")).result(timeout="10s")
        assert "waits: no worker takes jobs named 'a'; " in await queue.why(job.id)


async def test_a_job_that_stands_behind_others(queue: Queue) -> None:
    await queue.pause()
    worker = Worker(queue, nothing, autorun=False)
    await worker.get_next_job(block=False)
    first = await queue.add("a")
    await queue.add_bulk([{"name": "a"}, {"name": "a", "opts": {"priority": 3}}])
    last = await queue.add("a", priority=3)
    urgent = await queue.add("a", lifo=True)
    assert (await queue.why(first.id)).endswith("; 1 stands in front of it")
    assert (await queue.why(last.id)).endswith("; 4 stand in front of it")
    assert (await queue.why(urgent.id)).endswith("; it is the next in its line")
    await worker.close()


async def test_no_more_than_a_thousand_in_front_are_counted(queue: Queue) -> None:
    jobs = await queue.add_bulk([{"name": "a"}] * 1_100)
    assert (await queue.why(jobs[999].id)).endswith("; 999 stand in front of it")
    assert (await queue.why(jobs[-1].id)).endswith("; 1000 or more stand in front of it")


async def test_a_job_of_a_queue_that_is_paused(queue: Queue) -> None:
    await queue.pause()
    job = await queue.add("a", priority=1)
    assert (await queue.why(job.id)).startswith(f"job {job.id} waits: the queue is paused; ")


async def test_a_job_that_is_delayed(queue: Queue) -> None:
    job = await queue.add("a", delay="1h")
    told = await queue.why(job.id)
    assert told.startswith(f"job {job.id} is delayed until 20")
    assert near(told, now() + 3_600)


async def test_a_job_that_is_held_back_by_a_rate_limit(queue: Queue) -> None:
    await queue.set_global_rate_limit(1, "1h")
    async with Worker(queue, nothing):
        await (await queue.add("a")).result(timeout="10s")
        job = await queue.add("a")
        told = await queue.why(job.id)
        assert "; it is the next" in told
        sentence = told.removeprefix(f"job {job.id} waits: ").split("; ")[0]
        assert sentence.startswith("a rate limit lets nothing begin before ")
        assert near(sentence, now() + 3_600)


async def test_a_job_of_a_queue_that_was_limited_by_hand(queue: Queue) -> None:
    job = await queue.add("a")
    assert "rate limit" not in await queue.why(job.id)
    await queue.rate_limit("1h")
    assert "a rate limit lets nothing begin before 20" in await queue.why(job.id)
    await queue.remove_rate_limit_key()
    assert "rate limit" not in await queue.why(job.id)


async def test_a_job_that_is_held_back_by_the_limiter_of_a_worker(queue: Queue) -> None:
    async with Worker(queue, nothing, limiter={"max": 1, "duration": "1h"}):
        await (await queue.add("a")).result(timeout="10s")
        told = await queue.why((await queue.add("a")).id)
    assert "workers with a limiter have begun 1 in a window that ends at 20" in told


async def test_a_job_that_is_held_back_by_the_limit_of_its_key(queue: Queue) -> None:
    await queue.set_rate_limit("a tenant", 1, "1h")
    async with Worker(queue, nothing):
        await (await queue.add("a", limit_key="a tenant")).result(timeout="10s")
        job = await queue.add("a", limit_key="a tenant")
        other = await queue.add("a", limit_key="another")
        await other.result(timeout="10s")
        told = await queue.why(job.id)
    assert "the limit of key 'a tenant' lets it not begin before 20" in told
    left = await queue.get_rate_limit_ttl(key="a tenant")
    assert 3_500_000 < left <= 3_600_000


async def test_a_job_for_which_too_many_run(queue: Queue) -> None:
    await queue.set_global_concurrency(1)
    running = await queue.add("a")
    worker = Worker(queue, nothing, autorun=False)
    held = await worker.get_next_job()
    assert held is not None
    job = await queue.add("a")
    assert await queue.why(job.id) == (
        f"job {job.id} waits: no more than 1 may run at a time, and their slots are held by "
        f"{running.id} (a); it is the next in its line"
    )
    assert await queue.why(running.id) == f"job {running.id} is run by {worker.name}"
    await held.move_to_completed()
    assert "at a time" not in await queue.why(job.id)
    assert await queue.why(running.id) == f"job {running.id} is completed"
    await worker.close()


async def test_a_job_that_waits_for_an_event_for_ever_or_for_a_time(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.wait_event("approval", timeout=job.data)

    for_ever, for_an_hour = await queue.add("a"), await queue.add("a", "1h")
    async with Worker(queue, work, concurrency=2):
        for job in (for_ever, for_an_hour):
            await until(lambda job=job: is_delayed(queue, job))
        assert await queue.why(for_ever.id) == f"job {for_ever.id} waits for the event 'approval'"
        told = await queue.why(for_an_hour.id)
        assert told.startswith(f"job {for_an_hour.id} waits for the event 'approval' until 20")
        assert near(told, now() + 3_600)
        await queue.send_event(for_ever.id, "approval")
        await for_ever.result(timeout="10s")


async def is_delayed(queue: Queue, job: Job) -> bool:
    return await state_of(queue, job) == "delayed"


async def test_a_job_that_sleeps(queue: Queue) -> None:
    async def work(job: Job) -> None:
        await job.sleep("1h")

    job = await queue.add("a")
    async with Worker(queue, work):
        await until(lambda: is_delayed(queue, job))
    assert (await queue.why(job.id)).startswith(f"job {job.id} sleeps until 20")


async def test_of_many_that_hold_slots_a_few_are_named(queue: Queue) -> None:
    await queue.set_global_concurrency(5)
    worker = Worker(queue, None)
    running = await queue.add_bulk([{"name": f"work {number}"} for number in range(5)])
    held = [await worker.get_next_job() for _ in running]
    told = await queue.why((await queue.add("a")).id)
    named = ", ".join(f"{job.id} ({job.name})" for job in running[:3])
    assert f"no more than 5 may run at a time, and their slots are held by {named} and" in told
    assert " and others; " in told
    for job in held:
        assert job is not None
        await job.move_to_completed()
    await worker.close()


async def test_a_job_whose_worker_is_lost(queue: Queue, database: Database) -> None:
    job = await queue.add("a")
    # Another worker of the process that begins has all leases renewed; not this one's.
    worker = Worker(
        queue, None, name="the lost one", skip_stalled_check=True, skip_lock_renewal=True
    )
    assert await worker.get_next_job() is not None
    assert await queue.why(job.id) == f"job {job.id} is run by the lost one"
    database.write("update bullite_workers set lease_until = 1")
    database.write("update bullite_jobs set lease_until = 1")
    lost = f"job {job.id} was run by the lost one, which is lost: "
    # It says itself that it lives until a minute has passed, but not of this job.
    assert (await queue.why(job.id)).startswith(
        f"{lost}no worker serves the queue, the last was heard of at 20"
    )
    other = Worker(queue, None, name="the other", skip_stalled_check=True)
    assert await other.get_next_job(block=False) is None
    assert await queue.why(job.id) == f"{lost}it is about to be given to another"
    await other.close()
    await worker.close(force=True)


async def test_a_worker_that_is_not_heard_of_serves_nobody(
    queue: Queue, database: Database
) -> None:
    worker = Worker(queue, None, skip_stalled_check=True)
    assert await worker.get_next_job(block=False) is None
    job = await queue.add("a")
    assert await queue.why(job.id) == f"job {job.id} waits: it is the next in its line"

    async def is_told() -> bool:
        lose_workers(database)
        return await queue.why(job.id) == (
            f"job {job.id} waits: no worker serves the queue, the last was heard of at "
            "1970-01-01T00:00:00.001+00:00; it is the next in its line"
        )

    await until(is_told)
    lose_workers(database)
    [info] = await queue.get_workers()
    assert info.is_lost
    await worker.close()


def lose_workers(database: Database) -> None:
    """Nothing was heard of them for long; until they say something again."""
    database.write("update bullite_workers set started_at = 1, seen_at = 1")


async def test_a_worker_without_renewal_is_not_lost_for_being_silent(
    queue: Queue, database: Database
) -> None:
    worker = Worker(queue, None, skip_stalled_check=True, skip_lock_renewal=True)
    assert await worker.get_next_job(block=False) is None
    lose_workers(database)
    [info] = await queue.get_workers()
    assert not info.is_lost
    await worker.close()


async def test_a_job_that_was_due_and_that_nobody_serves(queue: Queue, database: Database) -> None:
    job = await queue.add("a", delay="1h")
    database.write("update bullite_jobs set due_at = 1000")
    assert await queue.why(job.id) == (
        f"job {job.id} was due at 1970-01-01T00:00:01.000+00:00: no worker serves the queue"
    )


async def test_a_retry_that_was_due_tells_its_failure(queue: Queue, database: Database) -> None:
    async def work(job: Job) -> None:
        raise RuntimeError("no answer")

    job = await queue.add("a", attempts=3, backoff="2h")
    async with Worker(queue, work):
        await until(lambda: is_delayed(queue, job))
    database.write("update bullite_jobs set due_at = 1000")
    assert await queue.why(job.id) == (
        f"job {job.id} was due at 1970-01-01T00:00:01.000+00:00: no worker serves the queue; "
        "attempt 1 of 3 failed (no answer)"
    )


async def test_a_job_that_is_due_is_about_to_join_its_line(
    queue: Queue, database: Database
) -> None:
    worker = Worker(queue, None, skip_stalled_check=True, maintenance_interval="1h")
    assert await worker.get_next_job(block=False) is None
    job = await queue.add("a", delay="1h")
    database.write("update bullite_jobs set due_at = 1000")
    assert await queue.why(job.id) == (
        f"job {job.id} was due at 1970-01-01T00:00:01.000+00:00: it is about to join its line"
    )
    await worker.close()


async def test_a_job_that_is_retried_tells_when_and_why(queue: Queue) -> None:
    async def work(job: Job) -> None:
        raise RuntimeError("no answer")

    job = await queue.add("a", attempts=3, backoff="2h")
    async with Worker(queue, work):
        await until(lambda: is_delayed(queue, job))
    told = await queue.why(job.id)
    assert told.startswith(f"job {job.id} is retried at 20")
    assert told.endswith(": attempt 1 of 3 failed (no answer)")
    assert near(told.partition(": ")[0], now() + 7_200)


async def test_a_job_that_waits_for_others_names_them(queue: Queue) -> None:
    first, second = await queue.add("a", job_id="first"), await queue.add("a")
    job = await queue.add("a", depends_on=[first, second])
    assert await queue.why(job.id) == (f"job {job.id} waits for emails:first, emails:{second.id}")


async def test_a_job_that_backs_off_is_retried_though_it_slept_before(queue: Queue) -> None:
    async def work(job: Job) -> None:
        if job.attempts_started == 2:
            raise RuntimeError("before it comes to its sleep")
        await job.sleep("1h")

    job = await queue.add("a", attempts=2, backoff="2h")
    async with Worker(queue, work):
        await until(lambda: is_delayed(queue, job))
        await (await queue.get_delayed())[0].promote()
        await until(lambda: was_started_again(queue, job))
        await until(lambda: is_delayed(queue, job))
    told = await queue.why(job.id)
    assert "is retried at 20" in told
    assert told.endswith(": attempt 1 of 2 failed (before it comes to its sleep)")


async def was_started_again(queue: Queue, job: Job) -> bool:
    found = await queue.get_job(job.id)
    return found is not None and found.attempts_started == 2


async def test_a_job_that_failed_tells_its_reason(queue: Queue) -> None:
    async def work(job: Job) -> None:
        raise UnrecoverableError("no such address")

    job = await queue.add("a")
    async with Worker(queue, work):
        await until(lambda: has_failed(queue, job))
    assert await queue.why(job.id) == f"job {job.id} failed: no such address"


async def has_failed(queue: Queue, job: Job) -> bool:
    return await state_of(queue, job) == "failed"
