"""What no other file shows: the usual patience, what is not imported, where nothing is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bullite import Bullite
from bullite.testing import Playground, playground
from tests.support.helpers import python

SOURCE = Path(__file__).parents[2] / "src" / "bullite"


async def test_stopping_waits_for_thirty_seconds_unless_told_otherwise(
    app: Bullite, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def close(workers: object, timeout: float, hurry: object) -> None:
        waited.append(timeout)

    monkeypatch.setattr("bullite.app.lifecycle.close_workers", close)
    async with app:
        pass
    async with app.lifespan():
        pass
    await app.stop()
    await app.stop(2)
    assert waited == [30, 30, 30, 2]


def test_pydantic_is_imported_by_nobody_but_its_users() -> None:
    program = """
import sys
from dataclasses import dataclass
from bullite import Bullite

@dataclass
class Point:
    x: int

def move(point: Point) -> Point:
    return point

assert Bullite("never.db").task(move)._pack((Point(1),), {}) == {"args": [{"x": 1}]}
print("pydantic" in sys.modules)
"""
    assert python(program) == "False\n"


def test_nothing_but_the_command_line_prints() -> None:
    prints = re.compile(r"(?<![\w.])print\(|sys\.std(out|err)\.write")
    files = [path for path in SOURCE.rglob("*.py") if "cli" not in path.parts]
    assert len(files) > 20
    assert [str(path) for path in files if prints.search(path.read_text(encoding="utf-8"))] == []


def test_a_playground_is_in_memory_where_there_is_such_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playground, "MEMORY", tmp_path)
    with Playground() as play:
        assert play.path.is_relative_to(tmp_path)
    monkeypatch.setattr(playground, "MEMORY", tmp_path / "missing")
    with Playground() as play:
        assert not play.path.is_relative_to(tmp_path / "missing")
        play.add("test", "job")
