"""Groups of processes for tests: a supervisor in a process of its own, and children that tell what
happens to them.

Supervisor and children speak on one pipe, a line for each event with its details as JSON: what a
test reads is in the order in which it happened.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bullite.errors import BulliteError, StoreBusy
from bullite.processes import child, group_registration, supervisor
from bullite.processes.group_lock import GroupLock, GroupTaken
from bullite.processes.process_info import processes, read_process
from bullite.processes.supervisor import Supervisor
from tests.support.processes import Child, wait_until

GROUP = "work"

CHILD = """
import json, os, signal, subprocess, sys, time

folder, slot, manner = sys.argv[1], int(sys.argv[2]), sys.argv[3]
signal.alarm(90)  # whatever becomes of the test


def there(name):
    return os.path.exists(os.path.join(folder, name))


def say(event, **details):
    details |= {"slot": slot, "pid": os.getpid()}
    os.write(1, f"child-{event} {json.dumps(details)}\\n".encode())


told = 0


def terminate(number, frame):
    global told
    told += 1
    say("told", times=told)
    if manner == "work" or (manner == "busy" and told == 2):
        say("leaves")
        os._exit(0)


signal.signal(signal.SIGTERM, terminate)
signal.signal(signal.SIGINT, terminate)
if manner == "dies" or there("broken"):
    os._exit(3)
if manner == "cannot" and slot == 0:
    os._exit(78)
if manner == "fresh" and not there("enough"):
    os._exit(75)
if manner == "orphans":
    subprocess.run(["sh", "-c", "(sleep 0.2; echo orphan {}) &"])
    manner = "work"
if manner == "slow":
    while not there("go"):
        time.sleep(0.01)
    manner = "work"
if manner == "ours":
    from bullite.processes.child_protocol import tell_ready, watch_lifeline

    def leave():
        say("alone")
        os._exit(0)

    watch_lifeline(leave)
    tell_ready()
elif manner != "mute":
    os.write(int(os.environ["BULLITE_READY"]), b"ready\\n")
while not (told and there("finish")):
    time.sleep(0.01)
