"""Output of commands for the database: secrets redacted, in chunks while it runs, then whole."""

from __future__ import annotations

import binascii
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ..operations.command_output import OutputChunk
from .capture import HeadTail
from .redaction_patterns import MAX_SEARCH_LENGTH

REDACTED = "[redacted]"
TOO_SLOW = "[redacted: the patterns took too long]"
MAX_LINE_LENGTH = MAX_SEARCH_LENGTH
"""Bytes of an unfinished line that are held back, so that a secret is not cut in two."""

MAX_SECRET_LENGTH = 1_024
"""Bytes held back of a longer line."""

SECONDS, SECONDS_PER_CHARACTER = 5.0, 2e-6
"""Processor time of one pattern for a text; after it, the rest of the text is redacted."""


class Pattern(Protocol):
    """The part of `re.Pattern` that is used here."""

    def finditer(self, text: str, begin: int, end: int, /) -> Iterator[re.Match[str]]:
        """Yield the matches between two positions."""


class Redactor:
    """Replaces matches of patterns, so that secrets are not stored."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = [re.compile(pattern) for pattern in patterns]

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def clean(self, data: bytes) -> bytes:
        """Return the data without matches."""
        if not self._patterns:
            return data
        # The patterns match text; bytes that are not UTF-8 are kept as they are.
        text = data.decode("utf-8", "surrogateescape")
        for pattern in self._patterns:
            text = redacted(pattern, text)
        return text.encode("utf-8", "surrogateescape")


def redacted(pattern: Pattern, text: str, window: int = MAX_LINE_LENGTH) -> str:
    """Return a text with the matches of a pattern replaced.

    A search blocks all threads, for a time that may grow with the square of the text's length. So
    each search covers `window` characters, and other threads run between two searches. A match of
    up to half a window is found anywhere, a match within a line if the line fits in a window.
    """
    limit = time.thread_time() + SECONDS + SECONDS_PER_CHARACTER * len(text)
    clean: list[str] = []
    at = done = 0
    while at < len(text):
        end = min(at + window, len(text))
        following = _next_search(text, at, end, window)
        for found in pattern.finditer(text, at, end):
            if found.start() >= following:
                break  # the next search covers more of the text after it
            if found[0]:
                clean += text[done : found.start()], REDACTED
                done = _end_of_match(text, found, end)
        at = max(following, done)
        if at < len(text) and time.thread_time() > limit:
            clean += text[done:at], TOO_SLOW
            return "".join(clean)
    clean.append(text[done:])
    return "".join(clean)


def _next_search(text: str, at: int, end: int, window: int) -> int:
    """Return where the search after that from `at` to `end` begins.

    That is the line that `end` cuts in two, but at least half a window is searched again.
    """
    if end == len(text):
        return end
    latest = at + window - window // 2
    line = text.rfind("\n", at, end) + 1
    return min(line, latest) if line > at else latest


def _end_of_match(text: str, found: re.Match[str], end: int) -> int:
    """Return the end of a match.

    If the search ended with it, the match may be longer: then its end is that of its line, or, if
    it covers several lines, of the text.
    """
    if found.end() < end or end == len(text):
        return found.end()
    line = -1 if "\n" in found[0] else text.find("\n", end)
    return len(text) if line < 0 else line


class StoredStream(NamedTuple):
    """One stream of a run, as it is stored: the beginning, the end, and the bytes between."""

    head: bytes
    tail: bytes
    dropped: int

    @classmethod
    def of(cls, captured: HeadTail, redactor: Redactor) -> StoredStream:
        """Return captured output with secrets redacted."""
        head, tail, dropped = captured
        if not redactor:
            return cls(head, tail, dropped)
        if not dropped:
            return cls(redactor.clean(head + tail), b"", 0)
        # Drop the lines that were cut: they may contain half of a secret.
        clean_head, cut_head = _up_to_a_line(head, redactor)
        clean_tail, cut_tail = _from_a_line(tail, redactor)
        return cls(clean_head, clean_tail, dropped + cut_head + cut_tail)

    def encoded(self) -> tuple[str, str, int]:
        """Return the column values of this stream."""
        return as_text(self.head), as_text(self.tail), self.dropped

    @classmethod
    def decoded(cls, head: str | None, tail: str | None, dropped: int) -> StoredStream:
        """Return the stream of column values."""
        return cls(as_bytes(head or ""), as_bytes(tail or ""), dropped)

    def whole(self) -> bytes:
        """Return the stored bytes, with a note in place of those between."""
        return self.after(0)

    def after(self, seen: int) -> bytes:
        """Return the same without the first `seen` bytes of the stream."""
        missing = self.dropped - max(0, seen - len(self.head))
        if missing > 0:
            note = b"\n[... %d bytes left out ...]\n" % missing
            return self.head[seen:] + note + self.tail
        return self.head[seen:] + self.tail[max(0, seen - len(self.head) - self.dropped) :]


def _up_to_a_line(data: bytes, redactor: Redactor) -> tuple[bytes, int]:
    """Redact data and drop its unfinished last line, of a long line only the end.

    Return the data and the number of bytes dropped.
    """
    end = data.rfind(b"\n", -MAX_LINE_LENGTH) + 1
    if end:
        return redactor.clean(data[:end]), len(data) - end
    # Redact before cutting: the cut may go through a secret.
    data = redactor.clean(data)
    return data[:-MAX_LINE_LENGTH], min(len(data), MAX_LINE_LENGTH)


def _from_a_line(data: bytes, redactor: Redactor) -> tuple[bytes, int]:
    """Redact data and drop its incomplete first line, of a long line only the beginning."""
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
    """Divides live output into chunks, and says which stored chunks to drop from the middle."""

    max_kept: int
    redactor: Redactor
    _waiting: list[tuple[str, bytes]] = field(default_factory=list)
    _unfinished: dict[str, bytes] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)
    _number: int = 0
    _head: int = 0
    _tail_from: int = 0
    _tail: int = 0

    def add(self, stream: str, data: bytes) -> None:
        """Append output; with a redactor, unfinished lines are held back."""
        if self.redactor:
            data = self._unfinished.pop(stream, b"") + data
            end = data.rfind(b"\n") + 1
            if len(data) - end > MAX_LINE_LENGTH:
                data = self.redactor.clean(data)
                end = max(0, len(data) - MAX_SECRET_LENGTH)
            self._unfinished[stream], data = data[end:], data[:end]
        if self._waiting and self._waiting[-1][0] == stream:
            _, earlier = self._waiting.pop()
            data = earlier + data
        if len(data) > 4 * self.max_kept:
            data = self._ends_of(data)
        if data:
            self._waiting.append((stream, data))

    def _ends_of(self, data: bytes) -> bytes:
        """Return the beginning and the end of the data, as much as is kept of each."""
        head, tail = data[: self.max_kept], data[len(data) - self.max_kept :]
        if not self.redactor:
            return head + tail
        return _up_to_a_line(head, self.redactor)[0] + _from_a_line(tail, self.redactor)[0]

    def take(self) -> tuple[list[OutputChunk], tuple[int, int] | None]:
        """Return the chunks to write, and the first and last number of the chunks to delete."""
        waiting, self._waiting = self._waiting, []
        chunks = []
        for stream, data in waiting:
            clean = self.redactor.clean(data)
            self._number += 1
            self._sizes[self._number] = len(clean)
            chunks.append(OutputChunk(self._number, stream, as_text(clean)))
        return chunks, self._excess(len(chunks))

    def _excess(self, new: int) -> tuple[int, int] | None:
        """Return the chunks to delete: the first and the last chunks are kept."""
        for number in range(self._number - new + 1, self._number + 1):
            if self._head + self._sizes[number] <= self.max_kept and not self._tail_from:
                self._head += self._sizes[number]
            else:
                self._tail_from = self._tail_from or number
                self._tail += self._sizes[number]
        first = self._tail_from
        while self._tail > self.max_kept and self._tail_from < self._number:
            self._tail -= self._sizes.pop(self._tail_from)
            self._tail_from += 1
        return (first, self._tail_from - 1) if self._tail_from > first else None
