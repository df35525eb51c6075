"""Classes of workers, and processors by queue and name."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from bullite import Bullite, BulliteError, Job, JobFailed, Signal, TaskTaken
from bullite.errors import InvalidOption, InvalidOptionType
from tests.support.helpers import until


class Doubler:
    queue_name = "numbers"

    async def handle(self, payload: int, job: Job) -> list[Any]:
        return [2 * payload, job.name, threading.get_ident()]


class Trebler(Doubler):
    queue_name = "threes"
    concurrency = 3
    poll_interval = 200

    def __init__(self, factor: int = 3) -> None:
        self.factor = factor

    def handle(self, payload: int, job: Job) -> list[Any]:  # type: ignore[override]
        return [self.factor * payload, job.name, threading.get_ident()]


async def test_a_class_handles_the_jobs_of_its_queue_whatever_their_names(app: Bullite) -> None:
    app.register(Doubler)
    async with app:
        for name in ("a", "b"):
            job = await app.dispatch("numbers", name, 4)
            assert await job.result("10s") == [8, name, threading.get_ident()]


async def test_a_plain_handle_runs_in_a_thread(app: Bullite) -> None:
    app.register(Trebler)
    async with app:
        [value, _, thread] = await (await app.add("threes", "a", 4)).result("10s")
    assert value == 12
    assert thread != threading.get_ident()


async def test_an_object_keeps_what_it_was_made_with(app: Bullite) -> None:
    app.register(Trebler(factor=30))
    async with app:
        assert (await (await app.add("threes", "a", 4)).result("10s"))[0] == 120


async def test_its_attributes_say_how_it_works(app: Bullite) -> None:
    app.register(Doubler)
    app.register(Trebler)
    async with app:
        infos = {name: (await app.queue(name).get_workers())[0] for name in ("numbers", "threes")}
        assert {name: info.concurrency for name, info in infos.items()} == {
            "numbers": 1,
            "threes": 3,
        }
        workers = app._lifecycle.workers
        intervals = {one.queue.name: one._options.intervals.poll_interval for one in workers}
        assert intervals == {"numbers": 1_000, "threes": 200}


async def test_no_more_run_at_a_time_than_it_says(app: Bullite) -> None:
    inside: list[int] = []

    class One:
        queue_name = "one"

        async def handle(self, payload: int, job: Job) -> int:
            inside.append(payload)
            await asyncio.sleep(0)
            assert inside.pop() == payload
            return len(inside)

    app.register(One)
    async with app:
        for job in await app.dispatch_many("one", "a", range(10)):
            assert await job.result("10s") == 0


def test_two_for_one_queue_are_refused(app: Bullite) -> None:
    app.register(Doubler)
    with pytest.raises(TaskTaken, match="the queue 'numbers' has a processor already"):
        app.register(Doubler())
    with pytest.raises(TaskTaken, match="'a' in the queue 'numbers'"):
        app.process("numbers", "a", lambda job: None)
    with pytest.raises(TaskTaken):
        app.task(queue="numbers")(print_nothing)


def print_nothing() -> None:
    """Prints nothing."""


def test_a_class_comes_not_beside_processors_by_name(app: Bullite) -> None:
    app.process("numbers", "a", lambda job: None)
    with pytest.raises(TaskTaken):
        app.register(Doubler)
    assert list(app.processors()["numbers"]) == ["a"]


def made(**attributes: Any) -> type:
    return type("Made", (Doubler,), attributes)


@pytest.mark.parametrize(
    ("wrong", "error", "problem"),
    [
        (made(queue_name=""), InvalidOption, "queue_name"),
        (made(queue_name=None), InvalidOptionType, "queue_name"),
        (made(handle=None), InvalidOptionType, "Made must have a handle"),
        (made(handle=lambda self: None), InvalidOptionType, "Made must have a handle"),
        (made(handle=lambda self, payload: None), InvalidOptionType, "Made must have a handle"),
        (made(concurrency=0), InvalidOption, "concurrency"),
        (made(concurrency="many"), InvalidOptionType, "concurrency"),
        (made(poll_interval=0), InvalidOption, "poll_interval"),
        (made(poll_interval=1.5), InvalidOptionType, "poll_interval"),
        (made(__init__=lambda self, session: None), InvalidOptionType, "register an object of it"),
        (object, InvalidOptionType, "object must have a handle"),
    ],
)
def test_a_class_that_cannot_work_is_refused(
    app: Bullite, wrong: type, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        app.register(wrong)
    assert app.processors() == {}


async def test_a_class_comes_too_late_when_the_application_runs(app: Bullite) -> None:
    async with app:
        with pytest.raises(BulliteError, match="Doubler came too late"):
            app.register(Doubler)


async def test_jobs_of_a_class_back_off_as_their_document_says(app: Bullite) -> None:
    before = app.queue("numbers")
    await before.wait_until_ready()
    app.register(Doubler)
    usual = await app.add("numbers", "a", 1, attempts=3)
    own = await app.add("numbers", "a", 1, attempts=3, backoff=5)
    elsewhere = await app.add("others", "a", 1, attempts=3)
    assert usual.opts["backoff"] == {"type": "polynomial", "delay": 1000}
    assert own.opts["backoff"] == {"type": "fixed", "delay": 5}
    assert "backoff" not in elsewhere.opts


# --- processors by queue and name ----------------------------------------------------------------


async def test_a_processor_runs_the_jobs_of_a_name_in_a_queue(app: Bullite) -> None:
    async def process(job: Job) -> str:
        return f"{job.queue_name} {job.name}"

    app.process("agents", "plan", process)
    async with app:
        mine = await app.add("agents", "plan")
        others = [await app.add("agents", "other"), await app.add("elsewhere", "plan")]
        assert await mine.result("10s") == "agents plan"
        assert [await job.get_state() for job in others] == ["waiting", "waiting"]


async def test_a_processor_may_take_the_token_and_a_signal(app: Bullite) -> None:
    async def process(job: Job, token: str, signal: Signal) -> list[bool]:
        return [token == job.token, signal.aborted]

    app.process("agents", "plan", process)
    async with app:
        assert await (await app.add("agents", "plan")).result("10s") == [True, False]


async def test_a_processor_has_a_concurrency_of_its_own(location: str) -> None:
    app, inside = Bullite(location, concurrency=7), list[str]()
    gate = asyncio.Event()

    async def meet(job: Job) -> None:
        inside.append(job.name)
        await gate.wait()

    app.process("agents", "few", meet, 2)
    app.process("agents", "many", meet)
    async with app:
        jobs = [await app.add("agents", name) for name in ["few"] * 5 + ["many"] * 9]
        await until(lambda: len(inside) == 9)
        assert (inside.count("few"), inside.count("many")) == (2, 7)
        gate.set()
        for job in jobs:
            await job.result("10s")


def test_two_processors_of_one_name_are_refused(app: Bullite) -> None:
    app.process("agents", "plan", lambda job: None)
    with pytest.raises(TaskTaken, match="'plan' in the queue 'agents' has a processor already"):
        app.process("agents", "plan", lambda job: None)
    app.process("agents", "other", lambda job: None)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("", "plan", print), InvalidOption),
        (("agents", "", print), InvalidOption),
        (("agents", "plan", None), InvalidOptionType),
        (("agents", "plan", lambda: None), InvalidOptionType),
        (("agents", "plan", lambda a, b, c, d: None), InvalidOptionType),
        (("agents", "plan", print, 0), InvalidOption),
    ],
)
def test_a_processor_that_cannot_work_is_refused(
    app: Bullite, arguments: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        app.process(*arguments)
    assert app.processors() == {}


async def test_a_handle_that_fails_fails_its_job(app: Bullite) -> None:
    app.register(Doubler)
    async with app:
        job = await app.dispatch("numbers", "a", None, max_attempts=1)
        with pytest.raises(JobFailed, match="unsupported operand"):
            await job.result("10s")
