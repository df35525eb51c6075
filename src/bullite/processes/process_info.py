"""Processes as the kernel shows them: found by their mark, signalled safely.

The mark of a command is in the environment of its processes, and in the name of a descriptor that
they inherit, the badge: who replaces the one hands on the other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..core.clock import boot_id

ENV_MARKER = "BULLITE_RUN"
"""The name of the variable that marks the processes of a command."""

_FD_MARKER = f"/memfd:{ENV_MARKER}="
_DELETED = " (deleted)"
"""How the kernel shows where a badge leads to: to memory, which has no place among the files."""

_PROC = Path("/proc")
_GONE = frozenset("ZX")
"""States of a process that only waits for its parent to hear of its end."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process as the kernel shows it; `began` tells it from a later one of the same number."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_time: int

    @property
    def is_gone(self) -> bool:
        return self.state in _GONE


def read_process(pid: int) -> Process | None:
    """The process of that number; None if there is none, or the kernel does not show it."""
    try:
        with open(f"{_PROC}/{pid}/stat", errors="replace") as stat:
            text = stat.read()
    except OSError:
        return None
    # The second field is the name in brackets, which may hold anything.
    fields = text[text.rindex(")") + 2 :].split()
    state, parent, group, session = fields[0], *map(int, fields[1:4])
    return Process(pid, state, parent, group, session, int(fields[19]))


def processes() -> Iterator[Process]:
    """All that the kernel shows."""
    try:
        numbers = [int(name) for name in os.listdir(_PROC) if name.isdigit()]
    except OSError:
        return
    for pid in numbers:
        if (found := read_process(pid)) is not None:
            yield found


def user_of(pid: int) -> int | None:
    """Return the user who runs a process; None if there is no such process.

    Not the owner of its files in /proc: that is root for each process that may not be looked into.
    """
    try:
        with open(f"{_PROC}/{pid}/status", errors="replace") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("Uid:")), None)
    except OSError:
        return None


def is_of_this_user(pid: int) -> bool:
    return user_of(pid) == os.getuid()


def make_fd_marker(cookie: str) -> int | None:
    """A descriptor that marks those who inherit it; None where there can be none."""
    try:
        return os.memfd_create(f"{ENV_MARKER}={cookie}")
    except (OSError, AttributeError):
        return None


def env_marker_of(pid: int) -> str | None:
    """The mark of the command that a process belongs to."""
    start = f"{ENV_MARKER}=".encode()
    for variable in _environment(pid).split(b"\0"):
        if variable.startswith(start):
            return variable.removeprefix(start).decode(errors="replace")
    return _fd_marker_of(pid)


def _environment(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""  # it is gone, or somebody else's


def _fd_marker_of(pid: int) -> str | None:
    with contextlib.suppress(OSError):  # it is gone, or somebody else's
        for number in os.listdir(f"{_PROC}/{pid}/fd"):
            target = _target(pid, number)
            if target.startswith(_FD_MARKER) and _is_handed_on(pid, number):
                return target.removeprefix(_FD_MARKER).removesuffix(_DELETED)
    return None


def _target(pid: int, descriptor: str) -> str:
    try:
        return os.readlink(f"{_PROC}/{pid}/fd/{descriptor}")
    except OSError:
        return ""  # it was closed meanwhile


def _is_handed_on(pid: int, descriptor: str) -> bool:
    """Whether programs that a process becomes or starts have a descriptor too.

    Commands have their badge so. Who made it has not, nor a fork of it that is no command.
    """
    with open(f"{_PROC}/{pid}/fdinfo/{descriptor}") as told:
        flags = next(line.split()[1] for line in told if line.startswith("flags:"))
    return not int(flags, 8) & os.O_CLOEXEC


Place = tuple[int, int]
"""The device and the number of a file or a pipe."""


def file_id(file: int | str) -> Place:
    """What a descriptor or a name leads to."""
    found = os.stat(file)
    return found.st_dev, found.st_ino


def output_files(pid: int) -> set[Place]:
    """What the standard output and error of a process lead to, if the kernel shows it."""
    found = set()
    for number in (1, 2):
        with contextlib.suppress(OSError):
            found.add(file_id(f"{_PROC}/{pid}/fd/{number}"))
    return found


def now_ticks() -> int:
    """Now, by the clock that tells when a process began; 0 where there is none."""
    try:
        return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
    except (AttributeError, OSError, ValueError):
        return 0


def start_time(pid: int) -> int | None:
    """When the process of that number began; None if the kernel does not show it."""
    process = read_process(pid)
    return None if process is None else process.start_time


def pid_namespace() -> str:
    """Names what the numbers of processes count in here, which is one PID namespace of one boot.

    "" if that cannot be told, or if the kernel shows us the numbers of another.
    """
    try:
        ours_are_shown = os.readlink(_PROC / "self") == str(os.getpid())
        namespace = os.stat(_PROC / "self" / "ns" / "pid").st_ino
    except OSError:
        return ""
    boot = boot_id()
    if not boot or not ours_are_shown:
        return ""
    return f"{namespace:x}.{boot.replace('-', '')[:16]}"  # a cookie has dashes between its parts


def send(process: Process, number: int) -> None:
    """Signal just this process: not one that got its number meanwhile."""
    with contextlib.suppress(OSError):  # it has ended
        signal_if(process.pid, number, lambda: start_time(process.pid) == process.start_time)


def signal_if(pid: int, signum: int, is_meant: Callable[[], bool]) -> bool:
    """Signal a process if it is the one that is meant, which is asked when it cannot change."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):  # the kernel is too old
        if meant := is_meant():
            os.kill(pid, signum)
        return meant
    try:
        if meant := is_meant():
            signal.pidfd_send_signal(handle, signum)
        return meant
    finally:
        os.close(handle)
