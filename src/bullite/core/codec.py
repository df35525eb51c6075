"""JSON in and out, the one codec of the package."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from ..errors import UnserializableData

_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
DEEPEST = 500
"""Levels of lists and objects in each other; every reader of JSON that is used can take twice as
many, so that a value that was stored can be shown, beside others and in a list of them."""

encode_plain = msgspec.json.Encoder().encode
"""For values the package itself made: known to be plain and finite."""


def encode(value: Any, what: str, name: str = "") -> str:
    """`value` as JSON text; raises UnserializableData, naming `what`, if JSON cannot say it."""
    try:
        encoded = _encode(value)
        if b"null" in encoded:
            # The encoder turns NaN and infinity into null without a word; a text without "null"
            # cannot hide one, so only these few are looked at twice.
            _refuse_non_finite(value)
        if len(encoded) > 2 * DEEPEST:  # a shorter text cannot open and close so many
            _refuse_too_deep(encoded)
        return encoded.decode()
    except Exception as error:  # a value's own class may raise anything when it is looked at
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
    # Each round takes out what is innermost: one level.
    for _ in range(DEEPEST):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return
    raise ValueError(f"it is nested more than {DEEPEST} levels deep")


def _brackets_of(encoded: bytes, marks: bytes) -> bytes:
    """The brackets of a JSON text, all square, without those in strings; `marks` are all brackets,
    quotes and backslashes."""
    marks = marks.replace(b'""', b"")
    if b'"' in marks or b"\\" in marks:  # far slower, but few have brackets in strings
        return _STRING.sub(b"", encoded).translate(_SQUARE, _ALL_BUT_BRACKETS)
    return marks


def as_json(value: Any) -> str:
    return encode_plain(value).decode()
