"""Variables with passwords, kept from the commands that a worker process runs.

A command runs as the user of its worker. It may read /proc/PID/environ, which shows the variables
that a process was started with, for ever: to unset one later does not change it. Therefore:

- A process that we start gets the variables through a socket, not in its environment. Unlike a pipe
  or a memory file, a socket cannot be opened through /proc/PID/fd.
- A supervisor and its workers may not be inspected (PR_SET_DUMPABLE): the kernel shows their
  environment, descriptors and memory to nobody but themselves and root. They leave no core dumps.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
from collections.abc import Mapping

OURS = ("BULLITE_", "QUEUECTL_")
"""How the names of variables begin that may hold passwords; commands do not get them."""

MARK = "BULLITE_RUN"
"""The variable that stays: if we run below a command, what we start is found by it."""

PRIVATE = "BULLITE_PRIVATE"
"""The variable that tells a process the descriptor of the socket."""

_DUMPABLE = 4  # PR_SET_DUMPABLE


def forbid_inspection() -> bool:
    """Keep other processes of this user from looking into this one; False where that cannot be."""
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
    # Escaped, not in UTF-8: what is no text in the environment has lone surrogates here.
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
    """Have the variables in `os.environ` that were offered to this process, if any were."""
    try:
        descriptor = int(os.environ.pop(PRIVATE, ""))
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return
    except (ValueError, OverflowError, OSError):
        return
    with socket.socket(fileno=descriptor) as receiver, receiver.makefile("rb") as content:
        os.environ.update(json.loads(content.read()))
