"""Log records and jobs: which job a record belongs to, and a job's own log from its records."""

from __future__ import annotations

import logging

from .current_job import job_logged_by, running_job

LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warn"))


class JobFields(logging.Filter):
    """Gives every record `job_id`, `job_name` and `job_queue`; None outside of an application's
    jobs.

    Put it on a handler: `handler.addFilter(JobFields())`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        job = running_job()
        record.job_id = None if job is None else job.id
        record.job_name = None if job is None else job.name
        record.job_queue = None if job is None else job.queue_name
        return True


class JobLog(logging.Handler):
    """Writes what is logged while a job of its application runs into the job's own log, too."""

    def emit(self, record: logging.LogRecord) -> None:
        job = job_logged_by(self)
        # What the library itself says of the writing would be written again.
        if job is None or record.name.partition(".")[0] == "bullite":
            return
        try:
            # Of a job that has ended meanwhile, or was lost, there is nothing to be said.
            job.log(self.format(record), level=_level(record.levelno)).ignore_result()
        except Exception:
            self.handleError(record)


def _level(number: int) -> str:
    for least, name in LEVELS:
        if number >= least:
            return name
    return "info"
