"""Files that are not ours, or not ours to understand: refused by name and left as they are."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from bullite import Store
from bullite.errors import StoreError
from tests.support.processes import add, problems, rows, say, states, write
from tests.support.slow_machine import but_for_slowness


def open_store(database: str) -> None:
    """Say what comes of opening a database, in a process that does nothing else."""
    store = Store(database)
    try:
        store.open()
    except StoreError as error:
        say(f"{type(error).__name__}: {error}")
    else:
        store.close()
        say("opened")


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def make(database: Path, *statements: str) -> None:
    for statement in statements:
        write(database, statement)


def assert_refused(start, database: Path, error: str) -> str:
    """Opening it fails with this error, which names the file, and changes no byte of it."""
    before = digest(database)
    answer = start(open_store, database).line()
    assert answer.startswith(f"{error}: ")
    assert str(database) in answer
    assert digest(database) == before
    assert not database.with_name("jobs.db-wal").exists()
    assert not database.with_name("jobs.db-journal").exists()
    return answer


def test_a_file_of_random_bytes_is_refused_and_left_as_it_is(database, start):
    database.write_bytes(random.Random(1).randbytes(20_000))

    assert_refused(start, database, "NotABulliteDatabase")


def test_a_text_file_is_refused_and_left_as_it_is(database, start):
    database.write_text("dear diary,\n" * 500)

    assert_refused(start, database, "NotABulliteDatabase")


def test_a_short_text_file_is_refused_and_left_as_it_is(database, start):
    database.write_text("dear diary,\n")

    assert_refused(start, database, "NotABulliteDatabase")


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_a_truncated_database_is_refused_and_left_as_it_is(database, start, kept):
    add(database, *["job"] * 50)
    whole = database.read_bytes()
    database.write_bytes(whole[: int(len(whole) * kept)])

    assert_refused(start, database, "NotABulliteDatabase")


def test_a_table_of_our_name_that_is_not_ours_is_refused_and_left_as_it_is(database, start):
    make(database, "create table bullite_jobs (mine text)", "insert into bullite_jobs values (1)")

    answer = assert_refused(start, database, "NotABulliteDatabase")

    assert "bullite_jobs" in answer
    assert rows(database, "pragma journal_mode") == [("delete",)]


def test_a_newer_schema_is_refused_and_left_as_it_is(database, start):
    add(database, "job")
    make(database, "update bullite_meta set value = '999' where key = 'schema'")

    answer = assert_refused(start, database, "SchemaTooNew")

    assert "schema 999" in answer
    assert "upgrade" in answer


def test_tables_of_others_live_on_beside_ours(database, start):
    make(
        database,
        "create table accounts (name text, balance integer)",
        "insert into accounts values ('ada', 3)",
        "create index by_name on accounts (name)",
        "pragma user_version = 42",
        "pragma application_id = 7",
    )

    [job] = add(database, "job")
    make(database, "update accounts set balance = balance + 1")

    assert rows(database, "select * from accounts") == [("ada", 4)]
    assert rows(database, "pragma user_version") == [(42,)]
    assert rows(database, "pragma application_id") == [(7,)]
    assert states(database) == {job: "waiting"}
    assert problems(database) == ()


def test_an_empty_file_becomes_a_database(database, start):
    database.touch()

    assert start(open_store, database).line() == "opened"


def test_a_file_in_rollback_mode_is_switched_to_wal_and_the_log_says_so(database, caplog):
    make(database, "create table accounts (name text)")
    assert rows(database, "pragma journal_mode") == [("delete",)]

    with caplog.at_level("INFO", "bullite.sqlite"):
        add(database, "job")

    assert rows(database, "pragma journal_mode") == [("wal",)]
    assert but_for_slowness(caplog.messages) == [f"{database} was switched to WAL mode"]


def test_a_new_file_and_a_file_in_wal_mode_are_opened_without_a_word(database, caplog):
    with caplog.at_level("INFO", "bullite.sqlite"):
        add(database, "job")
        add(database, "job")

    assert but_for_slowness(caplog.messages) == []
