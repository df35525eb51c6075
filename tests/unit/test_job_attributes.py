"""A job as users hold it, made from the rows it is read from."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bullite import Job, Queue
from bullite.core.job_record import JobStatusRow, stored_options
from tests.support.job_rows import job_row

ROW = job_row(
    7,
    name="welcome",
    priority=3,
    attempts=5,
    attempts_made=1,
    attempts_started=2,
    stalled_count=1,
    created_at=1_000,
    rank=3,
    data='{"to":"ada"}',
)


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    """A queue that is never opened."""
    return Queue("emails", tmp_path / "jobs.db")


def job_with(queue: Queue, fate: JobStatusRow = JobStatusRow("waiting"), **facts: Any) -> Job:  # noqa: B008
    return Job(queue, ROW._replace(**facts), fate)


def test_a_job_tells_what_it_was_given(queue: Queue) -> None:
    job = job_with(queue)
    assert (job.id, job.pk, job.name, job.queue_name) == ("7", 7, "welcome", "emails")
    assert (job.priority, job.attempts, job.data) == (3, 5, {"to": "ada"})


def test_a_job_tells_how_far_it_is(queue: Queue) -> None:
    job = job_with(queue)
    assert (job.attempts_made, job.attempts_started, job.stalled_count) == (1, 2, 1)
    assert (job.state, job.progress, job.return_value) == ("prioritized", 0, None)
    assert job_with(queue, priority=0).state == "waiting"


def test_an_id_of_ones_own_comes_before_the_number(queue: Queue) -> None:
    assert job_with(queue, custom_id="mine").id == "mine"


def test_data_is_parsed_once_and_may_be_changed_by_its_owner(queue: Queue) -> None:
    job = job_with(queue)
    job.data["to"] = "grace"
    assert job.data == {"to": "grace"}


def test_stored_options_are_part_of_the_options(queue: Queue) -> None:
    job = job_with(queue, opts='{"backoff":{"type":"fixed","delay":5}}')
    assert stored_options(job) == {"backoff": {"type": "fixed", "delay": 5}}
    assert job.opts["backoff"] == {"type": "fixed", "delay": 5}
    assert stored_options(job_with(queue)) == {}


@pytest.mark.parametrize(
    ("attribute", "column"),
    [
        ("process_at", "due_at"),
        ("processed_at", "processed_at"),
        ("finished_at", "finished_at"),
        ("updated_at", "updated_at"),
    ],
)
def test_times_are_aware_datetimes(queue: Queue, attribute: str, column: str) -> None:
    job = job_with(queue, JobStatusRow("waiting", **{column: 1_500}))  # type: ignore[arg-type]
    assert getattr(job, attribute) == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)


def test_times_that_have_not_come_are_none(queue: Queue) -> None:
    job = job_with(queue)
    assert (job.process_at, job.processed_at, job.finished_at) == (None, None, None)
    assert job.updated_at == job.created_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_milliseconds_are_not_lost_on_the_way(queue: Queue) -> None:
    for milliseconds in (1_700_000_000_001, 1_700_000_000_999, 4_102_444_800_999):
        created = job_with(queue, created_at=milliseconds).created_at
        assert round(created.timestamp() * 1000) == milliseconds
        assert created.microsecond % 1000 == 0


def test_results_are_decoded(queue: Queue) -> None:
    job = job_with(queue, JobStatusRow("completed", return_value="[1,null]", progress='{"page":3}'))
    assert (job.return_value, job.progress) == ([1, None], {"page": 3})


def test_only_a_running_job_is_locked(queue: Queue) -> None:
    assert job_with(queue, JobStatusRow("active", processed_by="w")).locked_by == "w"
    assert job_with(queue, JobStatusRow("completed", processed_by="w")).locked_by is None


def test_a_job_shows_itself_in_a_line(queue: Queue) -> None:
    assert repr(job_with(queue, JobStatusRow("failed"))) == "<Job 7 'welcome' of 'emails': failed>"
