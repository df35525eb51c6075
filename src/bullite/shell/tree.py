"""The processes of a command: found however they hide, signalled without hitting a stranger.

A command has a session of its own and a cookie in its environment. Who leaves the session still has
the cookie; who drops the cookie too, and its parent with it, is adopted by this process, if that
adopts orphans. Elsewhere than on Linux only the process group is known.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

COOKIE = "BULLITE_RUN"
"""The name of the variable that marks the processes of a command."""

_PROC = Path("/proc")
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_GONE = frozenset("ZX")
"""States of a process that only waits for its parent to hear of its end."""


def new_cookie() -> str:
    """A mark that no other command has."""
    return secrets.token_hex(16)


def adopt_orphans(adopt: bool = True) -> bool:
    """Become the parent of all orphans that come from here; False where that cannot be."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_SUBREAPER, int(adopt), 0, 0, 0) == 0)


@dataclass(frozen=True, slots=True)
class Process:
    """One process as the kernel shows it; `began` tells it from a later one of the same number."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    began: int

    @property
    def is_gone(self) -> bool:
        return self.state in _GONE


def look_at(pid: int) -> Process | None:
    """The process of that number; None if there is none, or the kernel does not show it."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
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
        if (found := look_at(pid)) is not None:
            yield found


def _has_cookie(pid: int, cookie: str) -> bool:
    return f"{COOKIE}={cookie}".encode() in _environment(pid).split(b"\0")


def _environment(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""  # it is gone, or somebody else's


class Tree:
    """A command that was started as `leader` with `cookie` in its environment."""

    def __init__(self, leader: int, cookie: str) -> None:
        self.leader = leader
        self.cookie = cookie
        found = look_at(leader)
        self.began = found.began if found is not None else 0
        self.seen: set[tuple[int, int]] = {(leader, self.began)}
        """The processes of it that were ever found: their numbers, and when they began."""

    def members(self, others: Iterable[Tree] = ()) -> list[Process]:
        """Those that live, and orphans without a mark that cannot be one of the `others`'."""
        known = [process for process in processes() if not process.is_gone]
        found = {process.pid: process for process in known if self._is_mine(process)}
        for process in self._unmarked_orphans(known, found, others):
            found[process.pid] = process
        self._add_descendants(known, found)
        self.seen |= {(process.pid, process.began) for process in found.values()}
        return list(found.values())

    def _is_mine(self, process: Process) -> bool:
        if process.began < self.began:
            return False
        return (
            self.leader in (process.pid, process.group, process.session)
            or (process.pid, process.began) in self.seen
            or _has_cookie(process.pid, self.cookie)
        )

    def _unmarked_orphans(
        self, known: Iterable[Process], found: Iterable[int], others: Iterable[Tree]
    ) -> Iterator[Process]:
        mine, rivals = set(found), list(others)
        leaders = {tree.leader for tree in rivals}
        for process in known:
            if process.parent != os.getpid() or process.pid in mine or process.pid in leaders:
                continue
            if process.began < self.began or not _was_started_for_a_command(process):
                continue
            if not any(tree.began <= process.began for tree in rivals):
                yield process

    def _add_descendants(self, known: Iterable[Process], found: dict[int, Process]) -> None:
        children: dict[int, list[Process]] = {}
        for process in known:
            children.setdefault(process.parent, []).append(process)
        waiting = list(found)
        while waiting:
            for child in children.get(waiting.pop(), ()):
                if child.pid not in found and child.began >= self.began:
                    found[child.pid] = child
                    waiting.append(child.pid)

    def send(self, number: int, others: Iterable[Tree] = ()) -> int:
        """Signal all that live; how many there were."""
        members = self.members(others)
        for process in members:
            send(process, number)
        if sys.platform != "linux":
            with contextlib.suppress(OSError):
                os.killpg(self.leader, number)
                return 1
        return len(members)


def _was_started_for_a_command(process: Process) -> bool:
    """Whether an adopted child left the session of this process, as only commands do."""
    return process.session != os.getsid(0)


def send(process: Process, number: int) -> None:
    """Signal just this process: not one that got its number meanwhile."""
    try:
        handle = os.pidfd_open(process.pid)
    except (OSError, AttributeError):
        return
    try:
        found = look_at(process.pid)
        if found is not None and found.began == process.began:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass  # it has ended
    finally:
        os.close(handle)


def reap(trees: Sequence[Tree], awaited: Container[int]) -> list[Tree]:
    """Hear of the end of what commands left behind, so that none stays a zombie.

    Answers the commands of which somebody lives. Nobody else's children are touched, nor those
    `awaited`.
    """
    by_session = {tree.leader: tree for tree in trees}
    by_process = {one: tree for tree in trees for one in tree.seen}
    living: set[int] = set()
    for process in processes():
        tree = by_session.get(process.session) or by_process.get((process.pid, process.began))
        if tree is None:
            continue
        if process.is_gone and process.parent == os.getpid() and process.pid not in awaited:
            with contextlib.suppress(OSError):
                os.waitpid(process.pid, os.WNOHANG)
        else:
            living.add(tree.leader)
    return [tree for tree in trees if tree.leader in living]
