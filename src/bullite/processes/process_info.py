"""Processes as /proc shows them: found by their run marker, signalled safely.

The run marker of a command is in the environment of its processes, and in the name of a descriptor
that they inherit: a program that replaces its environment still has the descriptor.
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
"""The variable with the run marker of a command."""

_FD_MARKER = f"/memfd:{ENV_MARKER}="
_DELETED = " (deleted)"
"""How /proc shows the target of the marker descriptor, a memory file."""

_PROC = Path("/proc")
_GONE = frozenset("ZX")
"""States of a process that has ended: zombie, dead."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process; `start_time` distinguishes it from a later one with the same pid."""

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
    """Return the process with that pid; None if there is none or /proc does not show it."""
    try:
        with open(f"{_PROC}/{pid}/stat", errors="replace") as stat:
            text = stat.read()
    except OSError:
        return None
    # The second field is the name in brackets, which may contain anything.
    fields = text[text.rindex(")") + 2 :].split()
    state, parent, group, session = fields[0], *map(int, fields[1:4])
    return Process(pid, state, parent, group, session, int(fields[19]))


def processes() -> Iterator[Process]:
    """Yield all processes that /proc shows."""
    try:
        numbers = [int(name) for name in os.listdir(_PROC) if name.isdigit()]
    except OSError:
        return
    for pid in numbers:
        if (found := read_process(pid)) is not None:
            yield found


def user_of(pid: int) -> int | None:
    """Return the user who runs a process; None if there is no such process.

    Not the owner of its files in /proc: that is root for a process that cannot be inspected.
    """
    try:
        with open(f"{_PROC}/{pid}/status", errors="replace") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("Uid:")), None)
    except OSError:
        return None


def is_of_this_user(pid: int) -> bool:
    return user_of(pid) == os.getuid()


def make_fd_marker(marker: str) -> int | None:
    """Return a descriptor that carries a run marker; None if that is not supported."""
    try:
        return os.memfd_create(f"{ENV_MARKER}={marker}")
    except (OSError, AttributeError):
        return None


def env_marker_of(pid: int) -> str | None:
    """Return the run marker of a process, from its environment or its descriptors."""
    start = f"{ENV_MARKER}=".encode()
    for variable in _environment(pid).split(b"\0"):
        if variable.startswith(start):
            return variable.removeprefix(start).decode(errors="replace")
    return _fd_marker_of(pid)


def _environment(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""  # the process has ended, or belongs to another user


def _fd_marker_of(pid: int) -> str | None:
    with contextlib.suppress(OSError):  # it has ended, or belongs to another user
        for number in os.listdir(f"{_PROC}/{pid}/fd"):
            target = _target(pid, number)
            if target.startswith(_FD_MARKER) and _is_inheritable(pid, number):
                return target.removeprefix(_FD_MARKER).removesuffix(_DELETED)
    return None


def _target(pid: int, descriptor: str) -> str:
    try:
        return os.readlink(f"{_PROC}/{pid}/fd/{descriptor}")
    except OSError:
        return ""  # it was closed meanwhile


def _is_inheritable(pid: int, descriptor: str) -> bool:
    """Return whether a descriptor is inherited by programs that the process executes.

    The marker descriptor of a command is; that of the worker process which made it is not.
    """
    with open(f"{_PROC}/{pid}/fdinfo/{descriptor}") as info:
        flags = next(line.split()[1] for line in info if line.startswith("flags:"))
    return not int(flags, 8) & os.O_CLOEXEC


FileId = tuple[int, int]
"""The device and inode of a file or a pipe."""


def file_id(file: int | str) -> FileId:
    """Return the identity of the file that a descriptor or a path refers to."""
    status = os.stat(file)
    return status.st_dev, status.st_ino


def output_files(pid: int) -> set[FileId]:
    """Return the files of a process's standard output and error, as far as /proc shows them."""
    found = set()
    for number in (1, 2):
        with contextlib.suppress(OSError):
            found.add(file_id(f"{_PROC}/{pid}/fd/{number}"))
    return found


def now_ticks() -> int:
    """Return the time now on the clock of process start times; 0 if there is none."""
    try:
        return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
    except (AttributeError, OSError, ValueError):
        return 0


def start_time(pid: int) -> int | None:
    """Return the start time of a process; None if /proc does not show it."""
    process = read_process(pid)
    return None if process is None else process.start_time


def pid_namespace() -> str:
    """Return an id of the namespace of our pids, on this boot.

    It is "" if it is unknown, or if /proc shows the pids of another namespace.
    """
    try:
        is_our_proc = os.readlink(_PROC / "self") == str(os.getpid())
        namespace = os.stat(_PROC / "self" / "ns" / "pid").st_ino
    except OSError:
        return ""
    boot = boot_id()
    if not boot or not is_our_proc:
        return ""
    return (
        f"{namespace:x}.{boot.replace('-', '')[:16]}"  # a run marker separates its parts by dashes
    )


def send(process: Process, number: int) -> None:
    """Signal this process, and not a later one with the same pid."""
    with contextlib.suppress(OSError):  # it has ended
        signal_if(process.pid, number, lambda: start_time(process.pid) == process.start_time)


def signal_if(pid: int, signum: int, is_right_one: Callable[[], bool]) -> bool:
    """Signal a process if `is_right_one`, which is called while the pid cannot be reused.

    Return whether it was signalled.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):  # the kernel is too old
        if is_right := is_right_one():
            os.kill(pid, signum)
        return is_right
    try:
        if is_right := is_right_one():
            signal.pidfd_send_signal(handle, signum)
        return is_right
    finally:
        os.close(handle)
