"""Rows that travel by their columns."""

from __future__ import annotations

from bullite.database.driver import ColumnarRows, ConstantColumn

ROWS = [(1, "mail", None), (2, "mail", "x"), (3, "mail", None)]


def test_the_rows_of_a_table_are_those_it_was_made_of() -> None:
    table = ColumnarRows.of(ROWS)
    assert list(table) == ROWS
    assert (len(table), table[1]) == (3, (2, "mail", "x"))


def test_a_column_of_which_every_row_has_the_same_value_is_told_apart() -> None:
    assert ColumnarRows.of(ROWS).columns == [(1, 2, 3), ConstantColumn("mail"), (None, "x", None)]


def test_a_column_may_be_given_by_the_one_value_that_all_rows_share() -> None:
    table = ColumnarRows(2, ([1, 2], ConstantColumn(None)))
    assert list(table) == [(1, None), (2, None)]


def test_the_only_row_of_a_table_shares_nothing() -> None:
    assert ColumnarRows.of([(1, "mail")]).columns == [(1,), ("mail",)]
