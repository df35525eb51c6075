"""4 workers, 1,200 jobs, 15 times kill -9: nothing lost, nothing recorded twice."""

from __future__ import annotations

from tests.support.databases import Database
from tests.support.processes import summary_of


def storm(database: Database, *more: str) -> dict[str, str]:
    """What the storm's summary says."""
    numbers = ["--workers", "4", "--jobs", "1200", "--kills", "15", "--seed", "1"]
    place = ["--location", database.location]
    return summary_of("tests.crash.stress", *numbers, *place, *more, timeout=60)


def assert_promises_kept(summary: dict[str, str]) -> None:
    assert summary["kills"] == "15"
    assert int(summary["kills that hit jobs"]) > 10, (
        "a killed worker may finish its last job in time"
    )
    assert summary["lost"] == "0"
    assert summary["recorded twice"] == "0"
    assert summary["wrong results"] == "0"
    assert summary["started twice under one claim"] == "0"
    assert summary["failed without reason"] == "0"
    assert summary["never came back"] == "0"
    assert float(summary["back in queue max ms"]) < float(summary["back in queue limit ms"])
    assert summary["verify"] == "ok"


def test_in_a_storm_of_kills_every_job_is_completed_and_recorded_once(database):
    summary = storm(database)

    assert_promises_kept(summary)
    assert summary["completed"] == "1200"


def test_with_the_default_limit_the_unlucky_fail_and_none_is_lost(database):
    summary = storm(database, "--max-stalled-count", "1")

    assert_promises_kept(summary)
    assert int(summary["completed"]) + int(summary["failed"]) == 1200
    assert int(summary["failed"]) < int(summary["stalled"])
