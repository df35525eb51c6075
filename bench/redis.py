"""A Redis server of our own: found, or unpacked from Debian's packages without installing them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from .environments import Unavailable, last_line
from .folders import CACHE

PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
"""The server and those of its libraries that a small system may lack."""

STARTS_WITHIN = 20.0


class Redis:
    """One server on a free port of the loopback interface; its keys are never written to a disk.

    That is its fastest way: no append-only file, which is its default, and no snapshots, which by
    default fork the server every minute under load.
    """

    def __init__(self) -> None:
        program, libraries = _find()
        self._folder = tempfile.TemporaryDirectory(prefix="bench-redis-")
        self._port = _free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self._process = subprocess.Popen(
            [
                *(str(program), "--port", str(self._port), "--bind", "127.0.0.1", "--save", ""),
                *("--dir", self._folder.name, "--loglevel", "warning"),
            ],
            env=os.environ | ({"LD_LIBRARY_PATH": libraries} if libraries else {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait_until_it_answers()
        self.version = self._ask("INFO", "server").partition("redis_version:")[2].split()[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def flush(self) -> None:
        """Forget everything, now and not in the background."""
        self._ask("FLUSHALL", "SYNC")
        self._ask("FUNCTION", "FLUSH", "SYNC")
        self._ask("SCRIPT", "FLUSH", "SYNC")

    def is_empty(self) -> bool:
        return self._ask("DBSIZE") == ":0\r\n" and self._ask("FUNCTION", "LIST") == "*0\r\n"

    def _wait_until_it_answers(self) -> None:
        ends = time.monotonic() + STARTS_WITHIN
        while True:
            try:
                self._ask("PING")
            except OSError:
                if self._process.poll() is not None or time.monotonic() > ends:
                    raise Unavailable("redis-server did not start") from None
                time.sleep(0.02)
            else:
                return

    def _ask(self, *words: str) -> str:
        """One command in Redis's own protocol, and the whole reply as text."""
        message = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        with socket.create_connection(("127.0.0.1", self._port), timeout=30) as connection:
            connection.sendall(message.encode())
            reply = connection.recv(64 * 1024)
            if reply.startswith(b"$"):
                length = int(reply[1 : reply.index(b"\r\n")])
                while len(reply) < length:
                    reply += connection.recv(64 * 1024)
        return reply.decode(errors="replace")


def _find() -> tuple[Path, str]:
    """The program, and where its libraries are if they are not where the system has them."""
    if installed := shutil.which("redis-server"):
        return Path(installed), ""
    folder = CACHE / "redis"
    if not (folder / "unpacked").exists():
        _unpack(folder)
    programs = [folder / "usr/bin/redis-server", folder / "usr/bin/redis-check-rdb"]
    for program in programs:
        if program.exists():
            libraries = {str(found.parent) for found in (folder / "usr/lib").rglob("*.so*")}
            return program, ":".join(sorted(libraries))
    raise Unavailable("Debian's packages hold no redis-server")


def _unpack(folder: Path) -> None:
    """Debian's packages, unpacked into a folder: nothing is installed, and nobody need be root."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _run(["apt-get", "download", *PACKAGES], folder)
    for package in sorted(folder.glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(folder)], folder)
        package.unlink()
    (folder / "unpacked").touch()


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command[:2])} failed: {last_line(done.stderr)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
