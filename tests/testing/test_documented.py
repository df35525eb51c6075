"""What docs/testing.md shows, done: tests by pytest, programs by Python."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.test_plugin import how_to_load

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)
PROGRAMS = [pytest.param(*found, id=str(n)) for n, found in enumerate(BLOCK.findall(PAGE))]


@pytest.mark.parametrize(("program", "printed"), PROGRAMS)
def test_a_program_of_the_page_runs(tmp_path: Path, program: str, printed: str) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(program)
    is_test = "def test_" in program
    how = ["-m", "pytest", "-q", "-W", "error", *how_to_load()] if is_test else ["-W", "error"]
    ran = subprocess.run(
        [sys.executable, *how, file.name], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    if printed:
        assert ran.stdout == printed


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 6
