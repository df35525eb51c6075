"""Rows of jobs for tests without a database, built by the names of their columns."""

from __future__ import annotations

from typing import Any

from bullite import Job, Queue
from bullite.core.job_record import JobRow, JobStatusRow


def job_row(id: int = 1, **columns: Any) -> JobRow:
    """Return the row of a plain job in its first run."""
    return JobRow(
        id=id,
        name="a",
        custom_id=None,
        priority=0,
        attempts=1,
        attempts_made=0,
        attempts_started=1,
        stalled_count=0,
        created_at=0,
        deferred_failure=None,
        opts=None,
        rank=0,
        seq=id,
        traits=0,
        data="null",
    )._replace(**columns)


def active_job(id: int, **columns: Any) -> Job:
    """Return a job of a queue that is never opened, as a worker holds it."""
    return Job(Queue("emails", "nowhere.db"), job_row(id, **columns), JobStatusRow("active"))
