"""From nothing opened to everything closed, and the same again."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bullite import Bullite, Job, JobFailed, Queue, Store
from bullite.errors import BulliteError, InvalidOption, InvalidOptionType, StoreError, WrongLoop
from tests.support.databases import Database
from tests.support.helpers import python, state_of, until


def whole(location: str) -> Bullite:
    """An application with some of everything."""
    app = Bullite(location, capture_logs="INFO")
    app.every("1d")(app.task(name="tick")(lambda: None))
    app.task(name="double", queue="numbers")(lambda number: 2 * number)
    app.process("plain", "echo", lambda job: job.data)
    app.before(lambda job: None)
    app.router()
    return app


def test_nothing_is_opened_at_construction(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    app = whole(str(tmp_path / "missing" / "jobs.db"))
    app.queue("numbers")
    assert list(tmp_path.iterdir()) == []
    assert not app.is_running
    assert set(threading.enumerate()) <= threads


def test_nothing_happens_at_import(tmp_path: Path) -> None:
    program = """
import os, sys, threading, logging
os.chdir(sys.argv[1])
before = logging.getLogger().handlers[:]
import bullite
from bullite import Bullite, current_job
app = Bullite(capture_logs="INFO")
app.task(lambda: None)
assert threading.active_count() == 1, threading.enumerate()
assert os.listdir() == [], os.listdir()
assert logging.getLogger().handlers == before
"""
    assert python(program, tmp_path) == ""


async def test_starting_twice_starts_once(location: str) -> None:
    app = whole(location)
    await asyncio.gather(app.start(), app.start())
    await app.start()
    assert app.is_running
    for name in ("default", "numbers", "plain"):
        assert await app.queue(name).get_workers_count() == 1
    assert len(await app.queue().get_job_schedulers()) == 1
    await app.stop()
    assert not app.is_running
    await app.stop()


async def test_an_application_without_tasks_starts_and_stops(location: str) -> None:
    app = Bullite(location, capture_logs="INFO")
    async with app as entered:
        assert entered is app
        assert app.is_running
        await app.add("anything", "job")
    assert not app.is_running


async def test_it_starts_again_after_it_was_stopped(location: str) -> None:
    app = whole(location)
    for number in range(3):
        async with app:
            assert await (await app.add("plain", "echo", number)).result("10s") == number


def test_it_starts_again_on_another_event_loop(location: str) -> None:
    app = whole(location)

    async def run() -> Any:
        await asyncio.gather(app.start(), app.start())
        result = await (await app.add("plain", "echo", 1)).result("10s")
        await asyncio.gather(app.stop(), app.stop())
        return result

    assert [asyncio.run(run()) for _ in range(2)] == [1, 1]


async def test_a_producer_need_not_start_anything(location: str) -> None:
    app = whole(location)
    job = await app.add("plain", "echo", 1)
    assert await app.queue("plain").get_workers_count() == 0
    await app.stop()
    async with app:
        found = await app.queue("plain").get_job(job.id)
        assert found is not None
        assert await found.result("10s") == 1


def new_threads(before: set[threading.Thread]) -> set[threading.Thread]:
    return set(threading.enumerate()) - before


async def test_stopping_closes_the_store_that_it_opened(location: str) -> None:
    before = set(threading.enumerate())
    app = whole(location)
    await app.start()
    store = app.queue("plain").store
    await app.stop()
    assert not store.is_open
    await until(lambda: not any("bullite" in one.name for one in new_threads(before)))


async def test_stopping_closes_the_default_store_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BULLITE_URL", raising=False)
    app = Bullite()
    await app.add("plain", "echo")
    store = app.queue("plain").store
    await app.stop()
    assert not store.is_open
    assert (tmp_path / "bullite.db").exists()


async def test_stopping_leaves_a_store_open_that_was_given(location: str) -> None:
    store = Store(location)
    app = Bullite(store)
    async with app:
        await app.add("plain", "echo")
    assert store.is_open
    assert await Queue("plain", store).count() == 1
    await asyncio.to_thread(store.close)


async def test_stopping_waits_for_the_jobs_that_run(app: Bullite) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    @app.task
    async def wait() -> str:
        begun.set()
        await gate.wait()
        return "done"

    await app.start()
    job = await wait.enqueue()
    later = await wait.options(delay=1).enqueue()
    await begun.wait()
    stopping = asyncio.create_task(app.stop())
    await until(lambda: _no_workers(app))
    assert not stopping.done()
    gate.set()
    await stopping
    assert await state_of(app.queue(), job) == "completed"
    assert await state_of(app.queue(), later) in ("waiting", "delayed", "completed")


async def _no_workers(app: Bullite) -> bool:
    return not app._lifecycle.workers


async def test_stopping_gives_back_what_takes_too_long_and_says_so(
    app: Bullite, caplog: pytest.LogCaptureFixture
) -> None:
    begun = asyncio.Event()

    @app.task(name="endless")
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    await app.start()
    job = await endless.enqueue()
    await begun.wait()
    with caplog.at_level(logging.WARNING, "bullite.app"):
        await app.stop(timeout=0.05)
    assert f"took longer than 0.05 s and are given back: {job.id} (endless of default)" in (
        caplog.text
    )
    found = await app.queue().get_job(job.id)
    assert found is not None
    assert (found.state, found.attempts_made) == ("waiting", 0)


async def test_stopping_tells_what_is_given_back_from_what_still_runs(
    app: Bullite, caplog: pytest.LogCaptureFixture
) -> None:
    begun, free, ended = list[str](), threading.Event(), threading.Event()

    @app.task(name="coroutine")
    async def coroutine(job: Job) -> None:
        begun.append(job.id)
        await asyncio.Event().wait()

    @app.task(name="thread")
    def thread(job: Job) -> None:
        begun.append(job.id)
        free.wait(60)
        ended.set()

    await app.start()
    back, stays = await coroutine.enqueue(), await thread.enqueue()
    await until(lambda: len(begun) == 2, limit=20)
    with caplog.at_level(logging.WARNING, "bullite.app"):
        await app.stop(timeout=0.05)
    told = [record.getMessage() for record in caplog.records if record.name == "bullite.app"]
    assert told == [
        f"these jobs took longer than 0.05 s and are given back: {back.id} (coroutine of default)",
        "these jobs took longer than 0.05 s and still run here; another worker takes them when "
        f"their lease ends: {stays.id} (thread of default)",
    ]
    assert await state_of(app.queue(), back) == "waiting"
    assert await state_of(app.queue(), stays) == "active"
    free.set()
    await until(ended.is_set, limit=20)


async def test_a_job_that_ends_when_it_is_interrupted_is_not_told_of(
    app: Bullite, caplog: pytest.LogCaptureFixture
) -> None:
    begun = asyncio.Event()

    @app.task
    async def save() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "saved"

    await app.start()
    job = await save.enqueue()
    await begun.wait()
    await app.stop(timeout=0.05)
    assert await state_of(app.queue(), job) == "completed"
    assert [record for record in caplog.records if record.name == "bullite.app"] == []


@pytest.mark.parametrize("times", [1, 50])
async def test_a_stop_that_is_cancelled_gives_back_what_runs_before_it_ends(
    location: str, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    app, begun = Bullite(location), asyncio.Event()

    @app.task(name="endless")
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    await app.start()
    job = await endless.enqueue()
    await begun.wait()
    stopping = asyncio.create_task(app.stop(timeout=60))
    await until(lambda: _no_workers(app), limit=20)
    for _ in range(times):
        stopping.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert not app.is_running
    assert "did not end before stop was cancelled and are given back" in caplog.text
    assert "its store was closed before it" not in caplog.text
    assert await state_of(app.queue(), job) == "waiting"
    await app.stop()


async def test_stopping_in_time_says_nothing(
    app: Bullite, caplog: pytest.LogCaptureFixture
) -> None:
    app.process("plain", "echo", lambda job: job.data)
    async with app:
        await (await app.add("plain", "echo")).result("10s")
    assert [record for record in caplog.records if record.name == "bullite.app"] == []


@pytest.mark.parametrize("timeout", [-1, float("nan"), True])
async def test_a_bad_timeout_is_refused_and_nothing_is_stopped(app: Bullite, timeout: Any) -> None:
    async with app:
        with pytest.raises((InvalidOption, InvalidOptionType), match="timeout"):
            await app.stop(timeout)
        assert app.is_running


async def test_what_fails_inside_is_stopped_all_the_same(app: Bullite) -> None:
    with pytest.raises(ZeroDivisionError):
        async with app:
            raise ZeroDivisionError
    assert not app.is_running


async def test_it_is_not_running_when_it_could_not_start(database: Database) -> None:
    app = whole(database.missing())
    for _ in range(2):
        with pytest.raises((StoreError, OSError)):
            await app.start()
        assert not app.is_running
    assert not any(type(one).__name__ == "JobLog" for one in logging.getLogger().handlers)


async def test_the_lifespan_of_a_web_application_starts_and_stops_it(location: str) -> None:
    app = whole(location)
    async with app.lifespan(object()):
        assert app.is_running
        assert await (await app.add("plain", "echo", 5)).result("10s") == 5
    assert not app.is_running
    async with app.lifespan():
        assert app.is_running


# --- files of their own --------------------------------------------------------------------------


async def test_a_queue_may_have_a_file_of_its_own(location: str, tmp_path: Path) -> None:
    own = tmp_path / "own" / "stats.db"
    own.parent.mkdir()
    app = Bullite(location, files={"stats": own})

    @app.task(queue="stats")
    def count(number: int) -> int:
        return number + 1

    app.process("plain", "echo", lambda job: job.data)
    async with app:
        assert await app._queues.names() == ["plain", "stats"]
        job = await count.enqueue(1)
        assert await job.result("10s") == 2
        assert await (await app.add("plain", "echo", 1)).result("10s") == 1
        assert await app.stats() == {"pending": 0, "processing": 0, "completed": 2, "failed": 0}
        assert app.queue("stats").store is not app.queue("plain").store
    async with Queue("stats", own) as stats:
        assert await stats.get_completed_count() == 1
    async with Queue("stats", location) as nothing:
        assert await nothing.get_completed_count() == 0


CHILD = {"name": "count", "queue_name": "stats"}
NOTICE = {"queue": "stats", "name": "count"}


@pytest.mark.parametrize(
    ("option", "add"),
    [
        ("queue_name", lambda app: app.add("plain", "a", children=[CHILD])),
        (
            "queue_name",
            lambda app: app.queue("plain").add_bulk([{"name": "a", "opts": {"children": [CHILD]}}]),
        ),
        (
            "queue_name",
            lambda app: app.add(
                "plain", "a", children=[{"name": "b", "queue_name": "other", "children": [CHILD]}]
            ),
        ),
        ("parent", lambda app: app.add("plain", "a", parent={"id": "1", "queue": "stats"})),
        ("parent", lambda app: app.add("stats", "a", parent={"id": "1", "queue": "plain"})),
        ("depends_on", lambda app: app.add("plain", "a", depends_on=[("stats", "1")])),
        ("depends_on", lambda app: app.add("stats", "a", depends_on=[("more", "1")])),
        ("on_failure", lambda app: app.add("plain", "a", on_failure=NOTICE)),
        (
            "on_failure",
            lambda app: app.queue("plain").upsert_job_scheduler(
                "a", every="1d", template={"opts": {"on_failure": NOTICE}}
            ),
        ),
        ("on_failure", lambda app: app.queue("plain").configure(on_failure=NOTICE)),
        (
            "on_failure",
            lambda app: app.queue("plain").configure(default_job_options={"on_failure": NOTICE}),
        ),
        ("dead_letter", lambda app: app.queue("plain").configure(dead_letter="stats")),
        ("dead_letter", lambda app: app.queue("stats").configure(dead_letter="plain")),
    ],
)
@pytest.mark.parametrize("is_ready", [False, True], ids=["unopened", "ready"])
async def test_jobs_of_two_files_cannot_belong_together(
    location: str, tmp_path: Path, option: str, add: Callable[[Bullite], Any], is_ready: bool
) -> None:
    app = Bullite(location, files={"stats": tmp_path / "stats.db", "more": tmp_path / "more.db"})
    if is_ready:
        for name in ("plain", "stats"):
            await app.queue(name).wait_until_ready()
    with pytest.raises(
        InvalidOption, match=f"{option}: queue .* is in another file .* must be in one database"
    ):
        await add(app)
    assert await app._queues.names() == (["plain", "stats"] if is_ready else [])
    assert (await app.stats())["pending"] == 0
    await app.stop()


async def test_jobs_of_one_database_belong_together_beside_files(
    location: str, tmp_path: Path
) -> None:
    app = Bullite(location, files={"stats": tmp_path / "stats.db"})
    app.process("plain", "sum", lambda job: "done")
    app.process("other", "part", lambda job: job.data)
    async with app:
        await app.queue("plain").configure(dead_letter="dead")
        job = await app.add(
            "plain", "sum", children=[{"name": "part", "queue_name": "other", "data": 1}]
        )
        assert await job.result("20s") == "done"
        first = await app.add("stats", "a")
        second = await app.add("stats", "b", depends_on=first)
        assert second.state == "waiting-children"


def test_a_queue_of_a_file_needs_a_name() -> None:
    with pytest.raises(InvalidOption, match="files"):
        Bullite("jobs.db", files={"": "stats.db"})


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": "many"},
        {"capture_logs": "LOUD"},
        {"files": ["a.db"]},
        {"files": {"a": 5}},
        {"stop_timeout": -1},
    ],
)
def test_bad_options_of_an_application_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BulliteError, match=next(iter(options)).removesuffix("s")):
        Bullite("jobs.db", **options)


async def test_jobs_run_as_many_at_a_time_as_the_application_says(location: str) -> None:
    app, inside = Bullite(location, concurrency=3), list[str]()
    gate = asyncio.Event()

    async def meet(job: Job) -> None:
        inside.append(job.id)
        await gate.wait()

    app.process("plain", "meet", meet)
    async with app:
        jobs = [await app.add("plain", "meet") for _ in range(8)]
        await until(lambda: len(inside) == 3)
        assert await app.queue("plain").get_active_count() == 3
        gate.set()
        for job in jobs:
            await job.result("10s")


# --- forks ---------------------------------------------------------------------------------------

FORKING = """
import asyncio, os, sys, warnings
from bullite import Bullite

