"""Wide and deep families that two processes work on: all run, and each is let run once."""

from __future__ import annotations

import pytest

from tests.support import flow_checks

CHILDREN, DEEP = 300, 60


@pytest.mark.parametrize("shape", flow_checks.SHAPES)
def test_a_family_is_run_by_two_processes(location: str, shape: str) -> None:
    size = DEEP if shape in ("deep", "chain") else CHILDREN
    report = flow_checks.run(location, shape, size, processes=2, limit=20)
    assert report.completed == report.jobs
    assert report.let_run == report.jobs_that_waited > 0
    assert report.let_run_twice == 0
    assert report.verify == "ok"
    assert report.ok
