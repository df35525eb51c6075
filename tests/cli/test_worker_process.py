"""A worker process, as far as it can be tried without one."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullite import Bullite, Job, Queue, Worker
from bullite.cli.worker_process import (
    AppNotFound,
    Spec,
    TaskNameReserved,
    check_apps,
    load_app,
    memory_used,
    processors_of,
)
from bullite.commands.processors import BuiltinProcessors

OURS = {"shell", "http-webhook", "python-function", "notify"}

APP = """
class Inner:
    jobs = {"a": print}

def work(job):
    return job.name

jobs = {"greet": work}
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module in the present folder, which Python does not look into by itself."""
    name = f"app_of_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    yield name
    sys.modules.pop(name, None)


# --- what it is told -----------------------------------------------------------------------------


def test_what_a_process_is_told_comes_back_from_text() -> None:
    spec = Spec(("a", "b"), 5, ("tasks", "more:jobs"), "night", 2**30, 100, "notices")
    assert Spec.from_text(spec.as_text()) == spec
    assert Spec.from_text(Spec(("a",)).as_text()) == Spec(("a",))


# --- the user's Python ---------------------------------------------------------------------------


def test_a_module_alone_brings_no_object(app: str) -> None:
    assert load_app(app) == (app, None)


def test_an_object_is_found_by_its_name(app: str) -> None:
    name, found = load_app(f"{app}:jobs")
    assert (name, list(found)) == (app, ["greet"])
    assert list(load_app(f"{app}:Inner.jobs")[1]) == ["a"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("not_there_at_all", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("APP:missing", "AttributeError: module 'APP' has no attribute 'missing'"),
        ("", "ValueError: Empty module name"),
        (":jobs", "ValueError: Empty module name"),
        ("broken", "ZeroDivisionError: division by zero"),
        ("leaves", "SystemExit: 3"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(app: str, path: str, problem: str) -> None:
    Path("broken.py").write_text("1 / 0")
    Path("leaves.py").write_text("raise SystemExit(3)")
    with pytest.raises(AppNotFound) as refused:
        load_app(path.replace("APP", app))
    assert str(refused.value) == f"--app {path}: {problem}".replace("APP", app)


async def in_thread(job: Job) -> str:
    return f"{job.name} {threading.current_thread() is threading.main_thread()}"


async def test_a_mapping_adds_names_to_ours(queue: Queue) -> None:
    found = processors_of(BuiltinProcessors(queue.store), {"tasks:jobs": {"greet": in_thread}})
    assert set(found) == OURS | {"greet"}


async def test_several_mappings_add_up_and_a_module_alone_adds_nothing(queue: Queue) -> None:
    apps = {"a:x": {"one": in_thread}, "b": None, "c:y": {"two": in_thread}}
    assert set(processors_of(BuiltinProcessors(queue.store), apps)) == OURS | {"one", "two"}


@pytest.mark.parametrize("name", ["shell", "notify", "http-webhook", "python-function"])
async def test_a_mapping_with_a_reserved_name_is_refused(queue: Queue, name: str) -> None:
    with pytest.raises(TaskNameReserved, match=f"--app a:x: the task '{name}' has a reserved name"):
        processors_of(BuiltinProcessors(queue.store), {"a:x": {name: in_thread}})


@pytest.mark.parametrize("name", ["shell", "notify", "http-webhook", "python-function"])
def test_an_application_with_a_task_of_a_reserved_name_is_refused(name: str) -> None:
    app = Bullite()
    app.task(name=name, queue="letters")(lambda: None)
    with pytest.raises(
        TaskNameReserved, match=f"--app a:x: the task '{name}' in the queue 'letters'"
    ):
        check_apps({"a:x": app})


def by_token(job: Job, token: str) -> str:
    return f"{job.name} with {type(token).__name__}"


@pytest.mark.parametrize("first", ["mapping", "function"])
async def test_a_function_takes_all_other_jobs(queue: Queue, first: str) -> None:
    def anything(job: Job) -> str:
        on_main = threading.current_thread() is threading.main_thread()
        return f"{job.name} anyhow {on_main}"

    apps: dict[str, Any] = {
        "a:x": {"one": in_thread, "two": by_token, "three": (in_thread, 2)},
        "b:y": anything,
    }
    ordered = apps if first == "mapping" else dict(reversed(apps.items()))
    async with Worker(queue, processors_of(BuiltinProcessors(queue.store), ordered), concurrency=3):
        names = ("one", "two", "three", "four")
        jobs = [await queue.add(name) for name in names]
        command = await queue.add("shell", {"command": "true"})
        results = [await job.result() for job in jobs]
        assert await command.result() == {"exit_code": 0}
    assert results == ["one True", "two with str", "three True", "four anyhow False"]


async def test_as_many_functions_run_at_a_time_as_the_worker_may_have_jobs(queue: Queue) -> None:
    number = 40
    meeting = threading.Barrier(number)

    def meet(job: Job) -> int:
        return meeting.wait(20)

    async with Worker(
        queue, processors_of(BuiltinProcessors(queue.store), {"a:meet": meet}), concurrency=number
    ):
        jobs = [await queue.add("meet") for _ in range(number)]
        assert len({await job.result() for job in jobs}) == number


@pytest.mark.parametrize(
    ("apps", "problem"),
    [
        (
            {"a:x": 5},
            "--app a:x must be a Bullite application, a function, or a mapping",
        ),
        (
            {"a:x": "text"},
            "--app a:x must be a Bullite application, a function, or a mapping",
        ),
        ({"a:x": {"one": 5}}, "--app a:x: the processor of 'one' must be callable, not 5"),
        ({"a:x": {"": print}}, "--app a:x: "),
        ({"a:x": lambda: 1}, "--app a:x: processor must take (job)"),
        ({"a:x": print, "b:y": print}, "--app b:y: another function takes all jobs already"),
    ],
)
async def test_what_can_run_no_jobs_is_refused(
    queue: Queue, apps: dict[str, Any], problem: str
) -> None:
    with pytest.raises(AppNotFound) as refused:
        processors_of(BuiltinProcessors(queue.store), apps)
    assert str(refused.value).startswith(problem)


# --- its memory ----------------------------------------------------------------------------------


def test_the_memory_of_a_process_is_known() -> None:
    mine = memory_used()
    assert mine > 10 * 2**20
    assert mine // 2 < memory_used(os.getpid()) < mine * 2


def test_the_memory_of_nobody_is_none() -> None:
    assert memory_used(2**22 + 1) == 0


def test_a_process_that_grows_is_seen_to() -> None:
    before = memory_used()
    held = bytearray(os.urandom(1) * 64 * 2**20)
    assert memory_used() - before > 32 * 2**20
    del held
