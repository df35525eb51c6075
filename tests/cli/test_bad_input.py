"""What cannot be done is told in one line, whatever the verb, and changes nothing."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from bullite.database.sqlite import connections
from bullite.database.sqlite.write_lock import FairWriteLock
from tests.cli.program import Said, program, run, run_well
from tests.support.databases import PATIENCE, Database


def complaint(said: Said, code: int) -> str:
    """What the program complains of, in one line."""
    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("queuectl: ")
    assert said.err.count("\n") == 1
    assert "unexpected" not in said.err
    assert "Traceback" not in said.err
    return said.err.removeprefix("queuectl: ").rstrip("\n")


@pytest.fixture
def some_job(location: str) -> str:
    return run_well("enqueue", "x", db=location).out.strip()


# --- what was typed ---


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("enqeue", "enqueue"), ("lst", "list"), ("statsu", "status"), ("workers", "worker")],
)
def test_of_an_unknown_verb_the_nearest_is_told(typed: str, meant: str) -> None:
    problem = complaint(run(typed), 2)
    assert f"No such command '{typed}'" in problem
    assert meant in problem.partition("did you mean")[2]


def test_of_a_verb_that_is_near_to_none_the_help_is_told() -> None:
    assert complaint(run("xyzzy"), 2).endswith("see queuectl --help")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("list --state nope", "unknown state 'nope'; the states are: pending"),
        ("list --since yesterday", "--since must be"),
        ("list --limit 0", "'--limit'"),
        ("list --limit many", "'--limit'"),
        ("list --cursor nonsense", "cursor"),
        ("list --colour", "--colour"),
        ("cleanup --older-than soon --yes", "--older-than must be a time"),
        ("cleanup --yes", "--older-than"),
        ("retry", "name jobs by their ids"),
        ("show", "Missing argument 'JOB'"),
        ("wait JOB --timeout never", "--timeout must be a time"),
        ("retry JOB --delay soon", "--delay must be a time"),
        ("schedule add x --cron nonsense", "nonsense"),
        ("schedule add x --every soon", "--every must be a time"),
        ("schedule add x", "--cron"),
        ("config set nope 5", "unknown configuration key 'nope'"),
        ("config set max_retries many", "max_retries must be a whole number"),
        ("worker start --count 0", "'--count'"),
        ("worker start --timeout soon", "--timeout must be a time"),
        ("completion tcsh", "tcsh"),
        ("worker dance", "No such command 'dance'"),
    ],
)
def test_bad_arguments_change_nothing(database: Database, arguments: str, problem: str) -> None:
    job_id = run_well("enqueue", "x", db=database.location).out.strip()
    before = {table: database.rows(table) for table in database.tables}
    words = [job_id if word == "JOB" else word for word in arguments.split()]
    assert problem in complaint(run(*words, db=database.location), 2)
    assert {table: database.rows(table) for table in database.tables} == before


@pytest.mark.parametrize(
    "verb",
    [
        *("show", "output", "logs", "why", "wait", "cancel", "retry", "promote", "remove --yes"),
        *("restore", "dlq show", "dlq retry"),
    ],
)
def test_a_job_that_is_not_there_is_told_of(location: str, some_job: str, verb: str) -> None:
    for job_id in ("12345", "nope"):
        said = run(*verb.split(), job_id, db=location)
        assert f"no job {job_id}" in complaint(said, 1)


@pytest.mark.parametrize("job_id", ["9" * 30, "-1x", "../../etc/passwd", "a" * 300, "'; drop"])
def test_a_strange_id_is_only_an_id(location: str, some_job: str, job_id: str) -> None:
    said = run("show", "--", job_id, db=location)
    assert said.code in (1, 2)
    complaint(said, said.code)


@pytest.mark.parametrize(
    "verb", ["show", "output", "logs", "why", "wait", "cancel", "promote", "remove --yes"]
)
def test_an_id_of_several_queues_needs_the_queue(location: str, verb: str) -> None:
    for queue in ("one", "two"):
        run_well("enqueue", "x", "--queue", queue, "--id", "same", db=location)
    said = run(*verb.split(), "same", db=location)
    problem = complaint(said, 2)
    assert "job same is in several queues (one, two): say which with --queue" in problem
    assert run_well("show", "same", "--queue", "two", "--json", db=location).json["queue"] == "two"


@pytest.mark.parametrize(
    "verb", ["list --queue nope", "pause nope", "drain nope --yes", "queues show nope"]
)
def test_a_queue_that_is_not_there_is_told_of(location: str, some_job: str, verb: str) -> None:
    problem = complaint(run(*verb.split(), db=location), 1)
    assert "there is no queue 'nope'" in problem
    assert "default" in problem


# --- the database ---

LOOKING = [
    *("list", "status", "show 1", "output 1", "logs 1", "why 1", "wait 1", "events", "stats"),
    *("metrics", "doctor", "verify", "cancel 1", "retry 1", "promote 1", "pause", "resume"),
    *("remove 1 --yes", "restore 1", "cleanup --older-than 1d --yes", "drain --yes", "dlq list"),
    *("queues list", "schedule list", "worker status", "worker stop", "worker restart"),
    *("template list", "queues show default"),
]


@pytest.mark.parametrize("verb", LOOKING)
def test_where_there_is_no_database_none_is_made(tmp_path: Path, verb: str) -> None:
    said = run(*verb.split(), db=str(tmp_path / "jobs.db"))
    problem = complaint(said, 1)
    assert f"there is no database {tmp_path / 'jobs.db'}" in problem
    assert "queuectl enqueue" in problem
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["list", "enqueue x", "verify", "status"])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, verb: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes\n" * 1000)
    before = path.read_bytes()
    problem = complaint(run(*verb.split(), db=str(path)), 1)
    assert "notes.txt" in problem
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", [".", "missing/jobs.db", "file/jobs.db"])
def test_a_place_where_no_database_can_be_is_told_of(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    problem = complaint(run("enqueue", "x", db=str(tmp_path / name)), 1)
    assert str(tmp_path) in problem


@pytest.mark.parametrize(
    "url", ["mysql://x/y", "sqlite://jobs.db", "postgresql://x/y?nope=1", ":memory:", "\x00"]
)
def test_a_location_that_means_nothing_is_refused(url: str) -> None:
    complaint(run("list", "--db", url), 2)


def test_a_password_is_not_told() -> None:
    said = run("list", "--db", "postgresql://u:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in complaint(said, 1)


def test_without_a_server_it_ends_soon(tmp_path: Path) -> None:
    began = time.monotonic()
    for url in ("postgresql://u@127.0.0.1:1/x", f"postgresql://u@/x?host={tmp_path}"):
        for verb in ("list", "enqueue x"):
            complaint(run(*verb.split(), db=url), 1)
    assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize("verb", ["enqueue x", "cancel JOB", "pause", "config set max_retries 5"])
def test_a_lock_is_not_waited_for_for_ever(
    database: Database, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    job_id = run_well("enqueue", "x", db=database.location).out.strip()
    database.give_up_on_locks(0.3, monkeypatch)
    words = [job_id if word == "JOB" else word for word in verb.split()]
    with database.locked():
        began = time.monotonic()
        complaint(run(*words, db=database.location), 1)
        assert time.monotonic() - began < PATIENCE


def test_the_gate_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = str(tmp_path / "jobs.db")
    run_well("enqueue", "x", db=location)
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 0.3)
    # A lock belongs to an opening of the file: for the program this is another process.
    gate = FairWriteLock(tmp_path / "jobs.db.bullite" / "gate")
    assert gate.enter(timeout=5)
    try:
        began = time.monotonic()
        complaint(run("enqueue", "x", db=location), 1)
        assert time.monotonic() - began < PATIENCE
    finally:
        gate.leave()
        gate.close()
    assert len(run_well("list", "--json", db=location).json["jobs"]) == 1


@pytest.mark.parametrize("verb", ["list", "enqueue x"])
def test_a_newer_schema_is_told_of_and_left_as_it_is(tmp_path: Path, verb: str) -> None:
    path = tmp_path / "jobs.db"
    run_well("enqueue", "x", db=str(path))
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("update bullite_meta set value = '999' where key = 'schema'")
    assert "schema 999" in complaint(run(*verb.split(), db=str(path)), 1)
    assert connection.execute("select count(*) from bullite_jobs").fetchone() == (1,)
    connection.close()


def test_a_bad_settings_file_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "bullite.toml").write_text("url = 5\n")
    said = program("list", cwd=tmp_path)
    assert "bullite.toml" in complaint(said, 2)


def test_the_database_is_found_in_a_settings_file(tmp_path: Path) -> None:
    (tmp_path / "bullite.toml").write_text('url = "mine.db"\n')
    (tmp_path / "below").mkdir()
    assert program("enqueue", "x", cwd=tmp_path / "below").out == "1\n"
    assert (tmp_path / "mine.db").exists()


def test_what_nobody_thought_of_is_one_line_too(
    location: str, some_job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("bullite.cli.session.Session.views", break_down)
    said = run("list", db=location)
    assert said.code == 1
    assert said.err.startswith("queuectl: unexpected ZeroDivisionError: a bug (set QUEUECTL_")
    monkeypatch.setenv("QUEUECTL_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        run("list", db=location)
