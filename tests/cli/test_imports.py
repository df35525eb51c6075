"""What a look into a queue imports: a program that is started a thousand times a day is quick."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import environment, run_well
from tests.support.databases import Database

TELLING = (
    "import atexit, json, sys\n"
    "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
    "from bullite.cli import main\n"
    "main()\n"
)

NEVER = {
    "asyncio",
    "rich",
    "bullite.worker.worker",
    "bullite.worker.loop_runner",
    "bullite.worker.runner",
    "bullite.worker.thread_runner",
    "bullite.worker.pool",
    "bullite.commands.processors",
}
SELDOM = {
    *("cronsim", "zoneinfo", "tomllib", "statistics", "email", "http"),
    *("ssl", "multiprocessing", "unittest", "difflib", "subprocess"),
    *(
        "bullite.client.flow",
        "bullite.client.queue_events",
        "bullite.processes.supervisor",
        "bullite.commands.webhook",
    ),
}


ENGINE = {
    *("bullite.engine.engine", "bullite.database.sqlite.driver", "bullite.client.runtime.store"),
    *("bullite.operations.transaction", "bullite.operations.transitions"),
    *(
        "bullite.client.runtime.bridge",
        "bullite.client.job.job",
        "bullite.client.queue.queue",
        "bullite.core.decide_outcome",
        "bullite.core.job_options",
    ),
    *("logging", "traceback", "ctypes", "random", "socket", "selectors", "concurrent"),
}
"""What takes longer to import than a list takes to be made."""


def imported(location: str, *arguments: str, **variables: str) -> set[str]:
    """The modules that the program has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", TELLING, *arguments],
        env=environment(location, **variables),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("verb", ["list --json", "status --json", "show JOB --json", "list"])
def test_a_look_imports_no_more_than_it_needs(database: Database, verb: str) -> None:
    job_id = run_well("enqueue", "x", db=database.location).out.strip()
    words = [job_id if word == "JOB" else word for word in verb.split()]
    modules = imported(database.location, *words)
    never = set(NEVER)
    if "psycopg" in database.libraries:
        never.discard("asyncio")  # psycopg itself imports it
    assert not modules & never
    assert database.libraries <= modules


@pytest.mark.parametrize("verb", ["list --json", "status --json", "enqueue x"])
def test_what_few_verbs_need_is_not_imported_for_the_others(tmp_path: Path, verb: str) -> None:
    location = str(tmp_path / "jobs.db")
    run_well("enqueue", "x", db=location)
    modules = imported(location, *verb.split())
    assert not modules & (NEVER | SELDOM | {"psycopg"})


@pytest.mark.parametrize("verb", ["list --json", "list --since 1h --state dead"])
def test_jobs_are_listed_without_the_engine(tmp_path: Path, verb: str) -> None:
    location = str(tmp_path / "jobs.db")
    run_well("enqueue", "x", db=location)
    modules = imported(location, *verb.split())
    assert not modules & (NEVER | SELDOM | ENGINE | {"psycopg"})


@pytest.mark.parametrize(
    "line", ["list --queue d", "show ", "enqueue --after ", "run --template ", "add d"]
)
def test_names_are_completed_without_the_engine(tmp_path: Path, line: str) -> None:
    location = str(tmp_path / "jobs.db")
    run_well("enqueue", "x", db=location)
    asking = {"_QUEUECTL_COMPLETE": "zsh_complete", "_QUEUECTL_LINE": f"queuectl {line}"}
    modules = imported(location, **asking)
    assert "sqlite3" in modules
    assert not modules & {
        "bullite.engine.engine",
        "bullite.client.queue.queue",
        "bullite.client.runtime.store",
        "asyncio",
    }


def test_help_opens_nothing(tmp_path: Path) -> None:
    location = str(tmp_path / "jobs.db")
    modules = imported(location, "--version")
    assert not modules & (NEVER | SELDOM | {"sqlite3", "bullite.client.queue.queue"})
    assert list(tmp_path.iterdir()) == []
