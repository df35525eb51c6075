"""The default database, ./bullite.db, when it belongs to another user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.program import program, run_well

STRANGER = 54_321


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of ours with a ./bullite.db of another user, in which a command waits."""
    monkeypatch.delenv("BULLITE_URL", raising=False)
    database = tmp_path / "bullite.db"
    run_well("enqueue", f"touch {tmp_path}/ran", db=str(database))
    os.chown(database, STRANGER, STRANGER)
    return tmp_path


@pytest.mark.parametrize("verb", ["worker start", "worker start --daemon", "scheduler"])
def test_a_default_database_of_another_user_is_refused(theirs: Path, verb: str) -> None:
    said = program(*verb.split(), cwd=theirs)

    assert said.code == 1
    assert f"{theirs}/bullite.db is the default database" in said.err
    assert f"it belongs to user {STRANGER}" in said.err
    assert "--db ./bullite.db" in said.err
    assert not (theirs / "ran").exists()


@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
def test_a_log_of_another_user_beside_the_default_database_is_refused(
    theirs: Path, suffix: str
) -> None:
    os.chown(theirs / "bullite.db", 0, 0)
    log = theirs / f"bullite.db{suffix}"
    log.touch()
    os.chown(log, STRANGER, STRANGER)

    said = program("worker", "start", cwd=theirs)

    assert said.code == 1
    assert str(log) in said.err


def test_a_link_of_another_user_to_the_default_database_is_refused(tmp_path: Path, theirs) -> None:
    (theirs / "bullite.db").rename(theirs / "other.db")
    os.chown(theirs / "other.db", 0, 0)
    (theirs / "bullite.db").symlink_to("other.db")
    os.chown(theirs / "bullite.db", STRANGER, STRANGER, follow_symlinks=False)

    said = program("worker", "start", cwd=theirs)

    assert said.code == 1
    assert f"it is a symbolic link of user {STRANGER}" in said.err


def test_a_default_database_that_every_user_can_write_is_refused(theirs: Path) -> None:
    os.chown(theirs / "bullite.db", 0, 0)
    os.chmod(theirs / "bullite.db", 0o666)

    said = program("worker", "start", cwd=theirs)

    assert said.code == 1
    assert "other users can write it" in said.err


def test_verbs_that_run_nothing_warn_of_a_default_database_of_another_user(theirs: Path) -> None:
    said = program("list", cwd=theirs)

    assert said.code == 0
    assert "touch" in said.out
    assert said.err.count("is the default database") == 1


def test_a_database_of_another_user_that_is_named_is_used_without_a_warning(theirs: Path) -> None:
    said = program("list", "--db", "./bullite.db", cwd=theirs)

    assert said.code == 0
    assert said.err == ""
