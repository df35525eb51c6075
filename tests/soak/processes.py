"""The processes of one store: started, killed and replaced, stopped for a while, ended."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.processes import Child

from . import load

WORKERS, PRODUCERS = 3, 2

STOPPED_FOR = 2.5
"""Seconds; longer than the lease of one queue's workers."""

STARTS_WITHIN = 60.0
ENDS_WITHIN = 15.0


class Processes:
    def __init__(self, location: str, folder: Path, ends: float, chooser: random.Random) -> None:
        self._location, self._folder, self._ends, self._random = location, folder, ends, chooser
        self._children: dict[str, Child] = {}
        self._stopped: dict[str, float] = {}
        """When each stopped process is to be continued."""
        self._terminated: list[str] = []
        self._made = 0
        self.kills = self.stops = 0
        self.disturbed: set[str] = set()
        """Those that were killed or stopped."""
        self.pauses: list[tuple[float, float]] = []
        """When processes were stopped, and continued."""
        self.failures: list[str] = []
        """Processes that ended by themselves, or did not end as they should."""

    def start_observer(self) -> None:
        """Start the process that makes the queues."""
        self._start("observer", load.observer, self._ends)

    def start_others(self) -> None:
        """Start all others, once the queues are there."""
        try:
            self._children["observer-0"].line(STARTS_WITHIN)
        except AssertionError as error:
            raise RuntimeError(f"{error}; its log: {self._log('observer-0')}") from None
        self._start("probe-worker", load.probe_worker)
        for _ in range(WORKERS):
            self._start_worker()
        for _ in range(PRODUCERS):
            self._start_producer()

    def undisturbed(self) -> list[int]:
        """The processes that are never killed or stopped."""
        return [
            child.pid
            for name, child in self._children.items()
            if _role(name) in ("observer", "probe-worker")
        ]

    # --- trouble ---

    def kill(self) -> None:
        """Kill a worker or a producer with SIGKILL, and start another."""
        name = self._killed_worker()
        child = self._children.pop(name)
        child.end()
        self.kills += 1
        self.disturbed.add(name)
        self._start_worker() if _role(name) == "worker" else self._start_producer()

    def stop(self) -> None:
        """Stop a worker or a producer for a while with SIGSTOP."""
        name = self._killed_worker()
        self._children[name].signal(signal.SIGSTOP)
        now = time.monotonic()
        self._stopped[name] = now + STOPPED_FOR
        self.pauses.append((now, now + STOPPED_FOR))
        self.stops += 1
        self.disturbed.add(name)

    def look(self, now: float) -> None:
        """Continue those that were stopped long enough; notice those that ended by themselves."""
        for name, until in list(self._stopped.items()):
            if now >= until:
                self._children[name].signal(signal.SIGCONT)
                del self._stopped[name]
        for name, child in list(self._children.items()):
            if child.has_ended():
                del self._children[name]
                if child.ended() != 0 or now < self._ends or _role(name) != "producer":
                    self.failures.append(f"{name} ended by itself with {child.ended()}")

    def _killed_worker(self) -> str:
        names = [
            name
            for name in self._children
            if _role(name) in ("worker", "producer") and name not in self._stopped
        ]
        return self._random.choice(names)

    # --- the end ---

    def terminate(self, *roles: str) -> None:
        """Send SIGTERM to the processes of these roles."""
        for name, child in self._children.items():
            if _role(name) in roles:
                child.signal(signal.SIGTERM)
                self._terminated.append(name)

    def await_terminated(self) -> None:
        """Wait until those have ended that were sent SIGTERM."""
        ends = time.monotonic() + ENDS_WITHIN
        for name in self._terminated:
            child = self._children[name]
            while not child.has_ended() and time.monotonic() < ends:
                time.sleep(0.02)
            if not child.has_ended():
                self.failures.append(f"{name} did not end within {ENDS_WITHIN:.0f} s of SIGTERM")
            elif child.ended() != 0:
                self.failures.append(f"{name} ended with {child.ended()}")
            child.end()
            del self._children[name]
        self._terminated.clear()

    def continue_all(self) -> None:
        self.look(float("inf"))

    def await_end_of_load(self, within: float) -> None:
        """Wait until producers have ended and no job scheduler makes jobs any more."""
        for name, child in list(self._children.items()):
            if _role(name) == "observer":
                child.line(within)
        until = time.monotonic() + within
        while time.monotonic() < until and self._has("producer"):
            self.look(time.monotonic())
            time.sleep(0.05)

    def _has(self, role: str) -> bool:
        return any(_role(name) == role for name in self._children)

    def end(self) -> None:
        """Make sure that none is left."""
        for child in self._children.values():
            child.end()
        self._children.clear()

    # --- starting ---

    def _start_worker(self) -> None:
        self._start("worker", load.worker)

    def _start_producer(self) -> None:
        self._start("producer", load.producer, self._ends, self._random.getrandbits(32))

    def _start(self, role: str, program: Callable[..., Any], *more: Any) -> Child:
        name = f"{role}-{self._made}"
        self._made += 1
        child = Child(program, self._folder, name, self._location, *more)
        self._children[name] = child
        return child

    def _log(self, name: str) -> str:
        path = self._folder / "logs" / name
        return path.read_text()[-2_000:] if path.exists() else "empty"


def _role(name: str) -> str:
    return name.rpartition("-")[0]
