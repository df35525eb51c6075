"""docs/web.md is true: its programs run, and those for servers serve."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.processes import rows, wait_until
from tests.web.servers import ROOT, uvicorn

PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "web.md").read_text(), re.DOTALL)


def test_the_page_has_programs_for_servers() -> None:
    assert len(PROGRAMS) == 3


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_for_a_server_takes_a_request_and_runs_its_job(
    database, tmp_path: Path, serve, program: str
):
    (tmp_path / "shop.py").write_text(program.replace('"jobs.db"', repr(database.location)))
    web = serve(uvicorn("--workers", "2"), "shop:api")

    def sign_up() -> httpx.Response | None:
        try:
            return web.client.post("/users/ada@example.org")
        except httpx.TransportError:
            return None

    answer = web.wait_for(sign_up)

    assert answer.status_code == 202
    job = answer.json()["job"]
    done = [("completed", '"a mail to ada@example.org"')]
    query = (
        "select state, return_value from bullite_jobs join bullite_results "
        "on bullite_results.job = bullite_jobs.id where bullite_jobs.id = ?"
    )
    web.wait_for(lambda: database.query(query, int(job)) == done)
    web.stop()


def test_an_application_runs_in_processes_of_its_own_and_stops_when_told_to(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(PROGRAMS[0])
    argv = [sys.executable, "-m", "bullite", "worker", "start", "--app", "shop:app"]
    process = subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: has_workers(tmp_path / "jobs.db"))
        process.send_signal(signal.SIGTERM)
        told = process.communicate(timeout=20)[1].decode()
    finally:
        process.kill()
    assert (process.returncode, "Traceback" in told) == (0, False), told


def has_workers(path: Path) -> bool:
    try:
        return path.exists() and bool(rows(path, "select 1 from bullite_workers"))
    except sqlite3.OperationalError:  # its tables are being made
        return False
