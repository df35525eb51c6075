"""Redaction patterns: regular expressions of users, measured before they are used.

A search of `re` cannot be interrupted and blocks all threads. A pattern is tried in a process of
its own, on texts that are made from the pattern and likely to be slow.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

MAX_SEARCH_LENGTH = 8_192
"""Maximum number of characters of one search."""

MAX_SEARCH_SECONDS = 2.0
"""Maximum processor time of a search of that length."""

_FIRST_SIZE = MAX_SEARCH_LENGTH // 8
_FIRST_SECONDS = 0.5
_SIZES = (15, 25, 39, 60)
"""Sizes of short texts, for patterns with a fixed number of repeats."""
_TIMEOUT = 60.0
"""Seconds after which the process is killed, on a busy machine too."""

_MAX_TEXTS = 120
_LETTERS = "a0 A-._@/=:\n"
_parser: Any = import_module("re._parser")
_names: Any = import_module("re._constants")

_MEASURE = """
import json, re, signal, sys, time
given = json.load(sys.stdin)
pattern = re.compile(given["pattern"])
signal.signal(signal.SIGVTALRM, signal.SIG_DFL)

def search(text, size, seconds):
    before, pumped, after = text
    filled = before + pumped * (size // len(pumped))
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    began = time.thread_time()
    for _ in pattern.finditer(filled[:size] + after):
        pass
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return time.thread_time() - began

first, full = given["first"], given["full"]
for size in given["sizes"]:
    for text in given["texts"]:
        search(text, size, first[1])
slowest = max(given["texts"], key=lambda text: search(text, *first))
search(slowest, *full)
"""


class PumpedText(NamedTuple):
    """A text whose middle part is repeated up to a length."""

    before: str
    middle: str
    after: str


@lru_cache(maxsize=256)
def problem_of(pattern: str) -> str | None:
    """Return why a regular expression cannot be used; None if it can."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error)
    try:
        texts = _texts_for(pattern)
    except RecursionError:
        return "it is nested too deeply"
    if _is_slow(pattern, texts):
        return (
            f"searching {MAX_SEARCH_LENGTH} characters can take it more than "
            f"{MAX_SEARCH_SECONDS:g} s; "
            "do not repeat what is repeated itself, as (a+)+ does"
        )
    return None


def _is_slow(pattern: str, texts: Sequence[PumpedText]) -> bool:
    measurement = {
        "pattern": pattern,
        "texts": texts,
        "sizes": _SIZES,
        "first": (_FIRST_SIZE, _FIRST_SECONDS),
        "full": (MAX_SEARCH_LENGTH, MAX_SEARCH_SECONDS),
    }
    # Isolated (-I -S, no environment): it loads no modules of the user.
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _MEASURE],
        env={},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with process:
        try:
            process.communicate(json.dumps(measurement).encode(), timeout=_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            return True
    if process.returncode not in (0, -signal.SIGVTALRM, -signal.SIGKILL):
        raise OSError(f"a pattern could not be measured: exit code {process.returncode}")
    return process.returncode != 0


def _texts_for(pattern: str) -> list[PumpedText]:
    """Return texts that may be slow to search: repeats of the pattern, then a mismatch."""
    parsed = _parser.parse(pattern)
    texts = dict.fromkeys(PumpedText("", letter, "\x00") for letter in _LETTERS)
    for variant, letter in enumerate(_LETTERS):
        texts.update(dict.fromkeys(_Example(letter, variant).texts_of(parsed)))
    return list(texts)[:_MAX_TEXTS]


class _Example:
    """Builds a text that a pattern matches, with one letter wherever possible."""

    def __init__(self, letter: str, variant: int) -> None:
        self._letter = letter
        self._variant = variant
        self._pumped: list[PumpedText] = []

    def texts_of(self, parsed: Any) -> list[PumpedText]:
        self._write(parsed, "")
        return self._pumped

    def _write(self, parsed: Any, before: str) -> str:
        """Return a match of a part of the pattern; `before` is the match of the parts before it."""
        text = ""
        for name, value in parsed:
            text += self._piece(name, value, before + text)
        return text

    def _piece(self, name: Any, value: Any, before: str) -> str:
        match str(name):
            case "LITERAL":
                return chr(value)
            case "NOT_LITERAL":
                return self._letter if value != ord(self._letter) else "b"
            case "ANY":
                return self._letter if self._letter != "\n" else "b"
            case "IN":
                return self._one_in(value)
            case "BRANCH":
                return self._write(value[1][self._variant % len(value[1])], before)
            case "SUBPATTERN" | "ATOMIC_GROUP":
                return self._write(value[-1] if str(name) == "SUBPATTERN" else value, before)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return self._repeat(value, before)
            case "ASSERT" | "ASSERT_NOT":
                self._write(value[1], before)
        return ""

    def _repeat(self, value: Any, before: str) -> str:
        least, most, parsed = value
        once = self._write(parsed, before)
        if most > 8 and once:
            self._pumped.append(PumpedText(before[-_FIRST_SIZE // 2 :], once, "\x00"))
        times: int = min(max(least, 1), 64)
        return once * times

    def _one_in(self, items: Any) -> str:
        letters = (self._letter, *_LETTERS, *_firsts(items), "\x01", "\u0100")
        return next((letter for letter in letters if _holds(items, letter)), "")


def _firsts(items: Any) -> Iterator[str]:
    for name, value in items:
        match str(name):
            case "LITERAL":
                yield chr(value)
            case "RANGE":
                yield chr(value[0])


def _holds(items: Any, letter: str) -> bool:
    """Return whether a set of characters contains one."""
    negated = bool(items) and items[0][0] is _names.NEGATE
    return negated != any(_is_in(name, value, letter) for name, value in items)


def _is_in(name: Any, value: Any, letter: str) -> bool:
    match str(name):
        case "LITERAL":
            return bool(value == ord(letter))
        case "RANGE":
            return bool(value[0] <= ord(letter) <= value[1])
        case "CATEGORY":
            kind = str(value).removeprefix("CATEGORY_")
            return _is_of(kind.removeprefix("NOT_"), letter) != kind.startswith("NOT_")
    return False


def _is_of(kind: str, letter: str) -> bool:
    if kind == "DIGIT":
        return letter.isdigit()
    return letter.isspace() if kind == "SPACE" else letter.isalnum() or letter == "_"
