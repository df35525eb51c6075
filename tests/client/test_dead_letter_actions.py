"""What becomes of failed jobs by itself: somebody is told of them, and they are tried again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bullite import FlowProducer, Job, JobFailed, Queue, Worker
from bullite.engine import maintenance
from bullite.errors import BulliteError, InvalidOption, InvalidOptionType, UnserializableData
from tests.support.helpers import again, case, take_away, until

NOTICE: Any = {"queue": "news", "name": "tell"}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler service looks for failed jobs all the time."""
    monkeypatch.setattr(maintenance, "PRUNE_EVERY", 5)


async def fail(job: Job) -> None:
    raise ValueError(f"broken {job.attempts_made}")


async def fail_one(queue: Queue, **options: Any) -> Job:
    job = await queue.add("a", **options)
    async with Worker(queue, fail):
        with pytest.raises(JobFailed):
            await job.result(timeout="10s")
    return job


@asynccontextmanager
async def news_of(queue: Queue) -> AsyncIterator[Queue]:
    async with Queue("news", queue.store) as news:
        yield news


async def told(queue: Queue) -> list[Any]:
    """What the notices say, first to last."""
    async with news_of(queue) as news:
        return [job.data for job in await news.get_waiting()]


# --- somebody is told ----------------------------------------------------------------------------


async def test_a_queue_has_its_failures_told(queue: Queue) -> None:
    settings = await queue.configure(on_failure={**NOTICE, "data": {"to": "ops"}})
    assert settings["on_failure"] == {**NOTICE, "data": {"to": "ops"}, "attempts": 1}
    job = await fail_one(queue, attempts=2, job_id="order-7")
    [notice] = await told(queue)
    failed = notice["failed"]
    assert notice["to"] == "ops"
    assert (failed["job_id"], failed["queue"]) == ("order-7", "emails")
    assert (failed["failed_reason"], failed["attempts_made"]) == ("broken 1", 2)
    assert failed["outcome"] == "error"
    assert failed["failed_at"] == (await again(queue, job)).finished_on


async def test_a_job_has_its_own_failure_told(queue: Queue) -> None:
    job = await fail_one(queue, on_failure=NOTICE)
    await fail_one(queue)
    assert [notice["failed"]["job_id"] for notice in await told(queue)] == [job.id]
    assert (await again(queue, job)).opts["on_failure"]["queue"] == "news"


async def test_a_notice_is_a_job_like_others(queue: Queue) -> None:
    heard: list[Any] = []

    async def hear(job: Job) -> None:
        heard.append(job.data["failed"]["failed_reason"])
        if job.attempts_made == 0:
            raise ValueError("nobody is at home")

    await queue.configure(on_failure={**NOTICE, "attempts": 2, "backoff": 1})
    async with news_of(queue) as news, Worker(news, hear):
        await fail_one(queue)
        await until(lambda: news.get_completed_count())
    assert heard == ["broken 0"] * 2


async def test_a_notice_that_fails_is_told_to_nobody(queue: Queue) -> None:
    async with news_of(queue) as news:
        await queue.configure(on_failure=NOTICE)
        await news.configure(on_failure={"queue": "emails", "name": "tell"})
        await fail_one(queue)
        async with Worker(news, fail):
            await until(lambda: news.get_failed_count())
        assert await queue.get_job_count_by_types() == 1


async def test_a_job_that_stalled_too_often_is_told(queue: Queue) -> None:
    async def lose(job: Job) -> None:
        await take_away(queue)

    await queue.configure(on_failure=NOTICE)
    async with Worker(queue, lose, max_stalled_count=0):
        job = await queue.add("a")
        with pytest.raises(JobFailed, match="stalled"):
            await job.result(timeout="10s")
    [notice] = await told(queue)
    assert notice["failed"]["outcome"] == "stalled"


async def test_neither_cancelled_nor_expired_jobs_are_told(queue: Queue) -> None:
    await queue.configure(on_failure=NOTICE)
    job = await queue.add("a", on_failure=NOTICE)
    await queue.cancel(job.id)
    await queue.add("a", expires=1, on_failure=NOTICE, delay=30)
    async with Worker(queue, fail, maintenance_interval=10):
        await until(lambda: have_failed(queue, 2))
    assert await told(queue) == []


async def have_failed(queue: Queue, number: int) -> bool:
    return await queue.get_failed_count() == number


async def test_jobs_of_schedulers_and_flows_are_told(queue: Queue) -> None:
    options: Any = {"on_failure": NOTICE}
    await queue.upsert_job_scheduler("s", every="1h", template={"name": "a", "opts": options})
    leaf: Any = {"name": "a", "queue_name": "emails", "opts": options}
    await FlowProducer(queue.store).add(leaf)
    async with Worker(queue, fail):
        await until(lambda: have_failed(queue, 2))
    assert len(await told(queue)) == 2


async def test_defaults_of_the_queue_may_have_it(queue: Queue) -> None:
    await queue.configure(default_job_options={"on_failure": {**NOTICE, "backoff": "1s"}})
    await fail_one(queue)
    await fail_one(queue, on_failure=None)
    assert len(await told(queue)) == 1


