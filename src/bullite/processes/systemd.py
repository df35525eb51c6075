"""Tells systemd how a service is doing, over the socket that it names in the environment."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

SOCKET, EVERY, WATCHED = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
OURS_ALONE = frozenset({SOCKET, EVERY, WATCHED})
"""Variables that are meant for the service's main process, and not for its children."""

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"

_PATIENCE = 1.0
"""Seconds that a full socket is waited for."""


def notify(state: str) -> bool:
    """Send lines such as `READY=1`; whether somebody got them. Never raises."""
    address = os.environ.get(SOCKET, "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # a name that is in no file system
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
            way.settimeout(_PATIENCE)
            way.sendto(state.encode(errors="replace"), os.fsencode(address))
    except (OSError, ValueError, AttributeError):
        return False
    return True


def reloading() -> str:
    """What says that a reload begins: systemd wants to know when, to tell two of them apart."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"


def status(text: str) -> str:
    """What says in words how it goes; one line."""
    return "STATUS=" + " ".join(text.split())


def watchdog_interval() -> float | None:
    """How often systemd is to be told that we live, in seconds; None if it does not watch us."""
    if os.environ.get(WATCHED, str(os.getpid())) != str(os.getpid()):
        return None
    try:
        microseconds = int(os.environ.get(EVERY, ""))
    except ValueError:
        return None
    return microseconds / 2_000_000 if microseconds > 0 else None


def for_children(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what was meant for the main process."""
    return {name: value for name, value in environment.items() if name not in OURS_ALONE}
