"""What mypy and pyright, both in strict mode, say of an application and of mistakes in one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MISTAKES = HERE / "mistakes.py"
PROGRAMS = [
    HERE / "typed_app.py",
    ROOT / "tests/package/typed_program.py",
    ROOT / "tests/sync/typed_sync_program.py",
]
"""Between them they use every public class and option."""

Told = dict[tuple[str, int], str]
"""What is said of the lines of files."""

Checker = Callable[[Sequence[Path], Path], Told]
"""Says what is wrong in some files, using a folder of its own."""


def mypy(files: Sequence[Path], folder: Path) -> Told:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *files],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    told = re.findall(r"^(.+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert {ROOT / path for path, _, _ in told} <= set(files), done.stdout
    return {(Path(path).name, int(line)): text for path, line, text in told}


def pyright(files: Sequence[Path], folder: Path) -> Told:
    config = folder / "pyrightconfig.json"
    settings = {
        "include": [str(file) for file in files],
        "typeCheckingMode": "strict",
        "extraPaths": [str(ROOT / "src")],
    }
    config.write_text(json.dumps(settings))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright", "--outputjson", "--project", config),
            *("--pythonpath", sys.executable),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["summary"]["filesAnalyzed"] == len(files)
    return {
        (Path(told["file"]).name, told["range"]["start"]["line"] + 1): told["message"]
        for told in answer["generalDiagnostics"]
    }


CHECKERS = pytest.mark.parametrize("checker", [mypy, pyright])


@CHECKERS
def test_a_checker_has_nothing_to_say_of_a_typed_program(checker: Checker, tmp_path: Path) -> None:
    assert checker(PROGRAMS, tmp_path) == {}


@CHECKERS
def test_a_checker_flags_every_mistake_and_nothing_else(checker: Checker, tmp_path: Path) -> None:
    lines = enumerate(MISTAKES.read_text(encoding="utf-8").splitlines(), start=1)
    wrong = {(MISTAKES.name, number): text for number, text in lines if "# wrong" in text}
    assert len(wrong) > 20
    flagged = checker([MISTAKES], tmp_path)
    assert {place: text for place, text in wrong.items() if place not in flagged} == {}
    assert {place: text for place, text in flagged.items() if place not in wrong} == {}


def test_the_typed_application_works(location: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", PROGRAMS[0], location],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
