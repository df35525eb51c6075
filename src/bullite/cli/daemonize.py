"""`worker start --daemon`: start the same command in the background, without a terminal."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..processes.child import python_running
from ..processes.group_lock import GroupLock
from ..processes.private_environment import PRIVATE, offer, split
from .console import CommandError
from .session import Session
from .worker_groups import group_of, holder_of, is_here, taken

STARTS_WITHIN = 15.0
"""Seconds within which the background process must run its group."""


def start_in_background(session: Session, lock: GroupLock) -> None:
    """Start the background process and wait until it runs the group; it logs beside the lock."""
    log = lock.path.with_suffix(".log")
    lock.make_folder()
    process = _start(log, session.absolute_location)

    def runs() -> bool:
        """Return whether it holds the lock of this machine and the row in the database."""
        if (lock.holder() or {}).get("pid") != process.pid:
            return False
        entry = group_of(session, lock.group)
        return entry is not None and is_here(entry) and entry["pid"] == process.pid

    try:
        if not until(lambda: runs() or process.poll() is not None, STARTS_WITHIN):
            raise CommandError(f"the workers did not start within {STARTS_WITHIN:g} s; see {log}")
        if process.poll() is not None:
            if (holder := holder_of(session, lock)) is not None:
                raise taken(lock.group, holder)
            raise CommandError(f"the workers could not be started; see {log}")
    except BaseException:
        process.kill()  # its workers, if it has some, end with it
        process.wait()
        raise
    session.console.done(
        f"workers of the group {lock.group!r} run in the background, process {process.pid}; "
        f"they write to {log}",
        {"group": lock.group, "pid": process.pid, "log": str(log)},
    )


def _start(log: Path, location: str) -> subprocess.Popen[bytes]:
    public, private = split({**os.environ, "BULLITE_URL": location})
    with open(_open_log(log), "ab") as out, offer(private) as offered:
        return subprocess.Popen(
            [*python_running("bullite"), *_for_the_background(sys.argv[1:])],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**public, PRIVATE: str(offered.fileno())},
            pass_fds=(offered.fileno(),),
        )


def _open_log(log: Path) -> int:
    """Open a log to append to. Raise CommandError if another user may have made the file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # O_NONBLOCK: if a FIFO takes the place of the file, opening it must not wait.
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(log, flags, 0o600)
    except OSError as error:
        raise CommandError(f"cannot open {log}: {error.strerror}; remove it") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise CommandError(f"cannot open {log}: it is not a file with one name; remove it")
    return descriptor


def _for_the_background(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without --daemon and --db.

    All users can read the arguments of a process, and the URL of a database may hold a password.
    """
    words: list[str] = []
    given = iter(arguments)
    for word in given:
        if word == "--db":
            next(given, None)
        elif word != "--daemon" and not word.startswith("--db="):
            words.append(word)
    return words


def until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Poll a condition, at least once, until it is true. Return False after that many seconds."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True
