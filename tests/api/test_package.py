"""The package as a whole: what it exports, what importing it costs, what type checkers say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import bullite
from bullite import errors

from .helpers import python

PROGRAM = Path(__file__).with_name("typed_program.py")


def test_every_public_name_is_there_and_is_used_by_the_typed_program() -> None:
    program = PROGRAM.read_text(encoding="utf-8")
    for name in bullite.__all__:
        assert hasattr(bullite, name)
        assert name in program


def test_the_typed_program_works(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", PROGRAM, path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{bullite.__version__} no problems found\n"


@pytest.mark.parametrize("program", [PROGRAM, PROGRAM.parents[2] / "examples" / "demo.py"])
def test_type_checkers_have_nothing_to_say(program: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", program],
        capture_output=True,
        text=True,
        cwd=PROGRAM.parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_importing_the_package_pulls_in_no_heavy_library() -> None:
    program = "import bullite, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = set(python(program).split())
    assert "bullite" in loaded
    assert not loaded & {"click", "rich", "psycopg", "starlette", "sqlalchemy", "django"}


def test_every_error_is_a_bullite_error_and_says_what_it_means() -> None:
    classes = [thing for thing in vars(errors).values() if isinstance(thing, type)]
    assert len(classes) > 10
    for error in classes:
        assert issubclass(error, errors.BulliteError)
        assert error.__doc__


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (errors.InvalidOption, ValueError),
        (errors.InvalidOptionType, TypeError),
        (errors.UnserializableData, ValueError),
        (errors.QueueOptionMismatch, ValueError),
        (errors.JobNotFound, LookupError),
    ],
)
def test_a_refused_argument_is_what_python_calls_it(
    error: type[Exception], base: type[Exception]
) -> None:
    assert issubclass(error, base)
