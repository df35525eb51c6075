"""Encoding and decoding of JSON: the only codec of the package."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from ..errors import UnserializableData

_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
DEEPEST = 500
"""Maximum nesting of lists and objects. Every JSON parser in use accepts twice as many levels, so a
stored value can also be shown inside other values and lists."""

encode_plain = msgspec.json.Encoder().encode
"""Encodes values that the package itself made: they are known to be plain and finite."""


def encode(value: Any, what: str, name: str = "") -> str:
    """Return `value` as JSON text. Raise UnserializableData, naming `what`, if JSON has no form
    for it."""
    try:
        encoded = _encode(value)
        if b"null" in encoded:
            # The encoder writes NaN and infinity as null without an error. A text without "null"
            # contains neither, so only few values are checked a second time.
            _refuse_non_finite(value)
        if len(encoded) > 2 * DEEPEST:  # a shorter text has fewer brackets
            _refuse_too_deep(encoded)
        return encoded.decode()
    except Exception as error:  # the class of a value may raise anything when it is read
        why: Exception = error
        if isinstance(error, RecursionError):
            why = ValueError(f"it is nested more than {DEEPEST} levels deep, or contains itself")
        raise UnserializableData(
            f"{what}{name} cannot be stored as JSON: {why}; pass plain dicts, lists, strings, "
            "numbers, booleans and None"
        ) from error


def _refuse_non_finite(value: Any) -> None:
    json.dumps(msgspec.to_builtins(value), allow_nan=False)


_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_SQUARE = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ALL_BUT_MARKS = bytes(set(range(256)) - set(b'[]{}"\\'))


def _refuse_too_deep(encoded: bytes) -> None:
    marks = encoded.translate(_SQUARE, _ALL_BUT_MARKS)  # faster than counting brackets
    if len(marks) <= 2 * DEEPEST:
        return
    brackets = _brackets_of(encoded, marks)
    # Each round removes the innermost level.
    for _ in range(DEEPEST):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return
    raise ValueError(f"it is nested more than {DEEPEST} levels deep")


def _brackets_of(encoded: bytes, marks: bytes) -> bytes:
    """Return the brackets of a JSON text, all as square ones, without the brackets in strings.

    `marks` are all brackets, quotes and backslashes of the text.
    """
    marks = marks.replace(b'""', b"")
    if b'"' in marks or b"\\" in marks:  # far slower, but few have brackets in strings
        return _STRING.sub(b"", encoded).translate(_SQUARE, _ALL_BUT_BRACKETS)
    return marks


def as_json(value: Any) -> str:
    return encode_plain(value).decode()
