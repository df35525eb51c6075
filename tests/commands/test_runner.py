"""Commands, run for real."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from bullite.client.job.abort_signal import Signal
from bullite.commands import runner
from bullite.commands.capture import HeadTail
from bullite.commands.runner import (
    EXITED,
    NULL_BYTE,
    SIGNALLED,
    TIMED_OUT,
    Command,
    CommandResult,
    CommandRunner,
    NotStarted,
    Stopped,
)
from bullite.processes import process_tree
from bullite.processes.process_info import env_marker_of, make_fd_marker
from bullite.processes.process_tree import adopt_orphans, processes

_numbers = itertools.count(1)


def sh(line: str, **options: object) -> CommandResult:
    return CommandRunner().run(Command(line, **options))  # type: ignore[arg-type]


class Listener:
    """Hears what a command says."""

    due = None

    def __init__(self) -> None:
        self.pieces: list[tuple[str, bytes]] = []

    def on_output(self, stream: str, data: bytes) -> None:
        self.pieces.append((stream, data))

    def on_due(self) -> None:
        raise AssertionError("it is never due")


class UnderWay:
    """A command that runs in another thread."""

    def __init__(self, command: Command, shell: CommandRunner | None = None) -> None:
        self.shell, self.listener, self._leash = shell or CommandRunner(), Listener(), Signal()
        thread = ThreadPoolExecutor(1)
        self._future: Future[CommandResult] = thread.submit(
            self.shell.run, command, self.listener, None, self._leash
        )
        thread.shutdown(wait=False)

    @property
    def heard(self) -> list[tuple[str, bytes]]:
        return self.listener.pieces

    def stop(self) -> None:
        self._leash.abort()

    def has_ended(self) -> bool:
        return self._future.done()

    def ended(self) -> CommandResult:
        return self._future.result(30)

    def stopped(self) -> CommandResult:
        with pytest.raises(Stopped) as stopped:
            self.ended()
        return stopped.value.result


def text(said: HeadTail) -> str:
    """What was said, all of which was kept."""
    assert not said.dropped
    return (said.head + said.tail).decode()


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _adopting_orphans() -> Iterator[None]:
    assert adopt_orphans()
    yield
    adopt_orphans(False)


@pytest.fixture
def mark() -> Iterator[str]:
    """Seconds to sleep that nobody else sleeps; who still does in the end is killed."""
    number = f"300.{os.getpid()}{next(_numbers):03}"
    yield number
    for pid in sleepers(number):
        os.kill(pid, signal.SIGKILL)


def sleepers(mark: str) -> list[int]:
    """The processes that sleep for so long."""
    found = []
    for process in processes():
        try:
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if not process.is_gone and mark.encode() in words:
            found.append(process.pid)
    return found


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.01)


# --- how they end --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "how", "exit_code", "number"),
    [
        ("true", EXITED, 0, None),
        ("exit 3", EXITED, 3, None),
        ("no-such-program", EXITED, 127, None),
        ("/etc/passwd", EXITED, 126, None),
        ("kill -TERM $$", SIGNALLED, None, signal.SIGTERM),
        ("kill -KILL $$", SIGNALLED, None, signal.SIGKILL),
        ("sh -c 'kill -KILL $$'; exit 137", EXITED, 137, None),
    ],
)
def test_exit_code_and_signal_are_told_apart(
    line: str, how: str, exit_code: int | None, number: int | None
) -> None:
    ended = sh(line)
    assert (ended.how, ended.exit_code, ended.signal) == (how, exit_code, number)
    assert ended.succeeded == (exit_code == 0)


def test_what_a_command_writes_is_kept_by_stream() -> None:
    ended = sh("echo out; echo err >&2")
    assert (text(ended.stdout), text(ended.stderr)) == ("out\n", "err\n")


def test_what_a_command_writes_is_heard_while_it_runs() -> None:
    os.mkfifo("fifo")
    command = UnderWay(Command("echo one; read line < fifo; echo two >&2"))
    until(lambda: bool(command.heard))
    assert command.heard == [("stdout", b"one\n")]
    assert not command.has_ended()
    command.stop()
    command.stopped()


def test_the_words_of_a_program_are_not_for_a_shell() -> None:
    ended = CommandRunner().run(Command(argv=["echo", "a; touch x", "$HOME"]))
    assert text(ended.stdout) == "a; touch x $HOME\n"
    assert os.listdir() == []


def test_a_command_reads_nothing_unless_it_is_given_a_file() -> None:
    assert text(sh("cat").stdout) == ""
    Path("given").write_text("hello")
    assert text(sh("cat", stdin="given").stdout) == "hello"


def test_a_command_whose_time_is_limited_reads_what_it_is_given() -> None:
    Path("given").write_text("hello")
    assert text(sh("cat", stdin="given", cpu_seconds=9, memory_bytes=1 << 30).stdout) == "hello"


def test_a_file_that_nobody_writes_to_holds_up_its_own_command_only() -> None:
    os.mkfifo("fifo")
    shell = CommandRunner()
    waits = UnderWay(Command("cat", stdin="fifo"), shell)
    until(lambda: bool(shell._running))
    assert shell.run(Command("true")).succeeded
    waits.stop()
    waits.stopped()
    assert sh("cat", stdin="fifo", timeout=0.1).how == TIMED_OUT


def test_a_file_that_this_process_has_locked_is_locked_still_when_a_command_has_read_it() -> None:
    tries = "import fcntl; fcntl.lockf(open('given', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with open("given", "w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        assert sh("cat", stdin="given").succeeded
        told = subprocess.run([sys.executable, "-c", tries], capture_output=True, text=True)
    assert "BlockingIOError" in told.stderr


def test_a_flood_on_both_pipes_is_drained_and_little_of_it_is_kept() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended = sh("yes | head -c 50M & yes no | head -c 50M >&2; wait", max_kept=1_000)
    assert (ended.stdout.dropped, ended.stderr.dropped) == (50 * 1024**2 - 1_000,) * 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024


# --- what they start with ------------------------------------------------------------------------


def test_a_command_has_none_of_our_descriptors_but_its_badge() -> None:
    with open("held", "w") as held:
        os.set_inheritable(held.fileno(), True)
        found = text(sh("exec env -i ls -l /proc/self/fd").stdout).splitlines()[1:]
    targets = [line.rpartition(" -> ")[2] for line in found]
    kinds = sorted(re.sub(r"[:=\d].*", "", target) for target in targets)
    assert kinds == ["/dev/null", "/memfd", "/proc/", "pipe", "pipe"]


def test_a_command_with_a_clean_environment_finds_only_where_programs_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTHER", "left out")
    found = text(sh("env", clean_env=True, env={"MORE": "1"}).stdout).splitlines()
    names = {line.partition("=")[0] for line in found}
    assert {"PATH", "MORE"} <= names
    assert "OTHER" not in names


def test_without_a_shell_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "SHELL", "/nowhere/sh")
    with pytest.raises(NotStarted, match="No such file or directory: /nowhere/sh"):
        sh("true")


def test_a_command_has_our_environment_without_our_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BULLITE_URL", "postgresql://me:secret@host/db")
    monkeypatch.setenv("OTHER", "kept")
    found = text(sh("env", env={"MORE": "1"}).stdout).splitlines()
    assert {"OTHER=kept", "MORE=1"} <= set(found)
    assert not [line for line in found if "me:secret" in line]


def test_a_variable_may_be_named_instead_of_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BULLITE_URL", "jobs.db")
    assert text(sh("echo $BULLITE_URL", env_from=["BULLITE_URL"]).stdout) == "jobs.db\n"
    with pytest.raises(NotStarted, match="no variable ABSENT"):
        sh("true", env_from=["ABSENT"])


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (Command("true", cwd="/absent"), "No such file or directory: /absent"),
        (Command("true", cwd="/etc/passwd"), "Not a directory: /etc/passwd"),
        (Command(argv=["/absent"]), "No such file or directory: /absent"),
        (Command(argv=["/etc/passwd"]), "Permission denied: /etc/passwd"),
        (Command(argv=["echo", "a\0b"]), NULL_BYTE),
        (Command("true", stdin="absent"), "No such file or directory: absent"),
        (Command("true", stdin="/etc"), "Is a directory: /etc"),
        (Command("true", stdin="a\0b"), NULL_BYTE),
    ],
    ids=lambda part: str(part)[:20],
)
def test_what_cannot_be_started_says_why(command: Command, reason: str) -> None:
    with pytest.raises(NotStarted) as refused:
        CommandRunner().run(command)
    assert (str(refused.value), refused.value.is_final) == (reason, True)


def test_a_file_that_may_not_be_read_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("closed").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read anything
    with pytest.raises(NotStarted, match=r"^Permission denied: closed$") as refused:
        sh("true", stdin="closed")
    assert refused.value.is_final


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM])
def test_what_the_machine_lacks_now_it_may_have_later(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", raising(OSError(number, os.strerror(number))))
    with pytest.raises(NotStarted, match=os.strerror(number)) as refused:
        sh("true")
    assert not refused.value.is_final


def raising(error: Exception) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOMEM, "Cannot allocate memory"), RuntimeError("can't start new thread")],
    ids=repr,
)
def test_a_command_that_cannot_be_watched_is_ended_and_leaves_nothing_open(
    error: Exception, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = CommandRunner()
    shell.run(Command("true"))
    monkeypatch.setattr(runner._Execution, "_watch", raising(error))
    before = opened_for_commands()
    with pytest.raises(NotStarted) as refused:
        shell.run(Command(f"sleep {mark}"))
    assert not refused.value.is_final
    assert opened_for_commands() <= before
    assert sleepers(mark) == []
    assert shell._running == {}


def opened_for_commands() -> set[tuple[str, str]]:
    """The descriptors of this process that only commands need: others come and go by themselves."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return {one for one in found if one[1].startswith(("pipe:", "/memfd:", "anon_inode:[pidfd]"))}


