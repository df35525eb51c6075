"""The job that runs here, wherever in its code one asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from ..client.job.job import Job
from ..errors import NoCurrentJob


class CurrentRun(NamedTuple):
    """A job under way, and what keeps the log of it."""

    job: Job
    log: object | None


_current: ContextVar[CurrentRun | None] = ContextVar("bullite_job", default=None)


def current_job() -> Job:
    """The job of an application that this code is run for; NoCurrentJob outside of one."""
    job = running_job()
    if job is None:
        raise NoCurrentJob(
            "no job of an application is running here: current_job() is for tasks and processors "
            "of a Bullite(…); those of a Worker are given their job"
        )
    return job


def running_job() -> Job | None:
    """The same, or None."""
    run = _current.get()
    return None if run is None else run.job


def job_logged_by(log: object) -> Job | None:
    """The same, if this is what keeps its log."""
    run = _current.get()
    return None if run is None or run.log is not log else run.job


@contextmanager
def running(job: Job, log: object | None) -> Iterator[None]:
    """Everything inside is run for `job`; `log`, if any, keeps what is logged."""
    token = _current.set(CurrentRun(job, log))
    try:
        yield
    finally:
        _current.reset(token)
