"""sd_notify: readiness, status and watchdog of a service, over the socket of systemd."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

SOCKET, EVERY, WATCHED = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
MAIN_PROCESS_ONLY = frozenset({SOCKET, EVERY, WATCHED})
"""Variables for the service's main process, not for its children."""

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"

_TIMEOUT = 1.0
"""Seconds to wait if the socket is full."""


def notify(state: str) -> bool:
    """Send lines such as `READY=1`. Return whether they were sent; never raise."""
    address = os.environ.get(SOCKET, "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # an abstract name, in no file system
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            connection.settimeout(_TIMEOUT)
            connection.sendto(state.encode(errors="replace"), os.fsencode(address))
    except (OSError, ValueError, AttributeError):
        return False
    return True


def reloading() -> str:
    """Return the message that a reload begins, with the time that systemd requires."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"


def status(text: str) -> str:
    """Return the message with a status text, on one line."""
    return "STATUS=" + " ".join(text.split())


def watchdog_interval() -> float | None:
    """Return the seconds between watchdog messages; None if systemd does not watch us."""
    if os.environ.get(WATCHED, str(os.getpid())) != str(os.getpid()):
        return None
    try:
        microseconds = int(os.environ.get(EVERY, ""))
    except ValueError:
        return None
    return microseconds / 2_000_000 if microseconds > 0 else None


def for_children(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables for the main process."""
    return {name: value for name, value in environment.items() if name not in MAIN_PROCESS_ONLY}
