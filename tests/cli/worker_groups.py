"""`queuectl worker start` in a process of its own, as tests use it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bullite.processes import orphaned_commands
from bullite.processes.process_info import processes, read_process
from tests.cli.program import command, environment, run, run_well
from tests.support.databases import Database
from tests.support.processes import wait_until

PROGRAM = b"bullite.cli.worker_process"
"""By which worker processes are known."""

_numbers = itertools.count(1)


class Crew:
    """A supervisor that tells in JSON what happens."""

    def __init__(self, location: str, folder: Path, arguments: tuple[object, ...], **env: str):
        self._errors = folder / f"errors-{next(_numbers)}"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command("worker", "start", "--json", *arguments),
                env=environment(location, **env),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    @property
    def pid(self) -> int:
        return self.process.pid

    def told(self, event: str, **details: Any) -> list[dict[str, Any]]:
        wanted = {"event": event, **details}.items()
        return [told for told in self.events if wanted <= told.items()]

    def until(self, event: str, number: int = 1, **details: Any) -> list[dict[str, Any]]:
        """Wait until it has told so often of that."""

        def has_told() -> bool:
            assert self.process.poll() is None or self._reader.is_alive() or self.told(event), (
                f"ended with {self.process.returncode}: {self.errors()}"
            )
            return len(self.told(event, **details)) >= number

        wait_until(has_told)
        return self.told(event, **details)

    def pids(self, count: int = 1) -> list[int]:
        """The first processes, when all are ready."""
        return [told["pid"] for told in self.until("ready", count)]

    def errors(self) -> str:
        return self._errors.read_text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def code(self) -> int:
        """Its exit code, when it has one; all that it told is heard."""
        code = self.process.wait(30)
        self._reader.join(10)
        return code

    def end(self) -> None:
        """Make sure that nobody of it is left."""
        pids = [told["pid"] for told in self.told("spawned")]
        if self.process.poll() is None:
            self.signal(signal.SIGSTOP)  # it starts nobody any more
            pids += [one.pid for one in processes() if one.parent == self.pid]
            self.kill()
        for pid in pids:
            if is_worker(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                wait_until(lambda pid=pid: is_gone(pid))
        wait_until(lambda: not end_commands_of(pids))
        assert self.process.stdout is not None
        self._reader.join(10)
        self.process.stdout.close()


def end_commands_of(pids: list[int]) -> int:
    """Kill what these workers left running; how many commands that were."""
    left = [some for mark, some in orphaned_commands.commands().items() if mark.pid in pids]
    for members in left:
        orphaned_commands.end(members)
    return len(left)


def is_gone(pid: int) -> bool:
    found = read_process(pid)
    return found is None or found.is_gone


def is_worker(pid: int) -> bool:
    return PROGRAM in words_of(pid)


def words_of(pid: int) -> list[bytes]:
    """What a process was called with."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


Start = Callable[..., Crew]


@contextlib.contextmanager
def crews(location: str, folder: Path) -> Iterator[Start]:
    """Starts groups in a folder; neither they nor their commands outlive the test."""
    started: list[Crew] = []

    def start(*arguments: object, **env: str) -> Crew:
        started.append(Crew(location, folder, arguments, **env))
        return started[-1]

    try:
        yield start
    finally:
        for crew in started:
            crew.end()


def enqueue(location: str, line: str, *options: object) -> int:
    """The number of a job that runs a command."""
    return int(run_well("enqueue", line, *options, db=location).lines[0])


def show(database: Database, job: int) -> tuple[str, int, int]:
    """Its state, and how many attempts were made and started."""
    query = "select state, attempts_made, attempts_started from bullite_jobs where id = ?"
    [row] = database.query(query, job)
    state, made, begun = row
    return state, made, begun


def until_state(database: Database, job: int, state: str) -> None:
    wait_until(lambda: show(database, job)[0] == state)


def stop(location: str, *options: object) -> None:
    """Stop a group in the background, if there is one, without waiting for its jobs."""
    run("worker", "stop", "--timeout", "0", "--force", *options, db=location)


def forget(database: Database) -> None:
    """Leave nothing to the next test that only the tests of this program keep."""
    if database.exists():
        for table in ("runs", "output", "kept"):
            database.write(f"delete from bullite_{table}")
