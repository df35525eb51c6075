"""`verify` notices every promise that the tables do not keep."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.handlers import work
from tests.support.databases import Database
from tests.support.processes import Child, Location, add, problems, states, wait_until


def leave_jobs(location: Location, start: Callable[..., Child]) -> None:
    """A completed job (1), an active one (2) and a delayed one (3), as a kill leaves them."""
    add(location, "quick", job_id="quick")
    add(location, "hold")
    add(location, "later", delay="1h")
    worker = start(work, location, concurrency=2)
    left = {1: "completed", 2: "active", 3: "delayed"}
    wait_until(lambda: states(location) == left)
    worker.kill()


@pytest.fixture
def jobs_in(database: Database, start: Callable[..., Child]) -> Database:
    leave_jobs(database.location, start)
    return database


def test_a_good_store_has_no_problems(jobs_in: Database) -> None:
    assert problems(jobs_in.location) == ()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("delete from bullite_workers", "job 2 is active without a worker"),
        (
            "update bullite_jobs set lease_until = null where state = 'active'",
            "job 2 is active without a lease",
        ),
        (
            "update bullite_jobs set token = null where state = 'active'",
            "job 2 is active without a token",
        ),
        (
            "update bullite_jobs set nonce = nonce + 1 where state = 'active'",
            "job 2 is held with a token that is not its worker's",
        ),
    ],
)
def test_damage_to_a_held_job_is_named(jobs_in: Database, damage: str, problem: str) -> None:
    jobs_in.write(damage)
    assert problem in problems(jobs_in.location)


ELSEWHERE = [
    ("delete from bullite_payloads where job = 1", "job 1 has no payload"),
    (
        "insert into bullite_payloads (job, data, opts) values (99, '1', null)",
        "payload of job 99, which does not exist",
    ),
    (
        "insert into bullite_results (job) values (99)",
        "result of job 99, which does not exist",
    ),
    (
        "insert into bullite_attempts (job, number, ended_at, outcome) values (99, 1, 1, '')",
        "attempt of job 99, which does not exist",
    ),
    (
        "insert into bullite_logs (job, number, at, level, message) "
        "values (99, 1, 1, 'info', 'a line')",
        "log of job 99, which does not exist",
    ),
    (
        "insert into bullite_tags (queue, tag, created_at, job) values (1, 'x', 1, 99)",
        "tag of job 99, which does not exist",
    ),
    (
        "insert into bullite_tags (queue, tag, created_at, job) values (77, 'x', 1, 3)",
        "tag of job 3, which is in another queue",
    ),
    (
        "insert into bullite_tags (queue, tag, created_at, job) values (1, 'x', 1, 1)",
        "job 1 has tags and does not know of it",
    ),
    (
        "insert into bullite_runs (job, run, began_at) values (99, 1, 1)",
        "run of job 99, which does not exist",
    ),
    (
        "insert into bullite_output (job, run, number, stream, data) "
        "values (99, 1, 1, 'stdout', '')",
        "output of job 99, which does not exist",
    ),
    (
        "insert into bullite_runs (job, run, began_at) values (1, 1, 1)",
        "job 1 has run a command and does not know of it",
    ),
    (
        "update bullite_jobs set ahead = 1 where state = 'delayed'",
        "job 3 is delayed and yet held ahead",
    ),
    (
        "update bullite_jobs set due_at = null where state = 'delayed'",
        "job 3 is delayed without a due time",
    ),
    (
        "update bullite_jobs set finished_at = null where state = 'completed'",
        "job 1 is completed without a finish time",
    ),
]
"""None of them hides another."""


def test_damage_is_named(jobs_in: Database) -> None:
    for damage, _ in ELSEWHERE:
        jobs_in.write(damage)
    named = problems(jobs_in.location)
    assert [problem for _, problem in ELSEWHERE if problem not in named] == []


KEYS = [
    ("a", 1, "null", "null", "deduplication key a is taken by job 1, which has ended"),
    ("b", 99, "null", "'{}'", "deduplication key b is taken by job 99, which has ended"),
    ("c", 3, "null", "null", "deduplication key c is taken by job 3, which has none"),
    ("d", 3, "7", "'{}'", "deduplication key d keeps a job behind a window"),
]


def test_a_key_that_nobody_can_hold_is_named(jobs_in: Database) -> None:
    for key, job, until, next, _ in KEYS:
        jobs_in.write(
            "insert into bullite_deduplication (queue, key, job, until, next) "
            f"select id, '{key}', {job}, {until}, {next} from bullite_queues"
        )
    named = problems(jobs_in.location)
    assert [problem for *_, problem in KEYS if problem not in named] == []


def test_a_key_of_no_queue_is_named(jobs_in: Database) -> None:
    jobs_in.write("insert into bullite_deduplication (queue, key, job) values (77, 'x', 3)")
    assert "deduplication key x belongs to queue 77, which does not exist" in problems(
        jobs_in.location
    )


def test_a_job_of_no_queue_is_named(jobs_in: Database) -> None:
    [queue] = [row["id"] for row in jobs_in.rows("queues")]
    jobs_in.write("delete from bullite_queues")
    assert f"job 1 belongs to queue {queue}, which does not exist" in problems(jobs_in.location)


def test_two_jobs_of_one_custom_id_are_named(jobs_in: Database) -> None:
    jobs_in.write("drop index bullite_jobs_custom_id")
    jobs_in.write("update bullite_jobs set custom_id = 'quick'")
    assert "custom id quick stands for 3 jobs of one queue" in problems(jobs_in.location)
