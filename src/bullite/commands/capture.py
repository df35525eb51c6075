"""A buffer that keeps the beginning and the end of a command's output."""

from __future__ import annotations

from typing import NamedTuple

MAX_KEPT = 100 * 1024
"""Bytes of one stream of one run."""


class HeadTail(NamedTuple):
    """The kept parts of a stream."""

    head: bytes
    tail: bytes
    dropped: int
    """Bytes between them that were not kept."""


class HeadTailBuffer:
    """Keeps at most `most` bytes of a stream: half from its beginning, half from its end."""

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._max_head = most - most // 2
        self._max_tail = most // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Append to the stream."""
        count = min(len(data), self._max_head - len(self._head))
        self._head += data[:count]
        rest = data[count:]
        if len(rest) > self._max_tail:
            self._dropped += len(rest) - self._max_tail
            rest = rest[len(rest) - self._max_tail :]
        self._tail += rest
        # Trim only at twice the size: trimming moves the bytes that stay.
        if len(self._tail) > 2 * self._max_tail:
            self._trim()

    def _trim(self) -> None:
        excess = len(self._tail) - self._max_tail
        if excess > 0:
            del self._tail[:excess]
            self._dropped += excess

    def captured(self) -> HeadTail:
        """Return the parts that are kept so far."""
        self._trim()
        return HeadTail(bytes(self._head), bytes(self._tail), self._dropped)
