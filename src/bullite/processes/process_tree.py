"""The processes of a command: found even if they leave its session, signalled without others.

A command has a session of its own, and a run marker in its environment and on a descriptor. A
process that leaves the session still has the marker. A process that drops both markers, and whose
parent has ended, becomes a child of this process, if that adopts orphans; it is found by the pipe
that it writes to. If it has closed that too, it is found only if no other command can have started
it. On other systems than Linux, only the process group is known.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import sys
from collections.abc import Container, Iterable, Iterator, Sequence

from .process_info import FileId, Process, env_marker_of, output_files, processes, send

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def new_env_marker() -> str:
    """Return a run marker that no other command has."""
    return secrets.token_hex(16)


def adopt_orphans(adopt: bool = True) -> bool:
    """Become the parent of orphaned descendants. Return False if that is not supported."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_SUBREAPER, int(adopt), 0, 0, 0) == 0)


class ProcessTree:
    """A command: process `leader`, with `env_marker` in its environment, which writes to `pipes`.

    `start_time` is a time before the leader started. The exact one would have to be read from
    /proc, which blocks while the leader executes its program: the longest part of a start.
    """

    def __init__(
        self,
        leader: int,
        env_marker: str,
        start_time: int,
        pipes: frozenset[FileId] = frozenset(),
    ) -> None:
        self.leader = leader
        self.env_marker = env_marker
        self.start_time = start_time
        self.pipes = pipes
        self.seen: set[tuple[int, int]] = set()
        """The pid and start time of each of its processes that was found so far."""

    def members(self, others: Iterable[ProcessTree] = ()) -> list[Process]:
        """Return its live processes, with orphans that cannot belong to one of `others`."""
        live = [process for process in processes() if not process.is_gone]
        found = {process.pid: process for process in live if self._is_mine(process)}
        for process in self._orphans(live, found, others):
            found[process.pid] = process
        self._add_descendants(live, found)
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
        self, live: Iterable[Process], found: Iterable[int], others: Iterable[ProcessTree]
    ) -> Iterator[Process]:
        mine, others = set(found), list(others)
        leaders = {tree.leader for tree in others}
        for process in live:
            if process.parent != os.getpid() or process.pid in mine or process.pid in leaders:
                continue
            if process.start_time < self.start_time:
                continue
            if self.pipes & output_files(process.pid) or _cannot_be_of(process, others):
                yield process

    def _add_descendants(self, live: Iterable[Process], found: dict[int, Process]) -> None:
        children: dict[int, list[Process]] = {}
        for process in live:
            children.setdefault(process.parent, []).append(process)
        parents = list(found)
        while parents:
            for child in children.get(parents.pop(), ()):
                if child.pid not in found and child.start_time >= self.start_time:
                    found[child.pid] = child
                    parents.append(child.pid)

    def send(
        self,
        number: int,
        others: Iterable[ProcessTree] = (),
        signalled: set[tuple[int, int]] | None = None,
    ) -> int:
        """Signal all live processes that are not in `signalled`, and add them to it.

        Return how many are alive.
        """
        if sys.platform != "linux":
            with contextlib.suppress(OSError):
                os.killpg(self.leader, 0 if signalled else number)
                if signalled is not None:
                    signalled.add((self.leader, 0))
                return 1
        members = self.members(others)
        for process in members if signalled is None else _not_signalled(members, signalled):
            send(process, number)
        return len(members)


def _not_signalled(members: Sequence[Process], signalled: set[tuple[int, int]]) -> list[Process]:
    """Return the processes that are not in `signalled`, and add them to it.

    At a second call, children of live members are left out: a process that was signalled may have
    started them to clean up.
    """
    parents = {process.pid for process in members} if signalled else set()
    missing = [
        process
        for process in members
        if (process.pid, process.start_time) not in signalled and process.parent not in parents
    ]
    signalled |= {(process.pid, process.start_time) for process in missing}
    return missing


def _cannot_be_of(process: Process, others: Iterable[ProcessTree]) -> bool:
    """Return whether an orphaned child of this process is of a command, and of none of `others`.

    It left this process's session, as only commands do, has no marker, and started before `others`.
    """
    return (
        process.session != os.getsid(0)
        and not any(tree.start_time <= process.start_time for tree in others)
        and env_marker_of(process.pid) is None
    )


def reap(trees: Sequence[ProcessTree], awaited: Container[int]) -> list[ProcessTree]:
    """Reap zombies that commands left behind, except those in `awaited`.

    Return the commands that have live processes. Other children of this process are not reaped.
    """
    by_session = {tree.leader: tree for tree in trees}
    by_process = {one: tree for tree in trees for one in tree.seen}
    alive: set[int] = set()
    for process in processes():
        tree = by_session.get(process.session) or by_process.get((process.pid, process.start_time))
        if tree is None:
            continue
        if process.is_gone and process.parent == os.getpid() and process.pid not in awaited:
            with contextlib.suppress(OSError):
                os.waitpid(process.pid, os.WNOHANG)
        else:
            alive.add(tree.leader)
    return [tree for tree in trees if tree.leader in alive]
