"""Records what a program does to the files of one folder: its system calls, in order.

strace is what sees them. It stops a process where a call begins and where it ends, so whatever one
process did because of another's call comes later in the record, too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.fork_server import ROOT

SYNCS = ("fsync", "fdatasync")
KNOWN = (*SYNCS, "openat", "open", "creat", "pwrite64", "write", "ftruncate", "unlink", "unlinkat")
"""Calls that are understood."""
UNKNOWN = (
    *(
        "pwritev",
        "pwritev2",
        "writev",
        "truncate",
        "fallocate",
        "sync_file_range",
        "copy_file_range",
    ),
    *("sendfile", "rename", "renameat", "renameat2", "link", "linkat"),
)
"""Calls that change files and are not understood: none may concern the files of a database."""

FAILED_SYNC = "failed sync"
"""Begins a line of the ledger that says which file could not be synced."""

LIMIT = 120.0
"""Seconds after which a recorded program counts as stuck."""

INSTALL = (
    "the power-cut test records system calls with strace, which is missing: "
    "apt-get install strace (on Linux; nothing else can take its place)"
)


class Failed(Exception):
    """A recording that cannot be used."""


@dataclass(slots=True)
class Write:
    path: str
    data: bytes
    offset: int | None
    """None: at the end of the file."""


@dataclass(slots=True)
class Truncate:
    path: str
    size: int


@dataclass(slots=True)
class Create:
    """A file was opened that may have been made by that."""

    path: str
    emptied: bool


@dataclass(slots=True)
class Unlink:
    path: str


@dataclass(slots=True)
class SyncBegins:
    path: str
    number: int


@dataclass(slots=True)
class SyncEnds:
    path: str
    number: int
    """That of its beginning."""
    good: bool


@dataclass(slots=True)
class Acknowledged:
    """The program says that somebody was answered."""

    lines: list[str]


Operation = Write | Truncate | Create | Unlink | SyncBegins | SyncEnds | Acknowledged


def record(folder: Path, ledger: Path, command: Sequence[str]) -> list[Operation]:
    """Run a program that changes files in `folder` and writes its acknowledgements to `ledger`."""
    strace = shutil.which("strace")
    if strace is None:
        raise Failed(INSTALL)
    log = ledger.with_name("strace.log")
    calls = ",".join(f"?{call}" for call in (*KNOWN, *UNKNOWN))
    tracing = [strace, "-f", "--seccomp-bpf", "-y", "-xx", "-s", "1048576", "-e", "signal=none"]
    options = [*tracing, "-e", f"trace={calls}", "-o", os.fspath(log)]
    done = subprocess.run(
        [*options, *command], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT
    )
    if done.returncode:
        raise Failed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    with log.open(encoding="ascii") as lines:
        operations = list(_Reading(os.fspath(folder) + "/", os.fspath(ledger)).of(lines))
    log.unlink()
    return operations


def python(module: str, *arguments: object) -> list[str]:
    """The command that runs a module of ours."""
    return [sys.executable, "-m", module, *map(str, arguments)]


# --- reading the log of strace -------------------------------------------------------------------

_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)", re.DOTALL)
_UNFINISHED = " <unfinished ...>\n"
_RESULT = re.compile(r"\) += (-?\d+|\?)(.*)$", re.DOTALL)
_DESCRIPTOR = re.compile(r"-?\w+(?:<([^>]*)>)?(\(deleted\))?")


class _Reading:
    """From the lines of a log to operations on the files of a folder."""

    def __init__(self, folder: str, ledger: str) -> None:
        self._folder = folder
        self._ledger = ledger
        self._under_way: dict[str, tuple[str, str, int]] = {}
        self._number = 0

    def of(self, lines: Iterator[str] | Sequence[str]) -> Iterator[Operation]:
        for line in lines:
            match = _LINE.match(line)
            if match is None:
                continue  # the end of a process
            process, resumed, name, rest = match.groups()
            if resumed:
                yield from self._resumed(process, rest)
            elif rest.endswith(_UNFINISHED):
                yield from self._begun(process, name, rest.removesuffix(_UNFINISHED))
            else:
                yield from self._begins(name, rest, self._next())
                yield from self._ended(name, rest, self._number)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _begun(self, process: str, name: str, text: str) -> Iterator[Operation]:
        number = self._next()
        self._under_way[process] = name, text, number
        yield from self._begins(name, text, number)

    def _resumed(self, process: str, rest: str) -> Iterator[Operation]:
        name, text, number = self._under_way.pop(process)
        yield from self._ended(name, text + rest, number)

    def _begins(self, name: str, text: str, number: int) -> Iterator[Operation]:
        """What is so as soon as a call begins: a line of the ledger tells of what has happened."""
        if name in SYNCS:
            path, deleted = _file(text)
            if self._is_ours(path) and not deleted:
                yield SyncBegins(path, number)
        elif name == "write":
            path, _ = _file(text)
            if path == self._ledger:
                yield from self._told(_bytes(text.split('"', 2)[1]).decode().splitlines())

    def _told(self, lines: Sequence[str]) -> Iterator[Operation]:
        """What the lines of the ledger say; one may stand for a sync that failed."""
        failed = [json.loads(line)[1] for line in lines if line.startswith(f'["{FAILED_SYNC}"')]
        for path in failed:
            number = self._next()
            yield SyncBegins(path, number)
            yield SyncEnds(path, number, good=False)
        if not failed:
            yield Acknowledged(list(lines))

    def _ended(self, name: str, text: str, number: int) -> Iterator[Operation]:
        found = _RESULT.search(text)
        if found is None or found[1] == "?":
            return  # the process ended inside of it
        result = int(found[1])
        arguments = text[: found.start()]
        if name in SYNCS:
            path, deleted = _file(text)
            if self._is_ours(path) and not deleted:
                yield SyncEnds(path, number, result == 0)
        elif result >= 0:
            yield from self._changed(name, arguments, result, found[2])

    def _changed(self, name: str, arguments: str, result: int, behind: str) -> Iterator[Operation]:
        if name in ("openat", "open", "creat"):
            path = _bytes(behind[1 : behind.index(">")]).decode() if "<" in behind else ""
            made = "O_CREAT" in arguments or name == "creat"
            if made and self._is_ours(path) and "(deleted)" not in behind:
                yield Create(path, "O_TRUNC" in arguments or name == "creat")
            return
        if name in ("unlink", "unlinkat"):
            path = _bytes(arguments.split('"')[1]).decode()
            if self._is_ours(path):
                yield Unlink(path)
            return
        path, deleted = _file(arguments)
        if not self._is_ours(path) or deleted:
            return
        yield self._write(name, path, arguments, result)

    def _write(self, name: str, path: str, arguments: str, result: int) -> Operation:
        if name == "ftruncate":
            return Truncate(path, int(arguments.rpartition(",")[2]))
        if name not in ("write", "pwrite64"):
            raise Failed(f"{name} of {path} is not understood by the recorder")
        _, text, rest = arguments.split('"', 2)
        data = _bytes(text)[:result]
        if len(data) != result:
            raise Failed(f"strace shows {len(data)} of {result} bytes written to {path}")
        return Write(path, data, int(rest.rpartition(",")[2]) if name == "pwrite64" else None)

    def _is_ours(self, path: str) -> bool:
        """Whether it is a file of the folder, not of a folder inside, or the folder itself."""
        if path + "/" == self._folder:
            return True
        inside = path.startswith(self._folder) and "/" not in path[len(self._folder) :]
        return inside and path != self._ledger and not path.endswith("-shm")


def _file(text: str) -> tuple[str, bool]:
    """The path behind the descriptor that is the first argument, and whether it was deleted."""
    match = _DESCRIPTOR.match(text)
    if match is None or match[1] is None:
        return "", False
    return _bytes(match[1]).decode(errors="replace"), match[2] is not None


def _bytes(text: str) -> bytes:
    """What strace writes as \\x68\\x65."""
    return bytes.fromhex(text.replace("\\x", ""))
