"""Groups of worker processes, run for real."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bullite.errors import InvalidOption
from bullite.processes.child import exit_reason
from bullite.processes.child_protocol import LIFELINE, READY, tell_ready, watch_lifeline
from bullite.processes.group_lock import GroupLock, GroupUnreachable, process_alive, signal_owner
from bullite.processes.process_info import processes, read_process
from bullite.processes.supervisor import Supervisor
from tests.processes.groups import GROUP, Group, groups, install_python, is_gone
from tests.support.fork_server import ROOT
from tests.support.processes import Child, wait_until

TERM, HUP, KILL = signal.SIGTERM, signal.SIGHUP, signal.SIGKILL

Begin = Callable[..., Group]


@pytest.fixture
def begin(start: Callable[..., Child], tmp_path: Path) -> Iterator[Begin]:
    with groups(start, tmp_path) as begin:
        yield begin


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[GroupLock]:
    """The lock of the group that `begin` starts."""
    lock = GroupLock(tmp_path / "locks" / "group", GROUP)
    yield lock
    lock.release()


@pytest.fixture
def unrelated_process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with anything."""
    process = subprocess.Popen(["sleep", "90"])
    yield process
    process.kill()
    process.wait()


def children_of(pid: int) -> list[int]:
    return [process.pid for process in processes() if process.parent == pid]


# --- children come -------------------------------------------------------------------------------


def test_as_many_children_are_spawned_as_were_asked_for(begin):
    group = begin(count=3)
    pids = group.pids(3)
    assert sorted(children_of(group.process.pid)) == sorted(pids)


def test_a_child_has_a_session_of_its_own_and_nothing_to_read(begin):
    (pid,) = begin(count=1).pids(1)
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"


def test_a_child_that_is_killed_comes_back(begin):
    group = begin()
    _, killed = group.pids(2)
    os.kill(killed, KILL)
    reason = "killed by signal 9 (SIGKILL)"
    told = group.until("ended")
    assert told == {"slot": 1, "pid": killed, "code": -KILL, "reason": reason}
    again = group.until("ready", slot=1)["pid"]
    assert again != killed
    assert not is_gone(again)


def test_who_dies_again_and_again_is_restarted_ever_later(begin):
    group = begin("dies", 1, restart_base=0.01, restart_longest=0.05)
    delays = [group.until("restarting")["delay"] for _ in range(6)]
    assert delays == [0, 0.01, 0.02, 0.04, 0.05, 0.05]


def test_a_child_that_had_settled_is_restarted_at_once(begin):
    group = begin("dies", 1, restart_base=60, settled_after=0)
    assert [group.until("restarting")["delay"] for _ in range(4)] == [0, 0, 0, 0]


def test_a_child_that_asks_for_a_fresh_one_is_replaced_without_delay(begin):
    group = begin("fresh", 1, restart_base=60)
    for _ in range(4):
        assert group.until("ended")["code"] == 75
    group.touch("enough")
    group.until("ready")
    assert group.told("restarting") == []


def test_a_child_that_can_never_work_ends_the_group(begin):
    group = begin("cannot", 3, moments={"GRACE": 0.1}, stop_timeout=0.1)
    assert group.code() == 78
    assert group.told("hopeless") == [{"slot": 0}]
    assert all(is_gone(told["pid"]) for told in group.told("spawned"))


def test_a_program_that_is_not_there_at_first_is_an_error(begin, lock, tmp_path):
    (tmp_path / "python").unlink()
    assert begin().until("raised")["kind"] == "ChildNotStarted"
    assert lock.holder() is None


def test_a_program_that_is_missing_for_a_while_is_tried_again(begin, tmp_path):
    group = begin(count=1, restart_base=0.01, restart_longest=0.02)
    (pid,) = group.pids(1)
    (tmp_path / "python").unlink()
    os.kill(pid, KILL)
    assert [group.until("restarting")["delay"] for _ in range(4)] == [0, 0.01, 0.02, 0.02]
    assert "No such file or directory" in group.told("unstarted")[0]["reason"]
    install_python(tmp_path)
    group.until("ready")