async def test_none_ends_it(queue: Queue) -> None:
    await queue.configure(on_failure=NOTICE)
    assert (await queue.configure(on_failure=None))["on_failure"] is None
    await fail_one(queue)
    assert await told(queue) == []


# --- they are tried again ------------------------------------------------------------------------


async def test_a_failed_job_is_tried_again_by_itself(queue: Queue, impatient: None) -> None:
    runs: list[int] = []

    async def work(job: Job) -> str:
        runs.append(job.attempts_started)
        if len(runs) < 4:
            raise ValueError("not yet")
        return "at last"

    settings = await queue.configure(retry_failed_after="20ms", retry_failed_times=5)
    assert (settings["retry_failed_after"], settings["retry_failed_times"]) == (20, 5)
    async with Worker(queue, work, maintenance_interval=5):
        job = await queue.add("a", attempts=2)
        await until(lambda: queue.get_completed_count())
    assert runs == [1, 2, 1, 2]
    found = await again(queue, job)
    assert (found.return_value, found.attempts_made) == ("at last", 2)
    assert [run.outcome for run in await found.get_attempts()] == ["error"] * 3 + ["completed"]


async def test_a_dead_letter_goes_home_by_itself(queue: Queue, impatient: None) -> None:
    await queue.configure(dead_letter="dead")
    async with Queue("dead", queue.store) as dead:
        job = await fail_one(queue, tags=["x"])
        await dead.configure(retry_failed_after="1ms")
        async with Worker(dead, fail, maintenance_interval=5):
            await until(lambda: queue.get_waiting_count())
        home = await again(queue, job)
        assert (home.state, home.original_queue, home.attempts_made) == ("waiting", None, 0)
        assert [found.id for found in (await queue.find(tag="x")).jobs] == [job.id]
        async with Worker(queue, fail):
            await until(lambda: dead.get_failed_count())
        assert (await again(dead, job)).process_at is None, "once is enough"


async def test_a_job_that_will_be_tried_again_says_when(queue: Queue) -> None:
    await queue.configure(retry_failed_after="1h")
    job = await again(queue, await fail_one(queue))
    assert job.process_at is not None
    assert job.finished_at is not None
    assert (job.process_at - job.finished_at).total_seconds() == 3_600
    await queue.configure(retry_failed_after=None)
    assert (await again(queue, job)).process_at is None


# --- what is refused -----------------------------------------------------------------------------

BAD_NOTICES: list[tuple[Any, type[BulliteError], str]] = [
    ("news", InvalidOptionType, "on_failure must be a mapping"),
    ([], InvalidOptionType, "on_failure must be a mapping"),
    ({}, InvalidOption, "on_failure has no queue"),
    ({"queue": "news"}, InvalidOption, "on_failure has no name"),
    ({"name": "tell"}, InvalidOption, "on_failure has no queue"),
    ({**NOTICE, "delay": 5}, InvalidOption, "on_failure has an unknown key 'delay'"),
    ({**NOTICE, "queue": ""}, InvalidOption, "the queue of on_failure"),
    ({**NOTICE, "queue": 5}, InvalidOptionType, "the queue of on_failure"),
    ({**NOTICE, "name": None}, InvalidOptionType, "the name of on_failure"),
    ({**NOTICE, "data": "x"}, InvalidOptionType, "the data of on_failure must be a mapping"),
    ({**NOTICE, "data": {"x": object()}}, UnserializableData, "the data of on_failure"),
    ({**NOTICE, "data": {"x": float("nan")}}, UnserializableData, "the data of on_failure"),
    ({**NOTICE, "attempts": 0}, InvalidOption, "the attempts of on_failure"),
    ({**NOTICE, "attempts": "3"}, InvalidOptionType, "the attempts of on_failure"),
    ({**NOTICE, "backoff": -1}, BulliteError, "backoff"),
]


async def test_a_bad_notice_is_refused_wherever_it_is_given(queue: Queue) -> None:
    for value, error, message in BAD_NOTICES:
        with case(value):
            with pytest.raises(error, match=message):
                await queue.configure(on_failure=value)
            with pytest.raises(error, match=message):
                await queue.add("a", on_failure=value)
            with pytest.raises(error, match=message):
                await queue.configure(default_job_options={"on_failure": value})


async def test_a_queue_does_not_tell_itself(queue: Queue) -> None:
    with pytest.raises(
        InvalidOption, match="the queue of on_failure must be another than 'emails'"
    ):
        await queue.configure(on_failure={**NOTICE, "queue": "emails"})


async def test_bad_times_are_refused(queue: Queue) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        *(({"retry_failed_after": value}, "retry_failed_after") for value in (0, -1, "soon", [])),
        *(({"retry_failed_times": value}, "retry_failed_times") for value in (0, None, "2", 1.5)),
    ]
    for settings, message in bad:
        with case(settings), pytest.raises(BulliteError, match=message):
            await queue.configure(**settings)
