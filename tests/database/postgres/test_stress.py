"""1,200 jobs, 20 terminated backends, 2 crashes of the server: nothing lost, nothing done twice.

A longer one:

    python -m tests.database.postgres.stress --jobs 20000 --kills 300 --restarts 3
"""

from __future__ import annotations

from tests.database.postgres.stress import STARTED_WITHIN
from tests.support.processes import summary_of


def storm() -> dict[str, str]:
    """What the storm's summary says."""
    numbers = ["--jobs", "1200", "--kills", "20", "--restarts", "2", "--seed", "1"]
    return summary_of("tests.database.postgres.stress", *numbers, timeout=100)


def test_in_a_storm_over_the_server_every_job_is_kept_and_recorded_once() -> None:
    summary = storm()

    assert summary["completed"] == summary["acknowledged"] == "1202"
    assert summary["restarts"] == "2"
    assert int(summary["killed writers"]) + int(summary["killed listeners"]) > 10
    assert summary["adds refused"] == "0"
    assert summary["lost"] == "0"
    assert summary["added twice"] == "0"
    assert summary["recorded twice"] == "0"
    assert summary["wrong results"] == "0"
    assert summary["started twice under one claim"] == "0"
    assert float(summary["ms to wake after the restart"]) < STARTED_WITHIN
    assert float(summary["ms to wake after the kill of all"]) < STARTED_WITHIN
    assert summary["verify"] == "ok"