say("finished")
"""


# --- in the supervisor's process -----------------------------------------------------------------


class SpokenSeat:
    """Tells what it is told, unless a file in the folder says that it fails, waits or is lost."""

    def __init__(self, folder: Path, holder: Mapping[str, Any] | None) -> None:
        self._folder = folder
        self._holder = holder

    def take(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        tell("seat-taken", entry)
        return self._holder

    def update(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if (self._folder / "seat-away").exists():
            tell("seat-waits", {})
            while (self._folder / "seat-away").exists():
                time.sleep(0.01)
        if (self._folder / "seat-lost").exists():
            return {"pid": 7, "host": "elsewhere"}
        if (self._folder / "seat-busy").exists():
            tell("seat-refused", {})
            raise StoreBusy("somebody else writes")
        if (self._folder / "seat-bug").exists():
            raise RuntimeError("a mistake in the seat")
        tell("seat", entry)
        return None

    def leave(self) -> None:
        tell("seat-left", {})


class SpokenLog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell("log", {"level": record.levelname, "text": record.getMessage()})


def tell(event: str, details: Mapping[str, Any]) -> None:
    os.write(1, f"{event} {json.dumps(details)}\n".encode())  # at once: threads tell, too


def supervise(
    folder: str,
    manner: str,
    count: int,
    seat: bool,
    seat_holder: Mapping[str, Any] | None,
    moments: Mapping[str, float],
    tick: float,
    options: Mapping[str, Any],
) -> None:
    """Run a group; `moments` are other values for what the module waits.

    By its clock, `tick` seconds more have gone by each time that it looks.
    """
    here = Path(folder)
    looks = itertools.count()
    os.dup2(os.pipe()[0], 0)  # something that a child could read
    for module in (supervisor, child, group_registration):
        vars(module).update({name: moments[name] for name in moments if name in vars(module)})
    logging.getLogger("bullite.supervisor").addHandler(SpokenLog(logging.WARNING))
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    group = Supervisor(
        lambda slot: [str(here / "python"), str(here / "child.py"), folder, str(slot), manner],
        count,
        lock=GroupLock(here / "locks" / "group", GROUP),
        registry=SpokenSeat(here, seat_holder) if seat else None,
        group=GROUP,
        on_event=tell,
        clock=lambda: time.monotonic() + tick * next(looks),
        **options,
    )
    try:
        code = group.run()
    except GroupTaken as error:
        return tell("taken", error.holder)
    except (BulliteError, RuntimeError) as error:
        return tell("raised", {"kind": type(error).__name__, "text": str(error)})
    after = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    tell("left", {"signals restored": before == after})
    sys.exit(code)


# --- in the test ---------------------------------------------------------------------------------


class Group:
    """A supervisor as a test sees it."""

    def __init__(self, process: Child, folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.heard: list[tuple[str, dict[str, Any]]] = []

    def until(self, event: str, **details: Any) -> dict[str, Any]:
        """Wait for an event with these details, and maybe more; all of them."""
        while True:
            found, told = self.next()
            if found == event and details.items() <= told.items():
                return told

    def next(self) -> tuple[str, dict[str, Any]]:
        event, _, details = self.process.line().partition(" ")
        self.heard.append((event, json.loads(details)))
        return self.heard[-1]

    def until_each(self, event: str, count: int, **details: Any) -> list[dict[str, Any]]:
        """Wait until that many slots have said it; by slot."""
        found: dict[int, dict[str, Any]] = {}
        while len(found) < count:
            told = self.until(event, **details)
            found[told["slot"]] = told
        return [found[slot] for slot in sorted(found)]

    def pids(self, count: int) -> list[int]:
        """The processes of a group that has just begun, when all are ready."""
        ready = self.until_each("ready", count)
        return [told["pid"] for told in ready]

    def told(self, event: str) -> list[dict[str, Any]]:
        """All of this kind that were heard."""
        return [details for found, details in self.heard if found == event]

    def touch(self, name: str) -> None:
        (self.folder / name).touch()

    def signal(self, number: signal.Signals) -> None:
        self.process.signal(number)

    def code(self) -> int:
        """Its exit code; what it still says is heard."""
        for line in self.process.rest():
            event, _, details = line.partition(" ")
            self.heard.append((event, json.loads(details)))
        return self.process.ended()

    def end(self) -> None:
        if not self.process.has_ended():
            self._kill_children()
        self.process.end()
        for told in self.told("spawned"):
            if belongs_to(self.folder, told["pid"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(told["pid"], signal.SIGKILL)

    def _kill_children(self) -> None:
        """While it is stopped: it spawns no more, and the numbers of the dead stay theirs."""
        self.process.signal(signal.SIGSTOP)
        wait_until(lambda: (found := read_process(self.process.pid)) is None or found.state in "TZ")
        for each in processes():
            if each.parent == self.process.pid:
                os.kill(each.pid, signal.SIGKILL)


def install_python(folder: Path) -> None:
    """The program that children run, which a test may take away."""
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)


def belongs_to(folder: Path, pid: int) -> bool:
    try:
        return os.fsencode(folder) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def is_gone(pid: int) -> bool:
    found = read_process(pid)
    return found is None or found.is_gone


@contextlib.contextmanager
def groups(start: Callable[..., Child], folder: Path) -> Iterator[Callable[..., Group]]:
    """Starts groups in a folder; nobody of them outlives the test."""
    (folder / "child.py").write_text(CHILD)
    install_python(folder)
    begun: list[Group] = []

    def begin(
        manner: str = "work",
        count: int = 2,
        *,
        seat: bool = False,
        seat_holder: Mapping[str, Any] | None = None,
        moments: Mapping[str, float] | None = None,
        tick: float = 0.0,
        **options: Any,
    ) -> Group:
        arguments = folder, manner, count, seat, seat_holder, moments or {}, tick, options
        begun.append(Group(start(supervise, *arguments), folder))
        return begun[-1]

    yield begin
    for group in begun:
        group.end()