def test_a_group_of_none_is_refused(lock):
    with pytest.raises(InvalidOption, match="count"):
        Supervisor(lambda slot: ["true"], 0, lock=lock, registry=None, group=GROUP)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (0, None),
        (75, "to be replaced"),
        (78, "as it can never work"),
        (3, "with exit code 3"),
        (-9, "killed by signal 9 (SIGKILL)"),
        (-41, "killed by signal 41"),
    ],
)
def test_it_is_said_in_words_how_a_child_ended(code, why):
    assert exit_reason(code) == why


# --- children go ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_children_finish(begin, number):
    group = begin("busy")
    group.pids(2)
    group.signal(number)
    group.until_each("child-told", 2, times=1)
    assert not group.process.has_ended()
    group.touch("finish")
    assert group.code() == 0
    assert len(group.told("child-finished")) == 2


def test_the_second_signal_has_children_stop_their_jobs(begin):
    group = begin("busy")
    group.pids(2)
    group.signal(TERM)
    group.until_each("child-told", 2, times=1)
    group.signal(TERM)
    group.until_each("child-leaves", 2)
    assert group.code() == 0
    assert group.told("child-finished") == []


def test_a_child_that_was_not_scheduled_in_between_hears_of_both_signals(begin):
    group = begin("busy")
    pids = group.pids(2)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda pid=pid: read_process(pid).state == "T")
    for step in ("draining", "stopping"):
        group.signal(TERM)
        group.until(step)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    group.until_each("child-leaves", 2)
    assert group.code() == 0


def test_the_third_signal_kills_children_and_leaves(begin):
    group = begin("stubborn", moments={"GRACE": 3600})
    group.pids(2)
    for times in (1, 2):
        group.signal(TERM)
        group.until_each("child-told", 2, times=times)
    group.signal(TERM)
    assert group.code() == 1
    assert [told["code"] for told in group.told("ended")] == [-KILL, -KILL]


def test_a_group_that_is_told_to_stop_at_once_does_not_wait_for_jobs(begin):
    group = begin("busy")
    group.pids(2)
    group.signal(signal.SIGUSR2)
    group.until_each("child-leaves", 2)
    assert group.code() == 0
    assert group.told("stopping") == [{}]
    assert group.told("draining") == group.told("child-finished") == []


def test_a_group_that_drains_is_stopped_once_however_often_it_is_told_to(begin):
    group = begin("stubborn", moments={"GRACE": 3600})
    group.pids(2)
    for number, step in ((signal.SIGUSR1, "draining"), (signal.SIGUSR2, "stopping")):
        group.signal(number)
        group.until(step)
    group.until_each("child-told", 2, times=2)
    for number in (signal.SIGUSR2, signal.SIGUSR1):
        group.signal(number)
    group.touch("finish")
    assert group.code() == 0
    assert len(group.told("stopping")) == len(group.told("draining")) == 1
    assert group.told("killing") == []


def test_children_that_take_too_long_to_finish_are_stopped_and_then_killed(begin):
    group = begin("stubborn", stop_timeout=0.1, moments={"GRACE": 0.1})
    group.pids(2)
    group.signal(TERM)
    assert group.code() == 1
    steps = [event for event, told in group.heard if not told]
    assert steps == ["running", "draining", "stopping", "killing"]
    assert [told["code"] for told in group.told("ended")] == [-KILL, -KILL]


def test_a_child_that_waits_for_its_restart_does_not_hold_up_the_end(begin):
    group = begin("dies", 1, restart_base=60, restart_longest=60)
    group.until("restarting", delay=60)
    group.signal(TERM)
    assert group.code() == 0


def test_nobody_is_restarted_while_the_group_ends(begin):
    group = begin("busy", restart_base=0.2, restart_longest=0.2, stop_timeout=1)
    _, killed = group.pids(2)
    group.touch("broken")
    os.kill(killed, KILL)
    group.until("restarting", delay=0.2)
    group.signal(TERM)
    group.until("draining")
    mark = len(group.heard)
    assert group.code() == 0
    assert "spawned" not in [event for event, _ in group.heard[mark:]]


