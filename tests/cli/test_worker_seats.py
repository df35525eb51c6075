"""Who runs a group of workers: its row in the database, and where its lock is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullite.cli.console import Console
from bullite.cli.session import Session
from bullite.cli.worker_groups import GROUPS, STALE_AFTER, DatabaseGroupRegistry, lock_of
from bullite.client.key_values import get_value, set_value
from bullite.processes.group_lock import entry_of_this_process
from bullite.processes.process_info import start_time
from tests.cli.program import run, run_well
from tests.cli.worker_groups import crews, forget, is_gone
from tests.support.databases import Database

SERVER = "postgresql://somebody@nowhere.invalid/jobs"


@pytest.fixture
def session(database: Database, location: str) -> Iterator[Session]:
    run_well("enqueue", "true", db=location)
    session = Session(location, Console(as_json=False))
    yield session
    session.close()
    forget(database)


@pytest.fixture
def neighbour() -> Iterator[subprocess.Popen[bytes]]:
    """A process that could be the supervisor of another user."""
    with subprocess.Popen(["sleep", "90"]) as process:
        yield process
        process.kill()


def run_by(pid: int, **changes: Any) -> dict[str, Any]:
    return {**entry_of_this_process("day"), "pid": pid, "began": start_time(pid), **changes}


def row(session: Session) -> Any:
    return session.wait(get_value(session.store(), GROUPS, "day"))


def write(session: Session, entry: dict[str, Any] | None) -> None:
    session.wait(set_value(session.store(), GROUPS, "day", entry))


# --- whose a row is ------------------------------------------------------------------------------


def test_worker_group_of_a_live_process_on_this_machine_is_not_taken_over(
    session: Session, neighbour: subprocess.Popen[bytes]
) -> None:
    theirs = run_by(neighbour.pid, updated_at=0)
    write(session, theirs)
    assert DatabaseGroupRegistry(session, "day").take(run_by(os.getpid())) == theirs
    assert row(session) == theirs
    neighbour.kill()
    neighbour.wait()
    assert DatabaseGroupRegistry(session, "day").take(run_by(os.getpid())) is None
    assert row(session)["pid"] == os.getpid()


@pytest.mark.parametrize("changes", [{"began": 1}, {"boot_id": "an earlier one"}])
def test_a_number_that_is_another_processs_now_keeps_nobody_from_a_group(
    session: Session, neighbour: subprocess.Popen[bytes], changes: dict[str, Any]
) -> None:
    write(session, run_by(neighbour.pid, updated_at=session.now(), **changes))
    assert DatabaseGroupRegistry(session, "day").take(run_by(os.getpid())) is None


def test_a_group_of_another_machine_is_taken_when_it_was_silent_for_long(session: Session) -> None:
    theirs = run_by(os.getpid(), host="elsewhere", updated_at=session.now())
    write(session, theirs)
    assert DatabaseGroupRegistry(session, "day").take(run_by(os.getpid())) == theirs
    write(session, {**theirs, "updated_at": session.now() - STALE_AFTER - 1})
    assert DatabaseGroupRegistry(session, "day").take(run_by(os.getpid())) is None


def test_who_was_cut_off_neither_overwrites_nor_deletes_who_took_over(session: Session) -> None:
    ours, theirs = DatabaseGroupRegistry(session, "day"), DatabaseGroupRegistry(session, "day")
    assert ours.take(run_by(os.getpid(), host="elsewhere")) is None
    write(session, {**row(session), "updated_at": 0})
    assert theirs.take(run_by(os.getpid())) is None
    taken = row(session)
    assert ours.update(run_by(os.getpid(), host="elsewhere")) == taken
    ours.leave()
    assert row(session) == taken
    assert theirs.update(run_by(os.getpid(), state="running")) is None
    assert row(session)["state"] == "running"
    theirs.leave()
    assert row(session) is None


def test_a_row_that_somebody_deleted_is_written_again(session: Session) -> None:
    seat = DatabaseGroupRegistry(session, "day")
    assert seat.take(run_by(os.getpid())) is None
    write(session, None)
    assert seat.update(run_by(os.getpid())) is None
    assert row(session)["pid"] == os.getpid()


def test_workers_end_when_another_supervisor_has_taken_their_group(
    session: Session, location: str, tmp_path: Path
) -> None:
    with crews(location, tmp_path) as start:
        crew = start("--group", "day")
        [pid] = crew.pids()
        theirs = {**row(session), "sign": "another", "host": "elsewhere", "pid": 7}
        write(session, theirs)
        assert crew.until("lost") == [{"event": "lost", "pid": 7, "host": "elsewhere"}]
        assert crew.code() == 1
        assert is_gone(pid)
    assert row(session) == theirs


def test_workers_of_another_user_are_not_said_to_be_none(
    session: Session, location: str, neighbour: subprocess.Popen[bytes]
) -> None:
    write(session, run_by(neighbour.pid, updated_at=session.now()))
    said = run("worker", "stop", "--group", "day", db=location)
    assert (said.code, said.out) == (1, "")
    [line] = said.err.splitlines()
    assert f"are run by process {neighbour.pid}, which was started by another user" in line
    assert neighbour.poll() is None


# --- where the lock is ---------------------------------------------------------------------------


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A user with nothing but a folder for temporary files."""
    pytest.importorskip("psycopg")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def folder_of_locks() -> Path:
    return lock_of(Session(SERVER, Console(as_json=False)), "day").path.parent


def test_the_lock_of_a_group_on_a_server_is_in_the_users_home(
    surroundings: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "run").mkdir()
    surroundings.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))  # which a service does not have
    assert folder_of_locks() == tmp_path / "home/.local/state/bullite"
    surroundings.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert folder_of_locks() == tmp_path / "state/bullite"


def test_without_a_home_it_is_in_a_folder_that_the_login_made_or_a_temporary_one(
    surroundings: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    temporary = tmp_path / f"tmp/bullite-{os.getuid()}"
    surroundings.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    assert folder_of_locks() == temporary
    (tmp_path / "run").mkdir()
    assert folder_of_locks() == tmp_path / "run/bullite"
    user = os.geteuid()
    surroundings.setattr(os, "geteuid", lambda: user + 1)
    assert folder_of_locks() == temporary


def test_a_temporary_folder_that_is_no_folder_of_ours_is_refused(
    surroundings: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / f"tmp/bullite-{os.getuid()}").symlink_to(tmp_path / "theirs")
    for verb in ("start", "stop", "restart"):
        said = run("worker", verb, "--db", SERVER)
        assert (said.code, said.out) == (1, "")
        [line] = said.err.splitlines()
        assert "is not a folder of this user: have it removed, or set XDG_STATE_HOME" in line
    assert not list((tmp_path / "theirs").iterdir())
