"""What is kept of a command's output: its beginning and its end, whatever is between."""

from __future__ import annotations

from typing import NamedTuple

MAX_KEPT = 100 * 1024
"""Bytes of one stream of one run."""


class HeadTail(NamedTuple):
    """What was kept of a stream."""

    head: bytes
    tail: bytes
    dropped: int
    """Bytes that were between them."""


class HeadTailBuffer:
    """Takes whatever comes, and keeps no more than `most` bytes: half of them from the front."""

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._room = most - most // 2
        self._most_tail = most // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        taken = min(len(data), self._room - len(self._head))
        self._head += data[:taken]
        rest = data[taken:]
        if len(rest) > self._most_tail:
            self._dropped += len(rest) - self._most_tail
            rest = rest[len(rest) - self._most_tail :]
        self._tail += rest
        # Cut only when it has grown to twice its size: cutting moves what is left.
        if len(self._tail) > 2 * self._most_tail:
            self._cut()

    def _cut(self) -> None:
        too_many = len(self._tail) - self._most_tail
        if too_many > 0:
            del self._tail[:too_many]
            self._dropped += too_many

    def captured(self) -> HeadTail:
        """What is kept so far."""
        self._cut()
        return HeadTail(bytes(self._head), bytes(self._tail), self._dropped)
