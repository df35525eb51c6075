"""Real web servers for tests: started on a free port of this machine, asked, ended by their id."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.support.databases import PATIENCE, Database
from tests.support.processes import wait_until
from tests.support.slow_machine import but_for_slowness

ROOT = Path(__file__).parents[2]
EVERY = 100
"""Ms between two ticks of the schedule."""

WARNINGS = ("-W", "error", "-W", "ignore::ResourceWarning")
"""The second because uvicorn itself leaves its socket to the end of the process."""

TICKING = {"EVERY": str(EVERY)}


def uvicorn(*options: str) -> list[str]:
    return ["uvicorn", "--log-level", "warning", *options]


def gunicorn(*options: str, workers: int = 4) -> list[str]:
    settings = {"worker-class": "uvicorn_worker.UvicornWorker", "workers": workers}
    given = [f"--{name}={value}" for name, value in settings.items()]
    # The rest would be for a human: a second way to talk to it, in the user's own folder.
    return ["gunicorn", "--no-control-socket", "--log-level", "warning", *given, *options]


class Web:
    """A server with `served` in it, and what its jobs wrote down."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        command: Sequence[str],
        settings: Mapping[str, str],
        application: str,
        more: Mapping[str, str],
    ) -> None:
        self.ledger = folder / "ledger"
        self._log = folder / "server.log"
        port = _free_port()
        place = ["--bind", f"127.0.0.1:{port}"]
        if command[0] == "uvicorn":
            place = ["--host", "127.0.0.1", "--port", str(port)]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SERVED_LOCATION": database.location,
            "SERVED_LEDGER": str(self.ledger),
            "SERVED_LEASE": json.dumps(database.short_lease),
            **{f"SERVED_{name}": value for name, value in settings.items()},
            **more,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *WARNINGS, "-m", *command, *place, application],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, trust_env=False
        )

    # --- asking it ---

    def get(self, path: str) -> Any:
        answer = self.client.get(path)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, **params: Any) -> Any:
        # A connection of its own: whichever process is free takes it.
        headers = {"connection": "close"}
        answer = self.client.post(path, params=params, headers=headers)
        answer.raise_for_status()
        return answer.json()

    def wait_until_up(self, processes: int = 1) -> None:
        """Wait until so many processes of it have started the application."""
        self.wait_for(lambda: len(self.pids("up")) >= processes)
        self.wait_for(self.answers)

    def answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self.client.get("/ping").is_success
        return False

    def wait_for(self, condition: Any, timeout: float = PATIENCE) -> Any:
        def so_or_dead() -> Any:
            assert self._process.poll() is None, f"the server ended: {self.log()}"
            return condition()

        return wait_until(so_or_dead, timeout)

    # --- what it wrote down ---

    def notes(self, kind: str) -> list[list[str]]:
        """The words of every line of a kind; the last is the process."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [
            rest.split()
            for what, _, rest in (line.partition(" ") for line in lines)
            if what == kind
        ]

    def pids(self, kind: str) -> list[int]:
        return [int(words[-1]) for words in self.notes(kind)]

    def numbers(self, kind: str) -> Counter[int]:
        return Counter(int(words[0]) for words in self.notes(kind))

    def ticks(self) -> list[int]:
        """The ticks that were run, in order, those that ran twice twice."""
        return sorted(int(words[0].rpartition(":")[2]) for words in self.notes("tick"))

    def log(self) -> str:
        return self._log.read_text()

    def complaints(self, expected: str | None = None) -> list[str]:
        """The lines that it logged, but for those that are expected, or tell of a slow machine."""
        lines = but_for_slowness(self.log().splitlines())
        return [line for line in lines if not (expected and re.search(expected, line))]

    # --- ending it ---

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def stop(self, timeout: float = PATIENCE) -> None:
        """Have it end gracefully, and wait for that."""
        self.signal(signal.SIGTERM)
        self.ended(timeout)

    def ended(self, timeout: float = PATIENCE) -> None:
        self._process.wait(timeout)

    def end(self) -> None:
        """Make sure that nothing of it is left; its processes are a group of their own."""
        self.client.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)


def assert_each_once(ticks: Sequence[int], seconds: float) -> None:
    """Each tick from the first to the last, no more, for so long at least."""
    assert list(ticks) == list(range(ticks[0], ticks[-1] + 1, EVERY))
    assert ticks[-1] - ticks[0] >= seconds * 1000


def lasted(web: Web, seconds: float) -> bool:
    ticks = web.ticks()
    return bool(ticks) and ticks[-1] - ticks[0] >= seconds * 1000


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
