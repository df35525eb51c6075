"""What a command says, on its way into the database: in pieces while it runs, then whole."""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..operations.commanding import Piece
from .capture import Captured

REDACTED = "[redacted]"
LONGEST_LINE = 8_192
"""Bytes of a line that are held back until it ends, so that a secret is not cut in two."""

LONGEST_SECRET = 1_024
"""Bytes held back of a line that is longer."""


class Redactor:
    """Takes out what must not be kept."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = [re.compile(pattern) for pattern in patterns]

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def clean(self, data: bytes) -> bytes:
        if not self._patterns:
            return data
        # As text, because patterns are; what is no UTF-8 comes out as it went in.
        text = data.decode("utf-8", "surrogateescape")
        for pattern in self._patterns:
            text = pattern.sub(_redacted, text)
        return text.encode("utf-8", "surrogateescape")


def _redacted(found: re.Match[str]) -> str:
    return REDACTED if found[0] else ""


class Stored(NamedTuple):
    """One stream of a run, as it is kept."""

    head: bytes
    tail: bytes
    dropped: int

    @classmethod
    def of(cls, captured: Captured, redactor: Redactor) -> Stored:
        head, tail, dropped = captured
        if not redactor:
            return cls(head, tail, dropped)
        if not dropped:
            return cls(redactor.clean(head + tail), b"", 0)
        # What is left of the lines that were cut may be the half of a secret.
        clean_head, cut_head = _up_to_a_line(head, redactor)
        clean_tail, cut_tail = _from_a_line(tail, redactor)
        return cls(clean_head, clean_tail, dropped + cut_head + cut_tail)

    def encoded(self) -> tuple[str, str, int]:
        return as_text(self.head), as_text(self.tail), self.dropped

    @classmethod
    def decoded(cls, head: str | None, tail: str | None, dropped: int) -> Stored:
        return cls(as_bytes(head or ""), as_bytes(tail or ""), dropped)

    def whole(self) -> bytes:
        """All that is kept, with a note where something is not."""
        return self.after(0)

    def after(self, seen: int) -> bytes:
        """The same without so many bytes at the beginning, which somebody knows already."""
        missed = self.dropped - max(0, seen - len(self.head))
        if missed > 0:
            note = b"\n[... %d bytes left out ...]\n" % missed
            return self.head[seen:] + note + self.tail
        return self.head[seen:] + self.tail[max(0, seen - len(self.head) - self.dropped) :]


def _up_to_a_line(data: bytes, redactor: Redactor) -> tuple[bytes, int]:
    """Clean, without the line that does not end, of a very long one without its end; how many bytes
    that leaves out."""
    end = data.rfind(b"\n", -LONGEST_LINE) + 1
    if end:
        return redactor.clean(data[:end]), len(data) - end
    # Clean first: a secret may be where it ends now, too.
    data = redactor.clean(data)
    return data[:-LONGEST_LINE], min(len(data), LONGEST_LINE)


def _from_a_line(data: bytes, redactor: Redactor) -> tuple[bytes, int]:
    """The same of what does not begin with a line."""
    begin = data.find(b"\n", 0, LONGEST_LINE) + 1
    if begin:
        return redactor.clean(data[begin:]), begin
    data = redactor.clean(data)
    return data[LONGEST_LINE:], min(len(data), LONGEST_LINE)


def as_text(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode() if data else ""


def as_bytes(text: str) -> bytes:
    return binascii.a2b_base64(text)


@dataclass(slots=True)
class Pieces:
    """What was said and not written yet, and which pieces of what was written must go."""

    most_kept: int
    redactor: Redactor
    _waiting: list[tuple[str, bytes]] = field(default_factory=list)
    _unended: dict[str, bytes] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)
    _number: int = 0
    _head: int = 0
    _tail_from: int = 0
    _tail: int = 0

    def heard(self, stream: str, data: bytes) -> None:
        if self.redactor:
            data = self._unended.pop(stream, b"") + data
            end = data.rfind(b"\n") + 1
            if len(data) - end > LONGEST_LINE:
                data = self.redactor.clean(data)
                end = max(0, len(data) - LONGEST_SECRET)
            self._unended[stream], data = data[end:], data[:end]
        if self._waiting and self._waiting[-1][0] == stream:
            before = self._waiting.pop()[1]
            data = before + data
        if len(data) > 4 * self.most_kept:
            data = self._ends_of(data)
        if data:
            self._waiting.append((stream, data))

    def _ends_of(self, data: bytes) -> bytes:
        """The beginning and the end of what was said, as much as may be kept."""
        head, tail = data[: self.most_kept], data[len(data) - self.most_kept :]
        if not self.redactor:
            return head + tail
        return _up_to_a_line(head, self.redactor)[0] + _from_a_line(tail, self.redactor)[0]

    def take(self) -> tuple[list[Piece], tuple[int, int] | None]:
        """What is to be written now; the first and last number of what is to go."""
        waiting, self._waiting = self._waiting, []
        pieces = []
        for stream, data in waiting:
            clean = self.redactor.clean(data)
            self._number += 1
            self._sizes[self._number] = len(clean)
            pieces.append(Piece(self._number, stream, as_text(clean)))
        return pieces, self._too_much(len(pieces))

    def _too_much(self, new: int) -> tuple[int, int] | None:
        """Keep the first pieces and the last; drop from the middle."""
        for number in range(self._number - new + 1, self._number + 1):
            if self._head + self._sizes[number] <= self.most_kept and not self._tail_from:
                self._head += self._sizes[number]
            else:
                self._tail_from = self._tail_from or number
                self._tail += self._sizes[number]
        first = self._tail_from
        while self._tail > self.most_kept and self._tail_from < self._number:
            self._tail -= self._sizes.pop(self._tail_from)
            self._tail_from += 1
        return (first, self._tail_from - 1) if self._tail_from > first else None
