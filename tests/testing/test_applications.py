"""An application of a module moves into the playground, and is back as it was afterwards."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from bullite import Bullite, BulliteError, Job
from bullite.app.middleware import Next
from bullite.testing import START, Playground

log = logging.getLogger("shop.orders")


@pytest.fixture
def app(tmp_path: Path) -> Bullite:
    """An application with files of its own, which no test may make."""
    return Bullite(tmp_path / "jobs.db", files={"mail": tmp_path / "mail.db"}, capture_logs="INFO")


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_its_jobs_are_in_the_playground_and_nowhere_else(
    play: Playground, app: Bullite, tmp_path: Path
) -> None:
    @app.task(name="welcome")
    def welcome(name: str) -> str:
        return f"welcome, {name}"

    @app.task(name="mail", queue="mail")
    async def mail(to: str) -> str:
        return f"mailed {to}"

    play.serve(app)
    await welcome.enqueue("Ada")
    await mail.enqueue("Bob")
    await app.add("other", "job")
    assert play.queue_names() == ["default", "mail", "other"]
    assert (await play.drain()).values == ["welcome, Ada", "mailed Bob"]
    assert files_in(tmp_path) == []


async def test_starting_it_there_starts_no_workers(play: Playground, app: Bullite) -> None:
    @app.task(name="double")
    async def double(number: int) -> int:
        return 2 * number

    play.serve(app)
    async with app.lifespan():
        await double.enqueue(21)
        assert (await play.drain()).values == [42]
    await double.enqueue(4)
    assert (await play.drain()).values == [8]


def test_a_plain_test_enqueues_tasks_without_an_event_loop(
    play: Playground, app: Bullite, tmp_path: Path
) -> None:
    @app.task(name="double")
    async def double(number: int) -> int:
        return 2 * number

    play.serve(app)
    double.enqueue_sync(21)
    assert play.drain().values == [42]
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("has_hooks", [False, True])
def test_a_task_enqueues_others_as_it_would_in_earnest(
    play: Playground, app: Bullite, tmp_path: Path, has_hooks: bool
) -> None:
    hooked: list[str] = []

    @app.task(name="last", queue="mail")
    def last(way: list[str]) -> list[str]:
        return [*way, "last"]

    @app.task(name="plain")
    def plain(way: list[str]) -> None:
        last.enqueue_sync([*way, "plain"])

    @app.task(name="coroutine")
    async def coroutine() -> None:
        await plain.enqueue(["coroutine"])

    if has_hooks:

        @app.around
        async def note(job: Job, call_next: Next) -> Any:
            hooked.append(job.name)
            return await call_next()

    play.serve(app)
    coroutine.enqueue_sync()
    assert play.drain().values == [None, None, ["coroutine", "plain", "last"]]
    assert hooked == (["coroutine", "plain", "last"] if has_hooks else [])
    assert files_in(tmp_path) == []


async def test_a_coroutine_is_told_not_to_block_as_it_would_be_in_earnest(
    play: Playground, app: Bullite
) -> None:
    @app.task(name="blocks")
    async def blocks() -> None:
        blocks.enqueue_sync()

    play.serve(app)
    await blocks.enqueue()
    [run] = await play.drain()
    assert "await enqueue" in str(run.error)


@pytest.mark.parametrize("point", ["after_run", "before_commit"])
def test_what_a_killed_process_had_enqueued_stays(
    play: Playground, app: Bullite, point: str
) -> None:
    @app.task(name="mail")
    def mail() -> str:
        return "mailed"

    @app.task(name="order")
    async def order() -> None:
        await mail.enqueue()

    play.serve(app)
    order.enqueue_sync()
    ran = play.advance("1s", kill_at=point)
    assert [(run.job.name, run.came_to) for run in ran] == [
        ("order", "killed"),
        ("mail", "completed"),
        ("order", "completed"),
        ("mail", "completed"),
    ]


def test_its_schedules_tick(play: Playground, app: Bullite) -> None:
    @app.every("6h")
    @app.task(name="tick")
    def tick() -> None: ...

    @app.cron("0 2 * * *", tz="Europe/Berlin")
    @app.task(name="report", queue="mail")
    def report() -> None: ...

    play.serve(app)
    hours = [(run.job.name, (run.at - START).total_seconds() / 3600) for run in play.advance("12h")]
    assert hours == [("tick", 0), ("report", 1), ("tick", 6), ("tick", 12)]


async def test_its_schedules_tick_in_a_coroutine_too(play: Playground, app: Bullite) -> None:
    @app.every("1h")
    @app.task(name="tick")
    async def tick() -> None: ...

    play.serve(app)
    assert len(await play.advance("3h")) == 4


def test_its_logs_are_captured_until_the_playground_closes(app: Bullite) -> None:
    @app.task(name="plain")
    def plain() -> None:
        log.warning("low on stock")

    @app.task(name="coroutine")
    async def coroutine() -> None:
        log.error("out of stock")

    handlers = list(logging.getLogger().handlers)
    with Playground() as play:
        play.serve(app)
        for task in (plain, coroutine):
            task.enqueue_sync()
        ran = play.drain()
        told = [play.run(run.job.get_logs())["logs"] for run in ran]
        assert [line["message"] for lines in told for line in lines] == [
            "low on stock",
            "out of stock",
        ]
    assert logging.getLogger().handlers == handlers


async def test_afterwards_it_is_back_as_it_was(app: Bullite, tmp_path: Path) -> None:
    @app.task(name="double")
    async def double(number: int) -> int:
        return 2 * number

    with Playground() as play:
        play.serve(app)
        queue = app.queue()
        assert queue.store is play.store
    assert files_in(tmp_path) == []
    assert app.queue() is not queue
    async with app:
        assert await (await double.enqueue(4)).result("10s") == 8
    assert "jobs.db" in files_in(tmp_path)


async def test_what_it_had_opened_before_is_there_afterwards(app: Bullite) -> None:
    before = await app.add("default", "job")
    with Playground() as play:
        play.serve(app)
        assert await app.queue().get_job_counts("waiting") == {"waiting": 0}
    assert await app.queue().get_job(before.id) is not None
    await app.stop()


async def test_one_that_is_running_is_refused(play: Playground, app: Bullite) -> None:
    async with app:
        with pytest.raises(BulliteError, match="the application has started"):
            play.serve(app)
    play.serve(app)


def test_it_is_in_one_playground_at_a_time(play: Playground, app: Bullite) -> None:
    with Playground() as other:
        other.serve(app)
        with pytest.raises(BulliteError, match="in another store already"):
            play.serve(app)
    play.serve(app)


def test_tasks_that_came_later_are_served_when_it_is_served_again(
    play: Playground, app: Bullite
) -> None:
    @app.every("1h")
    @app.task(name="first")
    def first() -> str:
        return "first"

    play.serve(app)

    @app.task(name="second")
    def second() -> str:
        return "second"

    play.serve(app)
    second.enqueue_sync()
    assert play.drain().values == ["first", "second"]


def test_several_applications_share_a_playground(play: Playground, tmp_path: Path) -> None:
    shop, bank = Bullite(tmp_path / "shop.db"), Bullite(tmp_path / "bank.db")

    @bank.task(name="charge", queue="bank")
    def charge(amount: int) -> str:
        return f"charged {amount}"

    @shop.task(name="order", queue="shop")
    def order() -> None:
        charge.enqueue_sync(5)

    play.serve(shop)
    play.serve(bank)
    order.enqueue_sync()
    assert play.drain().values == [None, "charged 5"]
    assert files_in(tmp_path) == []
