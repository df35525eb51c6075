"""What a command says, on its way into the database: in pieces while it runs, then whole."""

from __future__ import annotations

import binascii
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ..operations.command_output import OutputChunk
from .capture import HeadTail
from .redaction_patterns import LONGEST_SEARCH

REDACTED = "[redacted]"
TOO_SLOW = "[redacted: the patterns took too long]"
MAX_LINE_LENGTH = LONGEST_SEARCH
"""Bytes of a line that are held back until it ends, so that a secret is not cut in two."""

MAX_SECRET_LENGTH = 1_024
"""Bytes held back of a line that is longer."""


SECONDS, SECONDS_PER_CHARACTER = 5.0, 2e-6
"""Processor time that one pattern may take for a text; what is left of the text is not kept."""


class Pattern(Protocol):
    """As much of a regular expression as is used here."""

    def finditer(self, text: str, begin: int, end: int, /) -> Iterator[re.Match[str]]:
        """Every match between two places."""


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
            text = without(pattern, text)
        return text.encode("utf-8", "surrogateescape")


def without(pattern: Pattern, text: str, window: int = MAX_LINE_LENGTH) -> str:
    """A text without what a pattern matches.

    A search holds the interpreter, for a time that may grow with the square of its length. So it
    looks at `window` characters at a time, and other threads run between two searches. A match of
    up to half of that is found wherever it is, one within a line wherever the line fits.
    """
    limit = time.thread_time() + SECONDS + SECONDS_PER_CHARACTER * len(text)
    clean: list[str] = []
    at = kept = 0
    while at < len(text):
        end = min(at + window, len(text))
        following = _next_search(text, at, end, window)
        for found in pattern.finditer(text, at, end):
            if found.start() >= following:
                break  # the next search sees more of it
            if found[0]:
                clean += text[kept : found.start()], REDACTED
                kept = _end_of_match(text, found, end)
        at = max(following, kept)
        if at < len(text) and time.thread_time() > limit:
            clean += text[kept:at], TOO_SLOW
            return "".join(clean)
    clean.append(text[kept:])
    return "".join(clean)


def _next_search(text: str, at: int, end: int, window: int) -> int:
    """Where the search after that of `at` to `end` begins: at the line that `end` cuts in two, and
    half of what was searched before it at the latest."""
    if end == len(text):
        return end
    latest = at + window - window // 2
    line = text.rfind("\n", at, end) + 1
    return min(line, latest) if line > at else latest


def _end_of_match(text: str, found: re.Match[str], end: int) -> int:
    """Where a match ends. If the search ended there, it may be longer: it ends with its line then,
    and not at all if it has several."""
    if found.end() < end or end == len(text):
        return found.end()
    line = -1 if "\n" in found[0] else text.find("\n", end)
    return len(text) if line < 0 else line


class StoredStream(NamedTuple):
    """One stream of a run, as it is kept."""

    head: bytes
    tail: bytes
    dropped: int

    @classmethod
    def of(cls, captured: HeadTail, redactor: Redactor) -> StoredStream:
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
    def decoded(cls, head: str | None, tail: str | None, dropped: int) -> StoredStream:
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
    end = data.rfind(b"\n", -MAX_LINE_LENGTH) + 1
    if end:
        return redactor.clean(data[:end]), len(data) - end
    # Clean first: a secret may be where it ends now, too.
    data = redactor.clean(data)
    return data[:-MAX_LINE_LENGTH], min(len(data), MAX_LINE_LENGTH)


def _from_a_line(data: bytes, redactor: Redactor) -> tuple[bytes, int]:
    """The same of what does not begin with a line."""
    begin = data.find(b"\n", 0, MAX_LINE_LENGTH) + 1
    if begin:
        return redactor.clean(data[begin:]), begin
    data = redactor.clean(data)
    return data[MAX_LINE_LENGTH:], min(len(data), MAX_LINE_LENGTH)


def as_text(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode() if data else ""


def as_bytes(text: str) -> bytes:
    return binascii.a2b_base64(text)


@dataclass(slots=True)
class OutputChunker:
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

    def received(self, stream: str, data: bytes) -> None:
        if self.redactor:
            data = self._unended.pop(stream, b"") + data
            end = data.rfind(b"\n") + 1
            if len(data) - end > MAX_LINE_LENGTH:
                data = self.redactor.clean(data)
                end = max(0, len(data) - MAX_SECRET_LENGTH)
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

    def take(self) -> tuple[list[OutputChunk], tuple[int, int] | None]:
        """What is to be written now; the first and last number of what is to go."""
        waiting, self._waiting = self._waiting, []
        pieces = []
        for stream, data in waiting:
            clean = self.redactor.clean(data)
            self._number += 1
            self._sizes[self._number] = len(clean)
            pieces.append(OutputChunk(self._number, stream, as_text(clean)))
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
