"""Rows with payloads are read in one step, or one by one where that is quicker."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from bullite.database.sqlite import row_fetch
from bullite.database.sqlite.row_fetch import FEW, FOLDS_AFTER, LONG, RowLoader

SELECT = "select id, name || '', data from things where id >= :least order by id"


class Things:
    """A table of payloads, and what is asked of it."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute("create table things (id integer, name text, data text)")
        self.loading = RowLoader()
        self.asked: list[str] = []
        self._connection.set_trace_callback(self.asked.append)

    def put(self, *payloads: str) -> None:
        self._connection.execute("delete from things")
        rows = [(number, f"name {number}", text) for number, text in enumerate(payloads)]
        self._connection.executemany("insert into things values (?, ?, ?)", rows)

    def read(self, least: int = 0) -> list[list[object]]:
        self.asked.clear()
        return [list(row) for row in self.loading.read(self._connection, SELECT, {"least": least})]

    @property
    def were_folded(self) -> bool:
        return "group_concat" in self.asked[-1]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def things(monkeypatch: pytest.MonkeyPatch) -> Iterator[Things]:
    monkeypatch.setattr(row_fetch, "SLOW", 60)  # others on this machine may compute, too
    things = Things()
    yield things
    things.close()


def test_short_payloads_are_read_in_one_step(things):
    things.put('"a"', '"b"')
    for _ in range(3):
        assert things.read() == [[0, "name 0", '"a"'], [1, "name 1", '"b"']]
        assert things.were_folded


def test_long_payloads_are_read_one_by_one_once_they_were_met(things):
    payloads = [letter * 2 * LONG for letter in "abcdefghijklmnopqrst"]
    things.put(*payloads)
    expected = [[number, f"name {number}", text] for number, text in enumerate(payloads)]

    assert things.read() == expected
    assert things.were_folded
    for _ in range(3):
        assert things.read() == expected
        assert not things.were_folded


def test_when_payloads_are_short_again_they_are_read_in_one_step_again(things):
    things.put("a" * 2 * LONG)
    things.read()
    things.put('"a"')
    things.read()

    assert things.read() == [[0, "name 0", '"a"']]
    assert things.were_folded


def test_nothing_is_read_either_way(things):
    things.put("a" * 2 * LONG)
    assert things.read(least=5) == []
    things.read()
    assert things.read(least=5) == []


def test_beside_somebody_who_computes_long_ones_are_read_in_one_step_for_a_while(
    things, monkeypatch
):
    payloads = [letter * 2 * LONG for letter in "abcdefghijklmnopqrst"]
    assert len(payloads) > FEW
    things.put(*payloads)
    expected = things.read()
    with monkeypatch.context() as computing:
        computing.setattr(row_fetch, "SLOW", -1)
        assert things.read() == expected
        assert things.were_folded
    for _ in range(FOLDS_AFTER - 1):
        assert things.read() == expected
        assert things.were_folded

    assert things.read() == expected
    assert not things.were_folded
