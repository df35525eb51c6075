"""Escaping of text from jobs for terminals and logs: the result has no control characters and no
invisible characters."""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for tab and newline
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"  # no width
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # no width, new lines, other directions
    # Variation selectors and U+200D as well, although that splits an emoji made of several
    # characters: otherwise two different names could look the same.
    "\ufe00-\ufe0f\ufff0-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # tags among them
    "]"
)
_LINES = str.maketrans({"\n": "\\n", "\t": "\\t"})


def visible(text: str) -> str:
    """Return a text with its invisible characters escaped, except tabs and newlines."""
    return _HIDDEN.sub(_spelled, text)


def on_one_line(text: str) -> str:
    """Return a text with its invisible characters escaped, including tabs and newlines."""
    return visible(text).translate(_LINES)


def visible_json(text: str) -> str:
    """Return an equal JSON text, with the invisible characters of its strings escaped."""
    return _HIDDEN.sub(_spelled_in_json, text)


def _spelled(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _spelled_in_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
