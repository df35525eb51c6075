"""Tasks: made of functions, called here or enqueued to be run elsewhere."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bullite import (
    Bullite,
    BulliteError,
    InvalidArguments,
    Job,
    JobFailed,
    Task,
    TaskJob,
    TaskTaken,
    current_job,
)
from bullite.client.queue import add as add_module
from bullite.errors import InvalidOption, InvalidOptionType
from tests.support.helpers import case, python, until

HERE = "tests.app.test_tasks"


def double(number: int) -> int:
    """Twice as much."""
    return 2 * number


async def treble(number: int) -> int:
    return 3 * number


# --- making them ---------------------------------------------------------------------------------


def test_a_function_becomes_a_task_without_options(app: Bullite) -> None:
    task = app.task(double)
    assert isinstance(task, Task)
    assert (task.name, task.queue_name, task._version) == (f"{HERE}.double", "default", 1)


def test_a_function_becomes_a_task_with_options(app: Bullite) -> None:
    task = app.task(name="twice", queue="numbers", attempts=5)(double)
    assert (task.name, task.queue_name, task._job_options) == ("twice", "numbers", {"attempts": 5})
    assert repr(task) == "<Task 'twice' of 'numbers'>"


def test_a_task_keeps_what_is_known_of_its_function(app: Bullite) -> None:
    task = app.task(double)
    assert (task.__name__, task.__qualname__, task.__doc__) == ("double",) * 2 + (double.__doc__,)
    assert (task.__module__, task.__wrapped__) == (HERE, double)


def test_two_tasks_of_one_name_are_refused(app: Bullite) -> None:
    app.task(double)
    with pytest.raises(TaskTaken, match=f"'{HERE}.double' in the queue 'default'"):
        app.task(double)
    with pytest.raises(TaskTaken, match="double"):
        app.task(name=f"{HERE}.double")(treble)
    app.task(queue="another")(double)


def test_a_task_is_not_made_a_task_again(app: Bullite) -> None:
    task = app.task(double)
    with pytest.raises(TaskTaken, match="is a task already"):
        app.task(name="other")(task)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"atempts": 3}, InvalidOption),
        ({"attempts": 0}, InvalidOption),
        ({"attempts": "3"}, InvalidOptionType),
        ({"backoff": {"type": "fixed", "dealy": 1}}, InvalidOption),
        ({"delay": "soon"}, InvalidOption),
        ({"repeat": {"every": 1}}, InvalidOption),
        ({"queue": ""}, InvalidOption),
        ({"queue": 5}, InvalidOptionType),
        ({"name": ""}, InvalidOption),
        ({"concurrency": 0}, InvalidOption),
        ({"concurrency": True}, InvalidOptionType),
        ({"version": 0}, InvalidOption),
        ({"version": "2"}, InvalidOptionType),
    ],
    ids=str,
)
def test_a_bad_option_is_refused_at_decoration(
    app: Bullite, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        app.task(**options)(double)
    assert app.processors() == {}


class Greeter:
    def greet(self, name: str) -> str:
        return f"hello {name}"

    @staticmethod
    def bow(name: str) -> str:
        return f"bows to {name}"

    async def __call__(self, name: str) -> str:
        return f"hey {name}"


@pytest.mark.parametrize(
    "wrong",
    [Greeter, Greeter.greet, 5, "text", int, getattr],
    ids=lambda value: repr(value).partition(" at ")[0],
)
def test_what_cannot_be_called_with_arguments_alone_is_no_task(app: Bullite, wrong: Any) -> None:
    with pytest.raises(InvalidOptionType):
        app.task(wrong)


def test_what_has_no_name_of_its_own_needs_one(app: Bullite) -> None:
    with pytest.raises(InvalidOption, match="name=…"):
        app.task(functools.partial(double, 1))


async def test_bound_methods_partials_and_callable_objects_work_as_tasks(app: Bullite) -> None:
    kinds: dict[str, Callable[..., Any]] = {
        "hello ada": Greeter().greet,
        "bows to ada": Greeter.bow,
        "hey ada": Greeter(),
    }
    tasks = {value: app.task(name=value)(function) for value, function in kinds.items()}
    tasks["hello 6"] = app.task(name="partial")(functools.partial(_sum_up, "hello", more=5))
    async with app:
        for value, task in tasks.items():
            with case(value):
                job = await task.enqueue(1 if value == "hello 6" else "ada")
                assert await job.result("10s") == value


async def _sum_up(word: str, number: int, more: int) -> str:
    return f"{word} {number + more}"


async def test_a_task_comes_too_late_when_the_application_runs(app: Bullite) -> None:
    async with app:
        with pytest.raises(BulliteError, match="came too late"):
            app.task(double)
    assert app.processors() == {}
    app.task(double)


# --- calling them --------------------------------------------------------------------------------


def test_calling_a_task_runs_it_here_and_now(app: Bullite) -> None:
    assert app.task(double)(4) == 8


async def test_calling_a_task_of_a_coroutine_function_gives_the_coroutine(app: Bullite) -> None:
    assert await app.task(treble)(number=4) == 12


def test_a_task_that_wants_the_job_cannot_be_called_outside_of_one(app: Bullite) -> None:
    @app.task
    def name_of(job: Job) -> str:
        return job.name

    with pytest.raises(LookupError, match="takes the job: call it inside of a job or pass one"):
        name_of()


async def test_a_task_that_wants_the_job_is_called_with_one_outside_of_any(app: Bullite) -> None:
    @app.task(name="first")
    def first(job: Job, number: int) -> str:
        return f"{job.name} {number}"

    @app.task
    async def last(number: int, *, job: Job) -> str:
        return f"{job.name} {number}"

    job = await app.add("any", "mine")
    assert first(job, 3) == first(job=job, number=3) == "mine 3"
    assert await last(3, job=job) == "mine 3"


async def test_a_job_that_is_passed_beats_the_one_that_runs(app: Bullite) -> None:
    @app.task
    def name_of(job: Job) -> str:
        return job.name

    other = await app.add("any", "other")

    @app.task
    async def ask() -> str:
        return name_of(other)

    async with app:
        assert await (await ask.enqueue()).result("10s") == "other"


def test_a_task_that_can_do_without_the_job_is_called_without(app: Bullite) -> None:
    @app.task
    def name_of(text: str, job: Job | None = None) -> str:
        return text if job is None else job.name

    assert name_of("nobody") == "nobody"


async def test_a_task_that_another_calls_gets_its_job(app: Bullite) -> None:
    @app.task(name="inner")
    def inner(job: Job, text: str) -> str:
        return f"{text} {job.name}"

    @app.task(name="outer")
    async def outer() -> str:
        return inner("run by")

    async with app:
        assert await (await outer.enqueue()).result("10s") == "run by outer"


# --- enqueueing them -----------------------------------------------------------------------------


async def test_an_enqueued_task_runs_and_tells_its_result(app: Bullite) -> None:
    tasks = [app.task(double), app.task(treble)]
    async with app:
        jobs = [await task.enqueue(5) for task in tasks]
        assert [await job.result("10s") for job in jobs] == [10, 15]


async def test_a_plain_function_runs_in_a_thread_and_a_coroutine_on_the_loop(app: Bullite) -> None:
    @app.task
    def in_thread() -> int:
        return threading.get_ident()

    @app.task
    async def in_loop() -> int:
        return threading.get_ident()

    async with app:
        assert await (await in_thread.enqueue()).result("10s") != threading.get_ident()
        assert await (await in_loop.enqueue()).result("10s") == threading.get_ident()


async def test_the_job_of_a_task_tells_what_it_is(app: Bullite) -> None:
    task = app.task(name="twice", queue="numbers", attempts=5)(double)
    job = await task.enqueue(number=1)
    assert isinstance(job, TaskJob)
    assert isinstance(job, Job)
    assert (job.queue_name, job.name, job.state) == ("numbers", "twice", "waiting")
    assert (job.attempts, job.data) == (5, {"kwargs": {"number": 1}})
    assert repr(job) == f"<TaskJob {job.id} 'twice' of 'numbers': waiting>"


async def test_the_job_of_a_task_is_one_wherever_a_job_is_wanted(app: Bullite) -> None:
    task = app.task(double)
    first = await task.options(delay="1h").enqueue(1)
    second = await task.options(depends_on=first).enqueue(2)
    third = await task.options(parent=first).enqueue(3)
    assert (second.state, third.parent) == (
        "waiting-children",
        {"id": first.id, "queue": "default"},
    )
    await second.remove()
    assert await app.queue().get_job(second.id) is None


async def test_the_job_of_a_task_knows_what_came_of_it(app: Bullite) -> None:
    task = app.task(double)
    async with app:
        job = await task.enqueue(4)
        assert await job.wait_until_finished("10s") == 8
        assert (job.state, job.return_value) == ("completed", 8)


async def test_options_hold_for_one_enqueueing_over_those_of_the_task(app: Bullite) -> None:
    task = app.task(attempts=5, tags=["usual"], priority=1)(double)
    other = await task.options(attempts=2, delay="1h", job_id="mine").enqueue(1)
    usual = await task.enqueue(1)
    assert (other.attempts, other.state, other.id) == (2, "delayed", "mine")
    assert (other.priority, other.tags) == (1, ("usual",))
    assert (usual.attempts, usual.state) == (5, "prioritized")


async def test_options_that_say_the_same_in_another_way_beat_those_of_the_task(
    app: Bullite,
) -> None:
    task = app.task(delay="1h", backoff=5)(double)
    when = datetime(2099, 1, 1, tzinfo=UTC)
    job = await task.options(run_at=when, retry_strategy="mine").enqueue(1)
    assert job.process_at == when
    assert job.opts["retry_strategy"] == "mine"
    assert "backoff" not in job.opts


def test_a_bad_option_is_refused_when_it_is_given(app: Bullite) -> None:
    task = app.task(double)
    with pytest.raises(InvalidOption, match="unknown job option 'dealy'"):
        task.options(dealy=1)  # type: ignore[call-arg]


class Pair(NamedTuple):
    a: int
    b: int


async def test_map_enqueues_one_job_for_each(app: Bullite) -> None:
    @app.task
    def add(a: int, b: int = 10) -> int:
        return a + b

    async with app:
        jobs = await add.map([(1, 2), {"a": 3, "b": 4}, {"a": 5}, 6, (7,)])
        assert [await job.result("10s") for job in jobs] == [3, 7, 15, 16, 17]
        later = await add.options(priority=5).map(range(3))
        assert [job.priority for job in later] == [5, 5, 5]
        assert await add.map([]) == []


async def test_map_takes_a_named_tuple_as_one_argument(app: Bullite) -> None:
    @app.task
    def total(pair: Pair) -> int:
        return sum(pair)

    async with app:
        [job] = await total.map([Pair(1, 2)])
        assert await job.result("10s") == 3


async def test_map_adds_more_than_go_at_once_in_chunks(
    app: Bullite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_module, "MAX_AT_ONCE", 10)
    task = app.task(double)
    with pytest.raises(InvalidOption, match="pass chunk="):
        await task.map(range(25))
    jobs = await task.map(range(25), chunk=10)
    assert [job.data["args"] for job in jobs] == [[number] for number in range(25)]


async def test_an_argument_may_have_any_name(app: Bullite) -> None:
    @app.task
    async def count(**words: int) -> int:
        return sum(words.values())

    words = {"self": 1, "args": 2, "kwargs": 3, "job": 4, "task": 5}
    assert await count(**words) == 15
    async with app:
        for producer in (count, count.options(priority=1)):
            assert await (await producer.enqueue(**words)).result("20s") == 15
        job = await asyncio.to_thread(lambda: count.enqueue_sync(**words))
        assert await job.result("20s") == 15


async def test_map_enqueues_all_or_none(app: Bullite) -> None:
    task = app.task(double)
    for bad in ("4", (1, 2), {"nmber": 1}, ()):
        with case(bad), pytest.raises(InvalidArguments):
            await task.map([1, 2, bad, 3])
    assert await app.queue().count() == 0


async def test_a_task_is_tried_as_often_as_its_options_say(app: Bullite) -> None:
    runs: list[int] = []

    @app.task(attempts=3)
    async def fail_twice(job: Job) -> int:
        runs.append(job.attempts_made)
        if len(runs) < 3:
            raise ValueError("it broke")
        return len(runs)

    async with app:
        assert await (await fail_twice.enqueue()).result("10s") == 3
        assert runs == [0, 1, 2]


async def test_a_task_that_fails_tells_why(app: Bullite) -> None:
    @app.task
    def fail() -> None:
        raise ValueError("it broke")

    async with app:
        with pytest.raises(JobFailed, match="it broke"):
            await (await fail.enqueue()).result("10s")


async def test_a_task_has_no_longer_than_its_timeout(app: Bullite) -> None:
    @app.task(timeout=20)
    async def wait() -> None:
        await asyncio.Event().wait()

    async with app:
        with pytest.raises(JobFailed, match="took longer than its timeout of 20 ms"):
            await (await wait.enqueue()).result("10s")


async def test_lower_priorities_run_first(app: Bullite) -> None:
    ran: list[str] = []

    @app.task(concurrency=1)
    async def note(what: str) -> None:
        ran.append(what)

    for what, priority in (("last", 5), ("usual", 0), ("first", -5)):
        await note.options(priority=priority).enqueue(what)
    async with app:
        await until(lambda: len(ran) == 3)
    assert ran == ["first", "usual", "last"]


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_task_runs_as_often_at_a_time_as_its_concurrency_says(
    app: Bullite, limit: int
) -> None:
    running: list[int] = []
    most: list[int] = []

    @app.task(concurrency=limit)
    async def meet() -> None:
        running.append(1)
        most.append(len(running))
        for _ in range(5):
            await asyncio.sleep(0)
        running.pop()

    async with app:
        for job in await meet.map([()] * 10):
            await job.result("10s")
    assert max(most) <= limit


async def test_tasks_without_a_concurrency_share_that_of_the_application(location: str) -> None:
    app, gate, inside = Bullite(location, concurrency=2), asyncio.Event(), set[str]()

    async def meet(job: Job) -> None:
        inside.add(job.id)
        await gate.wait()

    tasks = [app.task(name=name)(meet) for name in ("a", "b", "c")]
    async with app:
        jobs = [await task.enqueue() for task in tasks]
        await until(lambda: len(inside) == 2)
        assert await app.queue().get_active_count() == 2
        gate.set()
        for job in jobs:
            await job.result("10s")


# --- the job that runs here ----------------------------------------------------------------------


def test_there_is_no_current_job_outside_of_one() -> None:
    with pytest.raises(
        LookupError, match=r"no job of an application is running here: current_job\(\)"
    ):
        current_job()


async def test_the_current_job_is_known_in_coroutines_and_what_they_await(app: Bullite) -> None:
    async def deep() -> str:
        await asyncio.sleep(0)
        return current_job().id

    @app.task
    async def ids() -> list[str]:
        in_task = await asyncio.create_task(deep())
        return [current_job().id, await deep(), in_task, *await asyncio.gather(deep(), deep())]

    async with app:
        jobs = await ids.map([()] * 20)
        for job in jobs:
            assert await job.result("10s") == [job.id] * 5
        with pytest.raises(LookupError):
            current_job()


async def test_the_current_job_is_known_in_threads(app: Bullite) -> None:
    @app.task
    def in_thread() -> str:
        return current_job().id

    @app.task
    async def beside() -> str:
        return await asyncio.to_thread(lambda: current_job().id)

    async with app:
        for task in (in_thread, beside):
            for job in await task.map([()] * 5):
                assert await job.result("10s") == job.id


async def test_the_current_job_is_the_one_that_is_injected(app: Bullite) -> None:
    @app.task
    async def same(job: Job) -> bool:
        return current_job() is job

    async with app:
        assert await (await same.enqueue()).result("10s")


# --- names in other processes --------------------------------------------------------------------

SPAWNING = """
import multiprocessing
from bullite import Bullite

