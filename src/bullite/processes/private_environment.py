"""Variables with passwords, hidden from the commands that a worker process runs.

A command runs as the user of its worker. It may read /proc/PID/environ, which always shows the
variables that a process was started with, also those it has unset. Therefore:

- A worker process gets the variables through a socket, not in its environment. Unlike a pipe or a
  memory file, a socket cannot be opened through /proc/PID/fd.
- A supervisor and its workers cannot be inspected (PR_SET_DUMPABLE): the kernel shows their
  environment, descriptors and memory only to themselves and to root. They leave no core dumps.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
from collections.abc import Mapping

OURS = ("BULLITE_", "QUEUECTL_")
"""Prefixes of variables that may hold passwords; commands do not get them."""

MARK = "BULLITE_RUN"
"""The run marker is not private: processes that a command starts are found by it."""

PRIVATE = "BULLITE_PRIVATE"
"""The variable that tells a process the descriptor of the socket."""

_DUMPABLE = 4  # PR_SET_DUMPABLE


def forbid_inspection() -> bool:
    """Forbid other processes of this user to inspect this one. Return False if not supported."""
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0) == 0)


def split(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables that a process may be started with, and those for `offer`."""
    private = {
        name: value for name, value in environment.items() if name.startswith(OURS) and name != MARK
    }
    return {n: v for n, v in environment.items() if n not in private}, private


def offer(private: Mapping[str, str]) -> socket.socket:
    """Return a socket from which a process that inherits it can receive the variables.

    Raise OSError if they are more than a socket holds.
    """
    # ASCII with escapes: bytes that are not UTF-8 are lone surrogates in `os.environ`.
    content = json.dumps(dict(private)).encode("ascii")
    sender, receiver = socket.socketpair()
    with sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(content))
        sender.setblocking(False)
        try:
            sent = sender.send(content)
        except OSError:
            sent = 0
        if sent < len(content):
            receiver.close()
            raise OSError(f"the variables {OURS[0]}* and {OURS[1]}* are too long")
    return receiver


def receive() -> None:
    """Add the variables that were offered to this process to `os.environ`, if there are any."""
    try:
        descriptor = int(os.environ.pop(PRIVATE, ""))
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return
    except (ValueError, OverflowError, OSError):
        return
    with socket.socket(fileno=descriptor) as receiver, receiver.makefile("rb") as content:
        os.environ.update(json.loads(content.read()))
