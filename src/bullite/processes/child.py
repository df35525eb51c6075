"""One child slot of a group: start its process, read its readiness, stop it, report its state."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BulliteError
from . import systemd
from .child_protocol import CANNOT_WORK, LIFELINE, READY, WANTS_FRESH
from .private_environment import PRIVATE, offer

READY_WITHIN = 10.0
"""Seconds after which a child that did not report readiness counts as ready."""

DRAIN, STOP, KILL = 1, 2, 3
"""Levels of a stop: finish the running jobs; interrupt them; kill the process."""

_STOP_SIGNALS = {DRAIN: signal.SIGTERM, STOP: signal.SIGINT}
"""Two different signals: the kernel merges pending signals of one number."""

STARTING, RUNNING, DRAINING, WAITING, ENDED = "starting", "running", "draining", "waiting", "ended"


def python_running(module: str) -> list[str]:
    """Return the command line of a Python process that runs one of our modules.

    -P keeps its current folder out of the import path: another user may have put a file there that
    has the name of one of our modules.
    """
    return [sys.executable, "-P", "-m", module]


class ChildNotStarted(BulliteError):
    """The program of the children cannot be started; the message says why."""


@dataclass(slots=True, eq=False)
class ChildSlot:
    """A numbered place for one child process; a new child takes the place of one that ended."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    ready_fd: int | None = None
    """The descriptor from which its readiness is read."""
    is_ready: bool = False
    spawned: float = 0.0
    started_at: int | None = None
    spawns: int = 0
    early_exits: int = 0
    """How many children in a row ended soon after their start."""
    due: float | None = 0.0
    """When to spawn the next child, while there is none."""
    stop_level: int = 0
    deadline: float | None = None
    """When to go to the next stop level."""
    is_unkillable: bool = False

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    @property
    def counts_as_ready_at(self) -> float:
        return self.spawned + READY_WITHIN

    def is_up(self, now: float) -> bool:
        if self.process is None or self.stop_level:
            return False
        return self.is_ready or now >= self.counts_as_ready_at

    @property
    def state(self) -> str:
        if self.process is None:
            return ENDED if self.due is None else WAITING
        if self.stop_level:
            return DRAINING
        return RUNNING if self.is_ready else STARTING

    def entry(self) -> dict[str, Any]:
        return {
            "slot": self.number,
            "pid": self.pid,
            "started_at": self.started_at,
            "restarts": max(0, self.spawns - 1),
            "state": self.state,
        }

    def spawn(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        private: Mapping[str, str],
        lifeline: int,
        now: float,
    ) -> int:
        """Start the next child and return the descriptor from which its readiness is read.

        It receives the `private` variables through a socket: see `private_environment`. Raise
        ChildNotStarted if its program cannot be started.
        """
        ready_fd, ready_writer = os.pipe()
        try:
            self.process = _start(argv, environment, private, lifeline, ready_writer)
        except BaseException as error:
            os.close(ready_fd)
            if isinstance(error, OSError | ValueError):
                raise ChildNotStarted(f"child {self.number} cannot be started: {error}") from error
            raise
        finally:
            os.close(ready_writer)
        os.set_blocking(ready_fd, False)
        self.ready_fd, self.is_ready, self.due = ready_fd, False, None
        self.spawned, self.started_at = now, time.time_ns() // 1_000_000
        self.spawns += 1
        return ready_fd

    def signal_stop(self, level: int) -> bool:
        """Stop the child, up to this level. Return True if it was killed."""
        assert self.process is not None
        for step in range(self.stop_level + 1, level + 1):
            self.stop_level = step
            if step < KILL:  # also the first of two: a child interrupts its jobs at the second
                self.process.send_signal(_STOP_SIGNALS[step])
            elif self.process.poll() is None:
                kill(self.process)
                return True
        return False

    def clear(self) -> subprocess.Popen[bytes]:
        """Free the slot and return the process that it held."""
        assert self.process is not None
        process = self.process
        self.process, self.stop_level, self.deadline = None, 0, None
        return process


def _start(
    argv: Sequence[str],
    environment: Mapping[str, str],
    private: Mapping[str, str],
    lifeline: int,
    ready_writer: int,
) -> subprocess.Popen[bytes]:
    with offer(private) as offered:
        inherited = {LIFELINE: lifeline, READY: ready_writer, PRIVATE: offered.fileno()}
        return subprocess.Popen(
            list(argv),
            env=systemd.for_children(environment) | {n: str(fd) for n, fd in inherited.items()},
            stdin=subprocess.DEVNULL,
            pass_fds=tuple(inherited.values()),
            start_new_session=True,  # Ctrl-C in the terminal reaches only the supervisor
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a child that was not reaped yet."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def exit_reason(code: int) -> str | None:
    """Return the meaning of an exit code in words; None if the child ended normally."""
    if code < 0:
        with contextlib.suppress(ValueError):  # not every number has a name
            return f"killed by signal {-code} ({signal.Signals(-code).name})"
        return f"killed by signal {-code}"
    meanings = {0: None, WANTS_FRESH: "to be replaced", CANNOT_WORK: "as it can never work"}
    return meanings.get(code, f"with exit code {code}")