app = Bullite("never.db")

@app.task
def double(number: int) -> int:
    return 2 * number

def tell():
    print(__name__, double.name, flush=True)

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=tell)
    child.start()
    child.join()
"""


def test_a_task_of_a_program_is_called_the_same_in_processes_that_it_spawns(tmp_path: Path) -> None:
    file = tmp_path / "spawning.py"
    file.write_text(SPAWNING)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    assert done.stdout == "__mp_main__ spawning.double\n"


MODULE = """
import asyncio, sys
from bullite import Bullite

app = Bullite(sys.argv[1])

@app.task
def double(number: int) -> int:
    return 2 * number

async def main():
    async with app:
        print(double.name, await (await double.enqueue(21)).result("10s"))

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_a_task_of_a_program_is_called_as_where_it_is_imported(
    location: str, tmp_path: Path
) -> None:
    file = tmp_path / "myjobs.py"
    file.write_text(MODULE)
    as_script = f"import runpy, sys; sys.argv = ['x', {location!r}]; "
    run = f"runpy.run_path({str(file)!r}, run_name='__main__')"
    assert python(as_script + run) == "myjobs.double 42\n"
    as_module = (
        f"sys.path.insert(0, {str(tmp_path)!r}); runpy.run_module('myjobs', None, '__main__')"
    )
    assert python(as_script + as_module) == "myjobs.double 42\n"
    imported = f"sys.path.insert(0, {str(tmp_path)!r}); import myjobs; print(myjobs.double.name)"
    assert python(as_script + imported) == "myjobs.double\n"


