"""Deletes one guard at a time and demands that the tests notice: `python -m tests.mutants`.

First the tests of all mutants must pass on the source as it is. Words on the command line choose
the mutants whose description or file contains one of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import MUTANTS
from .mutant import Mutant

ROOT = Path(__file__).parents[2]
PACKAGE = Path("src") / "bullite"


def main(words: Sequence[str]) -> int:
    mutants = [
        m for m in MUTANTS if not words or any(word in m.why or word in m.file for word in words)
    ]
    with tempfile.TemporaryDirectory(prefix="bullite-mutants-") as folder:
        intact = _copy(Path(folder) / "intact")
        if _run_tests(intact, sorted({test for mutant in mutants for test in mutant.tests})):
            _say("the tests must pass on the source as it is, before it is changed")
            return 2
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            copies = [Path(folder) / str(index) for index in range(len(mutants))]
            verdicts = list(pool.map(_verdict, mutants, copies))
    for mutant, verdict in zip(mutants, verdicts, strict=True):
        _say(f"{verdict:9} {mutant.file:32} {mutant.why}")
    survivors = [verdict for verdict in verdicts if verdict != "killed"]
    _say(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants killed")
    return 1 if survivors else 0


def _verdict(mutant: Mutant, copy: Path) -> str:
    file = _copy(copy) / PACKAGE / mutant.file
    source = file.read_text()
    if source.count(mutant.old) != 1:
        return "NOT FOUND"
    file.write_text(source.replace(mutant.old, mutant.new))
    failed = 1
    return {0: "SURVIVED", failed: "killed"}.get(_run_tests(copy, mutant.tests), "BROKEN")


def _copy(folder: Path) -> Path:
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def _run_tests(copy: Path, tests: Sequence[str]) -> int:
    """Pytest's exit code: 0 when all passed, 1 when some failed, more when it could not run."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"),
            *(f"tests/{test if '/' in test else f'operations/{test}'}" for test in tests),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1) or (done.returncode and copy.name == "intact"):
        _say(done.stdout[-3_000:] + done.stderr[-3_000:])
    return done.returncode


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
