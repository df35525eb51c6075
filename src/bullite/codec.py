"""JSON in and out, the one codec of the package."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from .errors import UnserializableData

_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
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
        return encoded.decode()
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise UnserializableData(
            f"{what}{name} cannot be stored as JSON: {error}; pass plain dicts, lists, strings, "
            "numbers, booleans and None"
        ) from error


def _refuse_non_finite(value: Any) -> None:
    json.dumps(msgspec.to_builtins(value), allow_nan=False)