def test_a_signal_while_the_first_children_start_ends_them(begin):
    group = begin("slow")
    group.until_each("spawned", 2)
    group.signal(TERM)
    group.touch("go")
    assert group.code() == 0
    assert group.told("running") == []


def test_handlers_of_signals_are_restored_in_the_end(begin):
    group = begin()
    group.pids(2)
    group.signal(TERM)
    assert group.until("left") == {"signals restored": True}


def test_no_child_stays_a_zombie(begin):
    group = begin(count=2, restart_base=0)
    group.pids(2)
    for _ in range(5):
        os.kill(group.told("spawned")[-1]["pid"], KILL)
        group.until("ready")
    living = children_of(group.process.pid)
    assert len(living) == 2
    assert not any(is_gone(pid) for pid in living)


def test_the_init_of_a_container_reaps_orphans(tmp_path):
    under = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"]
    if subprocess.run([*under, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("processes may not have numbers of their own here")

    def start(function: Callable[..., Any], *args: Any) -> Child:
        return Child(function, *args, under=under)

    with groups(start, tmp_path) as begin:
        group = begin("orphans", 1)
        (init,) = wait_until(lambda: children_of(group.process.pid))
        group.until("orphan")
        wait_until(lambda: len(children_of(init)) == 1)
        os.kill(init, TERM)
        assert group.code() == 0


# --- children are replaced -----------------------------------------------------------------------


def test_a_hangup_replaces_children_one_by_one(begin):
    group = begin(count=3)
    before = group.pids(3)
    group.signal(HUP)
    group.until("reloading")
    mark = len(group.heard)
    group.until("reloaded")
    steps = [(event, told.get("slot")) for event, told in group.heard[mark:-1]]
    steps = [step for step in steps if not step[0].startswith("child-")]
    assert steps == [(event, slot) for slot in range(3) for event in ("ended", "spawned", "ready")]
    assert not set(before) & {told["pid"] for told in group.told("spawned")[3:]}


def test_a_hangup_waits_for_a_child_to_finish_before_it_goes_on(begin):
    group = begin("busy")
    _, second = group.pids(2)
    group.signal(HUP)
    group.until("child-told", slot=0)
    assert not is_gone(second)
    group.touch("finish")
    group.until("reloaded")


def test_a_hangup_goes_no_further_than_the_first_child_that_does_not_work(begin):
    group = begin(count=3, restart_base=0.01, restart_longest=0.02)
    _, second, third = group.pids(3)
    group.touch("broken")
    group.signal(HUP)
    for _ in range(4):
        group.until("restarting", slot=0)
    assert {told["slot"] for told in group.told("ended")} == {0}
    assert not is_gone(second)
    assert not is_gone(third)
    (group.folder / "broken").unlink()
    group.until("reloaded")


def test_a_child_that_never_says_that_it_is_ready_counts_as_ready_after_a_while(begin):
    group = begin("mute", moments={"READY_WITHIN": 0.2})
    group.until("running")
    group.signal(HUP)
    group.touch("finish")
    group.until("reloaded")


def test_a_hangup_does_not_miss_the_moment_when_a_child_counts_as_ready(begin):
    group = begin("mute", 3, tick=0.3, moments={"READY_WITHIN": 1})
    group.until("running")
    group.touch("finish")
    for _ in range(5):
        group.signal(HUP)
        group.until("reloaded")


def test_a_child_that_is_replaced_finishes_however_long_that_takes(begin):
    group = begin("busy", 1, seat=True, stop_timeout=0.1, tick=20)
    group.pids(1)
    group.signal(HUP)
    group.until("child-told")
    for _ in range(5):  # each after ten seconds or more, by its clock
        group.until("seat")
    group.touch("finish")
    assert group.until("ended")["code"] == 0
    group.until("reloaded")
    assert [told["times"] for told in group.told("child-told")] == [1]


def test_a_child_that_is_replaced_is_hurried_when_the_group_ends(begin):
    group = begin("stubborn", 1, stop_timeout=0.1, moments={"GRACE": 0.1})
    group.pids(1)
    group.signal(HUP)
    group.until("child-told", times=1)
    group.signal(TERM)
    assert group.code() == 1
    assert [told["code"] for told in group.told("ended")] == [-KILL]
    steps = [event for event, told in group.heard if not told]
    assert steps == ["running", "reloading", "draining", "stopping", "killing"]


def test_a_hangup_gives_those_who_wait_for_their_restart_another_chance_at_once(begin):
    group = begin("dies", 1, restart_base=60, restart_longest=60)
    group.until("restarting", delay=60)
    group.signal(HUP)
    assert group.until("restarting")["delay"] == 0


def test_the_first_signal_to_end_is_no_second_one_to_a_child_that_is_being_replaced(begin):
    group = begin("busy")
    group.pids(2)
    group.signal(HUP)
    group.until("child-told", slot=0)
    group.signal(TERM)
    group.until("child-told", slot=1)
    group.touch("finish")
    assert group.code() == 0
    assert [told["times"] for told in group.told("child-told")] == [1, 1]


# --- the lifeline --------------------------------------------------------------------------------


def test_children_end_with_a_supervisor_that_is_killed(begin):
    group = begin("ours")
    pids = group.pids(2)
    group.process.kill()
    group.until_each("child-alone", 2)
    wait_until(lambda: all(is_gone(pid) for pid in pids))


def test_the_descriptors_of_a_child_are_not_for_what_it_starts(monkeypatch):
    ends = os.pipe()
    os.set_inheritable(ends[0], True)
    monkeypatch.setenv(LIFELINE, str(ends[0]))
    is_over = threading.Event()
    assert watch_lifeline(is_over.set)
    assert not os.get_inheritable(ends[0])
    assert LIFELINE not in os.environ
    assert not is_over.is_set()
    os.close(ends[1])
    assert is_over.wait(20)


def test_who_is_ready_says_so_and_closes_the_pipe(monkeypatch):
    hears, says = os.pipe()
    monkeypatch.setenv(READY, str(says))
    assert tell_ready()
    with open(hears, "rb") as heard:
        assert heard.read() == b"ready\n"
    assert not tell_ready()


@pytest.mark.parametrize("value", [None, "", "x", "-1", "987654", "9" * 30, "0"])
def test_without_a_supervisor_there_is_nobody_to_watch_or_to_tell(monkeypatch, value):
    with open(os.devnull) as null:
        for name in (LIFELINE, READY):
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, str(null.fileno()) if value == "0" else value)
        assert not watch_lifeline(pytest.fail)
        assert not tell_ready()


# --- the lock of the group -----------------------------------------------------------------------


def test_a_second_supervisor_is_refused_and_told_who_the_first_is(begin):
    first = begin()
    first.pids(2)
    second = begin()
    holder = second.until("taken")
    assert holder["pid"] == first.process.pid
    assert holder["group"] == GROUP
    assert holder["host"] == os.uname().nodename
    assert second.told("spawned") == []


def test_the_lock_is_free_when_its_holder_is_killed_whatever_the_file_says(begin, lock):
    group = begin("stubborn")
    pids = group.pids(2)
    holder = lock.holder()
    assert holder is not None
    assert holder["pid"] == group.process.pid
    group.process.kill()
    assert not any(is_gone(pid) for pid in pids)
    assert json.loads(lock.path.read_text()) == holder
    assert lock.holder() is None
    assert lock.take()


def test_children_do_not_inherit_the_lock(begin, lock):
    (pid,) = begin(count=1).pids(1)
    opened = {os.path.realpath(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    assert str(lock.path) not in opened


def test_a_forked_child_does_not_keep_the_lock(lock):
    assert lock.take()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if not pid:
            theirs.send(b"born")
            ours.close()
            theirs.recv(1)
            os._exit(0)
        assert ours.recv(4) == b"born"
        assert lock.holder()["pid"] == os.getpid()
        lock.release()
        assert lock.holder() is None
    os.waitpid(pid, 0)


def test_the_lock_is_let_go_in_the_end_and_its_file_says_nothing(begin, lock):
    group = begin()
    group.pids(2)
    group.signal(TERM)
    assert group.code() == 0
    assert lock.path.read_text() == ""
    assert lock.holder() is None


def test_the_file_and_its_folder_are_for_their_owner_only(lock):
    assert lock.take()
    assert lock.path.stat().st_mode & 0o777 == 0o600
    assert lock.path.parent.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def private(tmp_path: Path) -> Iterator[GroupLock]:
    """A lock in a folder that is to be ours alone."""
    lock = GroupLock(tmp_path / "home" / "ours" / "group", GROUP, in_private=True)
    yield lock
    lock.release()


def test_a_folder_of_ours_is_closed_to_others(private):
    private.path.parent.mkdir(parents=True, mode=0o755)
    private.path.parent.chmod(0o777)
    assert private.holder() is None
    assert private.path.parent.stat().st_mode & 0o777 == 0o700
    private.path.parent.chmod(0o750)
    assert private.take()
    assert private.path.parent.stat().st_mode & 0o777 == 0o700


def test_looking_makes_no_folder(private):
    assert private.holder() is None
    assert not private.path.parent.parent.exists()


@pytest.mark.parametrize("kind", ["another's", "a link", "a file"])
def test_a_folder_that_others_could_have_made_is_refused(
    private, unrelated_process, tmp_path, monkeypatch, kind
):
    folder = private.path.parent
    folder.parent.mkdir()
    theirs = folder if kind == "another's" else tmp_path / "theirs"
    theirs.mkdir()
    with (theirs / "group").open("w") as file:
        entry = {"pid": unrelated_process.pid, "began": _began(unrelated_process.pid)}
        file.write(json.dumps(entry))
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        if kind == "a link":
            folder.symlink_to(theirs)
        elif kind == "a file":
            folder.touch()
        else:
            user = os.geteuid()
            monkeypatch.setattr(os, "geteuid", lambda: user + 1)
        for use in (private.holder, private.take, lambda: signal_owner(private, KILL)):
            with pytest.raises(GroupUnreachable) as caught:
                use()
            [line] = str(caught.value).splitlines()
            assert "set XDG_STATE_HOME" in line
    assert unrelated_process.poll() is None


def test_a_process_is_there_only_if_it_is_the_one_that_is_meant(lock, unrelated_process):
    assert lock.take()
    entry = lock.holder() | {"pid": unrelated_process.pid, "began": _began(unrelated_process.pid)}
    assert process_alive(entry)
    for changes in ({"began": 1}, {"boot_id": "another"}, {"pid": 0}, {"pid": 2**40}, {"pid": "1"}):
        assert not process_alive(entry | changes)
    unrelated_process.kill()
    wait_until(lambda: read_process(unrelated_process.pid).is_gone)
    assert not process_alive(entry)


def test_a_process_that_the_kernel_hides_from_us_is_there(unrelated_process, monkeypatch):
    monkeypatch.setattr("bullite.processes.group_lock.read_process", lambda pid: None)
    assert process_alive({"pid": unrelated_process.pid, "began": 1})
    unrelated_process.kill()
    unrelated_process.wait()
    assert not process_alive({"pid": unrelated_process.pid, "began": 1})


def test_looking_who_holds_it_does_not_disturb_who_holds_it_or_wants_it(lock):
    other = GroupLock(lock.path, GROUP)
    assert other.holder() is None
    assert lock.take()
    assert other.holder()["pid"] == os.getpid()
    assert lock.holder() == other.holder()
    assert not other.take()
    lock.release()
    assert other.take()
    other.release()


def test_who_wants_the_lock_waits_for_who_only_looks(lock):
    lock.path.parent.mkdir()
    fd = os.open(lock.path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_SH)
    looks = threading.Timer(0.05, os.close, [fd])
    looks.start()
    assert lock.take()
    looks.join()


def test_a_lock_file_that_was_deleted_is_no_lock(lock):
    assert lock.take()
    lock.path.unlink()
    assert lock.holder() is None


def test_a_lock_file_that_is_a_link_is_refused(lock, tmp_path):
    lock.path.parent.mkdir()
    (tmp_path / "victim").write_text("precious")
    lock.path.symlink_to(tmp_path / "victim")
    with pytest.raises(GroupUnreachable):
        lock.take()
    assert (tmp_path / "victim").read_text() == "precious"


def test_the_holder_can_be_signalled(begin, lock):
    group = begin()
    group.pids(2)
    assert signal_owner(lock, TERM)
    assert group.code() == 0
    assert not signal_owner(lock, TERM)


def test_nobody_is_signalled_for_an_old_file(lock, unrelated_process):
    lock.path.parent.mkdir()
    lock.path.write_text(json.dumps({"pid": unrelated_process.pid}))
    assert not signal_owner(lock, KILL)
    assert unrelated_process.poll() is None


@pytest.mark.parametrize("changes", [{"began": 1}, {"began": None}, {"boot_id": "another"}])
def test_a_process_that_got_the_number_of_the_holder_is_not_signalled(
    lock, unrelated_process, changes
):
    assert lock.take()
    other = {"pid": unrelated_process.pid, "began": _began(unrelated_process.pid)}
    lock.path.write_text(json.dumps(lock.holder() | other | changes))
    assert not signal_owner(lock, KILL)
    assert unrelated_process.poll() is None
    lock.path.write_text(json.dumps(lock.holder() | other | {"boot_id": ""}))
    assert signal_owner(lock, KILL)
    assert unrelated_process.wait(20) == -KILL


def _began(pid: int) -> int:
    return next(process.start_time for process in processes() if process.pid == pid)


STRANGER = 54_321


@pytest.fixture
def process_of_stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "90"], user=STRANGER)
    yield process
    process.kill()
    process.wait()


def test_a_lock_file_of_another_user_gets_no_process_of_ours_signalled(lock, unrelated_process):
    assert lock.take()
    lock.path.write_text(json.dumps(lock.holder() | _entry_of(unrelated_process)))
    os.chown(lock.path, STRANGER, STRANGER)

    with pytest.raises(GroupUnreachable) as refused:
        signal_owner(lock, KILL)

    assert str(refused.value).startswith(
        f"{lock.path} belongs to user {STRANGER}, but process {unrelated_process.pid}, "
        f"which it names, is run by user {_user_name(os.geteuid())}"
    )
    assert unrelated_process.poll() is None


def test_a_lock_file_of_ours_gets_no_process_of_another_user_signalled(lock, process_of_stranger):
    assert lock.take()
    lock.path.write_text(json.dumps(lock.holder() | _entry_of(process_of_stranger)))
    with pytest.raises(GroupUnreachable, match=f"is run by user {STRANGER}"):
        signal_owner(lock, KILL)
    assert process_of_stranger.poll() is None


def test_root_signals_a_process_of_the_user_who_owns_the_lock_file(lock, process_of_stranger):
    assert lock.take()
    lock.path.write_text(json.dumps(lock.holder() | _entry_of(process_of_stranger)))
    os.chown(lock.path, STRANGER, STRANGER)
    assert signal_owner(lock, KILL)
    assert process_of_stranger.wait(20) == -KILL


@pytest.mark.parametrize("danger", ["mode", "second name"])
def test_a_lock_file_that_others_could_have_written_gets_nobody_signalled(
    lock, unrelated_process, danger
):
    assert lock.take()
    lock.path.write_text(json.dumps(lock.holder() | _entry_of(unrelated_process)))
    if danger == "mode":
        lock.path.chmod(0o622)
    else:
        os.link(lock.path, lock.path.with_name("second"))
    with pytest.raises(GroupUnreachable, match=str(lock.path)):
        signal_owner(lock, KILL)
    assert unrelated_process.poll() is None


def test_where_the_user_of_a_process_is_hidden_only_a_lock_file_of_ours_is_believed(
    lock, unrelated_process, monkeypatch
):
    monkeypatch.setattr("bullite.processes.group_lock.user_of", lambda pid: None)
    assert lock.take()
    lock.path.write_text(json.dumps(lock.holder() | _entry_of(unrelated_process)))
    os.chown(lock.path, STRANGER, STRANGER)
    with pytest.raises(GroupUnreachable, match="whose user is not known"):
        signal_owner(lock, KILL)
    assert unrelated_process.poll() is None
    os.chown(lock.path, os.geteuid(), -1)
    assert signal_owner(lock, KILL)
    assert unrelated_process.wait(20) == -KILL


def _entry_of(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    return {"pid": process.pid, "began": _began(process.pid)}


def _user_name(number: int) -> str:
    import pwd

    return pwd.getpwuid(number).pw_name


@pytest.mark.parametrize("pid", [0, -1, True, "1", None, 1.5, 2**22 + 1])
def test_what_is_no_number_of_a_process_is_not_signalled(lock, pid):
    assert lock.take()
    lock.path.write_text(json.dumps({"pid": pid}))
    assert not signal_owner(lock, TERM)


@pytest.mark.parametrize("text", ["", "{", "[]", "\0"])
def test_a_holder_that_has_not_said_who_it_is_is_still_one(lock, text):
    assert lock.take()
    lock.path.write_text(text)
    assert lock.holder() == {}
    assert not signal_owner(lock, TERM)


# --- the seat ------------------------------------------------------------------------------------


def test_the_seat_is_told_of_every_change(begin):
    group = begin("busy", seat=True)
    pids = group.pids(2)
    entry = group.until("seat", state="running")
    assert (entry["pid"], entry["count"]) == (group.process.pid, 2)
    assert [child["pid"] for child in entry["children"]] == pids
    assert {child["state"] for child in entry["children"]} == {"running"}
    assert all(entry["started_at"] <= child["started_at"] for child in entry["children"])
    os.kill(pids[1], KILL)
    wanted = [(0, "running"), (1, "running")]  # one that still starts would end at once
    while [(child["restarts"], child["state"]) for child in entry["children"]] != wanted:
        entry = group.until("seat")
    group.signal(TERM)
    assert {child["state"] for child in group.until("seat", state="draining")["children"]} == {
        "draining"
    }
    group.touch("finish")
    assert group.code() == 0
    assert group.heard[-2:] == [("seat-left", {}), ("left", {"signals restored": True})]


def test_a_child_that_waits_for_its_restart_is_seen_to_wait(begin):
    group = begin("dies", 1, seat=True, restart_base=60, restart_longest=60)
    group.until("restarting", delay=60)
    (child,) = group.until("seat")["children"]
    while child["state"] != "waiting":
        (child,) = group.until("seat")["children"]
    assert (child["pid"], child["restarts"]) == (None, 1)


def test_the_seat_is_told_now_and_then_that_nothing_has_changed(begin):
    group = begin(seat=True, moments={"UPDATE_EVERY": 0.05})
    entry = group.until("seat", state="running")
    assert [group.until("seat") for _ in range(3)] == [entry] * 3


def test_a_seat_that_is_taken_ends_the_supervisor_before_it_begins(begin, lock):
    group = begin(seat=True, seat_holder={"pid": 1, "host": "elsewhere"})
    assert group.until("taken") == {"pid": 1, "host": "elsewhere"}
    assert group.code() == 0
    assert group.told("spawned") == group.told("seat-left") == []
    assert lock.holder() is None


def test_a_seat_that_fails_is_tried_again_and_ends_nothing(begin, tmp_path):
    (tmp_path / "seat-busy").touch()
    group = begin(seat=True, moments={"RETRY_AFTER": 0.05})
    group.until("running")
    for _ in range(5):
        group.until("seat-refused")
    (tmp_path / "seat-busy").unlink()
    assert group.until("seat")["state"] == "running"
    assert group.told("unregistered") == [{"reason": "somebody else writes"}]
    assert len(group.told("log")) == 1
    group.signal(TERM)
    assert group.code() == 0


def test_a_seat_that_does_not_answer_keeps_nobody_waiting(begin):
    group = begin(seat=True, moments={"LEAVE_WITHIN": 0.1})
    _, killed = group.pids(2)
    group.touch("seat-away")
    os.kill(killed, KILL)
    group.until("seat-waits")
    again = group.until("ready", slot=1)["pid"]
    os.kill(again, KILL)
    group.until("ready", slot=1)
    group.signal(TERM)
    assert group.code() == 0
    assert group.told("seat-left") == []
    assert group.told("unregistered") == [{"reason": "no answer within 0.1 s"}]


def test_what_changed_while_the_seat_was_busy_is_told_when_it_is_not(begin):
    group = begin("busy", seat=True)
    _, killed = group.pids(2)
    entry = group.until("seat", state="running")
    group.touch("seat-away")
    mark = len(group.heard)
    os.kill(killed, KILL)
    group.until("seat-waits")  # told by a thread of its own: the new child may be ready before
    while not (ready := [told for event, told in group.heard[mark:] if event == "ready"]):
        group.next()
    [again] = [told["pid"] for told in ready]
    assert len(group.told("seat-waits")) == 1
    (group.folder / "seat-away").unlink()
    while entry["children"][1]["state"] != "running" or entry["children"][1]["pid"] != again:
        entry = group.until("seat")


def test_a_group_that_another_supervisor_has_by_now_is_drained_and_given_up(begin):
    group = begin("busy", seat=True)
    group.pids(2)
    group.until("seat", state="running")
    group.touch("seat-lost")
    os.kill(group.told("ready")[0]["pid"], KILL)
    assert group.until("lost") == {"pid": 7, "host": "elsewhere"}
    group.until("child-told", times=1)
    mark = len(group.heard)
    group.touch("finish")
    assert group.code() == 1
    assert group.told("child-finished")
    assert not {event for event, _ in group.heard[mark:]} & {"seat", "spawned", "lost"}


def test_a_mistake_in_the_supervisor_leaves_neither_children_nor_lock(begin, lock):
    group = begin("stubborn", seat=True, moments={"GRACE": 0.1})
    group.until("seat", state="running")
    group.touch("seat-bug")
    os.kill(group.told("spawned")[1]["pid"], KILL)
    assert group.until("raised")["kind"] == "RuntimeError"
    assert all(is_gone(told["pid"]) for told in group.told("spawned"))
    assert ("seat-left", {}) in group.heard
    assert lock.holder() is None


# --- elsewhere -----------------------------------------------------------------------------------


def test_it_can_be_imported_where_there_are_no_such_locks_and_signals():
    program = """
import contextlib, dataclasses, json, logging, os, pathlib, selectors, signal, socket, subprocess
import sys, tempfile, threading, typing, weakref
sys.platform = "win32"
sys.modules["fcntl"] = None
for module, names in {
    os: ("pidfd_open", "register_at_fork", "killpg", "fork", "O_CLOEXEC", "O_NOFOLLOW", "waitid"),
    signal: ("pidfd_send_signal", "SIGHUP", "SIGCHLD", "SIGKILL"),
    socket: ("AF_UNIX",),
}.items():
    for name in names:
        delattr(module, name)
from bullite.processes.group_lock import GroupLock, GroupUnreachable
with tempfile.TemporaryDirectory() as folder:
    try:
        GroupLock(os.path.join(folder, "group"), "work").take()
    except GroupUnreachable as error:
        sys.stdout.write(str(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (
        "this system has no locks that end with their process",
        "",
    )
