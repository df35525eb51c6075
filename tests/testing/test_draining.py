"""What is ready runs, one job after the other, in the order in which the queue hands it out."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bullite import DelayedError, FlowProducer, Job, Queue, Signal, UnrecoverableError, Worker
from bullite.errors import InvalidOption, InvalidOptionType
from bullite.testing import START, Playground


async def test_jobs_run_in_the_order_of_the_line(play: Playground) -> None:
    play.process("test", None, lambda job: None)
    for name, options in (
        ("first", {}),
        ("second", {}),
        ("urgent", {"priority": 1}),
        ("less urgent", {"priority": 5}),
        ("last in", {"lifo": True}),
    ):
        play.add("test", name, **options)  # type: ignore[arg-type]
    ran = await play.drain()
    assert ran.names == ["last in", "first", "second", "urgent", "less urgent"]


async def test_in_a_coroutine_what_is_not_awaited_cannot_be_looked_at(play: Playground) -> None:
    ran = play.drain()
    assert "not awaited" in repr(ran)
    with pytest.raises(RuntimeError, match="await"):
        len(ran)
    assert len(await ran) == len(await ran) == 0


def test_without_an_event_loop_it_has_happened_when_drain_returns(play: Playground) -> None:
    async def double(job: Job) -> int:
        await job.update_progress(50)
        return 2 * int(job.data)

    play.process("test", "double", double)
    job = play.add("test", "double", 21)
    [run] = play.drain()
    assert (run.value, run.came_to, run.at, run.process) == (42, "completed", START, 1)
    assert run.job.id == job.id
    play.assert_completed(job, 42)
    assert play.ran == [run]


def test_only_jobs_that_have_a_processor_run(play: Playground) -> None:
    play.process("test", "known", lambda job: job.name)
    play.add("test", "unknown")
    play.add("test", "known")
    play.add("elsewhere", "known")
    assert play.drain().values == ["known"]
    play.assert_enqueued("test", "unknown")
    play.process("test", None, lambda job: "any other")
    assert play.drain().values == ["any other"]
    play.assert_drained("test")
    play.assert_enqueued("elsewhere", count=1)


def test_several_queues_take_turns_and_one_can_be_drained_alone(play: Playground) -> None:
    for queue in ("a", "b"):
        play.process(queue, None, lambda job: job.queue_name)
    for _ in range(2):
        play.add("a", "job")
        play.add("b", "job")
    assert play.drain().values == ["a", "b", "a", "b"]
    play.add("a", "job")
    play.add("b", "job")
    assert play.drain("b").values == ["b"]


def test_the_arguments_of_processors(play: Playground) -> None:
    def with_all(job: Job, token: str, signal: Signal) -> bool:
        return token == job.token and not signal.aborted

    async def with_token(job: Job, token: str) -> bool:
        return token == job.token

    play.process("test", "all", with_all)
    play.process("test", "token", with_token)
    play.add("test", "all")
    play.add("test", "token")
    assert play.drain().values == [True, True]
    with pytest.raises(InvalidOptionType):
        play.process("test", "none", lambda: None)


def test_a_function_waits_for_the_store_in_its_own_thread(play: Playground) -> None:
    def work(job: Job) -> int:
        job.update_progress({"step": 1}).result()
        return job.log("a line").result()

    play.process("test", None, work)
    job = play.add("test", "job")
    play.drain()
    assert play.assert_completed(job, 1).progress == {"step": 1}


async def test_a_job_may_add_others_which_run_too(play: Playground) -> None:
    queue = play.queue("test")

    async def work(job: Job) -> None:
        if job.data:
            await queue.add("job", job.data - 1)

    play.process("test", None, work)
    await queue.add("job", 3)
    assert [run.job.data for run in await play.drain()] == [3, 2, 1, 0]


def test_a_job_that_adds_itself_for_ever_is_found_out(play: Playground) -> None:
    play.process("test", None, lambda job: play.add("test", "again") and None)
    play.add("test", "again")
    with pytest.raises(AssertionError, match=r"25 jobs ran and there are more[^$]*again"):
        play.drain(limit=25)


def test_failures_are_told_and_recorded(play: Playground) -> None:
    def fail(job: Job) -> None:
        raise ValueError("no such address")

    play.process("test", "fails", fail)
    play.process("test", "unrecoverable", _raise_unrecoverable)
    job = play.add("test", "fails")
    hopeless = play.add("test", "unrecoverable", attempts=5)
    run, other = play.drain()
    assert (run.came_to, str(run.error)) == ("failed", "no such address")
    assert "no such address" in (play.assert_failed(job, "address").stack or "")
    assert other.came_to == "failed"
    assert play.assert_failed(hopeless).attempts_made == 1


def _raise_unrecoverable(job: Job) -> None:
    raise UnrecoverableError("hopeless")


def test_a_job_that_moves_itself(play: Playground) -> None:
    async def later(job: Job) -> str:
        if job.attempts_started == 1:
            await job.move_to_delayed(play.clock.now() + 5_000)
            raise DelayedError
        return "done"

    play.process("test", None, later)
    job = play.add("test", "job")
    [run] = play.drain()
    assert (run.came_to, run.error) == ("delayed", None)
    play.advance(5_000)
    play.assert_completed(job, "done")


def test_a_result_that_cannot_be_stored_fails_the_job(play: Playground) -> None:
    play.process("test", None, lambda job: object())
    job = play.add("test", "job")
    play.drain()
    play.assert_failed(job, "returned value")


def test_a_job_that_was_taken_away_is_lost(
    play: Playground, caplog: pytest.LogCaptureFixture
) -> None:
    """Its worker does not renew its lock, and takes too long."""
    play.worker_options("test", skip_lock_renewal=True, lock_duration=1_000)

    def slow(job: Job) -> int:
        if job.attempts_started == 1:
            play.clock.advance("1m")
            play._living().store.engine.run_maintenance(lambda worker: True)
        return job.attempts_started

    play.process("test", None, slow)
    job = play.add("test", "job")
    with caplog.at_level(logging.ERROR):
        ran = play.drain()
    assert [run.came_to for run in ran] == ["lost", "completed"]
    play.assert_completed(job, 2)


def test_a_job_that_cancels_itself_fails(play: Playground) -> None:
    async def work(job: Job) -> None:
        raise asyncio.CancelledError

    play.process("test", None, work)
    job = play.add("test", "job")
    play.drain()
    play.assert_failed(job, "CancelledError")


def test_what_a_job_sets_in_its_context_stays_there(play: Playground) -> None:
    variable = contextvars.ContextVar("variable", default=0)

    async def work(job: Job) -> int:
        variable.set(variable.get() + 1)
        return variable.get()

    play.process("test", None, work)
    for _ in range(2):
        play.add("test", "job")
    assert play.drain().values == [1, 1]


def test_dependencies_run_first(play: Playground) -> None:
    play.process("test", None, lambda job: job.name)
    first = play.add("test", "first", delay="1h")
    play.add("test", "second", depends_on=first)
    assert play.drain().names == []
    play.assert_enqueued("test", "second")
    assert play.advance("1h").names == ["first", "second"]


async def test_a_flow_runs_from_its_leaves_to_its_root(play: Playground) -> None:
    async def work(job: Job) -> Any:
        values = await job.get_children_values()
        return [job.name, *sorted(map(str, values.values()))]

    play.process("test", None, work)
    leaves: list[Any] = [{"name": name, "queue_name": "test"} for name in ("b", "c")]
    await FlowProducer(play.store).add({"name": "a", "queue_name": "test", "children": leaves})
    ran = await play.drain()
    assert ran.names == ["b", "c", "a"]
    assert ran[-1].value == ["a", "['b']", "['c']"]


async def test_who_waits_for_a_result_gets_it(play: Playground) -> None:
    play.process("test", None, lambda job: "done")
    job = await play.queue("test").add("job")
    waiting = asyncio.create_task(job.result())
    await asyncio.sleep(0)
    await play.drain()
    assert await waiting == "done"


def test_the_processors_of_an_application(play: Playground) -> None:
    class App:
        def processors(self) -> Mapping[str, Mapping[str, Any]]:
            return {"a": {"named": lambda job: 1}, "b": {"": lambda job: 2}}

    play.serve(App())
    play.add("b", "anything")
    play.add("a", "named")
    assert play.drain().values == [1, 2]


def test_a_paused_queue_hands_out_nothing(play: Playground) -> None:
    queue = play.queue("test")
    play.process(queue, None, lambda job: None)
    play.add(queue, "job")
    play.run(queue.pause())
    assert len(play.drain()) == 0
    play.run(queue.resume())
    assert len(play.drain()) == 1


async def test_a_worker_of_the_test_takes_jobs_by_hand(play: Playground) -> None:
    queue = play.queue("test")
    job = await queue.add("job")
    async with Worker(queue, None) as worker:
        taken = await worker.get_next_job(block=False)
        assert taken is not None
        await taken.move_to_completed("by hand")
    play.assert_completed(job, "by hand")


def test_the_options_of_a_worker_are_checked_and_hold(play: Playground) -> None:
    play.worker_options("test", backoff_strategy=lambda made, kind, error, job: 1_000 * made)
    play.process("test", None, _fail)
    play.add("test", "job", attempts=3, backoff={"type": "mine"})
    times = [(run.at - START).total_seconds() for run in play.advance("1h")]
    assert times == [0, 1, 3]
    with pytest.raises(InvalidOption, match="'concurrrency' is no option of a Worker"):
        play.worker_options("test", concurrrency=1)


def _fail(job: Job) -> None:
    raise ValueError("it broke")


def test_in_a_folder_of_the_users_the_file_stays(tmp_path: Path) -> None:
    with Playground(tmp_path) as play:
        play.add("test", "job")
    with Playground(tmp_path) as again:
        again.assert_enqueued("test", "job")
    assert again.path == tmp_path / "jobs.db"


def test_without_one_nothing_is_left() -> None:
    with Playground() as play:
        play.add("test", "job")
        assert play.path.exists()
    assert not play.path.parent.exists()


@pytest.fixture
def story() -> list[list[str]]:
    """What happened twice, under the same seed."""
    told = []
    for _ in range(2):
        with Playground(seed=7) as play:
            told.append(_tell(play))
    return told


def _tell(play: Playground) -> list[str]:
    def work(job: Job) -> str:
        if job.attempts_made < 2:
            raise ValueError("not yet")
        return f"{job.attempts_started} of {job.processed_by}"

    play.process("a", None, work)
    play.process("b", None, work)
    play.kill_at("after_run", name="job 3")
    jitter = {"type": "exponential", "delay": "10s", "jitter": 1.0}
    for number in range(10):
        play.add("ab"[number % 2], f"job {number}", attempts=4, backoff=jitter)  # type: ignore[arg-type]
    return [f"{run} {run.value}" for run in play.advance("1h")]


def test_the_same_seed_tells_the_same_story(story: list[list[str]]) -> None:
    assert story[0] == story[1]
    assert len(story[0]) == 31


def test_another_seed_tells_another() -> None:
    with Playground(seed=1) as one, Playground(seed=2) as other:
        assert _tell(one) != _tell(other)


def test_a_queue_of_the_users_own(play: Playground) -> None:
    queue = Queue("test", play.store)
    play.process(queue, None, lambda job: None)
    play.run(queue.add("job"))
    assert play.drain().names == ["job"]


async def test_a_test_may_fail_in_the_middle_of_a_coroutine(play: Playground) -> None:
    async def work(job: Job) -> None:
        pytest.fail("this should never run")

    play.process("test", None, work)
    play.add("test", "job")
    with pytest.raises(pytest.fail.Exception, match="never run"):
        await play.drain()


def test_what_was_done_is_measured(play: Playground) -> None:
    play.process("test", None, lambda job: None)
    for _ in range(3):
        play.add("test", "job", delay="5m")
    play.advance("10m")
    metrics = play.run(play.queue("test").metrics("1h"))
    assert [minute.completed for minute in metrics.minutes if minute.completed] == [3]
