"""The soak finds what it is for, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.soak.ledger import Account
from tests.soak.measures import Footprint, Standstills
from tests.soak.verdict import Findings, Line, apart_from_pauses, judge
from tests.support.fork_server import ROOT
from tests.support.processes import wait_until

MB = 1024 * 1024


def command(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "tests.soak", *arguments]
    return subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, **options)


# --- the command ---------------------------------------------------------------------------------


def test_soak_of_both_stores_loses_no_job_and_reports_figures(tmp_path):
    figures = tmp_path / "figures"
    soak = command("--minutes", "0.08", "--seed", "1", "--json", str(figures))
    said, _ = soak.communicate(timeout=100)

    found = json.loads(figures.read_text())
    assert found.keys() == {"sqlite", "postgres"}
    for store in found.values():
        [minute] = store["minutes"]
        assert minute["done"] > 0
        assert minute["p99_ms"] > 0
        assert minute["memory_mb"] > 0
        verdict = {line["promise"]: line for line in store["verdict"]}
        del verdict["deadlocks"]
        assert [line for line in verdict.values() if line["kept"] is False] == []
        assert int(verdict["acknowledged jobs"]["found"]) > 0
    assert soak.returncode == (0 if all(store["passed"] for store in found.values()) else 1)
    assert b"p99" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_soak_that_is_ended_leaves_no_process_and_no_folder(number, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    soak = command("--minutes", "5", "--store", "sqlite", env=environment)
    try:
        wait_until(lambda: len(_users_of(tmp_path)) >= 7)
    finally:
        soak.send_signal(number)
        soak.communicate(timeout=30)

    wait_until(lambda: not list(tmp_path.iterdir()))
    wait_until(lambda: not _users_of(tmp_path))


def _users_of(folder: Path) -> set[str]:
    """Processes that have a file open in a folder."""
    users = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it was closed meanwhile
            if os.readlink(descriptor).startswith(str(folder)):
                users.add(descriptor.parts[2])
    return users


# --- the verdict ---------------------------------------------------------------------------------


def an_account(*lines: str) -> Account:
    account = Account()
    for line in ("added 1 completed", "started 1", "returned 1", "completed 1", *lines):
        fact, *words = line.split()
        account.enter("worker-1", fact, words)
    return account


def findings(account: Account | None = None, minutes: float = 30, **found: Any) -> Findings:
    good: dict[str, Any] = {
        "unfinished": {},
        "probes": [(second, 5.0) for second in range(int(minutes * 60))],
        "footprints": [(second, Footprint(100 * MB, 40, 7)) for second in range(int(minutes * 60))],
        "standstill": 1.0,
        "standing_queue": "fast",
        "deadlocks": 0,
        "problems": [],
        "failures": [],
    }
    return Findings(minutes, account or an_account(), **{**good, **found})


def broken(given: Findings) -> list[str]:
    return [line.promise for line in judge(given) if line.kept is False]


def line_of(given: Findings, promise: str) -> Line:
    [found] = [line for line in judge(given) if line.promise.startswith(promise)]
    return found


def test_soak_verdict_is_good_if_nothing_was_found():
    assert broken(findings()) == []


def test_soak_verdict_names_an_acknowledged_job_that_never_ended():
    given = findings(an_account("added 2 completed"))

    assert broken(given) == ["lost: acknowledged and never ended"]
    assert line_of(given, "lost").found == "1 (2)"


def test_soak_verdict_tells_a_lost_job_from_one_not_finished_in_time():
    given = findings(an_account("added 2 completed"), unfinished={"2": "active"})

    assert broken(given) == ["not finished in time"]


def test_soak_verdict_names_an_end_that_the_reader_of_events_was_not_told():
    lines = ("added 2 completed", "started 2", "returned 2")

    assert broken(findings(an_account(*lines))) == ["ends that the reader of events was not told"]
    assert broken(findings(an_account(*lines, "gap 5"))) == []


@pytest.mark.parametrize(
    ("line", "promise"),
    [
        ("completed 1", "ended twice"),
        ("added 1 failed", "ended otherwise than intended"),
        ("waited-in-vain 1 TimeoutError", "results that did not arrive"),
    ],
)
def test_soak_verdict_names_a_job_that_broke_a_promise(line, promise):
    assert broken(findings(an_account(line))) == [promise]


@pytest.mark.parametrize(
    ("found", "promise"),
    [
        ({"standstill": 11.0}, "longest standstill (at most 10 s)"),
        ({"deadlocks": 1}, "deadlocks"),
        ({"problems": ["a count is wrong"]}, "bullite.verify"),
        ({"failures": ["worker-3 ended by itself with 1"]}, "processes that ended as they should"),
    ],
)
def test_soak_verdict_names_what_was_found(found, promise):
    [line] = broken(findings(**found))

    assert line.startswith(promise)


def test_soak_verdict_allows_a_longer_standstill_in_a_short_soak():
    assert broken(findings(minutes=2, standstill=20.0)) == []
    assert len(broken(findings(minutes=2, standstill=31.0))) == 1


def probes_slower_in(last_minutes: int, times: float) -> list[tuple[float, float]]:
    return [(s, 5.0 * times if s >= 1800 - 60 * last_minutes else 5.0) for s in range(1800)]


def footprints_growing(grow: Callable[[int], Footprint]) -> list[tuple[float, Footprint]]:
    return [(second, grow(second)) for second in range(1800)]


@pytest.mark.parametrize(
    ("found", "promise"),
    [
        ({"probes": probes_slower_in(6, 1.6)}, "p99"),
        ({"footprints": footprints_growing(lambda s: Footprint(s * MB, 40, 7))}, "memory"),
        ({"footprints": footprints_growing(lambda s: Footprint(9 * MB, s, 7))}, "descriptors"),
        ({"footprints": footprints_growing(lambda s: Footprint(9 * MB, 40, s))}, "threads"),
    ],
)
def test_soak_verdict_names_what_grows_over_time(found, promise):
    [line] = broken(findings(**found))

    assert line.startswith(promise)


def test_soak_verdict_does_not_judge_growth_in_a_short_soak():
    grown = {"probes": [(second, 1.0 + second) for second in range(120)]}

    assert broken(findings(minutes=2, **grown)) == []
    assert line_of(findings(minutes=2, **grown), "p99").kept is None


def test_soak_latency_leaves_out_probes_beside_a_stopped_process():
    probes = [(1.0, 5.0), (4.9, 300.0), (5.5, 5.0), (8.4, 5.0), (9.0, 5.0)]

    assert apart_from_pauses(probes, [(5.0, 7.5)]) == [(1.0, 5.0), (9.0, 5.0)]


def test_soak_standstill_is_a_time_in_which_jobs_waited_and_none_ended(monkeypatch):
    times = iter([100.0, 103.0, 106.0, 107.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    standstills = Standstills()

    standstills.note([("fast", 5, 50.0)])
    standstills.note([("fast", 5, 53.0), ("idle", 0, 53.0)])
    assert (standstills.longest, standstills.queue) == (3.0, "fast")
    standstills.note([("fast", 5, 0.2)])
    standstills.note([("fast", 0, 1.2)])
    assert standstills.next_minute() == 3.0
    assert standstills.next_minute() == 0.0
