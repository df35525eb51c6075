"""Orphaned commands: processes of commands whose worker process is gone, found by their run marker.

A run marker names the job and the process that runs it. If the kernel does not show the markers,
no command is found or ended. The database knows whether the job has been taken over: see
`engine.maintenance`.
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

    Workers that run commands are always registered with the names of their jobs.
    """
    return names is not None and not {COMMAND, NOTICE}.isdisjoint(decode(names))


class RunMarker(NamedTuple):
    """The run marker of a command, parsed."""

    nonce: int
    job: int
    token: int
    """The claim token of the job."""
    pid: int
    start_time: int
    pid_namespace: str
    """The namespace of `pid`; "" if a process cannot be found by it."""


def env_marker_for(nonce: int, job: int, token: int) -> str:
    """Return the run marker of a run in this process."""
    return f"{nonce & (2**64 - 1):x}-{job}-{token}-{_process_part(os.getpid())}"


@cache
def _process_part(pid: int) -> str:
    """Return the part of a run marker that identifies this process; cached by pid for forks."""
    process = read_process(pid)
    return f"{pid}-0-" if process is None else f"{pid}-{process.start_time}-{pid_namespace()}"


def parse_marker(text: str | None) -> RunMarker | None:
    """Parse a run marker; None if it is none."""
    try:
        nonce, job, token, pid, start, namespace = (text or "").split("-")
        unsigned = int(nonce, 16)
        signed = unsigned - 2**64 if unsigned >= 2**63 else unsigned
        return RunMarker(signed, int(job), int(token), int(pid), int(start), namespace)
    except ValueError:
        return None


def worker_is_gone(marker: RunMarker) -> bool:
    """Return whether the worker process has certainly ended; False in another pid namespace."""
    if not marker.pid_namespace or marker.pid_namespace != pid_namespace():
        return False
    process = read_process(marker.pid)
    return process is None or process.start_time != marker.start_time or process.is_gone


def commands() -> dict[RunMarker, list[Process]]:
    """Return the live processes of commands: those with a marker, and the sessions they lead.

    Any process can put any marker into its environment. So only markers of this user's processes
    count, and a marker applies to a whole session only if its leader has it: no process can join
    the session of another, and a forged marker ends only the process that forged it.
    """
    live = [process for process in processes() if not process.is_gone]
    markers = {
        p.pid: marker
        for p in live
        if (marker := parse_marker(env_marker_of(p.pid))) is not None and is_of_this_user(p.pid)
    }
    sessions = {p.session: markers[p.pid] for p in live if p.pid in markers and p.session == p.pid}
    sessions.pop(os.getsid(0), None)
    found: dict[RunMarker, list[Process]] = {}
    for process in live:
        marker = markers.get(process.pid) or sessions.get(process.session)
        if marker is not None:
            found.setdefault(marker, []).append(process)
    return found


class OrphanScan(threading.Thread):
    """A thread that searches for commands of the worker processes with the nonces `known`.

    Reading /proc for each process of the machine takes tens of milliseconds.
    """

    def __init__(self, known: Collection[int], lost: Collection[int]) -> None:
        super().__init__(name="bullite-orphans", daemon=True)
        self.known = frozenset(known)
        self.lost = frozenset(lost)
        """Nonces of processes that were lost before the scan began."""
        self.found: dict[RunMarker, list[Process]] = {}
        self.without_process: set[RunMarker] = set()
        """Markers in `found` whose worker process has certainly ended."""
        self.is_done = False

    def run(self) -> None:
        try:
            found = commands()
            self.found = {marker: found[marker] for marker in found if marker.nonce in self.known}
            self.without_process = {marker for marker in self.found if worker_is_gone(marker)}
        except Exception:
            log.exception("the processes of this machine could not be looked at")
        self.is_done = True


def end(members: Collection[Process]) -> None:
    """Kill these processes; only another scan finds those that they start until then."""
    log.warning("ending %d processes of a command whose worker is gone", len(members))
    for process in members:
        send(process, signal.SIGKILL)