# --- without an event loop -----------------------------------------------------------------------


def test_a_task_is_enqueued_and_waited_for_without_an_event_loop(location: str) -> None:
    app = Bullite(location)
    task = app.task(double)

    def ask() -> list[int]:
        jobs = [task.enqueue_sync(4), task.options(priority=1).enqueue_sync(number=5)]
        return [job.result_sync(timeout="20s") for job in jobs]

    async def serve() -> list[int]:
        async with app:
            return await asyncio.to_thread(ask)

    assert asyncio.run(serve()) == [8, 10]


async def test_on_an_event_loop_that_would_block_it(app: Bullite) -> None:
    with pytest.raises(RuntimeError, match="await enqueue"):
        app.task(double).enqueue_sync(4)


# --- what is refused -----------------------------------------------------------------------------


def count_up(most: int) -> Iterator[int]:
    yield from range(most)


async def count_up_in_loop(most: int) -> AsyncIterator[int]:
    for number in range(most):
        yield number


class Counter:
    def __call__(self, most: int) -> Iterator[int]:
        yield from range(most)


@pytest.mark.parametrize(
    "function",
    [count_up, count_up_in_loop, functools.partial(count_up, 5), Counter()],
    ids=["generator", "async generator", "partial", "object"],
)
def test_a_function_that_yields_is_no_task(app: Bullite, function: Any) -> None:
    with pytest.raises(InvalidOptionType, match="yields; a task returns one value"):
        app.task(name="mine")(function)


@pytest.mark.parametrize("item", [{"id": 1}, (1, 2), (), {1: 2}], ids=str)
async def test_map_tells_how_to_give_a_mapping_or_a_tuple_that_is_an_argument_itself(
    app: Bullite, item: Any
) -> None:
    @app.task
    def keep(value: Any) -> None:
        """Takes anything."""

    with pytest.raises(InvalidArguments, match=r"a mapping as arguments by name .* \(item,\)"):
        await keep.map([item])
    [job] = await keep.map([(item,)])
    assert job.data in ({"args": [item]}, {"args": [{"1": 2}]}, {"args": [list(item)]})


async def test_map_says_nothing_of_that_when_an_argument_has_another_type(app: Bullite) -> None:
    for item in ({"number": "1"}, ("1",), "1"):
        with case(item), pytest.raises(InvalidArguments, match="does not fit") as told:
            await app.task(queue=repr(item))(double).map([item])
        assert "map takes" not in str(told.value)


async def test_map_takes_an_iterable(app: Bullite) -> None:
    with pytest.raises(InvalidOptionType, match=r"map takes an iterable .* not 5"):
        await app.task(double).map(5)  # type: ignore[arg-type]
