"""Commands, run for real."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bullite.shell import running
from bullite.shell.running import EXITED, SIGNALLED, TIMED_OUT, Command, Ended, NotStarted, Shell
from bullite.shell.tree import adopt_orphans, processes

_numbers = itertools.count(1)


def run(command: Command) -> Ended:
    async def go() -> Ended:
        return await Shell().run(command)

    return asyncio.run(go())


def sh(line: str, **options: object) -> Ended:
    return run(Command(line, **options))  # type: ignore[arg-type]


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


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not happened():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


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
    assert (ended.stdout.text(), ended.stderr.text()) == ("out\n", "err\n")


def test_what_a_command_writes_is_heard_while_it_runs() -> None:
    heard: list[tuple[str, bytes]] = []

    async def go() -> None:
        command = asyncio.ensure_future(
            Shell().run(Command("echo one; read line < fifo; echo two >&2"), _append(heard))
        )
        await until(lambda: bool(heard))
        assert heard == [("stdout", b"one\n")]
        assert not command.done()
        command.cancel()
        await asyncio.wait({command})

    os.mkfifo("fifo")
    asyncio.run(go())


def _append(heard: list[tuple[str, bytes]]) -> Callable[[str, bytes], None]:
    return lambda stream, data: heard.append((stream, data))


def test_the_words_of_a_program_are_not_for_a_shell() -> None:
    assert run(Command(argv=["echo", "a; touch x", "$HOME"])).stdout.text() == "a; touch x $HOME\n"
    assert os.listdir() == []


def test_a_command_reads_nothing_unless_it_is_given_a_file() -> None:
    assert sh("cat").stdout.text() == ""
    Path("given").write_text("hello")
    assert sh("cat", stdin="given").stdout.text() == "hello"


def test_a_flood_on_both_pipes_is_drained_and_little_of_it_is_kept() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended = sh("yes | head -c 50M & yes no | head -c 50M >&2; wait", most_kept=1_000)
    assert (ended.stdout.dropped, ended.stderr.dropped) == (50 * 1024**2 - 1_000,) * 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024


# --- what they start with ------------------------------------------------------------------------


def test_a_command_has_none_of_our_descriptors() -> None:
    with open("held", "w") as held:
        os.set_inheritable(held.fileno(), True)
        assert sh("ls /proc/self/fd").stdout.text().split() == ["0", "1", "2", "3"]


def test_a_command_has_our_environment_without_our_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BULLITE_URL", "postgresql://me:secret@host/db")
    monkeypatch.setenv("OTHER", "kept")
    found = sh("env", env={"MORE": "1"}).stdout.text().splitlines()
    assert {"OTHER=kept", "MORE=1"} <= set(found)
    assert not [line for line in found if "me:secret" in line]


def test_a_variable_may_be_named_instead_of_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BULLITE_URL", "jobs.db")
    assert sh("echo $BULLITE_URL", env_from=["BULLITE_URL"]).stdout.text() == "jobs.db\n"
    with pytest.raises(NotStarted, match="no variable ABSENT"):
        sh("true", env_from=["ABSENT"])


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (Command("true", cwd="/absent"), "No such file or directory: /absent"),
        (Command("true", cwd="/etc/passwd"), "Not a directory: /etc/passwd"),
        (Command(argv=["/absent"]), "No such file or directory: /absent"),
        (Command(argv=["/etc/passwd"]), "Permission denied: /etc/passwd"),
        (Command(argv=["echo", "a\0b"]), "embedded null byte"),
        (Command("true", stdin="absent"), "No such file or directory: absent"),
    ],
    ids=lambda part: str(part)[:20],
)
def test_what_cannot_be_started_says_why(command: Command, reason: str) -> None:
    with pytest.raises(NotStarted) as refused:
        run(command)
    assert str(refused.value) == reason


def test_memory_and_time_may_be_limited() -> None:
    eats = Command(argv=[sys.executable, "-c", "bytearray(1 << 30)"], memory_bytes=300 * 1024**2)
    assert "MemoryError" in run(eats).stderr.text()
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
    async def go() -> None:
        shell = Shell()
        other = asyncio.ensure_future(shell.run(Command(f"(sleep {mark} &); read line < fifo")))
        await until(lambda: bool(sleepers(mark)))
        await shell.run(Command("env -i setsid -f /bin/sleep 0; sleep 9", timeout=0.1, grace=0.1))
        assert len(sleepers(mark)) == 1
        other.cancel()
        await asyncio.wait({other})

    os.mkfifo("fifo")
    asyncio.run(go())


def test_who_obeys_has_time_to_clean_up() -> None:
    ended = sh("trap 'echo bye; exit 0' TERM; sleep 9 & wait", timeout=0.2, grace=5)
    assert (ended.how, ended.stdout.text()) == (TIMED_OUT, "bye\n")


def test_a_command_whose_job_is_cancelled_is_ended_before_that_takes_effect(mark: str) -> None:
    async def go() -> None:
        command = asyncio.ensure_future(
            Shell().run(Command(f"trap '' TERM; sleep {mark} & sleep {mark}", grace=0.1))
        )
        await until(lambda: len(sleepers(mark)) == 2)
        command.cancel()
        with pytest.raises(asyncio.CancelledError):
            await command
        assert sleepers(mark) == []

    asyncio.run(go())


def test_a_daemon_left_behind_does_not_hold_its_command_open(mark: str) -> None:
    began = time.monotonic()
    assert sh(f"sleep {mark} & exit 0").succeeded
    assert time.monotonic() - began < 10
    assert len(sleepers(mark)) == 1


def test_what_commands_leave_behind_does_not_become_zombies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "REAP_EVERY", 0.02)

    def zombies() -> set[int]:
        return {p.pid for p in processes() if p.is_gone and p.parent == os.getpid()}

    others = zombies()

    async def go() -> None:
        shell = Shell()
        await asyncio.gather(*(shell.run(Command("(sleep 0.1 >&- 2>&- &)")) for _ in range(20)))
        await until(lambda: zombies() <= others and not shell.remembers)

    asyncio.run(go())
