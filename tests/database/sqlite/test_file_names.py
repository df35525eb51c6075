"""Which file a queue lives in, whatever path leads there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullite import Job, Queue, Worker
from tests.client.test_bad_input import ODD_NAMES
from tests.support.helpers import again
from tests.support.processes import problems


@pytest.fixture(autouse=True)
def _books(database: Path) -> Iterator[None]:
    """Whatever a test did, they must be right."""
    yield
    if database.exists():
        assert problems(database) == ()


async def test_a_path_and_a_url_of_one_file_share_one_engine(database: Path) -> None:
    async with Queue("a", database) as first, Queue("b", f"sqlite:///{database}") as second:
        assert first.store.open() is second.store.open()


async def test_a_symlink_leads_to_the_same_engine(database: Path) -> None:
    async with Queue("a", database) as first:
        link = database.with_name("link.db")
        os.symlink(database, link)
        async with Queue("a", link) as second:
            assert first.store.open() is second.store.open()


async def test_without_a_name_the_default_database_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BULLITE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    async with Queue("emails") as queue:
        await queue.add("a")
    assert (tmp_path / "bullite.db").exists()


async def test_a_closed_queue_has_let_go_of_its_file(tmp_path: Path) -> None:
    """Close moves the WAL into the database file, so a copy of that file is complete."""
    for number in range(20):
        path = tmp_path / f"{number}.db"
        async with Queue("emails", path) as queue:
            await again(queue, await queue.add("a"))
        left = [name for name in os.listdir(tmp_path) if name.startswith(f"{number}.db-")]
        assert left == []


@pytest.mark.parametrize("odd", ODD_NAMES)
async def test_odd_names_and_ids_lead_to_no_other_file(database: Path, odd: str) -> None:
    async def work(job: Job) -> None: ...

    async with Queue(odd, database) as queue, Worker(queue, {odd: work}, name=odd):
        await (await queue.add(odd, job_id=odd, tags=[odd])).result(timeout="10s")
        files = {file.name for file in database.parent.iterdir()}
    assert files == {"jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db.bullite"}
