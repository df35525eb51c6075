"""A database that an older Bullite made is brought up to date when it is opened.

Every frozen database under tests/fixtures goes through the same tests, and one that is frozen now.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from bullite import Job, JobNotFound, Queue, QueueEvents, Store, Worker, verify
from bullite.database.migrations import scripts
from bullite.database.sqlite import schema as sqlite_schema
from tests.fixtures import freeze
from tests.fixtures.freeze import STATES, Then
from tests.support.helpers import again, until
from tests.support.processes import ROOT, Child, hang, problems, rows, say, wait_until

FROZEN = sorted((ROOT / "tests/fixtures").glob("schema-*.db"))
SCHEMA = len(list((ROOT / "src/bullite/database/sqlite/migrations").glob("*.sql")))
PRESENT = "present"


@pytest.fixture(
    scope="module", params=[*FROZEN, PRESENT], ids=lambda given: getattr(given, "stem", given)
)
def frozen_once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param != PRESENT:
        return Path(request.param)
    present = tmp_path_factory.mktemp("present") / "jobs.db"
    freeze.main(present)
    return present


@pytest.fixture
def old(frozen_once: Path, database: Path) -> Path:
    """A copy of a frozen database."""
    shutil.copyfile(frozen_once, database)
    return database


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Queue]:
    """The upgraded queue, as on the day when it was frozen."""
    store = Store(path, clock=Then(path))
    async with Queue("work", store) as queue:
        yield queue
    store.close()
    assert problems(path) == ()


async def named(queue: Queue, job_id: str) -> Job:
    job = await queue.get_job(job_id)
    assert job is not None
    return job


def schema(path: Path) -> int:
    [(number,)] = rows(path, "select value from bullite_meta where key = 'schema'")
    return int(number)


# --- what is there -------------------------------------------------------------------------------


def test_there_is_a_frozen_database_of_every_older_schema(tmp_path: Path) -> None:
    copies = [Path(shutil.copy(frozen, tmp_path)) for frozen in FROZEN]
    assert {path.name: schema(path) for path in copies} == {
        f"schema-{number}.db": number for number in range(1, max(SCHEMA, len(FROZEN) + 1))
    }


def test_what_comes_of_it_keeps_its_promises(old: Path) -> None:
    store = Store(old)
    assert verify(store).problems == ()
    store.close()
    assert schema(old) == SCHEMA


def test_it_has_the_tables_and_indexes_of_a_new_one(old: Path, tmp_path: Path) -> None:
    for path in (old, tmp_path / "new.db"):
        assert problems(path) == ()
    assert schema_of(old) == schema_of(tmp_path / "new.db")


def schema_of(path: Path) -> tuple[Any, Any]:
    columns = (
        "select tables.name, columns.* from sqlite_master as tables, "
        "pragma_table_info(tables.name) as columns where tables.type = 'table' order by 1, 2"
    )
    indexes = "select name, sql from sqlite_master where type = 'index' order by 1"
    return rows(path, indexes), rows(path, columns)


async def test_every_job_is_where_it_was_with_its_data(old: Path) -> None:
    async with opened(old) as queue:
        there = {job.id: (job.state, job.data) for job in await queue.get_jobs()}
    assert there == STATES


async def test_the_counts_are_right(old: Path) -> None:
    async with opened(old) as queue:
        assert await queue.get_job_counts() == {
            "waiting": 1,
            "prioritized": 1,
            "delayed": 2,
            "active": 0,
            "waiting-children": 0,
            "completed": 1,
            "failed": 1,
        }


async def test_a_completed_job_still_has_its_result(old: Path) -> None:
    async with opened(old) as queue:
        job = await named(queue, "the-completed-one")
        assert (job.return_value, job.outcome, job.failed_reason) == (
            {"answer": 42},
            "completed",
            None,
        )
        assert await job.result() == {"answer": 42}
        [run] = await job.get_attempts()
        assert (run.number, run.outcome, run.ended_at) == (1, "completed", job.finished_at)


async def test_a_failed_job_still_tells_why(old: Path) -> None:
    async with opened(old) as queue:
        job = await named(queue, "the-failed-one")
        assert (job.failed_reason, job.outcome, job.attempts_made) == ("it broke", "error", 1)
        assert "UnrecoverableError: it broke" in str(job.stack)


@pytest.mark.parametrize(
    ("job_id", "error"), [("the-failed-one", "it broke"), ("the-retried-one", "not yet")]
)
async def test_a_failed_try_is_the_first_of_the_history(old: Path, job_id: str, error: str) -> None:
    async with opened(old) as queue:
        job = await named(queue, job_id)
        [run] = await job.get_attempts()
        assert (run.number, run.outcome, run.error) == (1, "error", error)
        assert run.stack == job.stack
        assert run.started_at == job.processed_at
        assert run.ended_at == job.updated_at


async def test_its_log_is_empty_and_nothing_is_settled_about_the_queue(old: Path) -> None:
    async with opened(old) as queue:
        assert (await queue.get_job_logs("the-completed-one"))["count"] == 0
        meta = await queue.get_meta()
        assert (meta["paused"], meta["dead_letter"], meta["default_job_options"]) == (
            False,
            None,
            {},
        )
        assert meta["keep_completed_age"] == 7 * 86_400_000
        assert meta["keep_failed_age"] is None


# --- what can be done with it --------------------------------------------------------------------


async def run_all(queue: Queue, count: int) -> list[str]:
    """The ids of the jobs that ran, in their order."""
    ran: list[str] = []

    async def note(job: Job) -> str:
        ran.append(job.id)
        return "run after the upgrade"

    async with Worker(queue, note):
        await until(lambda: len(ran) == count)
    return ran


async def test_what_waits_is_run_in_its_order(old: Path) -> None:
    async with opened(old) as queue:
        await queue.add("new", job_id="the-new-one")
        assert await run_all(queue, 3) == ["the-waiting-one", "the-new-one", "the-prioritized-one"]
        job = await named(queue, "the-prioritized-one")
        assert (job.state, job.return_value) == ("completed", "run after the upgrade")


async def test_a_new_job_gets_a_number_that_nobody_had(old: Path) -> None:
    async with opened(old) as queue:
        assert (await queue.add("new")).pk == 8


async def test_an_old_id_is_still_taken(old: Path) -> None:
    async with opened(old) as queue:
        same = await queue.add("another", {"n": 0}, job_id="the-failed-one")
        assert (same.name, same.data, same.state) == ("fails", {"n": 2}, "failed")


async def test_what_is_delayed_can_be_promoted_and_run(old: Path) -> None:
    async with opened(old) as queue:
        await queue.drain()
        assert await queue.promote_jobs() == ["the-retried-one", "the-delayed-one"]
        assert await run_all(queue, 2) == ["the-retried-one", "the-delayed-one"]
        retried = await named(queue, "the-retried-one")
        assert (retried.attempts_made, retried.state) == (2, "completed")
        assert [run.outcome for run in await retried.get_attempts()] == ["error", "completed"]


async def test_what_failed_can_be_tried_again(old: Path) -> None:
    async with opened(old) as queue:
        await queue.drain()
        job = await queue.retry_job("the-failed-one")
        assert (job.state, job.failed_reason) == ("waiting", None)
        assert await run_all(queue, 1) == ["the-failed-one"]
        assert (await again(queue, job)).return_value == "run after the upgrade"
        assert [run.outcome for run in await job.get_attempts()] == ["error", "completed"]


async def test_what_was_removed_can_be_restored(old: Path) -> None:
    async with opened(old) as queue:
        assert await queue.get_job("the-removed-one") is None
        job = await queue.restore("the-removed-one")
        assert (job.state, job.data, job.pk) == ("waiting", None, 4)
        assert await run_all(queue, 3) == [
            "the-removed-one",
            "the-waiting-one",
            "the-prioritized-one",
        ]


async def test_what_was_removed_too_long_ago_cannot(old: Path) -> None:
    async with opened(old) as queue:
        await queue.configure(trash_age=0)
        with pytest.raises(JobNotFound, match="the-removed-one"):
            await queue.restore("the-removed-one")


async def test_a_reader_of_all_events_gets_past_those_of_the_older_bullite(old: Path) -> None:
    async with opened(old) as queue:
        heard: list[str] = []
        async with QueueEvents("work", queue.store, last_event_id="0-0") as events:
            events.on("added", lambda payload, _: heard.append(payload["job_id"]))
            await queue.add("new", job_id="the-new-one")
            await until(lambda: "the-new-one" in heard)


async def test_listeners_hear_what_becomes_of_old_jobs(old: Path) -> None:
    async with opened(old) as queue:
        heard: list[str] = []
        async with QueueEvents("work", queue.store) as events:
            events.on("completed", lambda payload, _: heard.append(payload["job_id"]))
            await run_all(queue, 2)
            await until(lambda: len(heard) == 2)
    assert heard == ["the-waiting-one", "the-prioritized-one"]


# --- the upgrade itself --------------------------------------------------------------------------


async def test_opening_it_again_changes_nothing(old: Path) -> None:
    async with opened(old):
        pass
    before = contents(old)
    async with Queue("work", old):
        pass
    assert contents(old) == before


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    tables = rows(path, "select name from sqlite_master where type = 'table'")
    return {name: rows(path, f"select * from {name}") for (name,) in tables}


def opens(path: str, barrier: str) -> None:
    say("ready")
    wait_until(Path(barrier).exists)
    store = Store(path)
    store.open()
    store.close()


def test_many_processes_upgrade_it_once(
    old: Path, start: Callable[..., Child], tmp_path: Path
) -> None:
    barrier = tmp_path / "barrier"
    children = [start(opens, old, barrier) for _ in range(6)]
    for child in children:
        child.said("ready")

    barrier.touch()

    assert [child.ended() for child in children] == [0] * 6
    assert schema(old) == SCHEMA
    assert rows(old, "select job, number from bullite_attempts") == [(2, 1), (3, 1)]
    assert problems(old) == ()


def stops_before_the_upgrade_is_committed(path: str) -> None:
    connect = sqlite_schema.connect

    def connect_and_listen(*given: Any) -> sqlite3.Connection:
        connection = connect(*given)
        connection.set_trace_callback(stop_before_commit)
        return connection

    sqlite_schema.connect = connect_and_listen  # type: ignore[assignment]
    Store(path).open()


def stop_before_commit(statement: str) -> None:
    if statement == "commit":
        say("about to commit")
        hang()


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda frozen: frozen.stem)
def test_an_upgrade_that_is_killed_has_changed_nothing_and_is_made_by_the_next(
    frozen: Path, database: Path, start: Callable[..., Child]
) -> None:
    shutil.copyfile(frozen, database)
    before = contents(database)
    killed_worker = start(stops_before_the_upgrade_is_committed, database)
    killed_worker.said("about to commit")
    killed_worker.kill()
    assert contents(database) == before

    assert problems(database) == ()
    assert schema(database) == SCHEMA


def test_a_database_of_the_present_can_be_frozen(tmp_path: Path) -> None:
    target = tmp_path / "frozen.db"
    freeze.main(target)
    assert schema(target) == SCHEMA
    assert sorted(path.name for path in tmp_path.iterdir()) == ["frozen.db"]
    asyncio.run(nobody_works_there(target))


async def nobody_works_there(path: Path) -> None:
    async with Queue("work", path) as queue:
        assert await queue.get_workers() == []


# --- what older jobs had that can be asked for by now --------------------------------------------


async def test_the_jobs_of_an_older_schema_are_found_by_their_tags(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        for script in scripts("bullite.database.sqlite")[:3]:
            connection.executescript(script)
        connection.executescript(
            """
            insert into bullite_meta values ('schema', '3');
            update bullite_sequence set last = 3;
            insert into bullite_queues (id, name, priority_order, created_at, waiting)
                values (1, 'work', 'low', 1, 3);
            insert into bullite_jobs (
                id, seq, queue, lane, created_at, updated_at, state, traits, name,
                rank, priority, lifo, delay, attempts
            ) values
                (1, 1, 1, '', 5, 5, 'waiting', 0, 'a', 0, 0, 0, 0, 1),
                (2, 2, 1, '', 5, 5, 'waiting', 0, 'b', 0, 0, 0, 0, 1),
                (3, 3, 1, '', 6, 6, 'waiting', 0, 'b', 0, 0, 0, 0, 1);
            insert into bullite_payloads (job, data, opts) values
                (1, '1', '{"tags":["x"]}'), (2, '2', null), (3, '3', '{"tags":["y","x","x"]}');
            """
        )
    async with Queue("work", database) as queue:
        assert [job.id for job in (await queue.find(tag="x")).jobs] == ["3", "1"]
        assert [job.id for job in (await queue.find(tag="y")).jobs] == ["3"]
        assert [job.id for job in (await queue.find(name="b")).jobs] == ["3", "2"]
        assert [job.id for job in (await queue.find(since=6)).jobs] == ["3"]
        await queue.clean(0, state="waiting")
    assert schema(database) == SCHEMA
    assert problems(database) == ()
