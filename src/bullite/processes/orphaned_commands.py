"""Commands whose worker is gone: found by their marks, and ended with all that they started.

A command is marked with its job and the process that runs it. Where the kernel does not show the
marks, nothing is found and nothing ended. What became of its job, only the database knows: see
`engine.chores`.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Collection
from functools import cache
from typing import NamedTuple

from ..core.codec import decode
from ..core.names import COMMAND, NOTICE
from .process_info import (
    Process,
    env_marker_of,
    is_of_this_user,
    pid_namespace,
    processes,
    read_process,
    send,
)

log = logging.getLogger("bullite.worker")


def may_run_commands(names: str | None) -> bool:
    """Return whether a worker that takes jobs of these names, a JSON array, may run commands.

    Those that run them are always registered with the names of their jobs.
    """
    return names is not None and not {COMMAND, NOTICE}.isdisjoint(decode(names))


class RunMarker(NamedTuple):
    """What the cookie of a command tells."""

    nonce: int
    job: int
    token: int
    """Under which the process of that nonce holds the job."""
    pid: int
    start_time: int
    pid_namespace: str
    """What that number counts in; "" if nobody can find the process by it."""


def env_marker_for(nonce: int, job: int, token: int) -> str:
    """The cookie of a run by this process."""
    return f"{nonce & (2**64 - 1):x}-{job}-{token}-{_runner(os.getpid())}"


@cache
def _runner(pid: int) -> str:
    """How marks name this process; by its number, as the child of a fork is another."""
    here = read_process(pid)
    return f"{pid}-0-" if here is None else f"{pid}-{here.start_time}-{pid_namespace()}"


def read_mark(cookie: str | None) -> RunMarker | None:
    try:
        nonce, job, token, pid, began, space = (cookie or "").split("-")
        unsigned = int(nonce, 16)
        signed = unsigned - 2**64 if unsigned >= 2**63 else unsigned
        return RunMarker(signed, int(job), int(token), int(pid), int(began), space)
    except ValueError:
        return None


def has_lost_its_process(mark: RunMarker) -> bool:
    """Whether who ran it is certainly gone; numbers that count elsewhere tell us nothing."""
    if not mark.pid_namespace or mark.pid_namespace != pid_namespace():
        return False
    process = read_process(mark.pid)
    return process is None or process.start_time != mark.start_time or process.is_gone


def commands() -> dict[RunMarker, list[Process]]:
    """Return the living processes of commands: those with a mark, and the sessions they lead.

    Any process can put any mark into its environment. So only marks of this user's processes count,
    and a mark stands for a whole session only at its leader: nothing gets into the session of
    another process, and a forged mark ends nothing but the process that forged it.
    """
    known = [process for process in processes() if not process.is_gone]
    marks = {
        p.pid: mark
        for p in known
        if (mark := read_mark(env_marker_of(p.pid))) is not None and is_of_this_user(p.pid)
    }
    sessions = {p.session: marks[p.pid] for p in known if p.pid in marks and p.session == p.pid}
    sessions.pop(os.getsid(0), None)
    found: dict[RunMarker, list[Process]] = {}
    for process in known:
        mark = marks.get(process.pid) or sessions.get(process.session)
        if mark is not None:
            found.setdefault(mark, []).append(process)
    return found


class Look(threading.Thread):
    """Look for commands of the processes with the nonces `known`, in a thread of its own.

    Asking the kernel about each process of the machine takes tens of milliseconds.
    """

    def __init__(self, known: Collection[int], lost: Collection[int]) -> None:
        super().__init__(name="bullite-orphans", daemon=True)
        self.known = frozenset(known)
        self.lost = frozenset(lost)
        """Those that were lost before the look began."""
        self.found: dict[RunMarker, list[Process]] = {}
        self.without_process: set[RunMarker] = set()
        """Those of `found` whose process is certainly gone."""
        self.is_done = False

    def run(self) -> None:
        try:
            known = commands()
            self.found = {mark: known[mark] for mark in known if mark.nonce in self.known}
            self.without_process = {mark for mark in self.found if has_lost_its_process(mark)}
        except Exception:
            log.exception("the processes of this machine could not be looked at")
        self.is_done = True


def end(members: Collection[Process]) -> None:
    """Kill these, which takes a moment; who was started meanwhile is only found by another look."""
    log.warning("ending %d processes of a command whose worker is gone", len(members))
    for process in members:
        send(process, signal.SIGKILL)
