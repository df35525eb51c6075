"""Log records of jobs: which job they belong to, and the job's own log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from bullite import Bullite, Job, JobFields, Store
from bullite.app.job_logging import JobLog
from tests.support.helpers import until

log = logging.getLogger("shop.orders")


@pytest.fixture(autouse=True)
def everything_is_logged() -> Iterator[None]:
    log.setLevel(logging.DEBUG)
    yield
    log.setLevel(logging.NOTSET)


class Records(logging.Handler):
    """Keeps the fields of every record."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Any, Any, Any]] = []
        self.addFilter(JobFields())

    def emit(self, record: logging.LogRecord) -> None:
        fields: Any = record
        self.seen.append((record.getMessage(), fields.job_id, fields.job_name, fields.job_queue))


@pytest.fixture
def records() -> Iterator[Records]:
    handler = Records()
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


async def test_a_record_tells_which_job_it_belongs_to(app: Bullite, records: Records) -> None:
    @app.task(name="thread", queue="orders")
    def in_thread() -> None:
        log.info("in a thread")

    @app.task(name="loop", queue="orders")
    async def in_loop() -> None:
        log.info("on the loop")

    async with app:
        first, second = await in_thread.enqueue(), await in_loop.enqueue()
        await first.result("10s")
        await second.result("10s")
    log.info("outside")
    assert sorted(records.seen, key=str) == [
        ("in a thread", first.id, "thread", "orders"),
        ("on the loop", second.id, "loop", "orders"),
        ("outside", None, None, None),
    ]


def test_the_fields_let_every_record_through() -> None:
    assert JobFields().filter(logging.makeLogRecord({"msg": "hello"})) is True


# --- the job's own log ---------------------------------------------------------------------------


@pytest.fixture
def logging_app(location: str) -> Iterator[Bullite]:
    store = Store(location)
    yield Bullite(store, capture_logs="info")
    store.close()


async def lines(app: Bullite, job: Any) -> list[tuple[str, str]]:
    told = (await app.queue().get_job_logs(job.id))["logs"]
    return [(line["level"], line["message"]) for line in told]


def speak(what: str) -> None:
    log.debug("%s whispers", what)
    log.info("%s speaks", what)
    log.warning("%s warns", what)
    log.error("%s shouts", what)
    log.critical("%s screams", what)


SPOKEN = [
    *(("info", "it speaks"), ("warn", "it warns"), ("error", "it shouts")),
    ("error", "it screams"),
]


async def test_records_become_lines_of_the_job_from_threads(logging_app: Bullite) -> None:
    task = logging_app.task(speak)
    async with logging_app:
        job = await task.enqueue("it")
        await job.result("10s")
        await until(lambda: _has_lines(logging_app, job, 4))
        assert await lines(logging_app, job) == SPOKEN


async def test_records_become_lines_of_the_job_from_coroutines(logging_app: Bullite) -> None:
    @logging_app.task
    async def talk(what: str) -> None:
        await asyncio.sleep(0)
        speak(what)

    async with logging_app:
        jobs = [await talk.enqueue("it"), await talk.enqueue("other")]
        for job in jobs:
            await job.result("10s")
            await until(lambda job=job: _has_lines(logging_app, job, 4))  # type: ignore[misc]
        assert await lines(logging_app, jobs[0]) == SPOKEN
        assert all("other" in text for _, text in await lines(logging_app, jobs[1]))


async def _has_lines(app: Bullite, job: Any, number: int) -> bool:
    return len(await lines(app, job)) >= number


async def test_an_exception_is_logged_with_where_it_came_from(logging_app: Bullite) -> None:
    @logging_app.task
    def stumble() -> None:
        try:
            raise ValueError("it broke")
        except ValueError:
            log.exception("oh no")

    async with logging_app:
        job = await stumble.enqueue()
        await job.result("10s")
        await until(lambda: _has_lines(logging_app, job, 1))
        [(level, text)] = await lines(logging_app, job)
    assert level == "error"
    assert text.startswith("oh no\nTraceback")
    assert text.endswith("ValueError: it broke")


async def test_a_level_may_be_a_number(location: str) -> None:
    store = Store(location)
    app = Bullite(store, capture_logs=logging.ERROR)
    task = app.task(speak)
    async with app:
        job = await task.enqueue("it")
        await job.result("10s")
        await until(lambda: _has_lines(app, job, 2))
        assert await lines(app, job) == SPOKEN[2:]
    store.close()


async def test_records_outside_of_jobs_and_of_the_library_are_nobodys_lines(
    logging_app: Bullite,
) -> None:
    @logging_app.task
    async def talk(job: Job) -> None:
        logging.getLogger("bullite.worker").warning("from the library")
        log.info("mine")

    async with logging_app:
        log.info("outside")
        job = await talk.enqueue()
        await job.result("10s")
        await until(lambda: _has_lines(logging_app, job, 1))
        assert await lines(logging_app, job) == [("info", "mine")]


async def test_records_become_lines_of_the_applications_own_jobs_only(location: str) -> None:
    store = Store(location)
    captures = (("one", "info"), ("two", "info"), ("silent", None))
    apps = {name: Bullite(store, capture_logs=level) for name, level in captures}
    tasks = {name: app.task(queue=name)(speak) for name, app in apps.items()}
    async with apps["one"], apps["two"], apps["silent"]:
        jobs = {name: await task.enqueue("it") for name, task in tasks.items()}
        for job in jobs.values():
            await job.result("10s")
    lines = {
        name: [
            line["message"] for line in (await apps[name].queue(name).get_job_logs(job.id))["logs"]
        ]
        for name, job in jobs.items()
    }
    spoken = [message for _, message in SPOKEN]
    assert lines == {"one": spoken, "two": spoken, "silent": []}
    store.close()


async def test_what_is_logged_after_the_job_has_ended_troubles_nobody(
    logging_app: Bullite, caplog: pytest.LogCaptureFixture
) -> None:
    ended, said = asyncio.Event(), asyncio.Event()
    background: set[asyncio.Task[None]] = set()

    async def later() -> None:
        await ended.wait()
        log.info("too late")
        said.set()

    @logging_app.task
    async def leave_behind() -> None:
        background.add(asyncio.create_task(later()))

    async with logging_app:
        job = await leave_behind.enqueue()
        await job.result("10s")
        ended.set()
        await said.wait()
    await asyncio.sleep(0)
    assert [
        r for r in caplog.records if r.name == "asyncio" or "never retrieved" in r.message
    ] == []


async def test_nothing_is_captured_unless_asked_for(app: Bullite) -> None:
    task = app.task(speak)
    async with app:
        job = await task.enqueue("it")
        await job.result("10s")
        assert not any(isinstance(one, JobLog) for one in logging.getLogger().handlers)
        assert await lines(app, job) == []


async def test_the_handler_is_there_only_while_the_application_runs(logging_app: Bullite) -> None:
    def handlers() -> int:
        return sum(isinstance(one, JobLog) for one in logging.getLogger().handlers)

    assert handlers() == 0
    for _ in range(2):
        await logging_app.start()
        await logging_app.start()
        assert handlers() == 1
        await logging_app.stop()
        assert handlers() == 0
