"""Processes die at the worst moment: nothing is lost, and nothing is recorded twice."""

from __future__ import annotations

from typing import Any

import pytest

from bullite import Bullite, Job
from bullite.client import directory
from bullite.errors import InvalidOption, InvalidOptionType
from bullite.testing import POINTS, START, Playground


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("in_loop", [True, False])
def test_a_job_whose_process_dies_ends_once(play: Playground, point: str, in_loop: bool) -> None:
    effects: list[str] = []

    async def in_a_coroutine(job: Job) -> str:
        effects.append(job.id)
        return f"run {job.attempts_started}"

    def in_a_function(job: Job) -> str:
        effects.append(job.id)
        return f"run {job.attempts_started}"

    play.process("test", None, in_a_coroutine if in_loop else in_a_function)
    job = play.add("test", "job")
    play.kill_at(point, job=job)
    [killed] = play.drain()
    assert (killed.came_to, killed.process, killed.value) == ("killed", 1, None)
    again = play.advance("1s")

    if point == "after_commit":
        assert len(again) == 0
        assert play.assert_completed(job, "run 1").stalled_count == 0
    else:
        assert [(run.came_to, run.process) for run in again] == [("completed", 2)]
        assert play.assert_completed(job, "run 2").stalled_count == 1
    assert len(effects) == {"after_claim": 1, "after_run": 2, "before_commit": 2}.get(point, 1)
    history = play.run(job.get_attempts())
    outcomes = ["completed"] if point == "after_commit" else ["stalled", "completed"]
    assert [attempt.outcome for attempt in history] == outcomes
    assert [attempt.worker for attempt in history] == ["process 1", "process 2"][: len(history)]
    completed = play.run(play.queue("test").get_completed())
    assert [run.id for run in completed] == [job.id]


def test_the_death_is_noticed_after_a_quarter_of_a_second(play: Playground) -> None:
    play.process("test", None, lambda job: None)
    play.add("test", "job")
    play.kill_at("after_claim")
    assert len(play.drain()) == 1
    assert len(play.drain()) == 0
    assert [job.state for job in play.jobs("test")] == ["active"]
    assert len(play.advance(249)) == 0
    assert len(play.advance(1)) == 1


def test_the_others_run_on_meanwhile(play: Playground) -> None:
    play.process("test", None, lambda job: None)
    for name in ("a", "b", "c"):
        play.add("test", name)
    play.kill_at("after_claim", name="b")
    ran = play.advance("1s")
    assert [(run.job.name, run.came_to, run.process) for run in ran] == [
        ("a", "completed", 1),
        ("b", "killed", 1),
        ("c", "completed", 2),
        ("b", "completed", 2),
    ]


def test_a_job_that_kills_its_processes_fails_in_the_end(play: Playground) -> None:
    play.process("test", None, lambda job: None)
    job = play.add("test", "job", attempts=5)
    play.kill_at("after_run", job=job, times=2)
    assert [run.came_to for run in play.advance("1m")][:2] == ["killed", "killed"]
    now = play.assert_failed(job, "stalled more than allowable limit")
    assert now.outcome == "stalled"


def test_unless_it_is_allowed_to_stall_more_often(play: Playground) -> None:
    play.worker_options("test", max_stalled_count=3)
    play.process("test", None, lambda job: job.stalled_count)
    job = play.add("test", "job")
    play.kill_at("before_commit", job=job.id, times=3)
    play.advance("1m")
    play.assert_completed(job, 3)


def test_how_often_is_for_those_to_say_who_take_over(play: Playground) -> None:
    play.process("test", None, lambda job: None)
    job = play.add("test", "job")
    play.kill_at("after_claim")
    play.drain()
    play.worker_options("test", max_stalled_count=0)
    play.advance("1s")
    play.assert_failed(job, "stalled")


@pytest.mark.parametrize("point", POINTS)
def test_a_failure_that_dies_on_its_way_is_counted_once(play: Playground, point: str) -> None:
    def fail(job: Job) -> None:
        raise ValueError("it broke")

    play.process("test", None, fail)
    job = play.add("test", "job", attempts=2, backoff={"type": "fixed", "delay": "1m"})
    play.kill_at(point)
    play.advance("1h")
    assert play.assert_failed(job, "it broke").attempts_made == 2
    outcomes = [attempt.outcome for attempt in play.run(job.get_attempts())]
    stalled = [] if point == "after_commit" else ["stalled"]
    assert outcomes == [*stalled, "error", "error"]


