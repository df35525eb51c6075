"""Schedules of tasks: made once, however many processes start the application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from bullite import Bullite, BulliteError, InvalidArguments, Job, JobScheduler, Task, TaskTaken
from bullite.errors import InvalidOption, InvalidOptionType
from bullite.testing import Playground
from tests.support.helpers import until


def report() -> None:
    """Takes nothing."""


async def schedulers(app: Bullite, queue: str = "default") -> list[JobScheduler]:
    return await app.queue(queue).get_job_schedulers()


async def test_a_task_is_enqueued_by_a_pattern(app: Bullite) -> None:
    app.cron("0 2 * * *")(app.task(name="report", attempts=3)(report))
    async with app:
        [found] = await schedulers(app)
    assert (found.id, found.pattern, found.tz, found.missed) == (
        *("report", "0 2 * * *", "UTC", "once"),
    )
    assert found.template == {"name": "report", "data": {}, "opts": {"attempts": 3}}


async def test_a_pattern_is_of_a_zone(app: Bullite) -> None:
    app.cron("0 2 * * *", tz="Europe/Berlin", missed="skip")(report)
    async with app:
        [found] = await schedulers(app)
    assert (found.tz, found.missed) == ("Europe/Berlin", "skip")


@pytest.mark.parametrize("interval", ["90s", 90_000, timedelta(seconds=90)])
async def test_a_task_is_enqueued_every_so_often(app: Bullite, interval: Any) -> None:
    app.every(interval)(report)
    async with app:
        [found] = await schedulers(app)
    assert (found.every, found.pattern, found.name) == (90_000, None, f"{__name__}.report")


async def test_a_schedule_runs_its_task(app: Bullite) -> None:
    ran: list[str | None] = []

    @app.every(20)
    @app.task
    async def tick(job: Job) -> None:
        ran.append(job.repeat_job_key)

    async with app:
        await until(lambda: len(ran) >= 3)
    assert set(ran) == {tick.name}


@pytest.mark.parametrize("schedule", [lambda app: app.cron("@daily"), lambda app: app.every("1d")])
async def test_a_schedule_may_stand_above_and_below_the_task(
    app: Bullite, schedule: Callable[[Bullite], Any]
) -> None:
    below = app.task(name="below", queue="reports", priority=2)(schedule(app)(report))
    above = schedule(app)(app.task(name="above", queue="reports", priority=2)(report))
    alone = schedule(app)(report)
    async with app:
        found = {one.id: one.template for one in await schedulers(app, "reports")}
        assert [one.id for one in await schedulers(app)] == [f"{__name__}.report"]
    assert {id: template["opts"] for id, template in found.items()} == {
        "below": {"priority": 2},
        "above": {"priority": 2},
    }
    assert all(isinstance(task, Task) for task in (below, above, alone))
    assert sorted(app.processors()["reports"]) == ["above", "below"]


def test_nothing_is_left_of_a_task_that_a_schedule_made_before_its_options_came(
    app: Bullite,
) -> None:
    app.task(queue="reports")(app.cron("@daily")(report))
    assert list(app.processors()) == ["reports"]


async def test_a_task_may_have_several_schedules(app: Bullite) -> None:
    app.cron("0 2 * * *")(app.cron("0 14 * * *")(app.task(name="report")(report)))
    async with app:
        found = {one.id: one.pattern for one in await schedulers(app)}
    assert found == {"report": "0 14 * * *", "report 2": "0 2 * * *"}


@pytest.mark.parametrize(
    ("schedule", "error"),
    [
        (lambda app: app.cron("61 * * * *"), InvalidOption),
        (lambda app: app.cron("often"), InvalidOption),
        (lambda app: app.cron("0 2 * * *", tz="Mars/Olympus"), InvalidOption),
        (lambda app: app.cron("0 2 * * *", missed="maybe"), InvalidOption),
        (lambda app: app.every(0), InvalidOption),
        (lambda app: app.every("soon"), InvalidOption),
        (lambda app: app.every(1.5), InvalidOptionType),
    ],
)
def test_a_bad_schedule_is_refused_before_it_decorates(
    app: Bullite, schedule: Callable[[Bullite], Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        schedule(app)
    assert app.processors() == {}


def test_a_task_that_needs_arguments_has_no_schedule(app: Bullite) -> None:
    with pytest.raises(InvalidArguments, match="missing a required argument: 'to'"):

        @app.cron("@daily")
        @app.task
        def send(to: str) -> None:
            """Needs an argument."""


async def test_defaults_and_the_job_are_no_arguments_that_it_needs(app: Bullite) -> None:
    @app.cron("@daily")
    @app.task
    def send(job: Job, to: str = "all") -> None:
        """Needs none."""

    async with app:
        assert len(await schedulers(app)) == 1


def test_options_of_a_single_job_do_not_go_with_a_schedule(app: Bullite) -> None:
    with pytest.raises(InvalidOption, match="cannot all have the option job_id: leave it out"):
        app.every("1d")(app.task(job_id="mine")(report))


async def test_a_schedule_comes_too_late_when_the_application_runs(app: Bullite) -> None:
    task = app.task(report)
    async with app:
        with pytest.raises(BulliteError, match="a schedule came too late"):
            app.every("1d")(task)


def test_a_schedule_makes_no_second_task_of_a_function(app: Bullite) -> None:
    app.task(report)
    with pytest.raises(TaskTaken):
        app.every("1d")(report)


def deployed(location: str, **recurrence: Any) -> Bullite:
    """The application, as another process would have it."""
    app = Bullite(location)
    task = app.task(name="report")(report)
    (app.cron if "pattern" in recurrence else app.every)(**recurrence)(task)
    return app


async def test_several_applications_make_a_schedule_once(location: str) -> None:
    apps = [deployed(location, pattern="0 2 * * *") for _ in range(4)]
    await asyncio.gather(*(app.start() for app in apps))
    assert len(await schedulers(apps[0])) == 1
    assert await apps[0].queue().get_job_counts("delayed", "waiting") == {
        "delayed": 1,
        "waiting": 0,
    }
    await asyncio.gather(*(app.stop() for app in apps))


async def test_starting_again_keeps_the_next_tick(location: str) -> None:
    async with deployed(location, interval="1d") as first:
        [before] = await schedulers(first)
        await until(lambda: _has_run(first))
        [before] = await schedulers(first)
    async with deployed(location, interval="1d") as second:
        [after] = await schedulers(second)
        assert (after.next_run_at, after.iteration_count) == (
            *(before.next_run_at, before.iteration_count),
        )
        assert await second.queue().get_completed_count() == 1


async def _has_run(app: Bullite) -> bool:
    return await app.queue().get_completed_count() == 1


async def test_a_later_deploy_changes_a_schedule(location: str) -> None:
    async with deployed(location, pattern="0 2 * * *"):
        pass
    async with deployed(location, pattern="0 3 * * *", tz="Asia/Tokyo") as app:
        [found] = await schedulers(app)
        assert (found.pattern, found.tz) == ("0 3 * * *", "Asia/Tokyo")
        assert await app.queue().get_delayed_count() == 1


def test_ticks_come_when_the_pattern_says() -> None:
    with Playground() as play:
        app = Bullite(play.store)
        task = app.task(name="report")(report)
        app.cron("0 2 * * *", tz="Europe/Berlin")(task)
        play.run(_make_schedules(app))
        play.serve(app)
        ran = play.advance("3d")
        assert [run.at.strftime("%d %H:%M") for run in ran] == ["01 01:00", "02 01:00", "03 01:00"]
        assert ran.names == ["report"] * 3


async def _make_schedules(app: Bullite) -> None:
    for schedule in app._registry._schedules:
        await schedule.store()


def test_a_task_of_another_application_is_scheduled_there(app: Bullite, location: str) -> None:
    @Bullite(location).task(name="theirs")
    def theirs() -> None:
        """Not of this application."""

    with pytest.raises(TaskTaken, match="'theirs' is a task of another application"):
        app.every("1s")(theirs)


# --- schedules that the code has no more ---------------------------------------------------------


async def deploy(
    location: str, *intervals: str, of: str = "report", until_ran: int = 0
) -> dict[str, int | None]:
    """Start the application with these schedules of a task; the schedulers that there are then."""
    app = Bullite(location)
    task = app.task(name=of)(report)
    for interval in intervals:
        app.every(interval)(task)
    async with app:
        await until(lambda: has_run(app, until_ran))
        return {one.id: one.every for one in await schedulers(app)}


async def has_run(app: Bullite, jobs: int) -> bool:
    return await app.queue().get_job_count_by_types("completed") >= jobs


async def test_a_schedule_that_its_task_has_no_more_is_removed(location: str) -> None:
    assert await deploy(location, "1d", until_ran=1) == {"report": 86_400_000}
    assert await deploy(location) == {}
    app = Bullite(location)
    assert await app.queue().get_job_counts("delayed", "waiting") == {"delayed": 0, "waiting": 0}
    await app.stop()


async def test_of_several_schedules_those_are_removed_that_the_task_has_no_more(
    location: str,
) -> None:
    assert len(await deploy(location, "1d", "2d", "3d")) == 3
    assert await deploy(location, "4d") == {"report": 345_600_000}


async def test_a_schedule_of_a_task_that_the_code_has_no_more_stays(location: str) -> None:
    await deploy(location, "1d")
    assert list(await deploy(location, of="another")) == ["report"]


async def test_a_schedule_that_was_made_by_hand_is_left_alone(location: str) -> None:
    by_hand = {
        "nightly": "report",
        "report nightly": "report",
        "report 1": "report",
        "report 02": "report",
        "reports": "report",
        "report 2": "something else",
    }
    app = Bullite(location)
    for id, name in by_hand.items():
        await app.queue().upsert_job_scheduler(id, every="1d", template={"name": name})
    await app.stop()
    assert sorted(await deploy(location)) == sorted(by_hand)


async def test_a_schedule_that_is_paused_is_not_removed(location: str) -> None:
    await deploy(location, "1d")
    app = Bullite(location)
    await app.queue().pause_job_scheduler("report")
    await app.stop()
    assert list(await deploy(location)) == ["report"]


async def test_a_task_that_got_its_options_late_makes_no_other_queue(location: str) -> None:
    app = Bullite(location)
    app.task(queue="reports")(app.cron("@daily")(report))
    async with app:
        assert await app._queues.names() == ["reports"]
