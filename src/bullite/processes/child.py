"""The place of one child in a group: how the child is started, heard, pressed to end, and seen."""

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
"""Seconds after which a child that says nothing counts as ready."""

DRAIN, STOP, KILL = 1, 2, 3
"""How hard a child was pressed to end: finish your jobs; stop them; die."""

_PRESSING = {DRAIN: signal.SIGTERM, STOP: signal.SIGINT}
"""Another signal each: the kernel makes one of two alike that a child did not get round to yet."""

STARTING, RUNNING, DRAINING, WAITING, ENDED = "starting", "running", "draining", "waiting", "ended"


def python_running(module: str) -> list[str]:
    """Return the command line of a Python process that runs one of our modules.

    With -P it imports nothing from the folder that it is started in: a file of another user there
    may be called like a module of ours.
    """
    return [sys.executable, "-P", "-m", module]


class ChildNotStarted(BulliteError):
    """The program of the children cannot be started; the message says why."""


@dataclass(slots=True, eq=False)
class ChildSlot:
    """A place for one child, and the child that has it."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    hears: int | None = None
    """The descriptor on which it tells that it is ready."""
    is_ready: bool = False
    spawned: float = 0.0
    started_at: int | None = None
    spawns: int = 0
    deaths: int = 0
    """How often in a row it died before it had settled."""
    due: float | None = 0.0
    """When the next child is to be spawned, while there is none."""
    pressed: int = 0
    deadline: float | None = None
    """When it is pressed harder."""
    is_given_up: bool = False

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    @property
    def counts_as_ready_at(self) -> float:
        return self.spawned + READY_WITHIN

    def is_up(self, now: float) -> bool:
        if self.process is None or self.pressed:
            return False
        return self.is_ready or now >= self.counts_as_ready_at

    @property
    def state(self) -> str:
        if self.process is None:
            return ENDED if self.due is None else WAITING
        if self.pressed:
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
        """Start the next child; the descriptor on which it will tell that it is ready.

        It receives the `private` variables through a socket: see `privacy`.
        """
        hears, says = os.pipe()
        try:
            self.process = _start(argv, environment, private, lifeline, says)
        except BaseException as error:
            os.close(hears)
            if isinstance(error, OSError | ValueError):
                raise ChildNotStarted(f"child {self.number} cannot be started: {error}") from error
            raise
        finally:
            os.close(says)
        os.set_blocking(hears, False)
        self.hears, self.is_ready, self.due = hears, False, None
        self.spawned, self.started_at = now, time.time_ns() // 1_000_000
        self.spawns += 1
        return hears

    def signal_stop(self, how_hard: int) -> bool:
        """Press the child as hard as this; whether it is killed by that."""
        assert self.process is not None
        for step in range(self.pressed + 1, how_hard + 1):
            self.pressed = step
            if step < KILL:  # not left out: a child stops its jobs when it hears the second one
                self.process.send_signal(_PRESSING[step])
            elif self.process.poll() is None:
                kill(self.process)
                return True
        return False

    def clear(self) -> subprocess.Popen[bytes]:
        """Have the place free again; the child that had it."""
        assert self.process is not None
        process = self.process
        self.process, self.pressed, self.deadline = None, 0, None
        return process


def _start(
    argv: Sequence[str],
    environment: Mapping[str, str],
    private: Mapping[str, str],
    lifeline: int,
    says: int,
) -> subprocess.Popen[bytes]:
    with offer(private) as offered:
        ours = {LIFELINE: lifeline, READY: says, PRIVATE: offered.fileno()}
        return subprocess.Popen(
            list(argv),
            env=systemd.for_children(environment) | {n: str(fd) for n, fd in ours.items()},
            stdin=subprocess.DEVNULL,
            pass_fds=tuple(ours.values()),
            start_new_session=True,  # the terminal's Ctrl-C is for the supervisor alone
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a child that was not reaped yet, with all that it started in its own process group."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def why_it_ended(code: int) -> str | None:
    """What an exit code means, in words; None if all is well."""
    if code < 0:
        with contextlib.suppress(ValueError):  # not every number has a name
            return f"killed by signal {-code} ({signal.Signals(-code).name})"
        return f"killed by signal {-code}"
    meanings = {0: None, WANTS_FRESH: "to be replaced", CANNOT_WORK: "as it can never work"}
    return meanings.get(code, f"with exit code {code}")