@pytest.mark.parametrize("point", POINTS)
def test_a_schedule_goes_on_over_deaths(play: Playground, point: str) -> None:
    play.process("test", None, lambda job: None)
    play.run(play.queue("test").upsert_job_scheduler("hourly", every="1h"))
    play.kill_at(point, times=3)
    play.advance("5h")
    completed = play.jobs("test", "completed")
    assert len(completed) == 6
    assert len(play.jobs("test", "delayed")) == 1


def test_steps_that_were_done_are_not_done_again(play: Playground) -> None:
    charged: list[int] = []

    async def pay(job: Job) -> int:
        await job.step("charge", lambda: charged.append(1) or len(charged))
        return len(charged)

    play.process("test", None, pay)
    job = play.add("test", "pay")
    play.kill_at("after_run")
    play.advance("1s")
    play.assert_completed(job, 1)


def test_a_job_that_has_moved_itself_is_moved_once(play: Playground) -> None:
    async def work(job: Job) -> None:
        await job.move_to_completed("by itself")

    play.process("test", None, work)
    job = play.add("test", "job")
    play.kill_at("after_commit")
    assert [run.came_to for run in play.advance("1s")] == ["killed"]
    play.assert_completed(job, "by itself")


def test_a_point_that_does_not_exist_is_refused(play: Playground) -> None:
    with pytest.raises(InvalidOption, match="after_claim, after_run"):
        play.kill_at("at noon")


def test_processes_that_died_leave_nothing_behind(play: Playground) -> None:
    play.process("test", None, lambda job: None)
    for _ in range(5):
        play.kill_at("after_commit")
        play.add("test", "job")
        play.advance("1m")
    workers = play.run(directory.workers(play.store))
    assert [worker.name for worker in workers] == ["process 6"]
    signs_of_life = list(play.path.with_name("jobs.db.bullite").glob("*.alive"))
    assert len(signs_of_life) <= 1


def test_the_process_is_killed_with_what_enqueueing_a_task_gave(play: Playground) -> None:
    app = Bullite(play.store)

    @app.task(name="work")
    def work(number: int) -> int:
        return number

    play.serve(app)
    first, second = work.enqueue_sync(1), work.enqueue_sync(2)
    play.kill_at("after_claim", job=second)
    assert [run.came_to for run in play.drain()] == ["completed", "killed"]
    play.advance("1s")
    play.assert_completed(first, 1)
    play.assert_completed(second, 2)


async def test_drain_and_advance_say_where_to_kill(play: Playground) -> None:
    play.process("test", None, lambda job: None)
    play.add("test", "job")
    assert [run.came_to for run in await play.drain(kill_at="after_claim")] == ["killed"]
    ran = await play.advance("1h", kill_at="after_commit")
    assert [run.came_to for run in ran] == ["killed"]
    play.assert_drained()


@pytest.mark.parametrize("whom", [{"job": 5}, {"name": 3}, {"job": object()}, {"name": b"job"}])
def test_whom_nobody_can_be_is_refused(play: Playground, whom: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionType):
        play.kill_at("after_claim", **whom)


@pytest.mark.parametrize("point", ["at noon", 5])
def test_a_point_that_does_not_exist_is_refused_by_drain_too(play: Playground, point: Any) -> None:
    with pytest.raises(InvalidOption, match="after_claim, after_run"):
        play.drain(kill_at=point)
    with pytest.raises(InvalidOption, match="after_claim, after_run"):
        play.advance("1h", kill_at=point)
    assert play.clock.time == START


def test_a_crash_that_never_came_fails_the_test_when_the_playground_closes() -> None:
    play = Playground()
    play.process("test", None, lambda job: None)
    play.add("test", "job")
    play.kill_at("after_run", name="another")
    play.drain()
    with pytest.raises(AssertionError) as caught:
        play.close()
    assert str(caught.value) == (
        "no worker process came to where it was to be killed: kill_at('after_run', name='another')"
    )
    assert not play.path.exists()


def test_so_does_one_that_would_have_come_later() -> None:
    with pytest.raises(AssertionError, match=r"kill_at\('after_claim'\)"), Playground() as play:
        play.drain(kill_at="after_claim")


def test_once_is_enough_for_a_crash_that_may_come_often() -> None:
    with Playground() as play:
        play.process("test", None, lambda job: None)
        play.add("test", "job")
        play.kill_at("after_claim", times=1_000)
        play.drain()


def test_what_went_wrong_before_is_not_hidden_by_a_crash_that_never_came() -> None:
    with pytest.raises(ZeroDivisionError), Playground() as play:
        play.kill_at("after_claim")
        raise ZeroDivisionError