def test_a_command_is_ended_although_no_processes_are_shown(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_tree, "processes", lambda: iter(()))
    assert sh(f"sleep {mark}", timeout=0.1).signal == signal.SIGKILL
    assert sleepers(mark) == []


def test_memory_and_time_may_be_limited() -> None:
    eats = Command(argv=[sys.executable, "-c", "bytearray(1 << 30)"], memory_bytes=300 * 1024**2)
    assert "MemoryError" in text(CommandRunner().run(eats).stderr)
    assert sh("while :; do :; done", cpu_seconds=1).signal in (signal.SIGXCPU, signal.SIGKILL)


# --- ending them ---------------------------------------------------------------------------------

_DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 100)
        os.execve('/bin/sleep', ['sleep', '{mark}'], {{}})
    os._exit(0)
os.wait()
os.execv('/bin/sleep', ['sleep', '{mark}'])
"""

ESCAPES = {
    "by doing nothing": "sleep {mark}",
    "into the background": "sleep {mark} & sleep {mark}",
    "into a session of its own": "setsid sleep {mark} & sleep {mark}",
    "into a session whose parent leaves": "setsid -f sleep {mark}; sleep {mark}",
    "behind nohup": "nohup sleep {mark} > /dev/null 2>&1 & sleep {mark}",
    "by a double fork": "(sleep {mark} &); sleep {mark}",
    "by not hearing": "trap '' TERM; sleep {mark} & sleep {mark}",
    "by forgetting where it comes from": "env -i setsid -f /bin/sleep {mark}; sleep {mark}",
    "by standing still": "sleep {mark} & kill -STOP $!; wait",
    "by having children when it is told to end": (
        "trap 'setsid sleep {mark} & setsid sleep {mark} &' TERM; while :; do sleep {mark}; done"
    ),
    "into a group of its own": "set -m; sleep {mark} & sleep {mark}",
    "deep down": 'sh -c "sh -c \'setsid sh -c \\"sleep {mark}\\"\' & sleep {mark}"; sleep {mark}',
    "as a daemon that closes and forgets everything": f'exec {sys.executable} -c "{_DAEMON}"',
}


@pytest.mark.parametrize("line", ESCAPES.values(), ids=ESCAPES)
def test_nobody_escapes_the_timeout(line: str, mark: str) -> None:
    ended = sh(line.format(mark=mark), timeout=0.4, grace=0.3)
    assert ended.how == TIMED_OUT
    assert sleepers(mark) == []


def test_what_escapes_from_one_command_is_not_taken_for_anothers(mark: str) -> None:
    os.mkfifo("fifo")
    shell = CommandRunner()
    other = UnderWay(Command(f"(sleep {mark} &); read line < fifo"), shell)
    until(lambda: bool(sleepers(mark)))
    shell.run(Command("env -i setsid -f /bin/sleep 0; sleep 9", timeout=0.1, grace=0.1))
    assert len(sleepers(mark)) == 1
    other.stop()
    other.stopped()


_FORGETFUL = {
    "by what it writes to": "from os import *; closerange(3, 100); execve({sleep}, {{}})",
    "by its badge": "from os import *; closerange(0, 3); execve({sleep}, {{}})",
}


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("program", _FORGETFUL.values(), ids=_FORGETFUL)
def test_who_forgets_where_it_comes_from_is_known(program: str, alone: bool, mark: str) -> None:
    shell = CommandRunner(alone=alone)
    older = UnderWay(Command("echo; sleep 300"), shell)
    until(lambda: bool(older.heard))
    forget = program.format(sleep=f"'/bin/sleep', ['sleep', '{mark}']")
    line = f'setsid -f {sys.executable} -c "{forget}"; sleep {mark}'
    assert shell.run(Command(line, timeout=0.4, grace=0.3)).how == TIMED_OUT
    assert sleepers(mark) == []
    assert not older.has_ended()
    older.stop()
    older.stopped()


def test_a_process_does_not_belong_to_the_command_that_it_makes_a_badge_for() -> None:
    badge = make_fd_marker("some command")
    assert badge is not None
    try:
        assert env_marker_of(os.getpid()) is None
        os.set_inheritable(badge, True)
        assert env_marker_of(os.getpid()) == "some command"
    finally:
        os.close(badge)


def test_commands_can_be_run_where_there_are_no_badges(
    monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    monkeypatch.setattr(os, "memfd_create", raising(OSError(errno.ENOSYS, "not there")))
    assert sh(f"setsid -f sleep {mark}; sleep {mark}", timeout=0.2).how == TIMED_OUT
    assert sleepers(mark) == []


def test_what_another_command_left_behind_outlives_a_timeout(mark: str) -> None:
    shell = CommandRunner()
    older = UnderWay(Command("echo; sleep 300"), shell)
    until(lambda: bool(older.heard))
    assert shell.run(Command(f"setsid sleep {mark} > /dev/null 2>&1 & exit 0")).succeeded
    until(lambda: len(sleepers(mark)) == 1)
    older.stop()
    older.stopped()
    assert len(sleepers(mark)) == 1


@pytest.mark.parametrize("environment", [None, {}], ids=["that of ours", "none"])
def test_what_others_in_this_process_started_outlives_a_timeout(
    environment: dict[str, str] | None, mark: str
) -> None:
    shell = CommandRunner(alone=False)
    older = UnderWay(Command("echo; sleep 300"), shell)
    until(lambda: bool(older.heard))
    line = ["/bin/sleep", mark]
    with subprocess.Popen(line, start_new_session=True, env=environment) as other:
        older.stop()
        older.stopped()
        assert other.poll() is None
        other.kill()


def test_a_command_that_starts_while_another_is_being_ended_is_not_taken_for_its(
    mark: str,
) -> None:
    shell = CommandRunner()
    line = "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done"
    deaf = UnderWay(Command(line, grace=1), shell)
    until(lambda: bool(deaf.heard))
    deaf.stop()
    until(lambda: ("stdout", b"told\n") in deaf.heard)
    other = UnderWay(Command(f"sleep {mark}"), shell)
    deaf.stopped()
    assert len(sleepers(mark)) == 1
    other.stop()
    other.stopped()


def test_who_obeys_has_time_to_clean_up() -> None:
    ended = sh("trap 'echo bye; exit 0' TERM; sleep 9 & wait", timeout=1, grace=5)
    assert (ended.how, text(ended.stdout)) == (TIMED_OUT, "bye\n")


def test_a_command_that_is_stopped_is_ended_before_that_is_told(mark: str) -> None:
    command = UnderWay(Command(f"trap '' TERM; sleep {mark} & sleep {mark}", grace=0.1))
    until(lambda: len(sleepers(mark)) == 2)
    command.stop()
    command.stopped()
    assert sleepers(mark) == []


def test_a_command_that_is_stopped_before_it_begins_is_ended_at_once(mark: str) -> None:
    leash = Signal()
    leash.abort()
    with pytest.raises(Stopped):
        CommandRunner().run(Command(f"sleep {mark}"), abort=leash)
    assert sleepers(mark) == []


def test_who_is_started_while_the_others_are_told_to_end_is_told_too(mark: str) -> None:
    line = f"trap 'sleep {mark} & exit 0' TERM; echo; while :; do sleep 0.02; done"
    command = UnderWay(Command(line, grace=300))
    until(lambda: bool(command.heard))
    command.stop()
    command.stopped()
    assert sleepers(mark) == []


def test_who_cleans_up_may_start_others_for_it() -> None:
    line = "trap 'sleep 0.3 && echo clean; exit 0' TERM; echo; while :; do sleep 0.02; done"
    command = UnderWay(Command(line))
    until(lambda: bool(command.heard))
    command.stop()
    assert text(command.stopped().stdout) == "\nclean\n"


def test_a_command_that_is_stopped_in_its_grace_after_a_timeout_is_ended_all_the_same(
    mark: str,
) -> None:
    line = f"trap 'echo told' TERM; while :; do sleep {mark}; done"
    command = UnderWay(Command(line, timeout=1, grace=60))
    until(lambda: bool(command.heard))
    command.stop()
    command.shell.longest_grace = 0.1
    ended = command.stopped()
    assert sleepers(mark) == []
    assert (ended.how, ended.signal) == (TIMED_OUT, signal.SIGKILL)


def test_a_command_that_nobody_can_hear_any_more_is_ended(mark: str) -> None:
    class Deaf(Listener):
        def on_output(self, stream: str, data: bytes) -> None:
            raise OSError("the disk is gone")

    shell = CommandRunner()
    with pytest.raises(OSError, match="the disk is gone"):
        shell.run(Command(f"echo here; sleep {mark} & sleep {mark}"), Deaf())
    assert sleepers(mark) == []


def test_the_last_words_of_a_stopped_command_are_kept() -> None:
    line = "trap 'head -c 1000000 /dev/zero; exit 0' TERM; echo; sleep 300 & wait"
    command = UnderWay(Command(line, max_kept=10))
    until(lambda: bool(command.heard))
    command.stop()
    assert command.stopped().stdout.dropped == 1_000_001 - 10


def test_how_a_command_ended_counts_although_it_is_stopped_while_the_rest_is_read(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "DRAINING", 60)
    command = UnderWay(Command(f"sleep {mark} & echo $$ > pid"))
    until(lambda: has_left(Path("pid")) and bool(sleepers(mark)))
    command.stop()
    for pid in sleepers(mark):
        os.kill(pid, signal.SIGKILL)
    assert command.ended().succeeded


def test_what_ends_without_a_handle_to_watch_is_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    began = time.monotonic()
    assert text(sh("echo one; exec >&- 2>&-; sleep 0.1").stdout) == "one\n"
    assert sh("exit 3").exit_code == 3
    assert time.monotonic() - began < 10


def has_left(file: Path) -> bool:
    """Whether the process that wrote its number there has ended, and that was heard of."""
    return file.exists() and not Path("/proc", file.read_text().strip() or "self").exists()


def test_a_daemon_left_behind_does_not_hold_its_command_open(mark: str) -> None:
    began = time.monotonic()
    assert sh(f"sleep {mark} & exit 0").succeeded
    assert time.monotonic() - began < 10
    assert len(sleepers(mark)) == 1


def test_what_commands_leave_behind_does_not_become_zombies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "REAP_EVERY", 0.02)

    def zombies() -> set[int]:
        return {p.pid for p in processes() if p.is_gone and p.parent == os.getpid()}

    others = zombies()
    shell = CommandRunner()
    commands = [UnderWay(Command("(sleep 0.1 >&- 2>&- &)"), shell) for _ in range(20)]
    for command in commands:
        command.ended()
    until(lambda: zombies() <= others and not shell.unreaped)
