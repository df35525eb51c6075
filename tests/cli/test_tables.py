"""Tables on terminals of any width."""

from __future__ import annotations

import pytest

from bullite.cli.tables import MIN_WIDTH, widths_of

COLUMNS = ("ID", "QUEUE", "COMMAND")


def row(*lengths: int) -> list[str]:
    return ["x" * length for length in lengths]


def test_where_there_is_room_every_column_is_as_wide_as_it_needs() -> None:
    assert widths_of(COLUMNS, [row(36, 7, 30), row(1, 9, 2)], 100) == [36, 9, 30]


def test_a_heading_is_never_narrower_than_its_word() -> None:
    assert widths_of(("PROCESSING", "COMPLETED"), [row(1, 1)], 5) == [10, 9]


def test_only_what_is_not_for_copying_gives_way() -> None:
    assert widths_of(COLUMNS, [row(36, 7, 90)], 80) == [36, 7, 33]
    assert widths_of(COLUMNS, [row(76, 7, 90)], 80) == [76, 7, MIN_WIDTH]


@pytest.mark.parametrize(
    ("lengths", "widths"), [((50, 50), [18, 18]), ((5, 50), [7, 29]), ((50, 5), [30, 6])]
)
def test_what_one_column_does_not_need_another_gets(
    lengths: tuple[int, int], widths: list[int]
) -> None:
    assert widths_of(("COMMAND", "REASON"), [row(*lengths)], 38) == widths


def test_wide_characters_count_twice() -> None:
    assert widths_of(("ID", "QUEUE"), [["日本語", "x"]], 80) == [6, 5]