warnings.simplefilter("ignore", DeprecationWarning)
app = Bullite(sys.argv[1])

@app.task
def pid() -> int:
    return os.getpid()

async def serve():
    assert not app.is_running
    await app.stop()
    async with app:
        assert await (await pid.enqueue()).result("10s") == os.getpid()
    os._exit(0)

async def first():
    await app.start()
    assert await (await pid.enqueue()).result("10s") == os.getpid()
    if sys.argv[2] == "stopped":
        await app.stop()

loop = asyncio.new_event_loop()
loop.run_until_complete(first())
child = os.fork()
if child == 0:
    asyncio.events._set_running_loop(None)
    asyncio.run(serve())
assert os.waitpid(child, 0)[1] == 0, "the child failed"

async def again():
    if sys.argv[2] == "stopped":
        await app.start()
    assert app.is_running
    assert await (await pid.enqueue()).result("10s") == os.getpid()
    await app.stop()

loop.run_until_complete(again())
print("fine")
"""


@pytest.mark.parametrize("was", ["running", "stopped"])
def test_a_forked_child_starts_its_own(location: str, was: str) -> None:
    assert python(FORKING, location, was) == "fine\n"


async def test_the_workers_of_an_application_are_those_of_its_process(location: str) -> None:
    app = whole(location)
    async with app:
        [worker] = await app.queue("plain").get_workers()
        assert worker.pid == os.getpid()


async def test_a_job_that_fails_beside_others_stops_nothing(app: Bullite) -> None:
    @app.task
    def fail() -> None:
        raise SystemExit(1)

    app.process("plain", "echo", lambda job: job.data)
    async with app:
        with pytest.raises(JobFailed):
            await (await fail.enqueue()).result("10s")
        assert await (await app.add("plain", "echo", 1)).result("10s") == 1


# --- without an event loop -----------------------------------------------------------------------


def test_it_runs_on_a_loop_of_its_own_in_code_that_has_none(app: Bullite) -> None:
    @app.task
    async def greet(name: str) -> str:
        return f"hello {name} from {threading.current_thread().name}"

    with app:
        assert app.is_running
        said = greet.enqueue_sync("ada").result_sync("10s")
    assert said.startswith("hello ada from bullite-app")
    assert not app.is_running
    app.start_sync()
    app.start_sync()
    assert greet.enqueue_sync("bob").result_sync("10s").startswith("hello bob")
    app.stop_sync()
    app.stop_sync()
    assert "bullite-app" not in [thread.name for thread in threading.enumerate()]


def test_a_bad_timeout_stops_nothing_there_either(app: Bullite) -> None:
    with app:
        with pytest.raises(InvalidOption, match="timeout"):
            app.stop_sync(-1)
        assert app.is_running


def test_what_cannot_start_leaves_no_thread(tmp_path: Path) -> None:
    app = Bullite(tmp_path / "not" / "there" / "jobs.db")
    app.task(lambda: None)
    with pytest.raises(BulliteError):
        app.start_sync()
    assert not app.is_running
    assert "bullite-app" not in [thread.name for thread in threading.enumerate()]


async def test_inside_of_an_event_loop_it_says_what_to_await(app: Bullite) -> None:
    with pytest.raises(WrongLoop, match=r"start_sync would block .* await start\(\) instead"):
        app.start_sync()
    with pytest.raises(WrongLoop, match=r"await stop\(\) instead"):
        app.stop_sync()


async def test_it_is_started_and_stopped_on_one_loop(app: Bullite) -> None:
    app.task(lambda: None)
    async with app:
        with pytest.raises(WrongLoop, match="runs on another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(app.stop()))
        assert app.is_running


async def test_starting_and_stopping_at_once_take_turns(app: Bullite) -> None:
    app.task(lambda: None)
    for _ in range(5):
        await asyncio.gather(app.start(), app.stop(0), app.start(), app.stop(0), app.start())
    assert app.is_running
    await app.stop()
