"""The program on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import threading
import time

from tests.cli.program import command, environment
from tests.support.databases import PATIENCE


def on_terminal(*arguments: object, db: str, typed: str = "", **variables: str) -> tuple[int, str]:
    """How the program ends, and what it shows; what is typed is there before it asks."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(*arguments),
        env=environment(db, **{"TERM": "xterm-256color", "COLUMNS": "200", **variables}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = bytearray()
    reading = threading.Thread(target=_read, args=(ours, seen))
    reading.start()
    if typed:
        ends = time.monotonic() + PATIENCE
        while b"[y/N]" not in seen and process.poll() is None and time.monotonic() < ends:
            time.sleep(0.01)
        os.write(ours, typed.encode())
    code = process.wait(PATIENCE)
    reading.join(PATIENCE)
    os.close(ours)
    return code, seen.decode(errors="replace")


def _read(terminal: int, into: bytearray) -> None:
    try:
        while data := os.read(terminal, 65_536):
            into += data
    except OSError:
        pass  # how Linux tells that nobody has the other end open any more
