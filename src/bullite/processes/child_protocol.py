"""What a child and its supervisor tell each other by pipes and exit codes; the child's side."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable

LIFELINE, READY = "BULLITE_LIFELINE", "BULLITE_READY"
"""Variables of a child: the descriptors of the pipe that ends with the supervisor, and of the one
on which it tells that it is ready."""

WANTS_FRESH = 75
"""EX_TEMPFAIL: the child has done enough and asks to be replaced."""

CANNOT_WORK = 78
"""EX_CONFIG: no child will ever work as things are."""


def watch_lifeline(call: Callable[[], None]) -> bool:
    """Have `call` called, on a thread, when the supervisor is gone; False if there is none."""
    fd = _own_pipe(LIFELINE)
    if fd is None:
        return False

    def wait() -> None:
        try:
            while os.read(fd, 64):
                pass
            os.close(fd)
        except OSError:
            return  # somebody here closed it: that says nothing of the supervisor
        call()

    threading.Thread(target=wait, name="bullite-lifeline", daemon=True).start()
    return True


def tell_ready() -> bool:
    """Tell the supervisor that this child works; False if there is none that wants to know."""
    fd = _own_pipe(READY)
    if fd is None:
        return False
    try:
        os.write(fd, b"ready\n")
    except OSError:
        return False  # it is gone; the lifeline tells
    finally:
        os.close(fd)
    return True


def _own_pipe(name: str) -> int | None:
    """The descriptor that a variable names, kept from now on from what this process starts."""
    try:
        fd = int(os.environ.pop(name, ""))
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return None
        os.set_inheritable(fd, False)
    except (ValueError, OverflowError, OSError):
        return None
    return fd
