"""Who is alive: a kernel lock on a file, free the moment its process is gone and never before."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from bullite.sqlite.liveness import Liveness, is_alive
from tests.crash.handlers import work
from tests.crash.processes import add, events, hang, registered, say, states, wait_until


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
    victim = start(work, link)
    victim.said(f"start {job}")
    heir = start(work, database)
    wait_until(lambda: registered(database, heir))

    killed_at = victim.kill()

    wait_until(lambda: states(database)[job] == "completed", timeout=5)
    [(_, stalled_at)] = events(database, "stall")
    assert stalled_at - killed_at < 1000
