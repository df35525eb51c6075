"""The documentation is true: what it names exists, and its examples run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bullite"


def names_in(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def known_tests() -> set[str]:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    return set(re.findall(r"def (test_\w+)", tests))


def rows_of_the_coverage() -> list[list[str]]:
    lines = [
        line
        for path in (ROOT / "docs" / "coverage").glob("*.md")
        for line in path.read_text().splitlines()
    ]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]
    return [row for row in rows if not set(row[0]) <= {"-"} and row[-1] != "shown by"]


def test_every_line_of_the_coverage_names_what_shows_it() -> None:
    empty = [row[0] for row in rows_of_the_coverage() if not names_in(row[-1])]
    assert empty == []


def test_everything_the_coverage_names_exists() -> None:
    tests = known_tests()
    missing = [
        name
        for row in rows_of_the_coverage()
        for name in names_in(row[-1])
        if not (name in tests or (ROOT / name).exists() or name.startswith("python -m bench"))
    ]
    assert missing == []


def test_every_line_on_attackers_names_tests_that_exist() -> None:
    page = (ROOT / "SECURITY.md").read_text().partition("## What an attacker can")[2]
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    tests = known_tests()
    for row in rows:
        named = names_in(row[-1])
        assert named, row
        assert set(named) <= tests, row


def test_every_module_is_on_the_map() -> None:
    architecture = (ROOT / "docs" / "architecture.md").read_text()
    on_the_map = " ".join(names_in(architecture))
    modules = [path for path in SOURCE.rglob("*.py") if path.stem != "__init__"]
    missing = [
        str(path.relative_to(SOURCE))
        for path in modules
        if path.stem not in re.findall(r"\w+", on_the_map)
        and f"{path.parent.name}/" not in on_the_map
    ]
    assert missing == []


def test_every_module_says_in_its_first_sentence_what_it_is_for() -> None:
    silent = [str(path) for path in SOURCE.rglob("*.py") if not path.read_text().startswith('"""')]
    assert silent == []


def test_every_mutant_names_text_that_is_there_once() -> None:
    texts = {mutant.file: (SOURCE / mutant.file).read_text() for mutant in MUTANTS}
    stale = [mutant.why for mutant in MUTANTS if texts[mutant.file].count(mutant.old) != 1]
    assert stale == []


def programs() -> list[tuple[str, str, str | None]]:
    """Every program in the pages for users, and what it is said to print."""
    pages = ("README.md", "docs/guide.md", "docs/tasks.md")
    block = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)
    return [
        (f"{page}-{number}", program, printed or None)
        for page in pages
        for number, (program, printed) in enumerate(block.findall((ROOT / page).read_text()))
    ]


@pytest.mark.parametrize(
    ("program", "printed"), [pytest.param(*rest, id=name) for name, *rest in programs()]
)
def test_a_program_of_the_documentation_runs_in_an_empty_folder(
    tmp_path: Path, program: str, printed: str | None
) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    if printed is not None:
        assert ran.stdout == printed


def test_no_code_opens_the_database_behind_sqlites_back() -> None:
    """Closing any other descriptor of the file drops the locks that SQLite holds in the process."""
    opens = re.compile(
        r"(?<![\w.])(?<!def )open\(|os\.open\(|shutil\.|read_bytes|write_bytes|write_text"
    )
    found = {
        str(path.relative_to(SOURCE)): matches
        for path in SOURCE.rglob("*.py")
        if (matches := opens.findall(path.read_text()))
    }
    # SQLite holds no lock on the log (decision 38). `files` makes a new database, of which there is
    # no connection yet (decision 47). The gate with its mark, the liveness files, the
    # folder of the sockets, the locks and logs of groups are our own; batches read what users name,
    # commands /dev/null, and there are settings and /proc.
    assert found == {
        "cli/verbs/enqueue_batch.py": ["open("],
        "cli/daemonize.py": ["open(", "os.open("],
        "processes/group_lock.py": ["os.open(", "os.open("],
        "core/ownership.py": ["os.open(", "open("],
        "processes/process_info.py": ["open(", "open(", "read_bytes", "open("],
        "commands/runner.py": ["os.open("],
        "database/sqlite/files.py": ["os.open("],
        "database/sqlite/wal_sync.py": ["os.open(", "os.open("],
        "database/sqlite/side_files.py": ["os.open(", "os.open("],
        "database/sqlite/notifications.py": ["os.open("],
    }
