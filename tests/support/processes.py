"""Real processes for tests: start them, hear what they say, end them by their id.

`Child(function, ...)` runs a function of any test module in a process of its own, forked from the
fork server, which has imported the module and done nothing else; arguments travel as JSON. A child
speaks in lines on its standard output, and its parent waits for those lines. What cannot be said is
waited for with `wait_until`, which gives up at a deadline.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from bullite import Job, Queue, Store, verify
from tests.support.databases import PATIENCE, database_at
from tests.support.fork_server import ROOT, ForkedProcess, run

Location = str | os.PathLike[str]


# --- in the parent -------------------------------------------------------------------------------


def _can_be_read(file: IO[bytes], timeout: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(file, selectors.EVENT_READ)
        return bool(selector.select(timeout))


def as_summary(report: object) -> str:
    """What `summary_of` reads: the fields of a report, a line each."""
    return "\n".join(
        f"{name.replace('_', ' ') + ':':34} {value}" for name, value in vars(report).items()
    )


def summary_of(program: str, *arguments: str, timeout: float) -> dict[str, str]:
    """What a program of ours, run as a module, says: lines of `name: value`."""
    done = subprocess.run(
        [sys.executable, "-m", program, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout,
    )
    sys.stdout.write(done.stdout)
    return {
        name.strip(): value.strip()
        for name, _, value in (line.partition(":") for line in done.stdout.splitlines())
    }


class Child:
    """A process of ours."""

    def __init__(
        self, function: Callable[..., Any], *args: Any, under: Sequence[str] = (), **kwargs: Any
    ) -> None:
        source = inspect.getsourcefile(function)
        assert source is not None
        module = ".".join(Path(source).relative_to(ROOT).with_suffix("").parts)
        task = module, function.__name__, json.dumps([args, kwargs], default=os.fspath)
        self._process: ForkedProcess | subprocess.Popen[bytes]
        if under:
            program = [*under, sys.executable, "-m", __name__, *task]
            self._process = subprocess.Popen(program, stdout=subprocess.PIPE, cwd=ROOT)
        else:
            self._process = ForkedProcess(*task)
        self._heard = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self, timeout: float = PATIENCE) -> str:
        """The next line it says."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._heard:
            left = deadline - time.monotonic()
            assert _can_be_read(self._process.stdout, max(0, left)), (
                f"process {self.pid} said nothing for {timeout} s"
            )
            some = os.read(self._process.stdout.fileno(), 65536)
            assert some, f"process {self.pid} ended with {self._process.wait()}, saying nothing"
            self._heard += some
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    def said(self, wanted: str) -> None:
        """Wait until it has said exactly this."""
        while self.line() != wanted:
            pass

    def rest(self) -> list[str]:
        """Everything it still says until its end."""
        assert self._process.stdout is not None
        text, self._heard = self._heard + self._process.stdout.read(), b""
        self.ended()
        return text.decode().splitlines()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> float:
        """kill -9, and wait until it is dead; when that was, in ms since the epoch."""
        at = time.time() * 1000
        self.signal(signal.SIGKILL)
        self._process.wait()
        return at

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def ended(self) -> int:
        """Its exit code, once it has one; minus the signal that ended it."""
        return self._process.wait(PATIENCE)

    def end(self) -> None:
        """Make sure that it is gone and nothing of it is left."""
        if self._process.poll() is None:
            self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()


def wait_until(condition: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """Ask again and again until the answer is true; the answer."""
    deadline = time.monotonic() + timeout
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"still not so after {timeout} s"
        time.sleep(0.003)
    return answer


# --- in the child --------------------------------------------------------------------------------


def say(*words: Any) -> None:
    """Tell the parent."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def hang() -> None:
    """Do nothing until killed."""
    while True:
        signal.pause()


# --- on either side: a look at the database from outside -----------------------------------------


def rows(location: Location, query: str, *params: Any) -> list[tuple[Any, ...]]:
    """What a reader who knows nothing of Bullite finds."""
    with closing(database_at(os.fspath(location))) as database:
        return database.query(query, *params)


def write(location: Location, statement: str, *params: Any) -> None:
    """What somebody does who knows nothing of Bullite."""
    with closing(database_at(os.fspath(location))) as database:
        database.write(statement, *params)


def states(location: Location) -> dict[int, str]:
    return dict(rows(location, "select id, state from bullite_jobs order by id"))


def finished(location: Location, job: int) -> bool:
    return states(location)[job] in ("completed", "failed")


def events(location: Location, kind: str) -> list[tuple[int, int]]:
    """(job, time in ms) of every logged event of one kind."""
    logged = rows(location, "select jobs, at from bullite_events where kind = ?", kind)
    return [(job, at) for jobs, at in logged for job in jobs_of(jobs)]


def jobs_of(event: str) -> list[int]:
    """The jobs of one row of the event log, whatever detail stands beside each."""
    return [entry[0] if isinstance(entry, list) else entry for entry in json.loads(event)]


def registered(location: Location, child: Child) -> bool:
    """Whether a process has a worker on the register."""
    return bool(rows(location, "select 1 from bullite_workers where pid = ?", child.pid))


def add(location: Location, *names: str, data: Any = None, **options: Any) -> list[int]:
    """Add jobs, one for each name; their numbers."""

    async def adding() -> list[Job]:
        async with Queue("work", location) as queue:
            return [await queue.add(name, data, **options) for name in names]

    return [job.pk for job in asyncio.run(adding())]


def problems(location: Location) -> tuple[str, ...]:
    """What `verify` finds wrong."""
    store = Store(location)
    try:
        return verify(store).problems
    finally:
        store.close()


if __name__ == "__main__":
    run(*sys.argv[1:])
