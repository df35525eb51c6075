"""`verify` notices what is wrong with kept numbers and with indexes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.test_verifying import leave_jobs
from tests.support.processes import Child, problems, write


@pytest.fixture
def jobs_in(database: Path, start: Callable[..., Child]) -> Path:
    """A database with some jobs, which no process uses any more."""
    leave_jobs(database, start)
    return database


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (
            "update bullite_queues set active = active + 1",
            "queue work: active is kept as 2 but counts 1",
        ),
        (
            "update bullite_queues set completed = 0",
            "queue work: completed is kept as 0 but counts 1",
        ),
        (
            "update bullite_sequence set last = 2",
            "job 3 has a number that was not handed out yet",
        ),
    ],
)
def test_damage_is_named(jobs_in: Path, damage: str, problem: str) -> None:
    write(jobs_in, damage)
    assert problem in problems(jobs_in)


def test_an_index_entry_that_is_missing_is_named(jobs_in: Path) -> None:
    connection = sqlite3.connect(jobs_in)
    connection.executescript(
        """
        pragma writable_schema = on;
        update sqlite_master set sql = replace(sql, 'state = ''completed''', 'state = ''failed''')
            where name = 'bullite_jobs_completed';
        """
    )
    connection.commit()
    connection.close()
    assert any("bullite_jobs_completed" in problem for problem in problems(jobs_in))
