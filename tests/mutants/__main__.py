"""Deletes one guard at a time and demands that the tests notice: `python -m tests.mutants`.

First the tests of all mutants must pass on the source as it is. Words on the command line choose
the mutants whose description or file contains one of them.
"""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from . import MUTANTS
from .mutant import Mutant

ROOT = Path(__file__).parents[2]
PACKAGE = Path("src") / "bullite"


def main(words: Sequence[str]) -> int:
    mutants = [
        m for m in MUTANTS if not words or any(word in m.why or word in m.file for word in words)
    ]
    if not mutants:
        _say(f"no mutant is described by {' or '.join(words)}")
        return 2
    with tempfile.TemporaryDirectory(prefix="bullite-mutants-") as folder:
        intact = Path(folder) / "intact"
        shutil.copytree(ROOT / "src", intact / "src")
        compileall.compile_dir(intact / "src", quiet=1)
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        if _run_tests(intact, tests, f"-n{os.cpu_count()}"):
            _say("the tests must pass on the source as it is, before it is changed")
            return 2
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            copies = [Path(folder) / str(index) for index in range(len(mutants))]
            verdicts = list(pool.map(partial(_verdict, intact), mutants, copies))
    survivors = [verdict for verdict in verdicts if verdict != "killed"]
    _say(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants killed")
    return 1 if survivors else 0


def _verdict(intact: Path, mutant: Mutant, copy: Path) -> str:
    """Test one mutant and print what became of it."""
    # With the compiled modules and their times: only the changed one is compiled again.
    shutil.copytree(intact, copy)
    file = copy / PACKAGE / mutant.file
    source = file.read_text()
    verdict = "NOT FOUND"
    if source.count(mutant.old) == 1:
        file.write_text(source.replace(mutant.old, mutant.new))
        failed = 1
        verdict = {0: "SURVIVED", failed: "killed"}.get(_run_tests(copy, mutant.tests), "BROKEN")
    shutil.rmtree(copy)
    _say(f"{verdict:9} {mutant.file:32} {mutant.why}")
    return verdict


def _run_tests(copy: Path, tests: Sequence[str], *options: str) -> int:
    """Pytest's exit code: 0 when all passed, 1 when some failed, more when it could not run."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"),
            *options,
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
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
