"""What jobs hold is written so that it can neither act nor hide."""

from __future__ import annotations

import io
import json
import logging
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullite.commands.log_format import VisibleFormatter
from bullite.core.escaping import on_one_line, visible, visible_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m\x00\x7f\x9b", "\\x1b[31m\\x00\\x7f\\x9b"),
        ("a\tb\nc", "a\tb\nc"),
        ("\u061c\u200b\u200f\u2060\u2064", "\\u061c\\u200b\\u200f\\u2060\\u2064"),
        ("\u2028\u2029\u202e\u2066", "\\u2028\\u2029\\u202e\\u2066"),
        ("\ufeff\ufe0f\u3164\xad", "\\ufeff\\ufe0f\\u3164\\xad"),
        ("\U000e0001\U000e0041\U000e007f", "\\U000e0001\\U000e0041\\U000e007f"),
        ("\U000e0100", "\\U000e0100"),
        ("\ud800", "\\ud800"),
        ("👩\u200d🚀 ❤\ufe0f", "👩\\u200d🚀 ❤\\ufe0f"),
        ("Ünïcödé 漢字 עברית 🚀 \ufffd\xa0€", "Ünïcödé 漢字 עברית 🚀 \ufffd\xa0€"),
    ],
)
def test_visible_spells_out_what_cannot_be_seen(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(st.characters(categories=["Cc", "Cf", "Zl", "Zp", "Cs"]), min_size=1))
def test_visible_leaves_no_character_that_acts_or_hides(text: str) -> None:
    # Signs of other scripts that stand before numbers are formats by name, and can be seen.
    hidden = [c for c in visible(text) if c not in "\t\n" and not _can_be_seen(c)]
    assert hidden == []


def _can_be_seen(letter: str) -> bool:
    name = unicodedata.name(letter, "")
    return unicodedata.category(letter) not in ("Cc", "Cf", "Zl", "Zp", "Cs") or any(
        word in name for word in ("SIGN", "MARK", "END OF AYAH", "SYRIAC", "EGYPTIAN", "POUND")
    )


@given(st.text())
def test_visible_json_means_the_same(text: str) -> None:
    escaped = visible_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(escaped) == text
    assert visible(escaped) == escaped


def test_on_one_line_spells_out_newlines_too() -> None:
    assert on_one_line("a\nb\tc\x1b") == "a\\nb\\tc\\x1b"


# --- logs ----------------------------------------------------------------------------------------


def logged(message: str, *arguments: Any, **options: Any) -> list[str]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(VisibleFormatter("at %(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.error(message, *arguments, **options)
    return out.getvalue().splitlines()


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_formatter_writes_a_message_on_one_line() -> None:
    assert logged("job %s", "1\nat job 2\x1b[2J\u2028at 3") == [
        "at job 1\\nat job 2\\x1b[2J\\u2028at 3"
    ]


@pytest.mark.parametrize("line", ["\nat job 2", "\rat job 2", "\u2028at job 2", "\x85at job 2"])
def test_formatter_indents_every_line_of_a_traceback(line: str) -> None:
    error = ValueError(f"x{line}")
    error.add_note(f"y{line}")
    first, *rest = logged("job 1", exc_info=raised(error))
    assert first == "at job 1"
    assert len(rest) > 3
    assert all(one.startswith("    ") for one in rest)


def test_formatter_takes_no_traceback_that_another_formatter_wrote() -> None:
    error = raised(ValueError("x\nat job 2"))
    record = logging.LogRecord(
        "a", logging.ERROR, "f", 1, "m", None, (type(error), error, error.__traceback__)
    )
    logging.Formatter().format(record)
    assert "\nat job 2" not in VisibleFormatter("at %(message)s").format(record)


def test_formatter_survives_a_traceback_that_cannot_be_written() -> None:
    error: Exception = ValueError("innermost")
    for _ in range(5_000):
        error = ExceptionGroup("group", [error])
    assert logged("job 1", exc_info=error)[0] == "at job 1"
