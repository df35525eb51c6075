"""The dispatcher of the in-process document: its defaults, its units, its counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from bullite import Bullite, BulliteError, Job, Queue, Store
from bullite.client.queue import add as add_module
from bullite.errors import InvalidOption, InvalidOptionType, UnserializableData
from bullite.testing import START, Playground
from tests.support.databases import Database
from tests.support.helpers import case, until


@contextmanager
def played(*workers: type) -> Iterator[tuple[Playground, Bullite]]:
    """An application with these workers, in virtual time."""
    with Playground() as play:
        app = Bullite(play.store)
        for worker in workers:
            app.register(worker)
        play.serve(app)
        yield play, app


async def test_a_job_has_the_defaults_of_the_document(app: Bullite) -> None:
    job = await app.dispatch("killmails", "process", {"id": 1})
    assert (job.queue_name, job.name, job.data) == ("killmails", "process", {"id": 1})
    assert (job.priority, job.delay, job.attempts, job.state) == (0, 0, 3, "waiting")
    assert job.opts["backoff"] == {"type": "polynomial", "delay": 1000}


@pytest.mark.parametrize(
    ("delay", "ms"),
    [(300, 300_000), (0.25, 250), (timedelta(minutes=1), 60_000), ("2h", 7_200_000)],
)
async def test_a_delay_is_in_seconds(app: Bullite, delay: Any, ms: int) -> None:
    [job] = await app.dispatch_many("esi", "fetch", [1], delay=delay)
    one = await app.dispatch("esi", "fetch", 1, delay=delay)
    assert (job.delay, job.state, one.delay) == (ms, "delayed", ms)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"delay": -1}, InvalidOption),
        ({"delay": math.nan}, InvalidOption),
        ({"delay": math.inf}, InvalidOption),
        ({"delay": True}, InvalidOptionType),
        ({"delay": None}, InvalidOptionType),
        ({"delay": "soon"}, InvalidOption),
        ({"priority": "high"}, InvalidOptionType),
        ({"priority": 2_097_152}, InvalidOption),
        ({"max_attempts": 0}, InvalidOption),
        ({"max_attempts": 1.5}, InvalidOptionType),
    ],
    ids=str,
)
async def test_bad_options_are_refused_and_nothing_is_added(
    app: Bullite, options: dict[str, Any], error: type[Exception]
) -> None:
    [name] = options
    with pytest.raises(error, match="attempts" if name == "max_attempts" else name):
        await app.dispatch("esi", "fetch", 1, **options)
    with pytest.raises(error):
        await app.dispatch_many("esi", "fetch", [1, 2], **options)
    assert (await app.stats("esi"))["pending"] == 0


async def test_dispatch_many_adds_all_or_none(app: Bullite) -> None:
    jobs = await app.dispatch_many("esi", "fetch", ({"id": n} for n in range(5)), priority=3)
    assert [(job.data["id"], job.priority, job.attempts) for job in jobs] == [
        (number, 3, 3) for number in range(5)
    ]
    with pytest.raises(UnserializableData):
        await app.dispatch_many("esi", "fetch", [1, object()])
    assert await app.dispatch_many("esi", "fetch", []) == []
    assert (await app.stats("esi"))["pending"] == 5


def test_retries_come_after_one_four_and_nine_seconds() -> None:
    class Failing:
        queue_name = "test"

        async def handle(self, payload: Any, job: Job) -> None:
            raise ValueError("Fail")

    with played(Failing) as (play, app):
        job = play.run(app.dispatch("test", "job", max_attempts=4))
        ran = play.advance("1h")
        times = [(run.at - START).total_seconds() for run in ran]
        assert times == [0, 1, 1 + 4, 1 + 4 + 9]
        play.assert_failed(job, "Fail")


def test_lower_priorities_run_first_and_equal_ones_in_the_order_they_came() -> None:
    class Fine:
        queue_name = "test"

        def handle(self, payload: Any, job: Job) -> Any:
            return payload

    with played(Fine) as (play, app):
        for number, priority in enumerate([0, 5, -10, 0, -10]):
            play.run(app.dispatch("test", "job", number, priority=priority))
        assert play.drain().values == [2, 4, 0, 3, 1]


def test_lower_priorities_run_first_in_a_queue_of_the_other_order_too() -> None:
    class Fine:
        queue_name = "test"

        def handle(self, payload: Any, job: Job) -> Any:
            return payload

    with played(Fine) as (play, app):
        play.run(play.queue("test", priority_order="high").wait_until_ready())
        for number, priority in enumerate([0, 5, -10, 0, -10]):
            play.run(app.dispatch("test", "job", number, priority=priority))
        jobs = play.run(app.dispatch_many("test", "job", [5], priority=-20))
        assert [job.priority for job in jobs] == [20]
        assert play.drain().values == [5, 2, 4, 0, 3, 1]


@pytest.mark.parametrize("payloads", [{"a": 1}, "abc", b"abc", 5, None], ids=repr)
async def test_payloads_that_are_no_list_are_refused(app: Bullite, payloads: Any) -> None:
    with pytest.raises(InvalidOptionType, match="payloads must be a list of payloads, not"):
        await app.dispatch_many("esi", "fetch", payloads)


async def test_more_payloads_than_go_at_once_go_in_chunks(
    app: Bullite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_module, "MAX_AT_ONCE", 10)
    with pytest.raises(InvalidOption, match="pass chunk="):
        await app.dispatch_many("esi", "fetch", range(25))
    jobs = await app.dispatch_many("esi", "fetch", range(25), chunk=10)
    assert [job.data for job in jobs] == list(range(25))


@pytest.mark.parametrize(
    "dispatch",
    [
        lambda app: app.dispatch("esi", "fetch", object()),
        lambda app: app.dispatch("esi", "", 1),
        lambda app: app.dispatch("esi", "fetch", 1, priority="x"),
        lambda app: app.dispatch_many("esi", "fetch", [1, object()]),
        lambda app: app.add("esi", "fetch", object()),
        lambda app: app.add("esi", "fetch", 1, atempts=3),
    ],
)
async def test_what_is_refused_makes_no_database(
    app: Bullite, database: Database, dispatch: Callable[[Bullite], Any]
) -> None:
    with pytest.raises(BulliteError):
        await dispatch(app)
    assert not database.exists()


# --- stats ---------------------------------------------------------------------------------------


async def test_stats_count_delayed_jobs_as_pending(app: Bullite) -> None:
    await app.dispatch("esi", "fetch", 1)
    await app.dispatch("esi", "fetch", 1, delay=60)
    await app.dispatch("esi", "fetch", 1, priority=4)
    assert await app.stats("esi") == {
        "pending": 3,
        "processing": 0,
        "completed": 0,
        "failed": 0,
    }


async def test_stats_are_of_one_queue_or_of_all(app: Bullite) -> None:
    begun: list[str] = []

    async def process(job: Job) -> None:
        begun.append(job.id)
        if job.data == "fail":
            raise ValueError
        if job.data == "stay":
            await until(lambda: not begun)

    app.process("a", "job", process)
    app.process("b", "job", process)
    async with app:
        await app.dispatch("a", "job", "fail", max_attempts=1)
        await app.dispatch("a", "job", "stay")
        await app.dispatch("b", "job")
        await app.dispatch("b", "unknown")
        await app.dispatch("c", "unserved")
        done = {"pending": 2, "processing": 1, "completed": 1, "failed": 1}
        await until(lambda: _has(app, done))
        assert await app.stats("a") == {"pending": 0, "processing": 1, "completed": 0, "failed": 1}
        assert await app.stats("b") == {"pending": 1, "processing": 0, "completed": 1, "failed": 0}
        assert await app.stats("nobody knows") == dict.fromkeys(done, 0)
        begun.clear()


async def test_stats_and_cleanup_cover_queues_of_other_applications(
    app: Bullite, location: str
) -> None:
    async def done(app: Bullite) -> int:
        return (await app.stats())["completed"]

    app.process("a", "job", lambda job: None)
    async with app:
        await (await app.dispatch("a", "job")).result("10s")
        another = Bullite(location)
        assert await done(another) == 1
        assert await another.cleanup(0) == 1
        assert await done(app) == 0
        await another.stop()


async def test_stats_make_no_queue(app: Bullite) -> None:
    await app.dispatch("a", "job")
    await app.stats("typo")
    assert await app._queues.names() == ["a"]


async def _has(app: Bullite, wanted: dict[str, int]) -> bool:
    return await app.stats() == wanted


# --- cleanup -------------------------------------------------------------------------------------


def test_cleanup_deletes_for_good_what_ended_so_many_days_ago() -> None:
    class Some:
        queue_name = "test"

        def handle(self, payload: Any, job: Job) -> None:
            if payload == "fail":
                raise ValueError

    with played(Some) as (play, app):
        queue: Queue = app.queue("test")
        old = [
            play.run(app.dispatch("test", "job", what, max_attempts=1)) for what in ("ok", "fail")
        ]
        play.drain()
        play.run(app.dispatch("test", "waits", "ok", delay=30 * 86_400))
        play.advance(timedelta(days=6, hours=23))
        play.run(app.dispatch("test", "job", "fail", max_attempts=1))
        play.drain()
        assert play.run(app.cleanup()) == 0
        play.advance(timedelta(hours=1))
        assert play.run(app.cleanup(older_than_days=7)) == 2
        assert play.run(app.stats()) == {
            "pending": 1,
            "processing": 0,
            "completed": 0,
            "failed": 1,
        }
        with pytest.raises(LookupError):
            play.run(queue.restore(old[0].id))
        assert play.run(app.cleanup(older_than_days=0)) == 1


async def test_cleanup_goes_over_all_queues(app: Bullite) -> None:
    for queue in ("a", "b"):
        app.process(queue, "job", lambda job: None)
    async with app:
        for queue in ("a", "a", "b"):
            await (await app.dispatch(queue, "job")).result("10s")
        assert await app.cleanup(0) == 3


@pytest.mark.parametrize("days", [-1, math.nan, math.inf, True, "7", None, timedelta(days=7)])
async def test_cleanup_refuses_what_is_no_number_of_days(app: Bullite, days: Any) -> None:
    with case(days), pytest.raises((InvalidOption, InvalidOptionType), match="older_than_days"):
        await app.cleanup(days)


async def test_lower_first_is_the_order_of_a_new_queue(location: str) -> None:
    with closing(Store(location)) as store:
        await Bullite(store).dispatch("esi", "fetch")
        queue = Queue("esi", store)
        await queue.wait_until_ready()
        assert queue.priority_order == "low"
