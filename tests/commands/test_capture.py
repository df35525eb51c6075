"""What is kept of a command's output."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullite.commands.capture import HeadTailBuffer


def test_output_that_fits_is_kept_as_it_is() -> None:
    capture = HeadTailBuffer(10)
    capture.add(b"hello")
    capture.add(b"world")
    assert capture.captured() == (b"hello", b"world", 0)


def test_of_a_flood_the_beginning_and_the_end_are_kept_and_the_rest_is_counted() -> None:
    capture = HeadTailBuffer(10)
    for number in range(10):
        capture.add(b"%d" % number * 10)
    assert capture.captured() == (b"00000", b"99999", 90)


@pytest.mark.parametrize("most", [0, 1, 7, 64])
@given(pieces=st.lists(st.binary(max_size=50), max_size=30))
def test_whatever_comes_nothing_is_invented_and_nothing_is_lost_unsaid(
    most: int, pieces: list[bytes]
) -> None:
    capture = HeadTailBuffer(most)
    for piece in pieces:
        capture.add(piece)
    whole = b"".join(pieces)
    head, tail, dropped = capture.captured()
    assert len(head) + len(tail) <= most
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) + dropped + len(tail) == len(whole)
    assert not dropped or len(head) + len(tail) == most
