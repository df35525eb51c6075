"""`queuectl worker stop` and `restart`: workers that end, and that are replaced."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bullite.cli.console import Console
from bullite.cli.session import Session
from bullite.cli.worker_groups import lock_of
from bullite.processes.group_lock import GroupLock, entry_of_this_process
from tests.cli.program import Said, command, environment, program, run, run_well
from tests.cli.worker_groups import Start, crews, enqueue, forget, is_gone, show, until_state
from tests.commands.test_runner import sleepers
from tests.support.databases import PATIENCE, Database
from tests.support.processes import wait_until

_numbers = itertools.count(1)

STRANGER = 54_321

HOLD = "touch begun{n}; until test -e go{n}; do sleep 0.02; done"


@pytest.fixture
def start(database: Database, location: str, tmp_path: Path) -> Iterator[Start]:
    with crews(location, tmp_path) as start:
        yield start
    forget(database)


@pytest.fixture
def mark() -> Iterator[str]:
    """Seconds to sleep that nobody else sleeps; who still does in the end is killed."""
    number = f"304.{os.getpid()}{next(_numbers):03}"
    yield number
    for pid in sleepers(number):
        os.kill(pid, signal.SIGKILL)


def one_line(said: Said, code: int = 1) -> str:
    assert (said.code, said.out) == (code, ""), said
    [line] = said.err.splitlines()
    return line


# --- stop ----------------------------------------------------------------------------------------


def test_workers_that_are_stopped_are_gone(location: str, start: Start) -> None:
    crew = start("--count", 2)
    pids = crew.pids(2)
    said = run_well("worker", "stop", "--json", db=location)
    assert said.json == {"group": "default", "stopped": True}
    assert crew.code() == 0
    assert all(is_gone(pid) for pid in pids)


def test_stopping_waits_for_running_jobs(
    database: Database, location: str, start: Start, tmp_path: Path
) -> None:
    job = enqueue(location, HOLD.format(n=1))
    crew = start()
    wait_until((tmp_path / "begun1").exists)
    stopping = subprocess.Popen(
        command("worker", "stop"),
        env=environment(location),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    crew.until("draining")
    assert stopping.poll() is None
    (tmp_path / "go1").touch()
    out, _ = stopping.communicate(timeout=30)
    assert (stopping.returncode, out) == (0, b"workers of the group 'default' have ended\n")
    assert crew.code() == 0
    assert show(database, job) == ("completed", 1, 1)


def test_jobs_that_take_too_long_are_not_stopped_unless_forced(
    database: Database, location: str, start: Start, mark: str
) -> None:
    job = enqueue(location, f"trap '' TERM; sleep {mark} & sleep {mark}")
    crew = start()
    wait_until(lambda: len(sleepers(mark)) == 2)

    line = one_line(run("worker", "stop", "--timeout", "200ms", db=location))
    assert line.startswith("queuectl: workers of the group 'default' still run jobs after 0.2 s")
    assert "--force" in line
    assert len(sleepers(mark)) == 2
    assert run("worker", "stop", "--timeout", "200ms", db=location).code == 1
    assert len(sleepers(mark)) == 2
    assert crew.told("stopping") == []

    run_well("worker", "stop", "--timeout", "0", "--force", db=location)
    assert crew.code() == 0
    assert sleepers(mark) == []
    state, made, _ = show(database, job)
    assert (state, made) == ("waiting", 0)


def test_stopping_by_force_without_patience_waits_for_no_job(
    database: Database, location: str, start: Start, mark: str
) -> None:
    job = enqueue(location, f"sleep {mark}")
    crew = start()
    wait_until(lambda: bool(sleepers(mark)))
    run_well("worker", "stop", "--timeout", "0", "--force", db=location)
    assert crew.code() == 0
    assert len(crew.told("stopping")) == 1
    assert show(database, job)[0] == "waiting"


def test_only_the_group_that_is_named_is_stopped(location: str, start: Start) -> None:
    day, night = start("--group", "day"), start("--group", "night")
    day.pids()
    night.pids()
    run_well("worker", "stop", "--group", "night", db=location)
    assert night.code() == 0
    assert day.process.poll() is None


@pytest.mark.parametrize("verb", ["stop", "restart"])
def test_where_nobody_works_nobody_is_stopped(location: str, verb: str) -> None:
    run_well("enqueue", "true", db=location)
    line = one_line(run("worker", verb, db=location))
    assert line == "queuectl: no workers of the group 'default' are running"


def test_a_time_that_is_none_is_refused(location: str) -> None:
    run_well("enqueue", "true", db=location)
    assert "--timeout must be a time" in one_line(
        run("worker", "stop", "--timeout", "soon", db=location), code=2
    )


# --- who is signalled ----------------------------------------------------------------------------


@pytest.fixture
def unrelated_process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that any signal would end."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as child:
        yield child
        child.kill()


def lock_at(location: str) -> GroupLock:
    """The lock of the usual group, of which the file is there."""
    run_well("enqueue", "true", db=location)
    session = Session(location, Console(as_json=False))
    try:
        lock = lock_of(session, "default")
    finally:
        session.close()
    lock.make_folder()
    return lock


def entry_of(pid: int, changes: dict[str, Any]) -> str:
    began = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return json.dumps({**entry_of_this_process("default"), "pid": pid, "began": began} | changes)


@contextmanager
def held(lock: GroupLock) -> Iterator[None]:
    with lock.path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("verb", ["stop", "restart"])
def test_a_file_that_was_left_behind_gets_nobody_signalled(
    location: str, verb: str, unrelated_process: subprocess.Popen[bytes]
) -> None:
    lock = lock_at(location)
    lock.path.write_text(entry_of(unrelated_process.pid, {}))
    assert "no workers" in one_line(run("worker", verb, db=location))
    assert unrelated_process.poll() is None


@pytest.mark.parametrize(
    "changes", [{"began": 1}, {"boot_id": "another"}, {"pid": 0}, {"pid": -1}, {"pid": "1"}]
)
def test_a_number_that_is_another_processs_now_gets_nobody_signalled(
    location: str, changes: dict[str, Any], unrelated_process: subprocess.Popen[bytes]
) -> None:
    lock = lock_at(location)
    lock.path.write_text(entry_of(unrelated_process.pid, changes))
    with held(lock):
        assert "no workers" in one_line(run("worker", "stop", db=location))
    assert unrelated_process.poll() is None


@pytest.mark.parametrize("verb", ["stop", "restart"])
def test_a_lock_file_of_another_user_does_not_choose_who_is_signalled(
    tmp_path: Path, verb: str, unrelated_process: subprocess.Popen[bytes]
) -> None:
    """The database and all around it are another user's, who names a process of root's."""
    database = tmp_path / "jobs.db"
    lock = lock_at(str(database))
    lock.path.write_text(entry_of(unrelated_process.pid, {}))
    for path in (database, *lock.path.parent.iterdir(), lock.path.parent):
        os.chown(path, STRANGER, STRANGER)
    with held(lock):
        line = one_line(run("worker", verb, db=str(database)))
    assert f"{lock.path} belongs to user {STRANGER}, but process {unrelated_process.pid}" in line
    assert unrelated_process.poll() is None


def test_a_side_folder_of_another_user_chooses_nobody_to_be_signalled(
    tmp_path: Path, unrelated_process: subprocess.Popen[bytes]
) -> None:
    lock = lock_at(str(tmp_path / "jobs.db"))
    lock.path.write_text(entry_of(unrelated_process.pid, {}))
    os.chown(lock.path.parent, STRANGER, STRANGER)
    with held(lock):
        line = one_line(run("worker", "stop", db=str(tmp_path / "jobs.db")))
    assert f"it belongs to user {STRANGER}" in line
    assert unrelated_process.poll() is None


@pytest.mark.parametrize("kind", ["a link", "a second name", "a pipe"])
def test_a_daemon_writes_to_no_log_that_another_user_may_have_put_there(
    tmp_path: Path, kind: str
) -> None:
    log = lock_at(str(tmp_path / "jobs.db")).path.with_suffix(".log")
    precious = tmp_path / "precious"
    precious.write_text("precious")
    if kind == "a link":
        log.symlink_to(precious)
    elif kind == "a second name":
        os.link(precious, log)
    else:
        os.mkfifo(log)
    line = one_line(program("worker", "start", "--daemon", db=str(tmp_path / "jobs.db")))
    assert f"cannot open {log}" in line
    assert precious.read_text() == "precious"


def test_locks_of_a_database_behind_a_link_are_in_its_side_folder(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    lock = lock_at(str(tmp_path / "jobs.db"))
    link.symlink_to(tmp_path / "jobs.db")
    assert lock_at(str(link)).path == lock.path


def test_workers_of_another_machine_are_stopped_there(
    database: Database, location: str, start: Start
) -> None:
    crew = start()
    crew.pids()
    crew.kill()
    [[text]] = database.query("select value from bullite_kept where kind = 'group'")
    elsewhere = json.dumps({**json.loads(text), "host": "elsewhere"})
    database.write("update bullite_kept set value = ? where kind = 'group'", elsewhere)

    line = one_line(run("worker", "stop", db=location))
    assert line == "queuectl: workers of the group 'default' run on elsewhere: stop them there"
    again = one_line(program("worker", "start", db=location))
    assert "are running already, by process" in again
    assert " on elsewhere: " in again


def test_a_group_of_another_machine_of_which_nothing_is_heard_is_taken_over(
    database: Database, location: str, start: Start
) -> None:
    crew = start()
    crew.pids()
    crew.kill()
    [[text]] = database.query("select value from bullite_kept where kind = 'group'")
    silent = json.dumps({**json.loads(text), "host": "elsewhere", "updated_at": 0})
    database.write("update bullite_kept set value = ? where kind = 'group'", silent)
    start().pids()


# --- restart -------------------------------------------------------------------------------------


def test_processes_are_replaced_one_by_one_and_no_job_is_lost(
    database: Database, location: str, start: Start, tmp_path: Path
) -> None:
    crew = start("--count", 2)
    old = crew.pids(2)
    held_jobs = [enqueue(location, HOLD.format(n=n)) for n in (1, 2)]
    for n in (1, 2):
        wait_until((tmp_path / f"begun{n}").exists)

    said = run_well("worker", "restart", "--json", db=location)
    assert said.json == {"group": "default", "restarting": True}
    crew.until("reloading")
    more = [enqueue(location, "true") for _ in range(5)]
    for n in (1, 2):
        (tmp_path / f"go{n}").touch()
    crew.until("reloaded")

    assert all(is_gone(pid) for pid in old)
    new = [told["pid"] for told in crew.told("ready")[2:]]
    assert len(new) == 2
    order = [told["event"] for told in crew.events if told["event"] in ("ended", "ready")]
    assert order == ["ready", "ready", "ended", "ready", "ended", "ready"]
    for job in (*held_jobs, *more):
        until_state(database, job, "completed")
        assert show(database, job) == ("completed", 1, 1)
    assert crew.process.poll() is None


def test_workers_end_when_their_terminal_is_closed(database: Database, location: str) -> None:
    ours, theirs = pty.openpty()
    group = subprocess.Popen(
        command("worker", "start"),
        env=environment(location),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        # So that the terminal is its own, as in a window.
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    said = b""
    while b"started, process" not in said:
        said += os.read(ours, 4096)
    wait_until(
        lambda: bool(json.loads(run("worker", "status", "--json", db=location).out)["workers"])
    )
    os.close(ours)

    assert group.wait(PATIENCE) == 0
    assert json.loads(run("worker", "status", "--json", db=location).out)["workers"] == []
    forget(database)
