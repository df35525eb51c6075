"""Pipes and exit codes between a child process and its supervisor: the child's side."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable

LIFELINE, READY = "BULLITE_LIFELINE", "BULLITE_READY"
"""Variables of a child: the descriptor of the pipe that closes when the supervisor ends, and of the
one to which the child writes when it is ready."""

WANTS_FRESH = 75
"""EX_TEMPFAIL: the child reached its limit of jobs or memory; replace it."""

CANNOT_WORK = 78
"""EX_CONFIG: no child can work with this configuration."""


def watch_lifeline(call: Callable[[], None]) -> bool:
    """Call `call`, on a thread, when the supervisor has ended. Return False if there is none."""
    fd = _own_pipe(LIFELINE)
    if fd is None:
        return False

    def wait() -> None:
        try:
            while os.read(fd, 64):
                pass
            os.close(fd)
        except OSError:
            return  # code in this process closed it: the supervisor may be running
        call()

    threading.Thread(target=wait, name="bullite-lifeline", daemon=True).start()
    return True


def tell_ready() -> bool:
    """Report to the supervisor that this child is ready. Return False if there is none."""
    fd = _own_pipe(READY)
    if fd is None:
        return False
    try:
        os.write(fd, b"ready\n")
    except OSError:
        return False  # the supervisor has ended: see watch_lifeline
    finally:
        os.close(fd)
    return True


def _own_pipe(name: str) -> int | None:
    """Return the descriptor that a variable names; programs started from here do not inherit it."""
    try:
        fd = int(os.environ.pop(name, ""))
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return None
        os.set_inheritable(fd, False)
    except (ValueError, OverflowError, OSError):
        return None
    return fd
