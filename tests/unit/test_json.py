"""The codec: what goes in comes out, or is refused."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullite.core import codec
from bullite.core.codec import DEEPEST, decode, encode
from bullite.errors import UnserializableData

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
)


@given(json_values)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    back = decode(encode(value, "it"))
    assert back == value
    assert type(back) is type(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_come_back_bit_by_bit(value: float) -> None:
    back = decode(encode(value, "it"))
    assert isinstance(back, float)
    assert (back, math.copysign(1, back)) == (value, math.copysign(1, value))


@pytest.mark.parametrize(
    "value", [2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, -(10**100), [10**30]]
)
def test_huge_numbers_come_back_exactly(value: Any) -> None:
    assert decode(encode(value, "it")) == value


@pytest.mark.parametrize(
    "value", [None, [None], {"a": None}, "null", ["null"], {"null": 1}, "a null b"]
)
def test_nothing_is_a_value_like_any_other(value: Any) -> None:
    assert decode(encode(value, "it")) == value


def test_control_characters_do_not_appear_in_the_text() -> None:
    text = "".join(map(chr, range(32)))
    encoded = encode(text, "it")
    assert not set(text) & set(encoded)
    assert decode(encoded) == text


@dataclass
class Reading:
    value: float


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda x: x, id="bare"),
        pytest.param(lambda x: [1.0, [x]], id="in a list"),
        pytest.param(lambda x: {"a": {"b": x}}, id="in a dict"),
        pytest.param(lambda x: (x, None), id="in a tuple"),
        pytest.param(lambda x: {x}, id="in a set"),
        pytest.param(lambda x: Reading(x), id="in a dataclass"),
    ],
)
def test_what_is_no_number_is_refused_wherever_it_hides(bad: float, wrap: Any) -> None:
    with pytest.raises(UnserializableData, match="it cannot be stored as JSON"):
        encode(wrap(bad), "it")


def circular() -> Any:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def circular_dict() -> Any:
    ring: dict[str, Any] = {"none": None}
    ring["self"] = ring
    return ring


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(object(), id="object"),
        pytest.param({"a": [object()]}, id="nested object"),
        pytest.param(test_floats_come_back_bit_by_bit, id="function"),
        pytest.param("\ud800", id="lone surrogate"),
        pytest.param({"\udfff": 1}, id="lone surrogate as a key"),
        pytest.param(1j, id="complex"),
        pytest.param(circular(), id="circular list"),
        pytest.param(circular_dict(), id="circular dict"),
    ],
)
def test_what_json_cannot_say_is_refused_with_what_it_can(value: Any) -> None:
    with pytest.raises(UnserializableData, match=r"the data cannot be stored.*pass plain dicts"):
        encode(value, "the data")


# --- depth ---------------------------------------------------------------------------------------


def nested(levels: int, inside: Any = 1) -> Any:
    value = inside
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("levels", [DEEPEST + 1, 700, 980])
@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda deep: deep, id="bare"),
        pytest.param(lambda deep: [*({"a": []} for _ in range(1_000)), deep], id="behind others"),
        pytest.param(lambda deep: [deep, "]" * 1_000, '"', "\\"], id="beside brackets in text"),
        pytest.param(lambda deep: ["]}", deep, "{["], id="between brackets in text"),
    ],
)
def test_encode_refuses_a_value_that_is_too_deep(levels: int, wrap: Any) -> None:
    with pytest.raises(UnserializableData, match=r"^the data cannot.*nested more than 500 levels"):
        encode(wrap(nested(levels)), "the data")


def test_encode_is_not_fooled_by_brackets_that_close_in_text() -> None:
    value: Any = 1
    for _ in range(DEEPEST + 1):
        value = ["]", value, "["]
    with pytest.raises(UnserializableData, match="nested more than"):
        encode(value, "it")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(nested(DEEPEST), id="as deep as may be"),
        pytest.param([nested(2)] * 5_000, id="wide"),
        pytest.param("[" * 5_000, id="brackets in text"),
        pytest.param({"[": ["{" * 5_000, '"[', "\\", '\\"']}, id="quotes in text"),
        pytest.param(["[", "]", '"', ""] * 1_000, id="brackets alone in texts"),
    ],
)
def test_encode_takes_brackets_that_are_not_too_deep(value: Any) -> None:
    assert decode(encode(value, "it")) == value


def depth_of(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)


bracketed = st.text('[]{}"\\a', max_size=3)


@given(
    st.recursive(
        bracketed,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(bracketed, inner, max_size=2),
    )
)
def test_encode_counts_levels_as_they_are(value: Any) -> None:
    depth = depth_of(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "DEEPEST", max(depth, 1))
        encode(value, "it")
        if depth > 1:
            patch.setattr(codec, "DEEPEST", depth - 1)
            with pytest.raises(UnserializableData, match="nested"):
                encode(value, "it")


def test_every_reader_takes_a_list_of_values_as_deep_as_may_be() -> None:
    text = encode(nested(DEEPEST), "it")
    listed = f'{{"jobs": [{{"data": {text}}}]}}'
    assert json.loads(listed) == decode(listed)
    assert json.loads(json.dumps(decode(listed), indent=2)) == decode(listed)
    with closing(sqlite3.connect(":memory:")) as connection:
        [kept] = connection.execute("select json_extract(?, '$.jobs[0].data')", (listed,))
    assert decode(kept[0]) == decode(text)
