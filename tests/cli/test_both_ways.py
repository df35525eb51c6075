"""A look without an engine, and with one where the database needs it: what is told is the same."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
)
from pathlib import Path
from unittest.mock import patch

import pytest

from bullite import Queue, Worker
from bullite.cli.job_format import STATUSES
from bullite.client.queue.search import OUTCOMES
from bullite.core.states import SHOWN_STATES
from bullite.database.sqlite import connections, files
from bullite.database.sqlite.location import FileLocation
from tests.database.sqlite.test_network_file_systems import ROOT, mount
from tests.support.helpers import case

from .concurrent_runs import LATER, have_run
from .program import Said, run, run_well

FIXTURES = Path(__file__).parent.parent / "fixtures"


def with_an_engine() -> AbstractContextManager[object]:
    """Meanwhile no file is read as it is."""
    return patch.object(FileLocation, "reader", lambda location: None)


def without_an_engine() -> AbstractContextManager[object]:
    """Meanwhile there is none to be had."""
    return patch(
        "bullite.client.runtime.store.Store.open", side_effect=AssertionError("an engine is opened")
    )


def both(*arguments: object, db: str) -> tuple[Said, Said]:
    with without_an_engine():
        light = run(*arguments, db=db)
    with with_an_engine():
        return light, run(*arguments, db=db)


LOOKS = [
    ["list", "--json"],
    ["list"],
    *(["list", "--json", "--state", word] for word in {*STATUSES, *SHOWN_STATES, *OUTCOMES}),
    ["list", "--json", "--name", "mail"],
    ["list", "--json", "--tag", "early"],
    ["list", "--json", "--search", "sleep"],
    ["list", "--json", "--since", "1h"],
    ["list", "--json", "--since", "2020-01-01"],
    ["list", "--json", "--queue", "other"],
    ["list", "--json", "--queue", "emails", "--limit", "2"],
    ["list", "--json", "--queue", "emails", "--limit", "2", "--cursor", "0:9999999999999:4"],
]


@asynccontextmanager
async def a_job_in_every_state(path: Path) -> AsyncIterator[None]:
    queue = Queue("emails", path)
    await have_run(queue, "completed", "failed", "dead", tags=["early"])
    held = await queue.add("shell", {"argv": ["sleep", "9 s"]})
    async with Worker(queue) as worker:
        assert await worker.get_next_job("mine") is not None
        await queue.add("mail", {"to": "ä\x1b[31m"}, priority=5)
        await queue.add("mail", ["a", 1, None], tags=["early", "urgent"])
        await queue.add("mail", None, **LATER)
        await queue.add("mail", None, depends_on=[held.id])
        cancelled = await queue.add("mail", None, **LATER)
        await queue.cancel(cancelled.id, "not wanted")
        await (await queue.add("mail", None)).remove()
        await Queue("other", queue.store).add("mail", None, job_id="mine")
        yield
    await queue.close()


async def test_jobs_in_every_state_are_listed_the_same(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with a_job_in_every_state(path):
        for arguments in LOOKS:
            with case(arguments):
                light, full = both(*arguments, db=str(path))
                assert light == full
                assert light.code == 0
        listed = run_well("list", "--json", db=str(path)).json["jobs"]
        assert {job["state"] for job in listed} == {*SHOWN_STATES}


@pytest.mark.parametrize(
    "words",
    [
        ["--queue", "nope"],
        ["--state", "nope"],
        ["--cursor", "nope", "--queue", "default"],
        ["--since", "nope"],
    ],
)
def test_what_cannot_be_looked_for_is_told_the_same(tmp_path: Path, words: list[str]) -> None:
    db = str(tmp_path / "jobs.db")
    run_well("enqueue", "x", db=db)
    light, full = both("list", *words, db=db)
    assert light == full
    assert light.code != 0


# --- databases that need an engine, or that none can open ---


@pytest.mark.parametrize("frozen", sorted(FIXTURES.glob("schema-*.db")), ids=lambda path: path.stem)
def test_an_older_schema_is_brought_up_to_date_and_listed(tmp_path: Path, frozen: Path) -> None:
    light, full = tmp_path / "light.db", tmp_path / "full.db"
    for path in (light, full):
        shutil.copyfile(frozen, path)
    listed = run_well("list", "--json", db=str(light)).json
    assert listed["jobs"]
    with with_an_engine():
        assert run_well("list", "--json", db=str(full)).json == listed
    with without_an_engine():
        assert run_well("list", "--json", db=str(light)).json == listed


@contextmanager
def notes(path: Path) -> Iterator[None]:
    path.write_text("these are my notes\n" * 1000)
    yield


@contextmanager
def foreign_tables(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table bullite_recipes (name)")
    yield


@contextmanager
def a_newer_schema(path: Path) -> Iterator[None]:
    run_well("enqueue", "x", db=str(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("update bullite_meta set value = '999' where key = 'schema'")
    yield


@contextmanager
def an_old_sqlite(path: Path) -> Iterator[None]:
    run_well("enqueue", "x", db=str(path))
    with patch.object(connections, "OLDEST_SQLITE", (99, 0, 0)):
        yield


@contextmanager
def a_network_file_system(path: Path) -> Iterator[None]:
    run_well("enqueue", "x", db=str(path))
    with patch.object(files, "_mounts", lambda: ROOT + mount(path.parent, "nfs4")):
        yield


@contextmanager
def somebody_who_keeps_it_to_himself(path: Path) -> Iterator[None]:
    run_well("enqueue", "x", db=str(path))
    with ExitStack() as stack:
        stack.enter_context(patch.object(connections, "BUSY_TIMEOUT", 0.1))
        stranger = stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
        stranger.execute("pragma locking_mode = exclusive")
        stranger.execute("begin exclusive")
        yield


@contextmanager
def nothing_at_all(path: Path) -> Iterator[None]:
    yield


@contextmanager
def a_folder(path: Path) -> Iterator[None]:
    os.mkdir(path)
    yield


@pytest.mark.parametrize(
    "trouble",
    [
        *(notes, foreign_tables, a_newer_schema, an_old_sqlite, a_network_file_system),
        *(somebody_who_keeps_it_to_himself, nothing_at_all, a_folder),
    ],
)
def test_what_is_wrong_with_a_database_is_told_the_same(
    tmp_path: Path, trouble: Callable[[Path], AbstractContextManager[None]]
) -> None:
    path = tmp_path / "jobs.db"
    with trouble(path):
        light = run("list", "--json", db=str(path))
        with with_an_engine():
            full = run("list", "--json", db=str(path))
    assert light == full
    assert light.code == 1
    assert len(light.err.splitlines()) == 1
