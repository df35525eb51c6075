"""The jobs that every measurement uses, the same for everybody; the standard library only."""

from __future__ import annotations

import time
from typing import Any

JOB_NAME = "mail"


def payloads(count: int, size: int = 0, first: int = 100_000) -> list[dict[str, Any]]:
    """Small dicts, about 33 bytes as JSON; with a body of `size` bytes, if that is more than 0."""
    if size:
        body = text_of(size)
        return [{"user": first + number, "body": body} for number in range(count)]
    return [{"user": first + number, "kind": "welcome"} for number in range(count)]


def text_of(size: int) -> str:
    """Text that does not shrink when a database compresses it."""
    # Imported late: the memory of a worker is measured.
    import base64
    import random

    return base64.b64encode(random.Random(1).randbytes(size))[:size].decode()


def bulk(count: int, name: str = JOB_NAME) -> list[dict[str, Any]]:
    """Jobs as our `add_bulk` wants them."""
    return [{"name": name, "data": data} for data in payloads(count)]


def burn(milliseconds: float) -> None:
    """Use so much CPU in this thread, in pure Python, however many others want the interpreter."""
    ends = time.thread_time_ns() + int(milliseconds * 1e6)
    number = 0
    while time.thread_time_ns() < ends:
        for _ in range(200):
            number = (number * 31 + 7) % 1_000_003
