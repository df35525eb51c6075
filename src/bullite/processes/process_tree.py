"""The processes of a command: found however they hide, signalled without hitting a stranger.

A command has a session of its own, and a cookie in its environment and on a descriptor. Who leaves
the session still has the cookie; who drops that in both places, and its parent with it, is adopted
by this process, if that adopts orphans, and known by the pipe it writes to. Who has closed that too
is known only if it can be nobody else's. Elsewhere than on Linux only the process group is known.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import sys
from collections.abc import Container, Iterable, Iterator, Sequence

from .process_info import ENV_MARKER as ENV_MARKER
from .process_info import Place, Process, env_marker_of, output_files, processes, send

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def new_env_marker() -> str:
    """A mark that no other command has."""
    return secrets.token_hex(16)


def adopt_orphans(adopt: bool = True) -> bool:
    """Become the parent of all orphans that come from here; False where that cannot be."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_SUBREAPER, int(adopt), 0, 0, 0) == 0)


class ProcessTree:
    """A command, started as `leader` with `cookie` in its environment, which writes to `pipes`.

    `began` is a moment before that; the kernel knows a better one, but lets nobody see it while the
    leader turns into its program, which takes longer than all else that is to be done for a start.
    """

    def __init__(
        self, leader: int, cookie: str, began: int, pipes: frozenset[Place] = frozenset()
    ) -> None:
        self.leader = leader
        self.env_marker = cookie
        self.start_time = began
        self.pipes = pipes
        self.seen: set[tuple[int, int]] = set()
        """The processes of it that were ever found: their numbers, and when they began."""

    def members(self, others: Iterable[ProcessTree] = ()) -> list[Process]:
        """Those that live, and orphans without a mark that cannot be one of the `others`'."""
        known = [process for process in processes() if not process.is_gone]
        found = {process.pid: process for process in known if self._is_mine(process)}
        for process in self._orphans(known, found, others):
            found[process.pid] = process
        self._add_descendants(known, found)
        self.seen |= {(process.pid, process.start_time) for process in found.values()}
        return list(found.values())

    def _is_mine(self, process: Process) -> bool:
        if process.start_time < self.start_time:
            return False
        return (
            self.leader in (process.pid, process.group, process.session)
            or (process.pid, process.start_time) in self.seen
            or env_marker_of(process.pid) == self.env_marker
        )

    def _orphans(
        self, known: Iterable[Process], found: Iterable[int], others: Iterable[ProcessTree]
    ) -> Iterator[Process]:
        mine, rivals = set(found), list(others)
        leaders = {tree.leader for tree in rivals}
        for process in known:
            if process.parent != os.getpid() or process.pid in mine or process.pid in leaders:
                continue
            if process.start_time < self.start_time:
                continue
            if self.pipes & output_files(process.pid) or _is_nobody_elses(process, rivals):
                yield process

    def _add_descendants(self, known: Iterable[Process], found: dict[int, Process]) -> None:
        children: dict[int, list[Process]] = {}
        for process in known:
            children.setdefault(process.parent, []).append(process)
        waiting = list(found)
        while waiting:
            for child in children.get(waiting.pop(), ()):
                if child.pid not in found and child.start_time >= self.start_time:
                    found[child.pid] = child
                    waiting.append(child.pid)

    def send(
        self,
        number: int,
        others: Iterable[ProcessTree] = (),
        told: set[tuple[int, int]] | None = None,
    ) -> int:
        """Signal all that live, but for those `told` before; how many there were."""
        if sys.platform != "linux":
            with contextlib.suppress(OSError):
                os.killpg(self.leader, 0 if told else number)
                if told is not None:
                    told.add((self.leader, 0))
                return 1
        members = self.members(others)
        for process in members if told is None else _untold(members, told):
            send(process, number)
        return len(members)


def _untold(members: Sequence[Process], told: set[tuple[int, int]]) -> list[Process]:
    """Those who were not `told`, and are from now on. Who was started since by one who lives may be
    needed to clean up, and is left alone."""
    parents = {process.pid for process in members} if told else set()
    untold = [
        process
        for process in members
        if (process.pid, process.start_time) not in told and process.parent not in parents
    ]
    told |= {(process.pid, process.start_time) for process in untold}
    return untold


def _is_nobody_elses(process: Process, rivals: Iterable[ProcessTree]) -> bool:
    """Whether a child left the session of this process, as only commands do, has the mark of none,
    and began when none of the `rivals` ran."""
    return (
        process.session != os.getsid(0)
        and not any(tree.start_time <= process.start_time for tree in rivals)
        and env_marker_of(process.pid) is None
    )


def reap(trees: Sequence[ProcessTree], awaited: Container[int]) -> list[ProcessTree]:
    """Hear of the end of what commands left behind, so that none stays a zombie.

    Answers the commands of which somebody lives. Nobody else's children are touched, nor those
    `awaited`.
    """
    by_session = {tree.leader: tree for tree in trees}
    by_process = {one: tree for tree in trees for one in tree.seen}
    living: set[int] = set()
    for process in processes():
        tree = by_session.get(process.session) or by_process.get((process.pid, process.start_time))
        if tree is None:
            continue
        if process.is_gone and process.parent == os.getpid() and process.pid not in awaited:
            with contextlib.suppress(OSError):
                os.waitpid(process.pid, os.WNOHANG)
        else:
            living.add(tree.leader)
    return [tree for tree in trees if tree.leader in living]
