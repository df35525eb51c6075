"""`current_job()`: the running job, in its processor and in all functions that it calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from ..client.job.job import Job
from ..errors import NoCurrentJob


class CurrentRun(NamedTuple):
    """A running job, and the handler that captures its log records."""

    job: Job
    log: object | None


_current: ContextVar[CurrentRun | None] = ContextVar("bullite_job", default=None)


def current_job() -> Job:
    """Return the running job of an application. Raise NoCurrentJob if none is running here."""
    job = running_job()
    if job is None:
        raise NoCurrentJob(
            "no job of an application is running here: current_job() is for tasks and processors "
            "of a Bullite(…); those of a Worker are given their job"
        )
    return job


def running_job() -> Job | None:
    """Return the running job, or None."""
    run = _current.get()
    return None if run is None else run.job


def job_logged_by(log: object) -> Job | None:
    """Return the running job if `log` captures its records, else None."""
    run = _current.get()
    return None if run is None or run.log is not log else run.job


@contextmanager
def running(job: Job, log: object | None) -> Iterator[None]:
    """Make `job` the running job inside the context; `log` captures its records."""
    token = _current.set(CurrentRun(job, log))
    try:
        yield
    finally:
        _current.reset(token)
