"""Who is alive: a kernel lock on a file, free the moment its process is gone and never before."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path

import pytest

from bullite.database.sqlite.files import SideFiles
from bullite.database.sqlite.liveness import Liveness, is_alive
from bullite.database.sqlite.write_lock import FairWriteLock
from tests.crash.handlers import work
from tests.support.databases import SQLiteDatabase
from tests.support.harness import open_store
from tests.support.processes import (
    Child,
    add,
    events,
    finished,
    hang,
    registered,
    rows,
    say,
    states,
    wait_until,
)

SECOND = 1000


@pytest.fixture
def sign(tmp_path: Path) -> Path:
    return tmp_path / "process.alive"


def live(sign: str) -> None:
    """Give a sign of life, and live until killed."""
    keep = Liveness(Path(sign))
    say("alive", keep is not None)
    hang()


def look(sign: str) -> None:
    """Say what this process thinks of that one."""
    say(is_alive(Path(sign)))


def test_a_process_that_lives_is_alive_and_one_that_was_killed_is_not(sign, start):
    process = start(live, sign)
    process.said("alive True")
    assert is_alive(sign) is True

    process.kill()

    assert is_alive(sign) is False


def test_a_process_that_is_stopped_is_alive(sign, start):
    process = start(live, sign)
    process.said("alive True")

    process.signal(signal.SIGSTOP)

    assert is_alive(sign) is True


def test_looking_does_not_take_the_lock_away_from_its_process(sign, start):
    process = start(live, sign)
    process.said("alive True")

    assert [is_alive(sign) for _ in range(50)] == [True] * 50


def test_a_missing_file_cannot_tell(sign):
    assert is_alive(sign) is None


def test_a_file_that_nobody_holds_belongs_to_the_dead(sign):
    sign.touch()

    assert is_alive(sign) is False


def test_a_process_that_looks_at_itself_keeps_its_lock(sign, start):
    """Closing a second descriptor of the file would drop the lock: it must not be opened at all."""
    mine = Liveness(sign)
    try:
        assert is_alive(sign) is True

        assert start(look, sign).line() == "True"
    finally:
        mine.release()


def test_a_sign_that_was_given_up_is_cleared_away(sign, start):
    Liveness(sign).release()

    assert not sign.exists()
    assert is_alive(sign) is None


def lives_and_forks(sign: str) -> None:
    keep = Liveness(Path(sign))
    if not os.fork():
        say("child sees", is_alive(Path(sign)))
        os._exit(0)
    os.wait()
    say("child gone", keep is not None)
    hang()


def test_a_forked_child_sees_its_parent_alive_and_its_end_does_not_free_the_lock(sign, start):
    parent = start(lives_and_forks, sign)

    parent.said("child sees True")
    parent.said("child gone True")
    assert is_alive(sign) is True


def test_processes_that_reach_the_database_by_different_names_know_of_each_other(
    database, start, tmp_path
):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    [job] = add(database, "hold")
    link.symlink_to(database)
    killed_worker = start(work, link)
    killed_worker.said(f"start {job}")
    second_worker = start(work, database)
    wait_until(lambda: registered(database, second_worker))

    killed_at = killed_worker.kill()

    wait_until(lambda: states(database)[job] == "completed", timeout=5)
    [(_, stalled_at)] = events(database, "stall")
    assert stalled_at - killed_at < 1000


# --- workers that die, and others that only look like it -----------------------------------


def test_what_a_killed_worker_left_beside_the_database_is_cleared_away(database, start):
    [job] = add(database, "hold")
    killed_worker = start(work, database)
    killed_worker.said(f"start {job}")
    side_folder = database.with_name("jobs.db.bullite")
    left = {path for path in side_folder.iterdir() if path.name != "gate"}
    assert {path.suffix for path in left} == {".alive", ".sock"}

    killed_worker.kill()
    start(work, database).said(f"start {job}")

    start(work, database)  # every worker tidies up when it starts, and then every ten seconds
    wait_until(lambda: not any(path.exists() for path in left))


def test_a_stopped_worker_is_never_taken_for_dead_and_completes_when_it_goes_on(
    database, start, tmp_path
):
    [job] = add(database, "wait for", data=str(tmp_path / "go"))
    frozen = start(work, database, lock_duration=200)
    frozen.said(f"start {job}")
    other = start(work, database, lock_duration=200)
    wait_until(lambda: registered(database, other))

    freeze_between_writes(frozen, database)
    wait_until(lambda: lease(database, other) > lease(database, frozen) + 2 * SECOND)

    assert states(database) == {job: "active"}
    (tmp_path / "go").touch()
    frozen.signal(signal.SIGCONT)
    wait_until(lambda: finished(database, job))
    assert rows(database, "select state, attempts_started, stalled_count from bullite_jobs") == [
        ("completed", 1, 0)
    ]


def freeze_between_writes(child: Child, database: Path) -> None:
    """Stop a process when it has no lock of the database: the others would wait for it for ever."""

    def is_frozen_outside() -> bool:
        child.signal(signal.SIGSTOP)
        wait_until(lambda: set(thread_states(child)) == {"T"})
        if is_free_to_write(database):
            return True
        child.signal(signal.SIGCONT)
        return False

    wait_until(is_frozen_outside)


def thread_states(child: Child) -> list[str]:
    threads = Path(f"/proc/{child.pid}/task").glob("*/stat")
    return [stat.read_text().rpartition(")")[2].split()[0] for stat in threads]


def is_free_to_write(database: Path) -> bool:
    gate = FairWriteLock(SideFiles(database).write_lock)
    connection = sqlite3.connect(database, timeout=0, isolation_level=None)
    is_inside = gate.enter(timeout=0.2)
    try:
        if is_inside:
            connection.execute("begin immediate")
            connection.execute("rollback")
        return is_inside
    except sqlite3.OperationalError:
        return False
    finally:
        if is_inside:
            gate.leave()
        connection.close()
        gate.close()


def lease(database: Path, child: Child) -> int:
    [(until,)] = rows(
        database, "select max(lease_until) from bullite_workers where pid = ?", child.pid
    )
    return until


def test_a_handler_that_holds_the_interpreter_for_longer_than_its_lease_runs_once(database, start):
    [job] = add(database, "hold the GIL", data=40_000_000)
    busy = start(work, database, lock_duration=100)
    busy.said(f"start {job}")
    start(work, database, lock_duration=100)

    wait_until(lambda: finished(database, job))

    [(took, started)] = rows(
        database, "select finished_at - processed_at, attempts_started from bullite_jobs"
    )
    assert took > 2 * 100
    assert started == 1
    assert events(database, "stall") == []


def test_a_process_that_still_runs_functions_lives_although_its_store_is_closed(
    tmp_path: Path,
) -> None:
    """Its lock is freed by the kernel when it ends, and by nobody before."""
    with open_store(SQLiteDatabase.make(tmp_path)) as store:
        process = store.process()
        store.add()
        worker = process.worker()
        worker.claim_one()
        worker.leave_running()
        store.quit(process)
        assert is_alive(SideFiles(tmp_path / "jobs.db").liveness(process.nonce)) is True
        assert store.home.recover() == 0
